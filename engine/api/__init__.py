"""The engine's outer shell: gRPC services, health, reflection, metrics. Thin: checks, translates, calls `Control`.

    client --gRPC--> services (one event loop) --lanes (bounded threads)--> Control
                     watchers  <--wake------------------------------------- Subscription

Every call ends in bounded time: lanes are bounded and refuse at once when full, each call has a deadline, and watchers
hold no thread. Nothing here knows of frames, devices or plans beyond their value types.
"""

"""The SLO harness: how many frames a second an engine serves in time, and what becomes of the rest.

    offer.py     a load as camera streams          search.py    the largest load that holds
    run.py       one load, offered and measured    scenarios.py bursts, streams that come and go, a worker killed
    under_test.py  the engine that is measured     usage.py     what its processes use
    bare.py      what the same backends do alone   report.py    JSON, CSV, plots, one HTML page

The load is open-loop: clips are paced by their own clock inside the engine's decoders, as cameras are, so a late engine
does not slow what it is offered. Frames are counted by the engine, at both edges of a window after a warm-up.
"""

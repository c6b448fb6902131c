"""Settings that all tests share."""

from hypothesis import settings

settings.register_profile("framepool", deadline=None)  # machines are busy: how long one example takes says nothing
settings.load_profile("framepool")

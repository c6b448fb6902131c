"""Commands that measure: the demo, the SLO harness, planning and scheduling on published data."""

from framepool import FramepoolError

DATA_VARIABLE = "FRAMEPOOL_PPIPE_DATA"
"""Environment variable that names the data folder of PPipe's artifact."""


class MeasurementError(FramepoolError):
    """A measurement could not be made: the engine did not start, a stream did not run, the offer was refused."""

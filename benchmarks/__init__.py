"""Commands that measure: the demo, latency at half load, planning and scheduling on published data."""

DATA_VARIABLE = "FRAMEPOOL_PPIPE_DATA"
"""Environment variable that names the data folder of PPipe's artifact."""

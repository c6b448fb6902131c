"""framepool: a video analytics serving engine. Cameras in, detections out, each stream with a latency SLO.

The parts are sub-packages (``framepool.engine``, ``framepool.streams``, ``framepool.models``, ``framepool.proto``,
``framepool.benchmarks``). Importing this package pulls in none of them, neither torch nor a GPU library.
"""

__version__ = "0.1.0"


class FramepoolError(Exception):
    """Base of every error that framepool raises on purpose.

    Each part has a tree of leaves below it (``models.errors``, ``streams.errors``, ``engine.errors``); one table in
    ``engine.api.status`` maps the leaves to gRPC codes. ``field`` names the request field or file that is wrong, as a
    user wrote it, or is "" where no single one is. The message names the thing, the value, the limit and the cure,
    and never holds a password.
    """

    def __init__(self, message: str, *, field: str = "") -> None:
        super().__init__(message)
        self.field = field

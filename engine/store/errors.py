"""What can be wrong with the store itself."""

from framepool import FramepoolError


class StoreError(FramepoolError):
    """The database can't be opened or used; `field` is the setting to look at."""

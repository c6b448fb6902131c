"""Partitions a model in a process of its own (see `children`): it runs the model many times."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from framepool.models.children import child_main
from framepool.models.partitioning import partition_model, partition_to_json


def work(request: dict[str, Any]) -> str:
    """Request: `path`, `digest`, `max_blocks`. Result: the partition as JSON text."""
    return partition_to_json(partition_model(Path(request["path"]), request["digest"], request["max_blocks"]))


if __name__ == "__main__":
    sys.exit(child_main(work))

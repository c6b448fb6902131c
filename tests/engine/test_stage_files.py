"""Stage files: cut once, and anew where a model that is registered again is cut elsewhere."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import onnx

from framepool.engine.stage_files import StageFiles
from framepool.models.registry import ModelRegistry


def test_other_cuts_of_the_same_model_are_other_files(tmp_path: Path) -> None:
    registry = ModelRegistry(tmp_path / "models")
    entry, partition = registry.get("movenet"), registry.partition("movenet")
    files = StageFiles(tmp_path / "stages")
    first = files.path(entry, partition, 0, 1)
    made_ns = first.stat().st_mtime_ns
    assert files.path(entry, partition, 0, 1) == first
    assert first.stat().st_mtime_ns == made_ns
    assert files.path(entry, partition, 0, partition.n_blocks) == entry.path

    later = replace(partition.cuts[1], index=1)
    merged = replace(  # the same model with its first two blocks as one
        partition,
        n_blocks=partition.n_blocks - 1,
        cuts=(later, *(replace(cut, index=cut.index - 1) for cut in partition.cuts[2:])),
        block_weights=(sum(partition.block_weights[:2]), *partition.block_weights[2:]),
    )
    other = files.path(entry, merged, 0, 1)
    assert other != first
    outputs = [output.name for output in onnx.load(str(other), load_external_data=False).graph.output]
    assert outputs == [tensor.name for tensor in merged.stage_outputs(1)]
    files.forget(partition.model_digest)
    assert not first.exists()
    assert not other.exists()

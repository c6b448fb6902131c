"""Stages: a contiguous range of a model's blocks as an ONNX file of its own.

Cuts name tensors, not nodes, so a stage is found again in any session from the model file and the partition alone.
How a file is written is the duty of `graph_extract`.
"""

from __future__ import annotations

from pathlib import Path

from framepool.models.errors import ModelError
from framepool.models.graph import load_graph
from framepool.models.graph_extract import EMBED_LIMIT_BYTES, write_subgraph
from framepool.models.partition import Partition, StageFile

DIGEST_KEY = "framepool.model_digest"
BLOCKS_KEY = "framepool.blocks"
"""Metadata of a stage file: the model it was cut from, and its blocks as ``first:last`` (last exclusive)."""


def extract_stage(
    model_path: Path,
    partition: Partition,
    first_block: int,
    last_block: int,
    out_path: Path,
    *,
    embed_limit_bytes: int = EMBED_LIMIT_BYTES,
) -> StageFile:
    """Writes blocks [first_block, last_block) of the model at `model_path` to `out_path`, atomically.

    Weights that lie beside the model, or exceed `embed_limit_bytes`, go to ``<out_path>.data``. Raises ModelError for
    a range that does not exist or a partition of another model, ModelInvalidError for an unusable file.
    """
    if not 0 <= first_block < last_block <= partition.n_blocks:
        raise ModelError(
            f"stage of blocks [{first_block}, {last_block}) does not exist: the model has {partition.n_blocks} blocks, "
            "numbered from 0, and a stage needs at least one"
        )
    inputs, outputs = partition.stage_inputs(first_block), partition.stage_outputs(last_block)
    write_subgraph(
        load_graph(model_path),
        model_path.parent,
        inputs,
        outputs,
        out_path,
        metadata={DIGEST_KEY: partition.model_digest, BLOCKS_KEY: f"{first_block}:{last_block}"},
        embed_limit_bytes=embed_limit_bytes,
    )
    return StageFile(out_path, partition.model_digest, first_block, last_block, inputs, outputs)

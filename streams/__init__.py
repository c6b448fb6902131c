"""Sources, timeline repair, pacing, decoder workers: from a URL or file to pictures in slots."""

from pathlib import Path

SAMPLES_DIR = Path(__file__).parent / "samples"
"""The bundled clip and the persons marked in it by eye."""

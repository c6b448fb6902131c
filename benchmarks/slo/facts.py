"""What a measurement was made on: machine and versions, so that figures can be compared or not."""

from __future__ import annotations

import platform
from importlib import metadata

import psutil

from framepool import __version__
from framepool.engine.hardware import allowed_cores
from framepool.engine.runtime.devices import cpu_model_name

PACKAGES = ("onnxruntime", "onnxruntime-gpu", "openvino", "av", "opencv-python-headless", "numpy")


def facts() -> dict[str, str]:
    """Machine and versions, as they are printed."""
    found = {
        "framepool": __version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "cpu": cpu_model_name(),
        "cores": f"{len(allowed_cores())} of {psutil.cpu_count()}",
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
    }
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found

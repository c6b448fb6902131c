"""Errors of the models part: each leaf is one thing a caller can do something about."""

from framepool import FramepoolError


class ModelError(FramepoolError):
    """Base of all errors about model files, specs, cuts and exports."""


class ModelInvalidError(ModelError):
    """The file is no usable ONNX model: truncated, inconsistent, wrong input rank, missing weights."""


class ModelUnsupportedError(ModelError):
    """A valid model that this installation can't run: opset or IR too new, an unknown custom operator."""


class ModelSpecError(ModelError):
    """The spec (given or read from the file) does not fit the graph: head, labels, input layout."""


class ModelNotFoundError(ModelError):
    """No model of that name is registered."""


class ModelExistsError(ModelError):
    """A model of that name is registered already, with other content."""


class ExportError(ModelError):
    """A torchvision model could not be exported; says which and why (e.g. the extra `export` is not installed)."""

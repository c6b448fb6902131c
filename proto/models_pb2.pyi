from google.protobuf import empty_pb2 as _empty_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Model(_message.Message):
    __slots__ = ("name", "task", "head", "digest", "input_width_px", "input_height_px", "labels", "n_blocks", "max_batch", "batch_safe", "opset", "origin", "license", "builtin", "latency_ms")
    class LatencyMsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    HEAD_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    INPUT_WIDTH_PX_FIELD_NUMBER: _ClassVar[int]
    INPUT_HEIGHT_PX_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    N_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    MAX_BATCH_FIELD_NUMBER: _ClassVar[int]
    BATCH_SAFE_FIELD_NUMBER: _ClassVar[int]
    OPSET_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    LICENSE_FIELD_NUMBER: _ClassVar[int]
    BUILTIN_FIELD_NUMBER: _ClassVar[int]
    LATENCY_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    task: str
    head: str
    digest: str
    input_width_px: int
    input_height_px: int
    labels: _containers.RepeatedScalarFieldContainer[str]
    n_blocks: int
    max_batch: int
    batch_safe: bool
    opset: int
    origin: str
    license: str
    builtin: bool
    latency_ms: _containers.ScalarMap[str, float]
    def __init__(self, name: _Optional[str] = ..., task: _Optional[str] = ..., head: _Optional[str] = ..., digest: _Optional[str] = ..., input_width_px: _Optional[int] = ..., input_height_px: _Optional[int] = ..., labels: _Optional[_Iterable[str]] = ..., n_blocks: _Optional[int] = ..., max_batch: _Optional[int] = ..., batch_safe: _Optional[bool] = ..., opset: _Optional[int] = ..., origin: _Optional[str] = ..., license: _Optional[str] = ..., builtin: _Optional[bool] = ..., latency_ms: _Optional[_Mapping[str, float]] = ...) -> None: ...

class Cut(_message.Message):
    __slots__ = ("block", "tensors", "bytes_per_frame", "exact", "max_abs_error")
    BLOCK_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_FRAME_FIELD_NUMBER: _ClassVar[int]
    EXACT_FIELD_NUMBER: _ClassVar[int]
    MAX_ABS_ERROR_FIELD_NUMBER: _ClassVar[int]
    block: int
    tensors: _containers.RepeatedScalarFieldContainer[str]
    bytes_per_frame: int
    exact: bool
    max_abs_error: float
    def __init__(self, block: _Optional[int] = ..., tensors: _Optional[_Iterable[str]] = ..., bytes_per_frame: _Optional[int] = ..., exact: _Optional[bool] = ..., max_abs_error: _Optional[float] = ...) -> None: ...

class AddModelRequest(_message.Message):
    __slots__ = ("header", "chunk")
    class Header(_message.Message):
        __slots__ = ("model_id", "spec_toml", "head", "labels", "replace", "server_path")
        MODEL_ID_FIELD_NUMBER: _ClassVar[int]
        SPEC_TOML_FIELD_NUMBER: _ClassVar[int]
        HEAD_FIELD_NUMBER: _ClassVar[int]
        LABELS_FIELD_NUMBER: _ClassVar[int]
        REPLACE_FIELD_NUMBER: _ClassVar[int]
        SERVER_PATH_FIELD_NUMBER: _ClassVar[int]
        model_id: str
        spec_toml: str
        head: str
        labels: _containers.RepeatedScalarFieldContainer[str]
        replace: bool
        server_path: str
        def __init__(self, model_id: _Optional[str] = ..., spec_toml: _Optional[str] = ..., head: _Optional[str] = ..., labels: _Optional[_Iterable[str]] = ..., replace: _Optional[bool] = ..., server_path: _Optional[str] = ...) -> None: ...
    class Chunk(_message.Message):
        __slots__ = ("file", "data")
        FILE_FIELD_NUMBER: _ClassVar[int]
        DATA_FIELD_NUMBER: _ClassVar[int]
        file: str
        data: bytes
        def __init__(self, file: _Optional[str] = ..., data: _Optional[bytes] = ...) -> None: ...
    HEADER_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    header: AddModelRequest.Header
    chunk: AddModelRequest.Chunk
    def __init__(self, header: _Optional[_Union[AddModelRequest.Header, _Mapping]] = ..., chunk: _Optional[_Union[AddModelRequest.Chunk, _Mapping]] = ...) -> None: ...

class GetModelRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class ListModelsRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListModelsResponse(_message.Message):
    __slots__ = ("models", "next_page_token")
    MODELS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    models: _containers.RepeatedCompositeFieldContainer[Model]
    next_page_token: str
    def __init__(self, models: _Optional[_Iterable[_Union[Model, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ListCutsRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class ListCutsResponse(_message.Message):
    __slots__ = ("cuts",)
    CUTS_FIELD_NUMBER: _ClassVar[int]
    cuts: _containers.RepeatedCompositeFieldContainer[Cut]
    def __init__(self, cuts: _Optional[_Iterable[_Union[Cut, _Mapping]]] = ...) -> None: ...

class RemoveModelRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

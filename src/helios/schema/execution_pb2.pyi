from helios.schema import contract_pb2 as _contract_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class BufferClass(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BUFFER_CLASS_UNSPECIFIED: _ClassVar[BufferClass]
    BUFFER_CLASS_WEIGHT: _ClassVar[BufferClass]
    BUFFER_CLASS_CACHE: _ClassVar[BufferClass]
    BUFFER_CLASS_STATE: _ClassVar[BufferClass]
    BUFFER_CLASS_INPUT: _ClassVar[BufferClass]
    BUFFER_CLASS_COMPLETION: _ClassVar[BufferClass]
    BUFFER_CLASS_WORKSPACE: _ClassVar[BufferClass]
    BUFFER_CLASS_TUNED: _ClassVar[BufferClass]
    BUFFER_CLASS_HOST_TABLE: _ClassVar[BufferClass]
    BUFFER_CLASS_COUNTER: _ClassVar[BufferClass]

class DType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DTYPE_UNSPECIFIED: _ClassVar[DType]
    DTYPE_U8: _ClassVar[DType]
    DTYPE_I8: _ClassVar[DType]
    DTYPE_I32: _ClassVar[DType]
    DTYPE_U32: _ClassVar[DType]
    DTYPE_I64: _ClassVar[DType]
    DTYPE_U64: _ClassVar[DType]
    DTYPE_F16: _ClassVar[DType]
    DTYPE_BF16: _ClassVar[DType]
    DTYPE_F32: _ClassVar[DType]
    DTYPE_ACT_Q8: _ClassVar[DType]
    DTYPE_ACT_Q16: _ClassVar[DType]
    DTYPE_ACT_Q8_PAIRS: _ClassVar[DType]

class Packing(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PACKING_UNSPECIFIED: _ClassVar[Packing]
    PACKING_PLAIN: _ClassVar[Packing]
    PACKING_TILE16_F32: _ClassVar[Packing]
    PACKING_TILE16_F16: _ClassVar[Packing]
    PACKING_TILE16_BF16: _ClassVar[Packing]
    PACKING_TILE16_Q8_0: _ClassVar[Packing]
    PACKING_TILE16_Q4_0: _ClassVar[Packing]
    PACKING_TILE16_Q4_1: _ClassVar[Packing]
    PACKING_TILE16_Q6_K: _ClassVar[Packing]
    PACKING_TILE16_Q4_PAIRS: _ClassVar[Packing]
    PACKING_ROWS_BF16: _ClassVar[Packing]
    PACKING_ROWS_Q8: _ClassVar[Packing]
    PACKING_ROWS_FP8: _ClassVar[Packing]

class LeadingCount(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LEADING_COUNT_UNSPECIFIED: _ClassVar[LeadingCount]
    LEADING_COUNT_FIXED: _ClassVar[LeadingCount]
    LEADING_COUNT_REQUEST_SLOTS: _ClassVar[LeadingCount]
    LEADING_COUNT_CACHE_PAGES: _ClassVar[LeadingCount]
    LEADING_COUNT_SNAPSHOT_ROWS: _ClassVar[LeadingCount]
BUFFER_CLASS_UNSPECIFIED: BufferClass
BUFFER_CLASS_WEIGHT: BufferClass
BUFFER_CLASS_CACHE: BufferClass
BUFFER_CLASS_STATE: BufferClass
BUFFER_CLASS_INPUT: BufferClass
BUFFER_CLASS_COMPLETION: BufferClass
BUFFER_CLASS_WORKSPACE: BufferClass
BUFFER_CLASS_TUNED: BufferClass
BUFFER_CLASS_HOST_TABLE: BufferClass
BUFFER_CLASS_COUNTER: BufferClass
DTYPE_UNSPECIFIED: DType
DTYPE_U8: DType
DTYPE_I8: DType
DTYPE_I32: DType
DTYPE_U32: DType
DTYPE_I64: DType
DTYPE_U64: DType
DTYPE_F16: DType
DTYPE_BF16: DType
DTYPE_F32: DType
DTYPE_ACT_Q8: DType
DTYPE_ACT_Q16: DType
DTYPE_ACT_Q8_PAIRS: DType
PACKING_UNSPECIFIED: Packing
PACKING_PLAIN: Packing
PACKING_TILE16_F32: Packing
PACKING_TILE16_F16: Packing
PACKING_TILE16_BF16: Packing
PACKING_TILE16_Q8_0: Packing
PACKING_TILE16_Q4_0: Packing
PACKING_TILE16_Q4_1: Packing
PACKING_TILE16_Q6_K: Packing
PACKING_TILE16_Q4_PAIRS: Packing
PACKING_ROWS_BF16: Packing
PACKING_ROWS_Q8: Packing
PACKING_ROWS_FP8: Packing
LEADING_COUNT_UNSPECIFIED: LeadingCount
LEADING_COUNT_FIXED: LeadingCount
LEADING_COUNT_REQUEST_SLOTS: LeadingCount
LEADING_COUNT_CACHE_PAGES: LeadingCount
LEADING_COUNT_SNAPSHOT_ROWS: LeadingCount

class Buffer(_message.Message):
    __slots__ = ("name", "buffer_class", "dtype", "packing", "leading", "shape", "nbytes", "offset", "resource")
    NAME_FIELD_NUMBER: _ClassVar[int]
    BUFFER_CLASS_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    PACKING_FIELD_NUMBER: _ClassVar[int]
    LEADING_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    NBYTES_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    RESOURCE_FIELD_NUMBER: _ClassVar[int]
    name: str
    buffer_class: BufferClass
    dtype: DType
    packing: Packing
    leading: LeadingCount
    shape: _containers.RepeatedScalarFieldContainer[int]
    nbytes: int
    offset: int
    resource: str
    def __init__(self, name: _Optional[str] = ..., buffer_class: _Optional[_Union[BufferClass, str]] = ..., dtype: _Optional[_Union[DType, str]] = ..., packing: _Optional[_Union[Packing, str]] = ..., leading: _Optional[_Union[LeadingCount, str]] = ..., shape: _Optional[_Iterable[int]] = ..., nbytes: _Optional[int] = ..., offset: _Optional[int] = ..., resource: _Optional[str] = ...) -> None: ...

class KernelUse(_message.Message):
    __slots__ = ("name", "operands", "integers", "floats")
    NAME_FIELD_NUMBER: _ClassVar[int]
    OPERANDS_FIELD_NUMBER: _ClassVar[int]
    INTEGERS_FIELD_NUMBER: _ClassVar[int]
    FLOATS_FIELD_NUMBER: _ClassVar[int]
    name: str
    operands: _containers.RepeatedScalarFieldContainer[str]
    integers: _containers.RepeatedScalarFieldContainer[str]
    floats: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., operands: _Optional[_Iterable[str]] = ..., integers: _Optional[_Iterable[str]] = ..., floats: _Optional[_Iterable[str]] = ...) -> None: ...

class Operand(_message.Message):
    __slots__ = ("buffer", "byte_offset", "access")
    BUFFER_FIELD_NUMBER: _ClassVar[int]
    BYTE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    ACCESS_FIELD_NUMBER: _ClassVar[int]
    buffer: int
    byte_offset: int
    access: _contract_pb2.AccessMode
    def __init__(self, buffer: _Optional[int] = ..., byte_offset: _Optional[int] = ..., access: _Optional[_Union[_contract_pb2.AccessMode, str]] = ...) -> None: ...

class CudaTensorMap(_message.Message):
    __slots__ = ("buffer", "dtype", "columns", "box", "swizzle")
    BUFFER_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    BOX_FIELD_NUMBER: _ClassVar[int]
    SWIZZLE_FIELD_NUMBER: _ClassVar[int]
    buffer: Operand
    dtype: DType
    columns: int
    box: _containers.RepeatedScalarFieldContainer[int]
    swizzle: int
    def __init__(self, buffer: _Optional[_Union[Operand, _Mapping]] = ..., dtype: _Optional[_Union[DType, str]] = ..., columns: _Optional[int] = ..., box: _Optional[_Iterable[int]] = ..., swizzle: _Optional[int] = ...) -> None: ...

class CudaRowCount(_message.Message):
    __slots__ = ("buffer", "row_nbytes")
    BUFFER_FIELD_NUMBER: _ClassVar[int]
    ROW_NBYTES_FIELD_NUMBER: _ClassVar[int]
    buffer: Operand
    row_nbytes: int
    def __init__(self, buffer: _Optional[_Union[Operand, _Mapping]] = ..., row_nbytes: _Optional[int] = ...) -> None: ...

class CudaArgument(_message.Message):
    __slots__ = ("buffer", "int32", "int64", "float32", "tensor_map", "row_count")
    BUFFER_FIELD_NUMBER: _ClassVar[int]
    INT32_FIELD_NUMBER: _ClassVar[int]
    INT64_FIELD_NUMBER: _ClassVar[int]
    FLOAT32_FIELD_NUMBER: _ClassVar[int]
    TENSOR_MAP_FIELD_NUMBER: _ClassVar[int]
    ROW_COUNT_FIELD_NUMBER: _ClassVar[int]
    buffer: Operand
    int32: int
    int64: int
    float32: float
    tensor_map: CudaTensorMap
    row_count: CudaRowCount
    def __init__(self, buffer: _Optional[_Union[Operand, _Mapping]] = ..., int32: _Optional[int] = ..., int64: _Optional[int] = ..., float32: _Optional[float] = ..., tensor_map: _Optional[_Union[CudaTensorMap, _Mapping]] = ..., row_count: _Optional[_Union[CudaRowCount, _Mapping]] = ...) -> None: ...

class CudaFunction(_message.Message):
    __slots__ = ("module", "function", "threads", "shared_nbytes")
    MODULE_FIELD_NUMBER: _ClassVar[int]
    FUNCTION_FIELD_NUMBER: _ClassVar[int]
    THREADS_FIELD_NUMBER: _ClassVar[int]
    SHARED_NBYTES_FIELD_NUMBER: _ClassVar[int]
    module: str
    function: str
    threads: int
    shared_nbytes: int
    def __init__(self, module: _Optional[str] = ..., function: _Optional[str] = ..., threads: _Optional[int] = ..., shared_nbytes: _Optional[int] = ...) -> None: ...

class CudaLaunch(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CudaNode(_message.Message):
    __slots__ = ("function", "grid", "arguments", "programmatic")
    FUNCTION_FIELD_NUMBER: _ClassVar[int]
    GRID_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    PROGRAMMATIC_FIELD_NUMBER: _ClassVar[int]
    function: int
    grid: _containers.RepeatedScalarFieldContainer[int]
    arguments: _containers.RepeatedCompositeFieldContainer[CudaArgument]
    programmatic: bool
    def __init__(self, function: _Optional[int] = ..., grid: _Optional[_Iterable[int]] = ..., arguments: _Optional[_Iterable[_Union[CudaArgument, _Mapping]]] = ..., programmatic: _Optional[bool] = ...) -> None: ...

class CudaTarget(_message.Message):
    __slots__ = ("functions", "stage", "record")
    FUNCTIONS_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    functions: _containers.RepeatedCompositeFieldContainer[CudaFunction]
    stage: int
    record: int
    def __init__(self, functions: _Optional[_Iterable[_Union[CudaFunction, _Mapping]]] = ..., stage: _Optional[int] = ..., record: _Optional[int] = ...) -> None: ...

class Launch(_message.Message):
    __slots__ = ("kernel", "operands", "integers", "floats", "nodes")
    KERNEL_FIELD_NUMBER: _ClassVar[int]
    OPERANDS_FIELD_NUMBER: _ClassVar[int]
    INTEGERS_FIELD_NUMBER: _ClassVar[int]
    FLOATS_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    kernel: int
    operands: _containers.RepeatedCompositeFieldContainer[Operand]
    integers: _containers.RepeatedScalarFieldContainer[int]
    floats: _containers.RepeatedScalarFieldContainer[float]
    nodes: _containers.RepeatedCompositeFieldContainer[CudaNode]
    def __init__(self, kernel: _Optional[int] = ..., operands: _Optional[_Iterable[_Union[Operand, _Mapping]]] = ..., integers: _Optional[_Iterable[int]] = ..., floats: _Optional[_Iterable[float]] = ..., nodes: _Optional[_Iterable[_Union[CudaNode, _Mapping]]] = ...) -> None: ...

class Program(_message.Message):
    __slots__ = ("name", "operation", "batch_capacity", "draft_tokens", "token_capacity", "packed_token_capacity", "launches", "inputs", "completion", "accesses", "tuned_bindings")
    NAME_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    BATCH_CAPACITY_FIELD_NUMBER: _ClassVar[int]
    DRAFT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_CAPACITY_FIELD_NUMBER: _ClassVar[int]
    PACKED_TOKEN_CAPACITY_FIELD_NUMBER: _ClassVar[int]
    LAUNCHES_FIELD_NUMBER: _ClassVar[int]
    INPUTS_FIELD_NUMBER: _ClassVar[int]
    COMPLETION_FIELD_NUMBER: _ClassVar[int]
    ACCESSES_FIELD_NUMBER: _ClassVar[int]
    TUNED_BINDINGS_FIELD_NUMBER: _ClassVar[int]
    name: str
    operation: _contract_pb2.Operation
    batch_capacity: int
    draft_tokens: int
    token_capacity: int
    packed_token_capacity: int
    launches: _containers.RepeatedCompositeFieldContainer[Launch]
    inputs: _containers.RepeatedScalarFieldContainer[str]
    completion: str
    accesses: _containers.RepeatedCompositeFieldContainer[_contract_pb2.StateAccess]
    tuned_bindings: _containers.RepeatedCompositeFieldContainer[_contract_pb2.TunedBinding]
    def __init__(self, name: _Optional[str] = ..., operation: _Optional[_Union[_contract_pb2.Operation, str]] = ..., batch_capacity: _Optional[int] = ..., draft_tokens: _Optional[int] = ..., token_capacity: _Optional[int] = ..., packed_token_capacity: _Optional[int] = ..., launches: _Optional[_Iterable[_Union[Launch, _Mapping]]] = ..., inputs: _Optional[_Iterable[str]] = ..., completion: _Optional[str] = ..., accesses: _Optional[_Iterable[_Union[_contract_pb2.StateAccess, _Mapping]]] = ..., tuned_bindings: _Optional[_Iterable[_Union[_contract_pb2.TunedBinding, _Mapping]]] = ...) -> None: ...

class TransportDestination(_message.Message):
    __slots__ = ("name", "staged_buffer", "delta")
    NAME_FIELD_NUMBER: _ClassVar[int]
    STAGED_BUFFER_FIELD_NUMBER: _ClassVar[int]
    DELTA_FIELD_NUMBER: _ClassVar[int]
    name: str
    staged_buffer: str
    delta: DeltaTransport
    def __init__(self, name: _Optional[str] = ..., staged_buffer: _Optional[str] = ..., delta: _Optional[_Union[DeltaTransport, _Mapping]] = ...) -> None: ...

class DeltaTransport(_message.Message):
    __slots__ = ("target_buffer", "count_buffer", "index_buffer", "value_buffer")
    TARGET_BUFFER_FIELD_NUMBER: _ClassVar[int]
    COUNT_BUFFER_FIELD_NUMBER: _ClassVar[int]
    INDEX_BUFFER_FIELD_NUMBER: _ClassVar[int]
    VALUE_BUFFER_FIELD_NUMBER: _ClassVar[int]
    target_buffer: str
    count_buffer: str
    index_buffer: str
    value_buffer: str
    def __init__(self, target_buffer: _Optional[str] = ..., count_buffer: _Optional[str] = ..., index_buffer: _Optional[str] = ..., value_buffer: _Optional[str] = ...) -> None: ...

class CompletionRecord(_message.Message):
    __slots__ = ("name", "lanes", "tokens", "logprobs", "proposal_confidence", "scores", "top_tokens", "top_logprobs", "score_ranks", "score_top_tokens", "score_top_logprobs")
    NAME_FIELD_NUMBER: _ClassVar[int]
    LANES_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    PROPOSAL_CONFIDENCE_FIELD_NUMBER: _ClassVar[int]
    SCORES_FIELD_NUMBER: _ClassVar[int]
    TOP_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TOP_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    SCORE_RANKS_FIELD_NUMBER: _ClassVar[int]
    SCORE_TOP_TOKENS_FIELD_NUMBER: _ClassVar[int]
    SCORE_TOP_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    name: str
    lanes: str
    tokens: str
    logprobs: str
    proposal_confidence: str
    scores: str
    top_tokens: str
    top_logprobs: str
    score_ranks: str
    score_top_tokens: str
    score_top_logprobs: str
    def __init__(self, name: _Optional[str] = ..., lanes: _Optional[str] = ..., tokens: _Optional[str] = ..., logprobs: _Optional[str] = ..., proposal_confidence: _Optional[str] = ..., scores: _Optional[str] = ..., top_tokens: _Optional[str] = ..., top_logprobs: _Optional[str] = ..., score_ranks: _Optional[str] = ..., score_top_tokens: _Optional[str] = ..., score_top_logprobs: _Optional[str] = ...) -> None: ...

class ExecutionManifest(_message.Message):
    __slots__ = ("abi", "target", "kernels", "buffers", "programs", "tuning", "destinations", "completions", "workspace_nbytes", "cuda")
    ABI_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    KERNELS_FIELD_NUMBER: _ClassVar[int]
    BUFFERS_FIELD_NUMBER: _ClassVar[int]
    PROGRAMS_FIELD_NUMBER: _ClassVar[int]
    TUNING_FIELD_NUMBER: _ClassVar[int]
    DESTINATIONS_FIELD_NUMBER: _ClassVar[int]
    COMPLETIONS_FIELD_NUMBER: _ClassVar[int]
    WORKSPACE_NBYTES_FIELD_NUMBER: _ClassVar[int]
    CUDA_FIELD_NUMBER: _ClassVar[int]
    abi: str
    target: str
    kernels: _containers.RepeatedCompositeFieldContainer[KernelUse]
    buffers: _containers.RepeatedCompositeFieldContainer[Buffer]
    programs: _containers.RepeatedCompositeFieldContainer[Program]
    tuning: _containers.RepeatedCompositeFieldContainer[Program]
    destinations: _containers.RepeatedCompositeFieldContainer[TransportDestination]
    completions: _containers.RepeatedCompositeFieldContainer[CompletionRecord]
    workspace_nbytes: int
    cuda: CudaTarget
    def __init__(self, abi: _Optional[str] = ..., target: _Optional[str] = ..., kernels: _Optional[_Iterable[_Union[KernelUse, _Mapping]]] = ..., buffers: _Optional[_Iterable[_Union[Buffer, _Mapping]]] = ..., programs: _Optional[_Iterable[_Union[Program, _Mapping]]] = ..., tuning: _Optional[_Iterable[_Union[Program, _Mapping]]] = ..., destinations: _Optional[_Iterable[_Union[TransportDestination, _Mapping]]] = ..., completions: _Optional[_Iterable[_Union[CompletionRecord, _Mapping]]] = ..., workspace_nbytes: _Optional[int] = ..., cuda: _Optional[_Union[CudaTarget, _Mapping]] = ...) -> None: ...

from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CacheRegionKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CACHE_REGION_KIND_UNSPECIFIED: _ClassVar[CacheRegionKind]
    CACHE_REGION_KIND_PAGED_KEY_VALUE: _ClassVar[CacheRegionKind]
    CACHE_REGION_KIND_PAGED_LATENT: _ClassVar[CacheRegionKind]
    CACHE_REGION_KIND_SLIDING_WINDOW: _ClassVar[CacheRegionKind]
    CACHE_REGION_KIND_RECURRENT: _ClassVar[CacheRegionKind]
    CACHE_REGION_KIND_CONTINUATION: _ClassVar[CacheRegionKind]

class Operation(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OPERATION_UNSPECIFIED: _ClassVar[Operation]
    OPERATION_INITIALIZE: _ClassVar[Operation]
    OPERATION_RESTORE: _ClassVar[Operation]
    OPERATION_SNAPSHOT: _ClassVar[Operation]
    OPERATION_PREFILL: _ClassVar[Operation]
    OPERATION_SCORED_PREFILL: _ClassVar[Operation]
    OPERATION_RESUME: _ClassVar[Operation]
    OPERATION_DECODE: _ClassVar[Operation]
    OPERATION_SPECULATIVE: _ClassVar[Operation]
    OPERATION_MIXED: _ClassVar[Operation]
    OPERATION_VISION: _ClassVar[Operation]
    OPERATION_TUNE: _ClassVar[Operation]

class ValueSource(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    VALUE_SOURCE_UNSPECIFIED: _ClassVar[ValueSource]
    VALUE_SOURCE_SLOT: _ClassVar[ValueSource]
    VALUE_SOURCE_GENERATION: _ClassVar[ValueSource]
    VALUE_SOURCE_LIVE_ROW_COUNT: _ClassVar[ValueSource]
    VALUE_SOURCE_LIVE_TOKEN_COUNT: _ClassVar[ValueSource]
    VALUE_SOURCE_QUERY_LENGTH: _ClassVar[ValueSource]
    VALUE_SOURCE_SPECULATIVE_PREFIX_LIMIT: _ClassVar[ValueSource]
    VALUE_SOURCE_SAMPLING_DECISION: _ClassVar[ValueSource]
    VALUE_SOURCE_MIXED_PREFILL_ROW: _ClassVar[ValueSource]
    VALUE_SOURCE_PROMPT_TOKEN: _ClassVar[ValueSource]
    VALUE_SOURCE_SCORED_TARGET_TOKEN: _ClassVar[ValueSource]
    VALUE_SOURCE_PENDING_TOKEN: _ClassVar[ValueSource]
    VALUE_SOURCE_PROMPT_POSITION: _ClassVar[ValueSource]
    VALUE_SOURCE_IMAGE_FEATURE_INDEX: _ClassVar[ValueSource]
    VALUE_SOURCE_IMAGE_CONTEXT_INDEX: _ClassVar[ValueSource]
    VALUE_SOURCE_IMAGE_FEATURE_SLOT: _ClassVar[ValueSource]
    VALUE_SOURCE_PAGE_TABLE: _ClassVar[ValueSource]
    VALUE_SOURCE_LIVE_STATE_ROW: _ClassVar[ValueSource]
    VALUE_SOURCE_RESTORE_SOURCE: _ClassVar[ValueSource]
    VALUE_SOURCE_SNAPSHOT_DESTINATION: _ClassVar[ValueSource]
    VALUE_SOURCE_CONSUMED_TOKENS: _ClassVar[ValueSource]
    VALUE_SOURCE_SEED: _ClassVar[ValueSource]
    VALUE_SOURCE_TEMPERATURE: _ClassVar[ValueSource]
    VALUE_SOURCE_TOP_K: _ClassVar[ValueSource]
    VALUE_SOURCE_TOP_P: _ClassVar[ValueSource]
    VALUE_SOURCE_MIN_P: _ClassVar[ValueSource]
    VALUE_SOURCE_REPETITION_PENALTY: _ClassVar[ValueSource]
    VALUE_SOURCE_PRESENCE_PENALTY: _ClassVar[ValueSource]
    VALUE_SOURCE_FREQUENCY_PENALTY: _ClassVar[ValueSource]
    VALUE_SOURCE_OUTPUT_LIMIT: _ClassVar[ValueSource]
    VALUE_SOURCE_EMITTED_TOKENS: _ClassVar[ValueSource]
    VALUE_SOURCE_EOS_IDS: _ClassVar[ValueSource]
    VALUE_SOURCE_PROMPT_HISTOGRAM: _ClassVar[ValueSource]
    VALUE_SOURCE_GRAMMAR_MASK: _ClassVar[ValueSource]
    VALUE_SOURCE_PROPOSAL_TOKEN: _ClassVar[ValueSource]
    VALUE_SOURCE_PROPOSAL_COUNT: _ClassVar[ValueSource]
    VALUE_SOURCE_PROPOSAL_GENERATION: _ClassVar[ValueSource]
    VALUE_SOURCE_PROPOSAL_ENDPOINT: _ClassVar[ValueSource]
    VALUE_SOURCE_PROPOSAL_GRAMMAR_MASK: _ClassVar[ValueSource]
    VALUE_SOURCE_CONSTANT: _ClassVar[ValueSource]
    VALUE_SOURCE_IMAGE_TENSOR: _ClassVar[ValueSource]
    VALUE_SOURCE_OUTPUT_HISTOGRAM: _ClassVar[ValueSource]
    VALUE_SOURCE_RECENT_OUTPUT_TOKEN: _ClassVar[ValueSource]
    VALUE_SOURCE_LOGIT_BIAS_TOKEN: _ClassVar[ValueSource]
    VALUE_SOURCE_LOGIT_BIAS: _ClassVar[ValueSource]
    VALUE_SOURCE_TOKEN_MASK: _ClassVar[ValueSource]
    VALUE_SOURCE_BAD_WORD_TOKEN: _ClassVar[ValueSource]
    VALUE_SOURCE_MIN_TOKENS: _ClassVar[ValueSource]
    VALUE_SOURCE_STOP_TOKEN_ID: _ClassVar[ValueSource]
    VALUE_SOURCE_TOP_LOGPROBS: _ClassVar[ValueSource]
    VALUE_SOURCE_SCORED_TOP_LOGPROBS: _ClassVar[ValueSource]

class Indexing(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    INDEXING_UNSPECIFIED: _ClassVar[Indexing]
    INDEXING_SCALAR: _ClassVar[Indexing]
    INDEXING_SUBMISSION_ROW: _ClassVar[Indexing]
    INDEXING_ACTIVE_ROW: _ClassVar[Indexing]
    INDEXING_PHYSICAL_REQUEST_ROW: _ClassVar[Indexing]
    INDEXING_PACKED_TOKEN: _ClassVar[Indexing]

class AccessMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ACCESS_MODE_UNSPECIFIED: _ClassVar[AccessMode]
    ACCESS_MODE_READ: _ClassVar[AccessMode]
    ACCESS_MODE_WRITE: _ClassVar[AccessMode]
    ACCESS_MODE_READ_WRITE: _ClassVar[AccessMode]

class ToolParser(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TOOL_PARSER_UNSPECIFIED: _ClassVar[ToolParser]
    TOOL_PARSER_NONE: _ClassVar[ToolParser]
    TOOL_PARSER_FUNCTION_TAGS: _ClassVar[ToolParser]
    TOOL_PARSER_ARGUMENT_TAGS: _ClassVar[ToolParser]
    TOOL_PARSER_DSML: _ClassVar[ToolParser]
    TOOL_PARSER_XTML: _ClassVar[ToolParser]
    TOOL_PARSER_ATEM: _ClassVar[ToolParser]
    TOOL_PARSER_TAGGED_JSON: _ClassVar[ToolParser]
    TOOL_PARSER_BARE_JSON: _ClassVar[ToolParser]
    TOOL_PARSER_CALL_LIST_JSON: _ClassVar[ToolParser]
    TOOL_PARSER_CHANNELS: _ClassVar[ToolParser]
    TOOL_PARSER_SECTIONS: _ClassVar[ToolParser]

class ReasoningParser(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REASONING_PARSER_UNSPECIFIED: _ClassVar[ReasoningParser]
    REASONING_PARSER_NONE: _ClassVar[ReasoningParser]
    REASONING_PARSER_THINK_TAGS: _ClassVar[ReasoningParser]
    REASONING_PARSER_XTML_THINK: _ClassVar[ReasoningParser]
    REASONING_PARSER_RECIPIENT_HEADERS: _ClassVar[ReasoningParser]
    REASONING_PARSER_CHANNELS: _ClassVar[ReasoningParser]

class ImagePreparation(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    IMAGE_PREPARATION_UNSPECIFIED: _ClassVar[ImagePreparation]
    IMAGE_PREPARATION_NONE: _ClassVar[ImagePreparation]
    IMAGE_PREPARATION_SMART_RESIZE: _ClassVar[ImagePreparation]

class ImageLayout(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    IMAGE_LAYOUT_UNSPECIFIED: _ClassVar[ImageLayout]
    IMAGE_LAYOUT_NONE: _ClassVar[ImageLayout]
    IMAGE_LAYOUT_THREE_ROW_POSITIONS: _ClassVar[ImageLayout]
CACHE_REGION_KIND_UNSPECIFIED: CacheRegionKind
CACHE_REGION_KIND_PAGED_KEY_VALUE: CacheRegionKind
CACHE_REGION_KIND_PAGED_LATENT: CacheRegionKind
CACHE_REGION_KIND_SLIDING_WINDOW: CacheRegionKind
CACHE_REGION_KIND_RECURRENT: CacheRegionKind
CACHE_REGION_KIND_CONTINUATION: CacheRegionKind
OPERATION_UNSPECIFIED: Operation
OPERATION_INITIALIZE: Operation
OPERATION_RESTORE: Operation
OPERATION_SNAPSHOT: Operation
OPERATION_PREFILL: Operation
OPERATION_SCORED_PREFILL: Operation
OPERATION_RESUME: Operation
OPERATION_DECODE: Operation
OPERATION_SPECULATIVE: Operation
OPERATION_MIXED: Operation
OPERATION_VISION: Operation
OPERATION_TUNE: Operation
VALUE_SOURCE_UNSPECIFIED: ValueSource
VALUE_SOURCE_SLOT: ValueSource
VALUE_SOURCE_GENERATION: ValueSource
VALUE_SOURCE_LIVE_ROW_COUNT: ValueSource
VALUE_SOURCE_LIVE_TOKEN_COUNT: ValueSource
VALUE_SOURCE_QUERY_LENGTH: ValueSource
VALUE_SOURCE_SPECULATIVE_PREFIX_LIMIT: ValueSource
VALUE_SOURCE_SAMPLING_DECISION: ValueSource
VALUE_SOURCE_MIXED_PREFILL_ROW: ValueSource
VALUE_SOURCE_PROMPT_TOKEN: ValueSource
VALUE_SOURCE_SCORED_TARGET_TOKEN: ValueSource
VALUE_SOURCE_PENDING_TOKEN: ValueSource
VALUE_SOURCE_PROMPT_POSITION: ValueSource
VALUE_SOURCE_IMAGE_FEATURE_INDEX: ValueSource
VALUE_SOURCE_IMAGE_CONTEXT_INDEX: ValueSource
VALUE_SOURCE_IMAGE_FEATURE_SLOT: ValueSource
VALUE_SOURCE_PAGE_TABLE: ValueSource
VALUE_SOURCE_LIVE_STATE_ROW: ValueSource
VALUE_SOURCE_RESTORE_SOURCE: ValueSource
VALUE_SOURCE_SNAPSHOT_DESTINATION: ValueSource
VALUE_SOURCE_CONSUMED_TOKENS: ValueSource
VALUE_SOURCE_SEED: ValueSource
VALUE_SOURCE_TEMPERATURE: ValueSource
VALUE_SOURCE_TOP_K: ValueSource
VALUE_SOURCE_TOP_P: ValueSource
VALUE_SOURCE_MIN_P: ValueSource
VALUE_SOURCE_REPETITION_PENALTY: ValueSource
VALUE_SOURCE_PRESENCE_PENALTY: ValueSource
VALUE_SOURCE_FREQUENCY_PENALTY: ValueSource
VALUE_SOURCE_OUTPUT_LIMIT: ValueSource
VALUE_SOURCE_EMITTED_TOKENS: ValueSource
VALUE_SOURCE_EOS_IDS: ValueSource
VALUE_SOURCE_PROMPT_HISTOGRAM: ValueSource
VALUE_SOURCE_GRAMMAR_MASK: ValueSource
VALUE_SOURCE_PROPOSAL_TOKEN: ValueSource
VALUE_SOURCE_PROPOSAL_COUNT: ValueSource
VALUE_SOURCE_PROPOSAL_GENERATION: ValueSource
VALUE_SOURCE_PROPOSAL_ENDPOINT: ValueSource
VALUE_SOURCE_PROPOSAL_GRAMMAR_MASK: ValueSource
VALUE_SOURCE_CONSTANT: ValueSource
VALUE_SOURCE_IMAGE_TENSOR: ValueSource
VALUE_SOURCE_OUTPUT_HISTOGRAM: ValueSource
VALUE_SOURCE_RECENT_OUTPUT_TOKEN: ValueSource
VALUE_SOURCE_LOGIT_BIAS_TOKEN: ValueSource
VALUE_SOURCE_LOGIT_BIAS: ValueSource
VALUE_SOURCE_TOKEN_MASK: ValueSource
VALUE_SOURCE_BAD_WORD_TOKEN: ValueSource
VALUE_SOURCE_MIN_TOKENS: ValueSource
VALUE_SOURCE_STOP_TOKEN_ID: ValueSource
VALUE_SOURCE_TOP_LOGPROBS: ValueSource
VALUE_SOURCE_SCORED_TOP_LOGPROBS: ValueSource
INDEXING_UNSPECIFIED: Indexing
INDEXING_SCALAR: Indexing
INDEXING_SUBMISSION_ROW: Indexing
INDEXING_ACTIVE_ROW: Indexing
INDEXING_PHYSICAL_REQUEST_ROW: Indexing
INDEXING_PACKED_TOKEN: Indexing
ACCESS_MODE_UNSPECIFIED: AccessMode
ACCESS_MODE_READ: AccessMode
ACCESS_MODE_WRITE: AccessMode
ACCESS_MODE_READ_WRITE: AccessMode
TOOL_PARSER_UNSPECIFIED: ToolParser
TOOL_PARSER_NONE: ToolParser
TOOL_PARSER_FUNCTION_TAGS: ToolParser
TOOL_PARSER_ARGUMENT_TAGS: ToolParser
TOOL_PARSER_DSML: ToolParser
TOOL_PARSER_XTML: ToolParser
TOOL_PARSER_ATEM: ToolParser
TOOL_PARSER_TAGGED_JSON: ToolParser
TOOL_PARSER_BARE_JSON: ToolParser
TOOL_PARSER_CALL_LIST_JSON: ToolParser
TOOL_PARSER_CHANNELS: ToolParser
TOOL_PARSER_SECTIONS: ToolParser
REASONING_PARSER_UNSPECIFIED: ReasoningParser
REASONING_PARSER_NONE: ReasoningParser
REASONING_PARSER_THINK_TAGS: ReasoningParser
REASONING_PARSER_XTML_THINK: ReasoningParser
REASONING_PARSER_RECIPIENT_HEADERS: ReasoningParser
REASONING_PARSER_CHANNELS: ReasoningParser
IMAGE_PREPARATION_UNSPECIFIED: ImagePreparation
IMAGE_PREPARATION_NONE: ImagePreparation
IMAGE_PREPARATION_SMART_RESIZE: ImagePreparation
IMAGE_LAYOUT_UNSPECIFIED: ImageLayout
IMAGE_LAYOUT_NONE: ImageLayout
IMAGE_LAYOUT_THREE_ROW_POSITIONS: ImageLayout

class ServingContract(_message.Message):
    __slots__ = ("served_id", "aliases", "cache_identity", "max_context_tokens", "prefill_extents", "cache_pages", "snapshot_rows", "max_active", "speculative_widths", "defaults", "model")
    SERVED_ID_FIELD_NUMBER: _ClassVar[int]
    ALIASES_FIELD_NUMBER: _ClassVar[int]
    CACHE_IDENTITY_FIELD_NUMBER: _ClassVar[int]
    MAX_CONTEXT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PREFILL_EXTENTS_FIELD_NUMBER: _ClassVar[int]
    CACHE_PAGES_FIELD_NUMBER: _ClassVar[int]
    SNAPSHOT_ROWS_FIELD_NUMBER: _ClassVar[int]
    MAX_ACTIVE_FIELD_NUMBER: _ClassVar[int]
    SPECULATIVE_WIDTHS_FIELD_NUMBER: _ClassVar[int]
    DEFAULTS_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    served_id: str
    aliases: _containers.RepeatedScalarFieldContainer[str]
    cache_identity: str
    max_context_tokens: int
    prefill_extents: _containers.RepeatedScalarFieldContainer[int]
    cache_pages: int
    snapshot_rows: int
    max_active: int
    speculative_widths: _containers.RepeatedScalarFieldContainer[int]
    defaults: ServingDefaults
    model: ModelContract
    def __init__(self, served_id: _Optional[str] = ..., aliases: _Optional[_Iterable[str]] = ..., cache_identity: _Optional[str] = ..., max_context_tokens: _Optional[int] = ..., prefill_extents: _Optional[_Iterable[int]] = ..., cache_pages: _Optional[int] = ..., snapshot_rows: _Optional[int] = ..., max_active: _Optional[int] = ..., speculative_widths: _Optional[_Iterable[int]] = ..., defaults: _Optional[_Union[ServingDefaults, _Mapping]] = ..., model: _Optional[_Union[ModelContract, _Mapping]] = ...) -> None: ...

class ServingDefaults(_message.Message):
    __slots__ = ("sampling", "queue_capacity", "frontend_workers", "event_capacity")
    SAMPLING_FIELD_NUMBER: _ClassVar[int]
    QUEUE_CAPACITY_FIELD_NUMBER: _ClassVar[int]
    FRONTEND_WORKERS_FIELD_NUMBER: _ClassVar[int]
    EVENT_CAPACITY_FIELD_NUMBER: _ClassVar[int]
    sampling: SamplingDefaults
    queue_capacity: int
    frontend_workers: int
    event_capacity: int
    def __init__(self, sampling: _Optional[_Union[SamplingDefaults, _Mapping]] = ..., queue_capacity: _Optional[int] = ..., frontend_workers: _Optional[int] = ..., event_capacity: _Optional[int] = ...) -> None: ...

class SamplingDefaults(_message.Message):
    __slots__ = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "max_output_tokens")
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    MIN_P_FIELD_NUMBER: _ClassVar[int]
    REPETITION_PENALTY_FIELD_NUMBER: _ClassVar[int]
    PRESENCE_PENALTY_FIELD_NUMBER: _ClassVar[int]
    FREQUENCY_PENALTY_FIELD_NUMBER: _ClassVar[int]
    MAX_OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    max_output_tokens: int
    def __init__(self, temperature: _Optional[float] = ..., top_k: _Optional[int] = ..., top_p: _Optional[float] = ..., min_p: _Optional[float] = ..., repetition_penalty: _Optional[float] = ..., presence_penalty: _Optional[float] = ..., frequency_penalty: _Optional[float] = ..., max_output_tokens: _Optional[int] = ...) -> None: ...

class ModelContract(_message.Message):
    __slots__ = ("version", "vocabulary", "input_vocabulary", "vision", "cache", "graphs", "frontend", "state_views")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    VOCABULARY_FIELD_NUMBER: _ClassVar[int]
    INPUT_VOCABULARY_FIELD_NUMBER: _ClassVar[int]
    VISION_FIELD_NUMBER: _ClassVar[int]
    CACHE_FIELD_NUMBER: _ClassVar[int]
    GRAPHS_FIELD_NUMBER: _ClassVar[int]
    FRONTEND_FIELD_NUMBER: _ClassVar[int]
    STATE_VIEWS_FIELD_NUMBER: _ClassVar[int]
    version: int
    vocabulary: Vocabulary
    input_vocabulary: InputVocabulary
    vision: VisionContract
    cache: CacheContract
    graphs: _containers.RepeatedCompositeFieldContainer[GraphContract]
    frontend: FrontendContract
    state_views: _containers.RepeatedCompositeFieldContainer[StateView]
    def __init__(self, version: _Optional[int] = ..., vocabulary: _Optional[_Union[Vocabulary, _Mapping]] = ..., input_vocabulary: _Optional[_Union[InputVocabulary, _Mapping]] = ..., vision: _Optional[_Union[VisionContract, _Mapping]] = ..., cache: _Optional[_Union[CacheContract, _Mapping]] = ..., graphs: _Optional[_Iterable[_Union[GraphContract, _Mapping]]] = ..., frontend: _Optional[_Union[FrontendContract, _Mapping]] = ..., state_views: _Optional[_Iterable[_Union[StateView, _Mapping]]] = ...) -> None: ...

class Vocabulary(_message.Message):
    __slots__ = ("sampled_tokens", "histogram_tokens", "mask_words")
    SAMPLED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    HISTOGRAM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    MASK_WORDS_FIELD_NUMBER: _ClassVar[int]
    sampled_tokens: int
    histogram_tokens: int
    mask_words: int
    def __init__(self, sampled_tokens: _Optional[int] = ..., histogram_tokens: _Optional[int] = ..., mask_words: _Optional[int] = ...) -> None: ...

class InputVocabulary(_message.Message):
    __slots__ = ("input_tokens", "image_sentinels")
    INPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    IMAGE_SENTINELS_FIELD_NUMBER: _ClassVar[int]
    input_tokens: int
    image_sentinels: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, input_tokens: _Optional[int] = ..., image_sentinels: _Optional[_Iterable[int]] = ...) -> None: ...

class VisionContract(_message.Message):
    __slots__ = ("feature_slots", "features_per_window", "patches_per_feature", "patch_capacities")
    FEATURE_SLOTS_FIELD_NUMBER: _ClassVar[int]
    FEATURES_PER_WINDOW_FIELD_NUMBER: _ClassVar[int]
    PATCHES_PER_FEATURE_FIELD_NUMBER: _ClassVar[int]
    PATCH_CAPACITIES_FIELD_NUMBER: _ClassVar[int]
    feature_slots: int
    features_per_window: int
    patches_per_feature: int
    patch_capacities: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, feature_slots: _Optional[int] = ..., features_per_window: _Optional[int] = ..., patches_per_feature: _Optional[int] = ..., patch_capacities: _Optional[_Iterable[int]] = ...) -> None: ...

class CacheContract(_message.Message):
    __slots__ = ("page_tokens", "regions", "page_tables")
    PAGE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    REGIONS_FIELD_NUMBER: _ClassVar[int]
    PAGE_TABLES_FIELD_NUMBER: _ClassVar[int]
    page_tokens: int
    regions: _containers.RepeatedCompositeFieldContainer[CacheRegion]
    page_tables: _containers.RepeatedCompositeFieldContainer[PageTableView]
    def __init__(self, page_tokens: _Optional[int] = ..., regions: _Optional[_Iterable[_Union[CacheRegion, _Mapping]]] = ..., page_tables: _Optional[_Iterable[_Union[PageTableView, _Mapping]]] = ...) -> None: ...

class CacheRegion(_message.Message):
    __slots__ = ("name", "kind", "planes", "tokens_per_record", "window_tokens")
    NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    PLANES_FIELD_NUMBER: _ClassVar[int]
    TOKENS_PER_RECORD_FIELD_NUMBER: _ClassVar[int]
    WINDOW_TOKENS_FIELD_NUMBER: _ClassVar[int]
    name: str
    kind: CacheRegionKind
    planes: _containers.RepeatedScalarFieldContainer[str]
    tokens_per_record: int
    window_tokens: int
    def __init__(self, name: _Optional[str] = ..., kind: _Optional[_Union[CacheRegionKind, str]] = ..., planes: _Optional[_Iterable[str]] = ..., tokens_per_record: _Optional[int] = ..., window_tokens: _Optional[int] = ...) -> None: ...

class PageTableView(_message.Message):
    __slots__ = ("name", "destination", "page_offset")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DESTINATION_FIELD_NUMBER: _ClassVar[int]
    PAGE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    name: str
    destination: str
    page_offset: int
    def __init__(self, name: _Optional[str] = ..., destination: _Optional[str] = ..., page_offset: _Optional[int] = ...) -> None: ...

class ValueBinding(_message.Message):
    __slots__ = ("destination", "source", "indexing", "offset", "padding", "constant", "image_tensor")
    DESTINATION_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    INDEXING_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    PADDING_FIELD_NUMBER: _ClassVar[int]
    CONSTANT_FIELD_NUMBER: _ClassVar[int]
    IMAGE_TENSOR_FIELD_NUMBER: _ClassVar[int]
    destination: str
    source: ValueSource
    indexing: Indexing
    offset: int
    padding: int
    constant: int
    image_tensor: str
    def __init__(self, destination: _Optional[str] = ..., source: _Optional[_Union[ValueSource, str]] = ..., indexing: _Optional[_Union[Indexing, str]] = ..., offset: _Optional[int] = ..., padding: _Optional[int] = ..., constant: _Optional[int] = ..., image_tensor: _Optional[str] = ...) -> None: ...

class StateView(_message.Message):
    __slots__ = ("name", "buffer", "byte_offset", "row_stride", "byte_extent")
    NAME_FIELD_NUMBER: _ClassVar[int]
    BUFFER_FIELD_NUMBER: _ClassVar[int]
    BYTE_OFFSET_FIELD_NUMBER: _ClassVar[int]
    ROW_STRIDE_FIELD_NUMBER: _ClassVar[int]
    BYTE_EXTENT_FIELD_NUMBER: _ClassVar[int]
    name: str
    buffer: str
    byte_offset: int
    row_stride: int
    byte_extent: int
    def __init__(self, name: _Optional[str] = ..., buffer: _Optional[str] = ..., byte_offset: _Optional[int] = ..., row_stride: _Optional[int] = ..., byte_extent: _Optional[int] = ...) -> None: ...

class StateAccess(_message.Message):
    __slots__ = ("view", "mode")
    VIEW_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    view: str
    mode: AccessMode
    def __init__(self, view: _Optional[str] = ..., mode: _Optional[_Union[AccessMode, str]] = ...) -> None: ...

class TunedBinding(_message.Message):
    __slots__ = ("buffer", "producer")
    BUFFER_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    buffer: str
    producer: str
    def __init__(self, buffer: _Optional[str] = ..., producer: _Optional[str] = ...) -> None: ...

class PendingToken(_message.Message):
    __slots__ = ("state_view", "host_binding")
    STATE_VIEW_FIELD_NUMBER: _ClassVar[int]
    HOST_BINDING_FIELD_NUMBER: _ClassVar[int]
    state_view: str
    host_binding: ValueBinding
    def __init__(self, state_view: _Optional[str] = ..., host_binding: _Optional[_Union[ValueBinding, _Mapping]] = ...) -> None: ...

class DraftCursor(_message.Message):
    __slots__ = ("state_view", "lag_tokens")
    STATE_VIEW_FIELD_NUMBER: _ClassVar[int]
    LAG_TOKENS_FIELD_NUMBER: _ClassVar[int]
    state_view: str
    lag_tokens: int
    def __init__(self, state_view: _Optional[str] = ..., lag_tokens: _Optional[int] = ...) -> None: ...

class GraphContract(_message.Message):
    __slots__ = ("name", "operation", "bindings", "accesses", "tuned_bindings", "pending_token", "draft_cursor", "state_rows_per_request", "confidence_width")
    NAME_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    BINDINGS_FIELD_NUMBER: _ClassVar[int]
    ACCESSES_FIELD_NUMBER: _ClassVar[int]
    TUNED_BINDINGS_FIELD_NUMBER: _ClassVar[int]
    PENDING_TOKEN_FIELD_NUMBER: _ClassVar[int]
    DRAFT_CURSOR_FIELD_NUMBER: _ClassVar[int]
    STATE_ROWS_PER_REQUEST_FIELD_NUMBER: _ClassVar[int]
    CONFIDENCE_WIDTH_FIELD_NUMBER: _ClassVar[int]
    name: str
    operation: Operation
    bindings: _containers.RepeatedCompositeFieldContainer[ValueBinding]
    accesses: _containers.RepeatedCompositeFieldContainer[StateAccess]
    tuned_bindings: _containers.RepeatedCompositeFieldContainer[TunedBinding]
    pending_token: PendingToken
    draft_cursor: DraftCursor
    state_rows_per_request: int
    confidence_width: int
    def __init__(self, name: _Optional[str] = ..., operation: _Optional[_Union[Operation, str]] = ..., bindings: _Optional[_Iterable[_Union[ValueBinding, _Mapping]]] = ..., accesses: _Optional[_Iterable[_Union[StateAccess, _Mapping]]] = ..., tuned_bindings: _Optional[_Iterable[_Union[TunedBinding, _Mapping]]] = ..., pending_token: _Optional[_Union[PendingToken, _Mapping]] = ..., draft_cursor: _Optional[_Union[DraftCursor, _Mapping]] = ..., state_rows_per_request: _Optional[int] = ..., confidence_width: _Optional[int] = ...) -> None: ...

class FrontendContract(_message.Message):
    __slots__ = ("tool_parser", "reasoning_parser", "image_preparation", "image_layout", "eos_ids", "template_tokens", "envelope", "tool_syntax", "reasoning_syntax", "prefix_boundaries", "image_settings")
    TOOL_PARSER_FIELD_NUMBER: _ClassVar[int]
    REASONING_PARSER_FIELD_NUMBER: _ClassVar[int]
    IMAGE_PREPARATION_FIELD_NUMBER: _ClassVar[int]
    IMAGE_LAYOUT_FIELD_NUMBER: _ClassVar[int]
    EOS_IDS_FIELD_NUMBER: _ClassVar[int]
    TEMPLATE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    ENVELOPE_FIELD_NUMBER: _ClassVar[int]
    TOOL_SYNTAX_FIELD_NUMBER: _ClassVar[int]
    REASONING_SYNTAX_FIELD_NUMBER: _ClassVar[int]
    PREFIX_BOUNDARIES_FIELD_NUMBER: _ClassVar[int]
    IMAGE_SETTINGS_FIELD_NUMBER: _ClassVar[int]
    tool_parser: ToolParser
    reasoning_parser: ReasoningParser
    image_preparation: ImagePreparation
    image_layout: ImageLayout
    eos_ids: _containers.RepeatedScalarFieldContainer[int]
    template_tokens: TemplateTokens
    envelope: EnvelopeSyntax
    tool_syntax: ToolSyntax
    reasoning_syntax: ReasoningSyntax
    prefix_boundaries: _containers.RepeatedCompositeFieldContainer[PrefixBoundaryRule]
    image_settings: ImageSettings
    def __init__(self, tool_parser: _Optional[_Union[ToolParser, str]] = ..., reasoning_parser: _Optional[_Union[ReasoningParser, str]] = ..., image_preparation: _Optional[_Union[ImagePreparation, str]] = ..., image_layout: _Optional[_Union[ImageLayout, str]] = ..., eos_ids: _Optional[_Iterable[int]] = ..., template_tokens: _Optional[_Union[TemplateTokens, _Mapping]] = ..., envelope: _Optional[_Union[EnvelopeSyntax, _Mapping]] = ..., tool_syntax: _Optional[_Union[ToolSyntax, _Mapping]] = ..., reasoning_syntax: _Optional[_Union[ReasoningSyntax, _Mapping]] = ..., prefix_boundaries: _Optional[_Iterable[_Union[PrefixBoundaryRule, _Mapping]]] = ..., image_settings: _Optional[_Union[ImageSettings, _Mapping]] = ...) -> None: ...

class TemplateTokens(_message.Message):
    __slots__ = ("bos_token", "eos_token", "pad_token", "unk_token", "add_bos_token")
    BOS_TOKEN_FIELD_NUMBER: _ClassVar[int]
    EOS_TOKEN_FIELD_NUMBER: _ClassVar[int]
    PAD_TOKEN_FIELD_NUMBER: _ClassVar[int]
    UNK_TOKEN_FIELD_NUMBER: _ClassVar[int]
    ADD_BOS_TOKEN_FIELD_NUMBER: _ClassVar[int]
    bos_token: str
    eos_token: str
    pad_token: str
    unk_token: str
    add_bos_token: bool
    def __init__(self, bos_token: _Optional[str] = ..., eos_token: _Optional[str] = ..., pad_token: _Optional[str] = ..., unk_token: _Optional[str] = ..., add_bos_token: _Optional[bool] = ...) -> None: ...

class EnvelopeSyntax(_message.Message):
    __slots__ = ("assistant_start", "message_end", "header_open", "header_close", "body_closes", "channel_open", "format_open", "generic_recipients")
    ASSISTANT_START_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_END_FIELD_NUMBER: _ClassVar[int]
    HEADER_OPEN_FIELD_NUMBER: _ClassVar[int]
    HEADER_CLOSE_FIELD_NUMBER: _ClassVar[int]
    BODY_CLOSES_FIELD_NUMBER: _ClassVar[int]
    CHANNEL_OPEN_FIELD_NUMBER: _ClassVar[int]
    FORMAT_OPEN_FIELD_NUMBER: _ClassVar[int]
    GENERIC_RECIPIENTS_FIELD_NUMBER: _ClassVar[int]
    assistant_start: str
    message_end: str
    header_open: str
    header_close: str
    body_closes: _containers.RepeatedScalarFieldContainer[str]
    channel_open: str
    format_open: str
    generic_recipients: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, assistant_start: _Optional[str] = ..., message_end: _Optional[str] = ..., header_open: _Optional[str] = ..., header_close: _Optional[str] = ..., body_closes: _Optional[_Iterable[str]] = ..., channel_open: _Optional[str] = ..., format_open: _Optional[str] = ..., generic_recipients: _Optional[_Iterable[str]] = ...) -> None: ...

class ToolSyntax(_message.Message):
    __slots__ = ("open", "close", "separator", "dialect", "wrapping_newlines", "call_open", "name_close", "call_close", "argument_open", "argument_name_close", "value_open", "argument_close", "name_prefix", "name_keys", "arguments_keys", "call_id_open")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    CLOSE_FIELD_NUMBER: _ClassVar[int]
    SEPARATOR_FIELD_NUMBER: _ClassVar[int]
    DIALECT_FIELD_NUMBER: _ClassVar[int]
    WRAPPING_NEWLINES_FIELD_NUMBER: _ClassVar[int]
    CALL_OPEN_FIELD_NUMBER: _ClassVar[int]
    NAME_CLOSE_FIELD_NUMBER: _ClassVar[int]
    CALL_CLOSE_FIELD_NUMBER: _ClassVar[int]
    ARGUMENT_OPEN_FIELD_NUMBER: _ClassVar[int]
    ARGUMENT_NAME_CLOSE_FIELD_NUMBER: _ClassVar[int]
    VALUE_OPEN_FIELD_NUMBER: _ClassVar[int]
    ARGUMENT_CLOSE_FIELD_NUMBER: _ClassVar[int]
    NAME_PREFIX_FIELD_NUMBER: _ClassVar[int]
    NAME_KEYS_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_KEYS_FIELD_NUMBER: _ClassVar[int]
    CALL_ID_OPEN_FIELD_NUMBER: _ClassVar[int]
    open: str
    close: str
    separator: str
    dialect: str
    wrapping_newlines: bool
    call_open: str
    name_close: str
    call_close: str
    argument_open: str
    argument_name_close: str
    value_open: str
    argument_close: str
    name_prefix: str
    name_keys: _containers.RepeatedScalarFieldContainer[str]
    arguments_keys: _containers.RepeatedScalarFieldContainer[str]
    call_id_open: str
    def __init__(self, open: _Optional[str] = ..., close: _Optional[str] = ..., separator: _Optional[str] = ..., dialect: _Optional[str] = ..., wrapping_newlines: _Optional[bool] = ..., call_open: _Optional[str] = ..., name_close: _Optional[str] = ..., call_close: _Optional[str] = ..., argument_open: _Optional[str] = ..., argument_name_close: _Optional[str] = ..., value_open: _Optional[str] = ..., argument_close: _Optional[str] = ..., name_prefix: _Optional[str] = ..., name_keys: _Optional[_Iterable[str]] = ..., arguments_keys: _Optional[_Iterable[str]] = ..., call_id_open: _Optional[str] = ...) -> None: ...

class ReasoningSyntax(_message.Message):
    __slots__ = ("open", "close", "terminal_marker", "wrapping_newlines")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    CLOSE_FIELD_NUMBER: _ClassVar[int]
    TERMINAL_MARKER_FIELD_NUMBER: _ClassVar[int]
    WRAPPING_NEWLINES_FIELD_NUMBER: _ClassVar[int]
    open: str
    close: str
    terminal_marker: str
    wrapping_newlines: bool
    def __init__(self, open: _Optional[str] = ..., close: _Optional[str] = ..., terminal_marker: _Optional[str] = ..., wrapping_newlines: _Optional[bool] = ...) -> None: ...

class PrefixBoundaryRule(_message.Message):
    __slots__ = ("roles", "needs_generation_prompt")
    ROLES_FIELD_NUMBER: _ClassVar[int]
    NEEDS_GENERATION_PROMPT_FIELD_NUMBER: _ClassVar[int]
    roles: _containers.RepeatedScalarFieldContainer[str]
    needs_generation_prompt: bool
    def __init__(self, roles: _Optional[_Iterable[str]] = ..., needs_generation_prompt: _Optional[bool] = ...) -> None: ...

class ImageSettings(_message.Message):
    __slots__ = ("feature_ids", "atomic_spans", "patch_size", "merge_size", "min_pixels", "max_pixels", "mean", "std")
    FEATURE_IDS_FIELD_NUMBER: _ClassVar[int]
    ATOMIC_SPANS_FIELD_NUMBER: _ClassVar[int]
    PATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    MERGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    MIN_PIXELS_FIELD_NUMBER: _ClassVar[int]
    MAX_PIXELS_FIELD_NUMBER: _ClassVar[int]
    MEAN_FIELD_NUMBER: _ClassVar[int]
    STD_FIELD_NUMBER: _ClassVar[int]
    feature_ids: _containers.RepeatedScalarFieldContainer[int]
    atomic_spans: _containers.RepeatedScalarFieldContainer[int]
    patch_size: int
    merge_size: int
    min_pixels: int
    max_pixels: int
    mean: _containers.RepeatedScalarFieldContainer[float]
    std: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, feature_ids: _Optional[_Iterable[int]] = ..., atomic_spans: _Optional[_Iterable[int]] = ..., patch_size: _Optional[int] = ..., merge_size: _Optional[int] = ..., min_pixels: _Optional[int] = ..., max_pixels: _Optional[int] = ..., mean: _Optional[_Iterable[float]] = ..., std: _Optional[_Iterable[float]] = ...) -> None: ...

"""A prepared contract as frozen dataclasses: `PreparedContract` and everything inside it.

Data only, mirroring schema/contract.proto field by field; values have passed `decode` and are
known good. Scheduler, runtime and frontend read these; only `decoder` makes them.
"""

from __future__ import annotations

from helios.contract.enums import (
    AccessMode,
    CacheRegionKind,
    ImageLayout,
    ImagePreparation,
    Indexing,
    Operation,
    ReasoningParser,
    ToolParser,
    ValueSource,
)
from helios.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class SamplingDefaults:
    """A model card's recommendations; None means the API's own default."""

    temperature: float | None
    top_k: int | None
    top_p: float | None
    min_p: float | None
    repetition_penalty: float | None
    presence_penalty: float | None
    frequency_penalty: float | None
    max_output_tokens: int | None


@dataclass(frozen=True, slots=True)
class ServingDefaults:
    """Settings that hold where the operator gave none; None means the server's own default."""

    sampling: SamplingDefaults
    queue_capacity: int | None
    frontend_workers: int | None
    event_capacity: int | None


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Valid sampled ids are [0, sampled_tokens); the rest is geometry of histogram and mask."""

    sampled_tokens: int
    histogram_tokens: int
    mask_words: int


@dataclass(frozen=True, slots=True)
class InputVocabulary:
    """Valid input ids are [0, input_tokens); `image_sentinels` are among them, never sampled."""

    input_tokens: int
    image_sentinels: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class VisionContract:
    """Image capacities; `patch_capacities` are those of the captured programs, ascending."""

    feature_slots: int
    features_per_window: int
    patches_per_feature: int
    patch_capacities: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CacheRegion:
    """One attention history. `tokens_per_record` is 0 unless paged, `window_tokens` 0 unless
    sliding."""

    name: str
    kind: CacheRegionKind
    planes: tuple[str, ...]
    tokens_per_record: int
    window_tokens: int


@dataclass(frozen=True, slots=True)
class PageTableView:
    """A destination that receives page ids of a slot, from page `page_offset` on."""

    name: str
    destination: str
    page_offset: int


@dataclass(frozen=True, slots=True)
class CacheContract:
    """Logical tokens of a page, and what is stored in pages and rows."""

    page_tokens: int
    regions: tuple[CacheRegion, ...]
    page_tables: tuple[PageTableView, ...]


@dataclass(frozen=True, slots=True)
class ValueBinding:
    """Which value goes into which destination, and where in it. `offset` is added to integer
    values, `padding` fills padded rows; `constant` and `image_tensor` belong to those sources."""

    destination: str
    source: ValueSource
    indexing: Indexing
    offset: int
    padding: int
    constant: int
    image_tensor: str


@dataclass(frozen=True, slots=True)
class StateView:
    """Bytes of each row of a persistent buffer: row r's start at byte_offset + r · row_stride."""

    name: str
    buffer: str
    byte_offset: int
    row_stride: int
    byte_extent: int


@dataclass(frozen=True, slots=True)
class StateAccess:
    """How a graph touches a state view."""

    view: str
    mode: AccessMode


@dataclass(frozen=True, slots=True)
class TunedBinding:
    """A persistent buffer that a program of the tuning catalog fills at start-up."""

    buffer: str
    producer: str


@dataclass(frozen=True, slots=True)
class PendingToken:
    """Who owns the sampled token that is not consumed yet: a state view of the device, or the
    host through a binding. Exactly one is set."""

    state_view: str | None
    host_binding: ValueBinding | None


@dataclass(frozen=True, slots=True)
class DraftCursor:
    """The committed draft state: it lags `lag_tokens` behind the consumed tokens."""

    state_view: str
    lag_tokens: int


@dataclass(frozen=True, slots=True)
class GraphContract:
    """One captured program: its operation, the values it is fed and the state it touches."""

    name: str
    operation: Operation
    bindings: tuple[ValueBinding, ...]
    accesses: tuple[StateAccess, ...]
    tuned_bindings: tuple[TunedBinding, ...]
    pending_token: PendingToken | None
    draft_cursor: DraftCursor | None
    state_rows_per_request: int
    confidence_width: int


@dataclass(frozen=True, slots=True)
class TemplateTokens:
    """Tokens that a chat template refers to by name; None where the tokenizer has none."""

    bos_token: str | None
    eos_token: str | None
    pad_token: str | None
    unk_token: str | None
    add_bos_token: bool


@dataclass(frozen=True, slots=True)
class EnvelopeSyntax:
    """What opens an assistant message and what ends any message. The rest is for responses of
    several messages with headers; empty where a response is one message."""

    assistant_start: str
    message_end: str
    header_open: str = ""
    header_close: str = ""
    body_closes: tuple[str, ...] = ()
    channel_open: str = ""
    format_open: str = ""
    generic_recipients: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolSyntax:
    """Delimiters of tool calls. `open` and `close` enclose one call, or a run of calls where
    `call_open` and `call_close` enclose each; what a parser has no use for is empty."""

    open: str
    close: str = ""
    separator: str = ""
    dialect: str = ""
    wrapping_newlines: bool = False
    call_open: str = ""
    name_close: str = ""
    call_close: str = ""
    argument_open: str = ""
    argument_name_close: str = ""
    value_open: str = ""
    argument_close: str = ""
    name_prefix: str = ""
    name_keys: tuple[str, ...] = ()
    arguments_keys: tuple[str, ...] = ()
    call_id_open: str = ""


@dataclass(frozen=True, slots=True)
class ReasoningSyntax:
    """Delimiters of reasoning."""

    open: str
    close: str
    terminal_marker: str
    wrapping_newlines: bool


@dataclass(frozen=True, slots=True)
class PrefixBoundaryRule:
    """Message roles at whose start a rendered prompt may be cut for reuse."""

    roles: tuple[str, ...]
    needs_generation_prompt: bool


@dataclass(frozen=True, slots=True)
class ImageSettings:
    """Numbers of image preparation and layout; pixels are counted before patching."""

    feature_ids: tuple[int, ...]
    atomic_spans: tuple[int, ...]
    patch_size: int
    merge_size: int
    min_pixels: int
    max_pixels: int
    mean: tuple[float, ...]
    std: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class FrontendContract:
    """Which parsers and image algorithms read this model's text, and their syntax as data."""

    tool_parser: ToolParser
    reasoning_parser: ReasoningParser
    image_preparation: ImagePreparation
    image_layout: ImageLayout
    eos_ids: tuple[int, ...]
    template_tokens: TemplateTokens
    envelope: EnvelopeSyntax
    tool_syntax: ToolSyntax
    reasoning_syntax: ReasoningSyntax
    prefix_boundaries: tuple[PrefixBoundaryRule, ...]
    image_settings: ImageSettings | None


@dataclass(frozen=True, slots=True)
class ModelContract:
    """What a prepared model computes with: vocabularies, storage, graphs, frontend syntax."""

    version: int
    vocabulary: Vocabulary
    input_vocabulary: InputVocabulary
    vision: VisionContract | None
    cache: CacheContract
    graphs: tuple[GraphContract, ...]
    frontend: FrontendContract
    state_views: tuple[StateView, ...]


@dataclass(frozen=True, slots=True)
class PreparedContract:
    """A decoded and validated ServingContract. `cache_pages` and `snapshot_rows` are
    preparation's working-set counts, which the runtime replaces."""

    served_id: str
    aliases: tuple[str, ...]
    cache_identity: str
    max_context_tokens: int
    prefill_extents: tuple[int, ...]
    cache_pages: int
    snapshot_rows: int
    max_active: int
    speculative_widths: tuple[int, ...]
    defaults: ServingDefaults
    model: ModelContract

"""Reusable declarations of the serving contract: admission, sampling, state transfer, paged text.

Data that every recipe for paged text models shares: which value goes to which destination, how
each operation touches the request state, and the fixed parts of the frontend. No launch is
recorded here (`paged_text` does) and no model is known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from helios.kernels.catalogue import EOS_CAPACITY, REQUEST_STATE_NBYTES
from helios.schema import contract_pb2 as pb
from helios.schema import execution_pb2 as execution
from ignition.preparation.checkpoints.checkpoint import TemplateTokens

CONTRACT_VERSION: Final = 3
REQUEST_STATE: Final = "request_state"
PAGE_TABLE: Final = "page_table"
PAGE_TOKENS: Final = 32
MASK_WORD_BITS: Final = 32

# Bytes of a request's state row: (offset, extent) of each field, as docs/kernels.md has them.
STATE_FIELDS: Final[Mapping[str, tuple[int, int]]] = {
    "pending_token": (0, 4),
    "consumed": (4, 4),
    "emitted": (8, 4),
    "output_limit": (12, 4),
    "generation": (16, 4),
    "finished": (20, 4),
    "seed": (24, 8),
    "temperature": (32, 4),
    "top_p": (36, 4),
    "min_p": (40, 4),
    "top_k": (44, 4),
    "eos_ids": (64, 4 * EOS_CAPACITY),
    "request": (0, REQUEST_STATE_NBYTES),
}
_SAMPLING_FIELDS: Final = ("seed", "temperature", "top_p", "min_p", "top_k")
_UNUSED_EOS: Final = -1


@dataclass(frozen=True)
class Destination:
    """A staged destination: its elements and what value fills it. `per_row` is the number of
    elements a row; rows are those of `indexing`, a scalar has one."""

    name: str
    dtype: execution.DType
    source: pb.ValueSource
    indexing: pb.Indexing
    per_row: int = 1
    padding: int = 0

    def binding(self) -> pb.ValueBinding:
        """The binding that fills it."""
        return pb.ValueBinding(
            destination=self.name,
            source=self.source,
            indexing=self.indexing,
            padding=self.padding,
        )


def _scalar(name: str, source: pb.ValueSource) -> Destination:
    return Destination(name, execution.DTYPE_I32, source, pb.INDEXING_SCALAR)


def _lane(
    name: str,
    source: pb.ValueSource,
    dtype: execution.DType = execution.DTYPE_I32,
    per_row: int = 1,
    padding: int = 0,
) -> Destination:
    return Destination(name, dtype, source, pb.INDEXING_ACTIVE_ROW, per_row, padding)


def _token(name: str, source: pb.ValueSource) -> Destination:
    return Destination(name, execution.DTYPE_I32, source, pb.INDEXING_PACKED_TOKEN)


LIVE_ROWS: Final = _scalar("live_rows", pb.VALUE_SOURCE_LIVE_ROW_COUNT)
LIVE_TOKENS: Final = _scalar("live_tokens", pb.VALUE_SOURCE_LIVE_TOKEN_COUNT)
SLOT: Final = _lane("slot", pb.VALUE_SOURCE_SLOT)
GENERATION: Final = _lane("generation", pb.VALUE_SOURCE_GENERATION)
QUERY_LENGTH: Final = _lane("query_length", pb.VALUE_SOURCE_QUERY_LENGTH)
SAMPLE: Final = _lane("sample", pb.VALUE_SOURCE_SAMPLING_DECISION)
TOKENS: Final = _token("tokens", pb.VALUE_SOURCE_PROMPT_TOKEN)
POSITIONS: Final = _token("positions", pb.VALUE_SOURCE_PROMPT_POSITION)
TOKEN_SLOT: Final = _token("token_slot", pb.VALUE_SOURCE_SLOT)

# What an admitted request brings; the names are those of `initialize_requests`' operands. A row's
# unused end-of-sequence ids are padding too.
ADMISSION: Final = (
    _lane("consumed", pb.VALUE_SOURCE_CONSUMED_TOKENS),
    _lane("emitted", pb.VALUE_SOURCE_EMITTED_TOKENS),
    _lane("output_limit", pb.VALUE_SOURCE_OUTPUT_LIMIT),
    _lane("seed", pb.VALUE_SOURCE_SEED, execution.DTYPE_U32, 2),
    _lane("temperature", pb.VALUE_SOURCE_TEMPERATURE, execution.DTYPE_F32),
    _lane("top_k", pb.VALUE_SOURCE_TOP_K),
    _lane("top_p", pb.VALUE_SOURCE_TOP_P, execution.DTYPE_F32),
    _lane("min_p", pb.VALUE_SOURCE_MIN_P, execution.DTYPE_F32),
    _lane("eos_ids", pb.VALUE_SOURCE_EOS_IDS, per_row=EOS_CAPACITY, padding=_UNUSED_EOS),
)
STAGED: Final = (
    LIVE_ROWS,
    LIVE_TOKENS,
    SLOT,
    GENERATION,
    QUERY_LENGTH,
    SAMPLE,
    TOKENS,
    POSITIONS,
    TOKEN_SLOT,
    *ADMISSION,
)
_BY_OPERATION: Final[Mapping[int, tuple[Destination, ...]]] = {
    pb.OPERATION_INITIALIZE: (LIVE_ROWS, SLOT, GENERATION, *ADMISSION),
    pb.OPERATION_PREFILL: (
        LIVE_ROWS,
        LIVE_TOKENS,
        SLOT,
        GENERATION,
        QUERY_LENGTH,
        SAMPLE,
        TOKENS,
        POSITIONS,
        TOKEN_SLOT,
    ),
    pb.OPERATION_DECODE: (LIVE_ROWS, SLOT, GENERATION),
}


def state_views(pages_per_request: int) -> list[pb.StateView]:
    """A view for each field of the request state, one of the whole row, and the page table."""
    views = [
        pb.StateView(
            name=name,
            buffer=REQUEST_STATE,
            byte_offset=offset,
            row_stride=REQUEST_STATE_NBYTES,
            byte_extent=extent,
        )
        for name, (offset, extent) in STATE_FIELDS.items()
    ]
    row = 4 * pages_per_request
    return [
        *views,
        pb.StateView(name=PAGE_TABLE, buffer=PAGE_TABLE, row_stride=row, byte_extent=row),
    ]


def accesses(operation: pb.Operation) -> list[pb.StateAccess]:
    """How a program of this operation touches the state views."""
    if operation == pb.OPERATION_INITIALIZE:
        return [_access("request", pb.ACCESS_MODE_WRITE)]
    pending = (
        pb.ACCESS_MODE_READ_WRITE if operation == pb.OPERATION_DECODE else pb.ACCESS_MODE_WRITE
    )
    return [
        _access("pending_token", pending),
        *(
            _access(view, pb.ACCESS_MODE_READ_WRITE)
            for view in ("consumed", "emitted", "finished", PAGE_TABLE)
        ),
        *(
            _access(view, pb.ACCESS_MODE_READ)
            for view in ("output_limit", "generation", *_SAMPLING_FIELDS, "eos_ids")
        ),
    ]


def graph(name: str, operation: pb.Operation) -> pb.GraphContract:
    """The contract of one program: its values, its state, who owns the pending token."""
    bindings = [destination.binding() for destination in _BY_OPERATION[operation]]
    contract = pb.GraphContract(
        name=name,
        operation=operation,
        bindings=bindings,
        accesses=accesses(operation),
        state_rows_per_request=1,
    )
    if operation != pb.OPERATION_INITIALIZE:
        contract.bindings.append(
            pb.ValueBinding(
                destination=PAGE_TABLE,
                source=pb.VALUE_SOURCE_PAGE_TABLE,
                indexing=pb.INDEXING_PHYSICAL_REQUEST_ROW,
            )
        )
    if operation == pb.OPERATION_DECODE:
        contract.pending_token.state_view = "pending_token"
    return contract


def paged_cache(planes: Sequence[str]) -> pb.CacheContract:
    """Keys and values of every position, in pages that one page table lists."""
    return pb.CacheContract(
        page_tokens=PAGE_TOKENS,
        regions=[
            pb.CacheRegion(
                name="attention",
                kind=pb.CACHE_REGION_KIND_PAGED_KEY_VALUE,
                planes=planes,
                tokens_per_record=1,
            )
        ],
        page_tables=[pb.PageTableView(name="pages", destination=PAGE_TABLE)],
    )


def vocabulary(tokens: int) -> pb.Vocabulary:
    """A vocabulary whose ids below `tokens` may be sampled."""
    return pb.Vocabulary(
        sampled_tokens=tokens,
        histogram_tokens=tokens,
        mask_words=-(-tokens // MASK_WORD_BITS),
    )


def text_frontend(
    eos_ids: Sequence[int],
    template_tokens: TemplateTokens,
    envelope: pb.EnvelopeSyntax,
) -> pb.FrontendContract:
    """A frontend without tools, reasoning or images."""
    return pb.FrontendContract(
        tool_parser=pb.TOOL_PARSER_NONE,
        reasoning_parser=pb.REASONING_PARSER_NONE,
        image_preparation=pb.IMAGE_PREPARATION_NONE,
        image_layout=pb.IMAGE_LAYOUT_NONE,
        eos_ids=eos_ids,
        template_tokens=pb.TemplateTokens(
            bos_token=template_tokens.bos_token,
            eos_token=template_tokens.eos_token,
            pad_token=template_tokens.pad_token,
            unk_token=template_tokens.unk_token,
            add_bos_token=template_tokens.add_bos_token,
        ),
        envelope=envelope,
    )


def _access(view: str, mode: pb.AccessMode) -> pb.StateAccess:
    return pb.StateAccess(view=view, mode=mode)

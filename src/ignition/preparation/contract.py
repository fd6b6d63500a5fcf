"""Reusable declarations of the serving contract: admission, sampling, state transfer, paged text.

Data that every recipe for paged text models shares: how each operation touches the request state,
what each graph binds (`destinations` lists the values), the cache's regions, and the fixed parts of
the frontend. No launch is recorded here (`paged_text` does) and no model is known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from helios.kernels.catalogue import (
    EOS_CAPACITY,
    REQUEST_STATE_NBYTES,
    SAMPLING_ROW_NBYTES,
)
from helios.schema import contract_pb2 as pb
from ignition.capture.needs import mask_words
from ignition.preparation.chat_syntax import ChatSyntax
from ignition.preparation.checkpoints.checkpoint import TemplateTokens
from ignition.preparation.destinations import (
    ADMITTING,
    BY_OPERATION,
    HISTOGRAMS,
    HOST_PENDING,
    PENDING_TOKEN,
)

CONTRACT_VERSION: Final = 3
REQUEST_STATE: Final = "request_state"
PAGE_TABLE: Final = "page_table"
SAMPLING_ROWS: Final = "sampling_rows"
TOKEN_MASK: Final = "token_mask"

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
    "penalties": (48, 12),
    "min_tokens": (60, 4),
    "eos_ids": (64, 4 * EOS_CAPACITY),
    "request": (0, REQUEST_STATE_NBYTES),
}
_SAMPLING_FIELDS: Final = (
    "seed", "temperature", "top_p", "min_p", "top_k", "penalties", "min_tokens",
)  # fmt: skip
# Tables of what slots keep for the processing of their logits, and which of them sampled tokens
# change.
_SAMPLING_TABLES: Final = (SAMPLING_ROWS, *HISTOGRAMS, TOKEN_MASK)
_COUNTING: Final = (SAMPLING_ROWS, *HISTOGRAMS)
# Operations that read the pending token which an earlier one left.
_FEED_FROM_STATE: Final = frozenset({pb.OPERATION_DECODE, pb.OPERATION_MIXED})
# Operations that touch no page.
_WITHOUT_PAGES: Final = frozenset({pb.OPERATION_INITIALIZE})
# Operations that read the page table as it is.
_KEEP_PAGES: Final = frozenset({pb.OPERATION_SNAPSHOT})
_ADMIT: Final[Mapping[int, pb.AccessMode]] = {
    pb.OPERATION_INITIALIZE: pb.ACCESS_MODE_WRITE,
    pb.OPERATION_RESTORE: pb.ACCESS_MODE_WRITE,
    # The pending token is set where the row just written says that the lane runs.
    pb.OPERATION_RESUME: pb.ACCESS_MODE_READ_WRITE,
}


def state_views(pages_per_request: int, vocabulary_tokens: int) -> list[pb.StateView]:
    """A view for each field of the request state, one of the whole row, and one for each other
    table of slots."""
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
    tables = {
        PAGE_TABLE: 4 * pages_per_request,
        SAMPLING_ROWS: SAMPLING_ROW_NBYTES,
        **dict.fromkeys(HISTOGRAMS, 4 * vocabulary_tokens),
        TOKEN_MASK: 4 * mask_words(vocabulary_tokens),
    }
    return [
        *views,
        *(
            pb.StateView(name=name, buffer=name, row_stride=row, byte_extent=row)
            for name, row in tables.items()
        ),
    ]


def accesses(operation: pb.Operation) -> list[pb.StateAccess]:
    """How a program of this operation touches the state views."""
    if operation in _KEEP_PAGES:
        return [_access(PAGE_TABLE, pb.ACCESS_MODE_READ)]
    pages = [] if operation in _WITHOUT_PAGES else [_access(PAGE_TABLE, pb.ACCESS_MODE_READ_WRITE)]
    if operation in _ADMIT:
        tables = [_access(table, pb.ACCESS_MODE_WRITE) for table in _SAMPLING_TABLES]
        return [_access("request", _ADMIT[operation]), *tables, *pages]
    feeds = operation in _FEED_FROM_STATE
    return [
        _access("pending_token", pb.ACCESS_MODE_READ_WRITE if feeds else pb.ACCESS_MODE_WRITE),
        *(_access(view, pb.ACCESS_MODE_READ_WRITE) for view in ("consumed", "emitted", "finished")),
        *pages,
        *(
            _access(view, pb.ACCESS_MODE_READ)
            for view in ("output_limit", "generation", *_SAMPLING_FIELDS, "eos_ids")
        ),
        *(_access(table, pb.ACCESS_MODE_READ_WRITE) for table in _COUNTING),
        _access(TOKEN_MASK, pb.ACCESS_MODE_READ),
    ]


def graph(name: str, operation: pb.Operation) -> pb.GraphContract:
    """The contract of one program: its values, its state, who owns the pending token."""
    bindings = [destination.binding() for destination in BY_OPERATION[operation]]
    contract = pb.GraphContract(
        name=name,
        operation=operation,
        bindings=bindings,
        accesses=accesses(operation),
        state_rows_per_request=1,
    )
    if operation not in _WITHOUT_PAGES | _KEEP_PAGES:
        contract.bindings.append(
            pb.ValueBinding(
                destination=PAGE_TABLE,
                source=pb.VALUE_SOURCE_PAGE_TABLE,
                indexing=pb.INDEXING_PHYSICAL_REQUEST_ROW,
            )
        )
    if operation in ADMITTING:
        contract.bindings.extend(
            pb.ValueBinding(
                destination=table,
                source=source,
                indexing=pb.INDEXING_PHYSICAL_REQUEST_ROW,
            )
            for table, source in HISTOGRAMS.items()
        )
    if operation in _FEED_FROM_STATE:
        contract.pending_token.state_view = "pending_token"
    if operation in HOST_PENDING:
        contract.pending_token.host_binding.CopyFrom(PENDING_TOKEN.binding())
    return contract


def paged_cache(
    planes: Sequence[str], saved: Sequence[str] = (), *, page_tokens: int, window_tokens: int = 0
) -> pb.CacheContract:
    """Keys and values of every position, or of the last `window_tokens`, in pages of `page_tokens`
    that one page table lists. `saved` are the planes whose rows keep a page that is still being
    filled."""
    history = pb.CacheRegion(
        name="attention",
        kind=pb.CACHE_REGION_KIND_PAGED_KEY_VALUE,
        planes=planes,
        tokens_per_record=1,
    )
    if window_tokens:
        history = pb.CacheRegion(
            name="attention",
            kind=pb.CACHE_REGION_KIND_SLIDING_WINDOW,
            planes=planes,
            window_tokens=window_tokens,
        )
    regions = [history]
    if saved:
        regions.append(
            pb.CacheRegion(
                name="partial_pages", kind=pb.CACHE_REGION_KIND_CONTINUATION, planes=saved
            )
        )
    return pb.CacheContract(
        page_tokens=page_tokens,
        regions=regions,
        page_tables=[pb.PageTableView(name="pages", destination=PAGE_TABLE)],
    )


def vocabulary(tokens: int) -> pb.Vocabulary:
    """A vocabulary whose ids below `tokens` may be sampled."""
    return pb.Vocabulary(
        sampled_tokens=tokens,
        histogram_tokens=tokens,
        mask_words=mask_words(tokens),
    )


def text_frontend(
    eos_ids: Sequence[int],
    template_tokens: TemplateTokens,
    syntax: ChatSyntax,
) -> pb.FrontendContract:
    """A frontend without images, with the chat's syntax of calls and reasoning, and one rule for
    the messages at which its prompts can be cut."""
    tools, reasoning = syntax.tool_entry, syntax.reasoning_entry
    return pb.FrontendContract(
        tool_parser=tools.parser,
        reasoning_parser=reasoning.parser,
        tool_syntax=tools.syntax if tools.syntax.ByteSize() else None,
        reasoning_syntax=reasoning.syntax if reasoning.syntax.ByteSize() else None,
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
        envelope=syntax.envelope,
        prefix_boundaries=[pb.PrefixBoundaryRule(roles=syntax.boundary_roles)]
        if syntax.boundary_roles
        else (),
    )


def _access(view: str, mode: pb.AccessMode) -> pb.StateAccess:
    return pb.StateAccess(view=view, mode=mode)

"""The contract of a captured model: every program fed completely, every state access declared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from helios.contract.enums import (
    AccessMode,
    CacheRegionKind,
    Indexing,
    Operation,
    ValueSource,
)
from helios.contract.json_form import from_json, to_json
from helios.contract.model import GraphContract
from helios.contract.versions import NEWEST_VERSION
from helios.errors import ContractError
from ignition.preparation import chat_syntax
from ignition.preparation.checkpoints.checkpoint import TemplateTokens
from ignition.preparation.options import OPTIONAL_PROGRAMS, Options
from ignition.preparation.paged_text import Extents
from tests.checkpoints import TOKENS, VARIANTS
from tests.ignition.conftest import EXTENTS, Captured

Capture = Callable[..., Captured]
S, I = ValueSource, Indexing  # noqa: E741

LANES = {
    "live_rows": (S.LIVE_ROW_COUNT, I.SCALAR),
    "slot": (S.SLOT, I.ACTIVE_ROW),
    "generation": (S.GENERATION, I.ACTIVE_ROW),
}
MASK = {"grammar_mask": (S.GRAMMAR_MASK, I.ACTIVE_ROW)}
PAGES = {"page_table": (S.PAGE_TABLE, I.PHYSICAL_REQUEST_ROW)}
MASK = {"grammar_mask": (S.GRAMMAR_MASK, I.ACTIVE_ROW)}
EXPECTED = {
    Operation.INITIALIZE: {
        **LANES,
        "consumed": (S.CONSUMED_TOKENS, I.ACTIVE_ROW),
        "emitted": (S.EMITTED_TOKENS, I.ACTIVE_ROW),
        "output_limit": (S.OUTPUT_LIMIT, I.ACTIVE_ROW),
        "seed": (S.SEED, I.ACTIVE_ROW),
        "temperature": (S.TEMPERATURE, I.ACTIVE_ROW),
        "top_k": (S.TOP_K, I.ACTIVE_ROW),
        "top_p": (S.TOP_P, I.ACTIVE_ROW),
        "min_p": (S.MIN_P, I.ACTIVE_ROW),
        "eos_ids": (S.EOS_IDS, I.ACTIVE_ROW),
        "repetition_penalty": (S.REPETITION_PENALTY, I.ACTIVE_ROW),
        "presence_penalty": (S.PRESENCE_PENALTY, I.ACTIVE_ROW),
        "frequency_penalty": (S.FREQUENCY_PENALTY, I.ACTIVE_ROW),
        "min_tokens": (S.MIN_TOKENS, I.ACTIVE_ROW),
        "top_logprobs": (S.TOP_LOGPROBS, I.ACTIVE_ROW),
        "stop_ids": (S.STOP_TOKEN_ID, I.ACTIVE_ROW),
        "bias_tokens": (S.LOGIT_BIAS_TOKEN, I.ACTIVE_ROW),
        "bias": (S.LOGIT_BIAS, I.ACTIVE_ROW),
        "bad_words": (S.BAD_WORD_TOKEN, I.ACTIVE_ROW),
        "recent": (S.RECENT_OUTPUT_TOKEN, I.ACTIVE_ROW),
        "mask": (S.TOKEN_MASK, I.ACTIVE_ROW),
        "token_counts": (S.PROMPT_HISTOGRAM, I.PHYSICAL_REQUEST_ROW),
        "output_counts": (S.OUTPUT_HISTOGRAM, I.PHYSICAL_REQUEST_ROW),
    },
    Operation.PREFILL: {
        **LANES,
        **PAGES,
        "live_tokens": (S.LIVE_TOKEN_COUNT, I.SCALAR),
        "query_length": (S.QUERY_LENGTH, I.ACTIVE_ROW),
        "sample": (S.SAMPLING_DECISION, I.ACTIVE_ROW),
        "tokens": (S.PROMPT_TOKEN, I.PACKED_TOKEN),
        "positions": (S.PROMPT_POSITION, I.PACKED_TOKEN),
        "token_slot": (S.SLOT, I.PACKED_TOKEN),
        **MASK,
    },
    Operation.DECODE: {**LANES, **PAGES, **MASK},
}
RESTORE_ROW = {"restore_row": (S.RESTORE_SOURCE, I.ACTIVE_ROW)}
EXPECTED |= {
    Operation.RESTORE: {**EXPECTED[Operation.INITIALIZE], **PAGES, **RESTORE_ROW},
    Operation.RESUME: {
        **EXPECTED[Operation.INITIALIZE],
        **PAGES,
        **RESTORE_ROW,
        "pending_token": (S.PENDING_TOKEN, I.ACTIVE_ROW),
    },
    Operation.SNAPSHOT: {
        "live_rows": (S.LIVE_ROW_COUNT, I.SCALAR),
        "slot": (S.SLOT, I.ACTIVE_ROW),
        "consumed": (S.CONSUMED_TOKENS, I.ACTIVE_ROW),
        "snapshot_row": (S.SNAPSHOT_DESTINATION, I.ACTIVE_ROW),
    },
    Operation.SCORED_PREFILL: {
        **EXPECTED[Operation.PREFILL],
        "targets": (S.SCORED_TARGET_TOKEN, I.PACKED_TOKEN),
        "scored_top_logprobs": (S.SCORED_TOP_LOGPROBS, I.PACKED_TOKEN),
    },
    Operation.MIXED: {
        **EXPECTED[Operation.PREFILL],
        "decode_lanes": (S.MIXED_PREFILL_ROW, I.SCALAR),
    },
}


COUNTING = ("sampling_rows", "token_counts", "output_counts")
ADMITTED = dict.fromkeys((*COUNTING, "token_mask"), AccessMode.WRITE)
READ_PAGES = {"page_table": AccessMode.READ_WRITE}
MOVED = {
    Operation.INITIALIZE: {"request": AccessMode.WRITE, **ADMITTED},
    Operation.RESTORE: {"request": AccessMode.WRITE, **ADMITTED, **READ_PAGES},
    Operation.RESUME: {"request": AccessMode.READ_WRITE, **ADMITTED, **READ_PAGES},
    Operation.SNAPSHOT: {"page_table": AccessMode.READ},
}


def graphs(found: Captured) -> dict[str, GraphContract]:
    return {graph.name: graph for graph in found.contract.model.graphs}


def test_bindings_are_complete_and_no_more(captured: Capture) -> None:
    found = captured("llama")
    for name, graph in graphs(found).items():
        bindings = list(graph.bindings)
        if graph.pending_token is not None and graph.pending_token.host_binding is not None:
            bindings.append(graph.pending_token.host_binding)
        bound = {b.destination: (b.source, b.indexing) for b in bindings}
        assert bound == EXPECTED[graph.operation], name
        assert set(bound) == set(found.program(name).inputs), name


def test_unused_ids_are_padding_that_no_token_equals(captured: Capture) -> None:
    (initialize,) = (
        g for g in graphs(captured("llama")).values() if g.operation is Operation.INITIALIZE
    )
    padding = {b.destination: b.padding for b in initialize.bindings}
    for ids in ("eos_ids", "stop_ids", "bias_tokens", "recent"):
        assert padding.pop(ids) == -1
    assert set(padding.values()) == {0}


def test_the_device_owns_the_pending_token_but_for_resumed_requests(captured: Capture) -> None:
    owned = (Operation.DECODE, Operation.MIXED)
    for graph in graphs(captured("llama")).values():
        owner = graph.pending_token
        assert (owner is not None) == (graph.operation in (*owned, Operation.RESUME))
        if owner is not None and graph.operation in owned:
            assert (owner.state_view, owner.host_binding) == ("pending_token", None)
        elif owner is not None:
            assert owner.state_view is None
            assert owner.host_binding is not None
            assert owner.host_binding.source is S.PENDING_TOKEN


def test_state_accesses_say_what_the_kernels_do(captured: Capture) -> None:
    found = captured("llama")
    for name, graph in graphs(found).items():
        modes = {access.view: access.mode for access in graph.accesses}
        assert {a.view: AccessMode(a.mode) for a in found.program(name).accesses} == modes
        if graph.operation in MOVED:
            assert modes == MOVED[graph.operation]
            continue
        decode = graph.operation in (Operation.DECODE, Operation.MIXED)
        assert modes["pending_token"] is (AccessMode.READ_WRITE if decode else AccessMode.WRITE)
        changed = {"pending_token", "consumed", "emitted", "finished", "page_table", *COUNTING}
        assert {view for view, mode in modes.items() if mode.writes} == changed
        assert {view for view, mode in modes.items() if mode is AccessMode.READ} == {
            "output_limit",
            "generation",
            "seed",
            "temperature",
            "top_p",
            "min_p",
            "top_k",
            "penalties",
            "min_tokens",
            "eos_ids",
            "token_mask",
        }


def test_state_views_tile_the_request_row(captured: Capture) -> None:
    """As docs/kernels.md lays the row out: fields don't overlap, and none is unnamed."""
    views = {view.name: view for view in captured("llama").contract.model.state_views}
    table, row = views.pop("page_table"), views.pop("request")
    assert (table.buffer, table.row_stride, table.byte_extent) == ("page_table", 16, 16)
    rows = dict.fromkeys(("token_counts", "output_counts"), 4 * TOKENS)
    for name, nbytes in {**rows, "sampling_rows": 8640, "token_mask": 4 * -(-TOKENS // 32)}.items():
        view = views.pop(name)
        assert (view.buffer, view.row_stride, view.byte_extent) == (name, nbytes, nbytes)
    assert (row.byte_offset, row.row_stride, row.byte_extent) == (0, 128, 128)
    covered = sorted((v.byte_offset, v.byte_offset + v.byte_extent) for v in views.values())
    words = [(4 * i, 4 * i + 4) for i in range(6)]
    assert covered == [
        *words, (24, 32), (32, 36), (36, 40), (40, 44), (44, 48), (48, 60), (60, 64), (64, 128),
    ]  # fmt: skip
    assert {(v.buffer, v.row_stride) for v in views.values()} == {("request_state", 128)}


@pytest.mark.parametrize("variant", list(VARIANTS))
def test_the_contract_describes_the_model(captured: Capture, variant: str) -> None:
    v = VARIANTS[variant]
    contract = captured(variant).contract
    assert contract.model.vocabulary.sampled_tokens == TOKENS
    assert contract.model.vocabulary.mask_words == -(-TOKENS // 32)
    assert contract.model.input_vocabulary.input_tokens == v.vocabulary
    assert contract.max_context_tokens == EXTENTS.max_context_tokens
    assert contract.prefill_extents == EXTENTS.prefill
    assert contract.max_active == EXTENTS.max_active
    history, partial = contract.model.cache.regions
    assert contract.model.cache.page_tokens == 32
    assert len(history.planes) == len(partial.planes) == 2 * v.layers
    windowed = v.sliding_window is not None
    assert (history.kind is CacheRegionKind.SLIDING_WINDOW) == windowed
    assert history.window_tokens == (v.sliding_window or 0)
    assert partial.kind is CacheRegionKind.CONTINUATION
    # One request of 100 tokens, and as much for each of the two others.
    assert contract.cache_pages == 3 * 4
    assert contract.snapshot_rows == 3 * 2


@pytest.mark.clause("CONTRACT-2")
@pytest.mark.parametrize("variant", list(VARIANTS))
def test_version_3_is_written(captured: Capture, variant: str) -> None:
    assert captured(variant).serving.model.version == NEWEST_VERSION == 3


@pytest.mark.clause("CONTRACT-6")
def test_the_contract_survives_the_strict_json_form(captured: Capture) -> None:
    message = captured("qwen2").serving
    assert from_json(to_json(message)) == message


def test_the_frontend_follows_checkpoint_and_template(captured: Capture) -> None:
    found = captured("qwen2")
    contract = found.contract
    frontend, sampling = contract.model.frontend, contract.defaults.sampling
    assert frontend.eos_ids == (0, 2)
    assert frontend.template_tokens.bos_token == "<|im_start|>"
    assert not frontend.template_tokens.add_bos_token
    assert frontend.envelope.assistant_start == "<|im_start|>assistant\n"
    assert frontend.envelope.message_end == "<|im_end|>"
    assert sampling.temperature == pytest.approx(0.7)
    assert sampling.top_p == pytest.approx(0.9)
    assert sampling.top_k is None
    assert (contract.served_id, contract.aliases) == ("tiny", ("alias",))


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"prefill": ()}, "prefill"),
        ({"prefill": (32, 32)}, "prefill"),
        ({"prefill": (0, 32)}, "--prefill"),
        ({"decode": (2, 1)}, "decode"),
        ({"decode": (1, 2)}, "decode"),
        ({"decode": (1, 64)}, "--decode"),
        ({"max_active": 0}, "--max-active"),
        ({"max_context_tokens": 0}, "--max-context"),
        ({"mixed": (1, 32)}, "--mixed"),
        ({"mixed": (32, 16)}, "--mixed"),
        ({"mixed": (32,), "max_active": 1, "decode": (1,)}, "--mixed"),
        ({"scored_prefill": (0,)}, "--scored-prefill"),
        ({"restore": (5,)}, "--restore"),
        ({"restore": (2, 2)}, "--restore"),
    ],
)
def test_impossible_extents_are_refused(changes: dict[str, object], where: str) -> None:
    given: dict[str, object] = {
        "max_active": 4,
        "prefill": (32,),
        "decode": (1, 4),
        "max_context_tokens": 64,
    }
    with pytest.raises(ContractError) as caught:
        Extents(**{**given, **changes})  # type: ignore[arg-type]
    assert where in caught.value.where


@pytest.mark.parametrize(
    ("max_active", "decode"),
    [(32, (1, 2, 4, 8, 16, 32)), (6, (1, 2, 4, 6)), (1, (1,)), (64, (1, 2, 4, 8, 16, 32, 64))],
)
def test_default_decode_programs_cover_the_slots(max_active: int, decode: tuple[int, ...]) -> None:
    options = Options(namespace="n", served_id="s", max_active=max_active)
    assert options.extents(2048).decode == decode


@pytest.mark.parametrize(
    ("asked", "mixed", "scored", "restore"),
    [
        ({}, (512,), (128,), (32,)),
        ({"max_active": 1}, (), (128,), (1,)),
        ({"max_active": 64, "prefill": (32,)}, (128,), (128,), (64,)),
        ({"mixed": (), "scored_prefill": (), "restore": ()}, (), (), ()),
        ({"mixed": (40, 64), "scored_prefill": (8,), "restore": (1, 4)}, (40, 64), (8,), (1, 4)),
    ],
)
def test_default_programs_that_a_core_may_lack(
    asked: dict[str, Any],
    mixed: tuple[int, ...],
    scored: tuple[int, ...],
    restore: tuple[int, ...],
) -> None:
    options = Options(namespace="n", served_id="s", **asked)
    extents = options.extents(2048)
    assert (extents.mixed, extents.scored_prefill, extents.restore) == (mixed, scored, restore)
    plain = TemplateTokens(None, None, None, None, add_bos_token=False)
    texts = options.texts(extents, chat_syntax.choose(None, plain), chat_syntax.NONE)
    assert [name for name in OPTIONAL_PROGRAMS if name in texts] == [
        name for name in OPTIONAL_PROGRAMS if getattr(extents, name)
    ]


def test_a_context_beyond_the_model_s_is_refused() -> None:
    options = Options(namespace="n", served_id="s", max_context=4096)
    with pytest.raises(ContractError, match="more than the model's 2048"):
        options.extents(2048)
    assert options.extents(8192).max_context_tokens == 4096

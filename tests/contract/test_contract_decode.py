"""Decoding a contract: what is read, and that every wrong field is refused by its path."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from enum import IntEnum

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helios.contract import decode, enums
from helios.errors import ContractError
from helios.schema import contract_pb2 as pb
from tests.contract.damage import damaged
from tests.contract.sample import bind, sample_contract

Change = Callable[[pb.ServingContract], object]


@pytest.mark.clause("CONTRACT-1", "CONTRACT-4", "CONTRACT-5")
def test_every_part_arrives() -> None:
    contract = decode(sample_contract())
    assert (contract.served_id, contract.aliases) == ("sample", ("sample-alias",))
    assert contract.cache_identity == "sample/1"
    assert (contract.max_context_tokens, contract.prefill_extents) == (24, (8, 16))
    assert (contract.cache_pages, contract.snapshot_rows, contract.max_active) == (24, 0, 4)
    assert contract.speculative_widths == ()
    assert contract.defaults.queue_capacity == 8
    assert contract.defaults.frontend_workers is None
    assert contract.defaults.sampling.temperature == 0.5
    assert contract.defaults.sampling.top_k == 0
    assert contract.defaults.sampling.top_p is None
    model = contract.model
    assert model.vocabulary.sampled_tokens == 50
    assert model.input_vocabulary.image_sentinels == (51,)
    assert model.vision is not None
    assert model.vision.patch_capacities == (16, 64)
    assert model.cache.regions[0].planes == ("cache.k.0", "cache.v.0")
    assert model.cache.page_tables[0].destination == "page_table"
    assert [graph.name for graph in model.graphs][:2] == ["initialize.b4", "prefill.p8"]
    binding = model.graphs[0].bindings[-1]
    assert (binding.source, binding.indexing, binding.padding) == (
        enums.ValueSource.EOS_IDS,
        enums.Indexing.ACTIVE_ROW,
        -1,
    )
    assert model.graphs[3].pending_token is not None
    assert model.graphs[3].pending_token.state_view == "pending_token"
    assert model.frontend.eos_ids == (2, 3)
    assert model.frontend.template_tokens.eos_token == "</s>"
    assert model.frontend.template_tokens.bos_token is None
    assert model.state_views[0].byte_extent == 128


@pytest.mark.clause("CONTRACT-2", "CONTRACT-6")
@pytest.mark.parametrize("version", [0, 4, 2**31])
def test_other_versions_are_refused_by_number(version: int) -> None:
    message = sample_contract()
    message.model.version = version
    with pytest.raises(ContractError, match=rf"model\.version: version {version} "):
        decode(message)


def _set(path: str, value: object) -> Change:
    """Assigns a scalar at a dotted path like `model.graphs[0].name`."""

    def change(message: pb.ServingContract) -> None:
        scope: object = message
        *parents, last = path.split(".")
        for part in parents:
            name, _, index = part.partition("[")
            scope = getattr(scope, name)
            if index:
                scope = scope[int(index.rstrip("]"))]  # type: ignore[index]
        name, _, index = last.partition("[")
        if index:
            getattr(scope, name)[int(index.rstrip("]"))] = value
        else:
            setattr(scope, name, value)

    return change


SCALARS: list[tuple[str, object]] = [
    ("served_id", ""),
    ("served_id", "x" * 257),
    ("served_id", "a\x00b"),
    ("aliases[0]", ""),
    ("cache_identity", ""),
    ("max_context_tokens", 0),
    ("max_context_tokens", 2**31),
    ("prefill_extents[0]", 0),
    ("prefill_extents[1]", 8),
    ("cache_pages", 2**31),
    ("max_active", 0),
    ("max_active", 2**16 + 1),
    ("defaults.queue_capacity", 2**31),
    ("defaults.sampling.temperature", -0.1),
    ("defaults.sampling.temperature", float("nan")),
    ("defaults.sampling.top_p", 1.5),
    ("defaults.sampling.min_p", -0.5),
    ("defaults.sampling.repetition_penalty", 0.0),
    ("defaults.sampling.presence_penalty", 3.0),
    ("defaults.sampling.max_output_tokens", 0),
    ("model.vocabulary.sampled_tokens", 0),
    ("model.vocabulary.histogram_tokens", 49),
    ("model.vocabulary.mask_words", 1),
    ("model.input_vocabulary.input_tokens", 49),
    ("model.input_vocabulary.image_sentinels[0]", 49),
    ("model.input_vocabulary.image_sentinels[0]", 52),
    ("model.vision.feature_slots", 0),
    ("model.vision.patch_capacities[1]", 16),
    ("model.cache.page_tokens", 0),
    ("model.cache.regions[0].name", ""),
    ("model.cache.regions[0].kind", 0),
    ("model.cache.regions[0].kind", 99),
    ("model.cache.regions[0].tokens_per_record", 0),
    ("model.cache.regions[0].tokens_per_record", 3),
    ("model.cache.regions[0].window_tokens", 8),
    ("model.cache.regions[0].planes[1]", "cache.k.0"),
    ("model.cache.page_tables[0].destination", ""),
    ("model.graphs[1].name", "initialize.b4"),
    ("model.graphs[1].operation", 0),
    ("model.graphs[1].operation", 11),
    ("model.graphs[1].operation", 12),
    ("model.graphs[1].bindings[1].destination", ""),
    ("model.graphs[1].bindings[1].destination", "live_rows"),
    ("model.graphs[1].bindings[1].source", 0),
    ("model.graphs[1].bindings[1].source", 51),
    ("model.graphs[1].bindings[1].indexing", 0),
    ("model.graphs[1].bindings[1].indexing", 6),
    ("model.graphs[1].bindings[1].constant", 1),
    ("model.graphs[1].bindings[1].image_tensor", "patches"),
    ("model.graphs[1].accesses[0].view", "nothing"),
    ("model.graphs[1].accesses[0].mode", 0),
    ("model.graphs[1].pending_token.state_view", "nothing"),
    ("model.graphs[1].pending_token.state_view", "request"),
    ("model.graphs[1].state_rows_per_request", 2**16 + 1),
    ("model.graphs[1].confidence_width", 1),
    ("model.frontend.tool_parser", 0),
    ("model.frontend.tool_parser", 12),
    ("model.frontend.reasoning_parser", 0),
    ("model.frontend.image_preparation", 3),
    ("model.frontend.image_layout", 2),
    ("model.frontend.eos_ids[1]", 50),
    ("model.frontend.eos_ids[1]", 2),
    ("model.frontend.reasoning_syntax.terminal_marker", "<tool>"),
    ("model.state_views[0].name", ""),
    ("model.state_views[0].row_stride", 0),
    ("model.state_views[0].byte_extent", 129),
    ("model.state_views[0].byte_offset", 2**63),
]


@pytest.mark.clause("CONTRACT-3", "CONTRACT-5", "CONTRACT-6")
@pytest.mark.parametrize(("path", "value"), SCALARS, ids=[f"{p}={v!r:.12}" for p, v in SCALARS])
def test_a_wrong_field_is_refused_by_its_path(path: str, value: object) -> None:
    message = sample_contract()
    _set(path, value)(message)
    with pytest.raises(ContractError) as raised:
        decode(message)
    assert raised.value.where == path
    assert str(raised.value).startswith(path)


STRUCTURES: list[tuple[str, Change]] = [
    ("served_id and aliases[1]", lambda m: m.aliases.__setitem__(0, "sample")),
    ("model", lambda m: m.ClearField("model")),
    ("model.vocabulary", lambda m: m.model.ClearField("vocabulary")),
    ("model.input_vocabulary", lambda m: m.model.ClearField("input_vocabulary")),
    ("model.cache", lambda m: m.model.ClearField("cache")),
    ("model.frontend", lambda m: m.model.ClearField("frontend")),
    ("model.graphs", lambda m: m.model.ClearField("graphs")),
    ("model.cache.regions[0].planes", lambda m: m.model.cache.regions[0].ClearField("planes")),
    (
        "model.cache.regions[1].name",
        lambda m: m.model.cache.regions.add(name="attention", kind=4),
    ),
    (
        "model.cache.regions[1].window_tokens",
        lambda m: m.model.cache.regions.add(name="window", kind=3),
    ),
    (
        "model.cache.page_tables[1].name",
        lambda m: m.model.cache.page_tables.add(name="pages", destination="other"),
    ),
    (
        "model.state_views[3].name",
        lambda m: m.model.state_views.add(name="request", buffer="b", row_stride=1, byte_extent=1),
    ),
    (
        "model.graphs[0].accesses[2].view",
        lambda m: m.model.graphs[0].accesses.add(view="request", mode=1),
    ),
    (
        "model.graphs[0].pending_token.state_view",
        lambda m: m.model.graphs[0].ClearField("accesses"),
    ),
    (
        "model.graphs[3].pending_token.state_view",
        lambda m: _set("model.graphs[3].accesses[0].mode", pb.ACCESS_MODE_READ)(m),
    ),
    (
        "model.graphs[3].pending_token.state_view",
        lambda m: _set("model.graphs[3].accesses[0].mode", pb.ACCESS_MODE_WRITE)(m),
    ),
    (
        "model.graphs[0].pending_token.owner",
        lambda m: m.model.graphs[0].pending_token.Clear(),
    ),
    (
        "model.graphs[0].pending_token.host_binding.source",
        lambda m: m.model.graphs[0].pending_token.host_binding.CopyFrom(
            bind("pending", "PROMPT_TOKEN", "ACTIVE_ROW")
        ),
    ),
    (
        "model.graphs[0].pending_token.host_binding.destination",
        lambda m: m.model.graphs[0].pending_token.host_binding.CopyFrom(
            bind("slot", "PENDING_TOKEN", "ACTIVE_ROW")
        ),
    ),
    (
        "model.graphs[0].draft_cursor.state_view",
        lambda m: _set("model.graphs[0].draft_cursor.state_view", "nothing")(m),
    ),
    (
        "model.graphs[0].tuned_bindings[1].buffer",
        lambda m: m.model.graphs[0].tuned_bindings.extend(
            [pb.TunedBinding(buffer="choice", producer="tune")] * 2
        ),
    ),
    (
        "model.graphs[3].bindings",
        lambda m: _set("model.graphs[3].operation", pb.OPERATION_SPECULATIVE)(m),
    ),
    ("model.frontend.image_settings", lambda m: _images(m)),
    (
        "model.frontend.prefix_boundaries[0].roles",
        lambda m: m.model.frontend.prefix_boundaries[0].ClearField("roles"),
    ),
]


def _images(message: pb.ServingContract) -> None:
    message.model.frontend.image_preparation = pb.IMAGE_PREPARATION_SMART_RESIZE
    message.model.frontend.image_layout = pb.IMAGE_LAYOUT_THREE_ROW_POSITIONS


@pytest.mark.clause("CONTRACT-5")
@pytest.mark.parametrize(("path", "change"), STRUCTURES, ids=[p for p, _ in STRUCTURES])
def test_a_wrong_structure_is_refused_by_its_path(path: str, change: Change) -> None:
    message = sample_contract()
    change(message)
    with pytest.raises(ContractError) as raised:
        decode(message)
    assert raised.value.where == path


@pytest.mark.clause("CONTRACT-6")
@pytest.mark.parametrize(
    ("path", "pick"),
    [
        ("<1000>", lambda m: m),
        ("model.<1000>", lambda m: m.model),
        ("model.graphs[2].bindings[1].<1000>", lambda m: m.model.graphs[2].bindings[1]),
        ("model.frontend.template_tokens.<1000>", lambda m: m.model.frontend.template_tokens),
    ],
)
def test_unknown_fields_are_refused(
    path: str, pick: Callable[[pb.ServingContract], object]
) -> None:
    message = sample_contract()
    part = pick(message)
    # field 1000, varint 1
    part.MergeFromString(b"\xc0\x3e\x01")  # type: ignore[attr-defined]
    with pytest.raises(ContractError) as raised:
        decode(message)
    assert raised.value.where == path


@pytest.mark.clause("CONTRACT-6")
@pytest.mark.parametrize(
    "mine",
    [
        enums.Operation,
        enums.CacheRegionKind,
        enums.ValueSource,
        enums.Indexing,
        enums.AccessMode,
        enums.ToolParser,
        enums.ReasoningParser,
        enums.ImagePreparation,
        enums.ImageLayout,
    ],
)
def test_enumerations_are_the_schemas_without_zero(mine: type[IntEnum]) -> None:
    wire = pb.DESCRIPTOR.enum_types_by_name[mine.__name__]
    prefix = wire.values_by_number[0].name.removesuffix("UNSPECIFIED")
    schema = {value.name.removeprefix(prefix): value.number for value in wire.values}
    assert schema.pop("UNSPECIFIED") == 0
    assert {member.name: member.value for member in mine} == schema


@pytest.mark.clause("CONTRACT-6")
@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_damaged_bytes_give_a_contract_error_or_a_contract(data: st.DataObject) -> None:
    message = damaged(data, sample_contract())
    if message is not None:
        with contextlib.suppress(ContractError):
            decode(message)

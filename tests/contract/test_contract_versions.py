"""Older contract versions: read with documented values where they have no field, and refused by
path where they claim what came later."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from helios.contract import decode
from helios.contract.enums import ImageLayout, ImagePreparation
from helios.contract.model import PreparedContract
from helios.contract.versions import FIELDS_SINCE, VALUES_SINCE
from helios.errors import ContractError
from helios.schema import contract_pb2 as pb
from tests.contract.sample import VOCABULARY, bind, sample_contract, sample_of_version

Change = Callable[[pb.ServingContract], object]


@pytest.mark.clause("CONTRACT-2")
@pytest.mark.parametrize("version", [1, 2])
def test_an_older_contract_means_what_the_newest_would_say(version: int) -> None:
    contract = decode(sample_of_version(version))
    assert contract.model.version == version
    assert contract.speculative_widths == ()
    assert contract.model.input_vocabulary.input_tokens == VOCABULARY
    assert contract.model.input_vocabulary.image_sentinels == ()
    assert contract.model.vision is None
    assert contract.model.frontend.image_preparation is ImagePreparation.NONE
    assert contract.model.frontend.image_layout is ImageLayout.NONE
    assert contract.model.frontend.image_settings is None
    for graph in contract.model.graphs:
        assert graph.state_rows_per_request == 1
        assert (graph.tuned_bindings, graph.draft_cursor, graph.confidence_width) == ((), None, 0)
    spelled_out = sample_of_version(3)
    spelled_out.model.input_vocabulary.CopyFrom(pb.InputVocabulary(input_tokens=VOCABULARY))
    spelled_out.model.ClearField("vision")
    assert _of_version(decode(spelled_out), version) == contract


def _of_version(contract: PreparedContract, version: int) -> PreparedContract:
    return replace(contract, model=replace(contract.model, version=version))


@pytest.mark.clause("CONTRACT-2")
def test_reading_an_older_contract_leaves_its_message_alone() -> None:
    message = sample_of_version(1)
    before = message.SerializeToString(deterministic=True)
    decode(message)
    assert message.SerializeToString(deterministic=True) == before


def test_version_2_may_leave_a_graph_without_state_rows() -> None:
    message = sample_of_version(2)
    message.model.graphs[0].state_rows_per_request = 0
    assert decode(message).model.graphs[0].state_rows_per_request == 0


LATER: list[tuple[int, str, Change]] = [
    (2, "speculative_widths", lambda m: m.speculative_widths.append(4)),
    (
        2,
        "model.graphs[3].draft_cursor",
        lambda m: setattr(m.model.graphs[3].draft_cursor, "state_view", "request"),
    ),
    (2, "model.graphs[3].confidence_width", lambda m: _graph(m, "confidence_width", 1)),
    (2, "model.graphs[3].state_rows_per_request", lambda m: _graph(m, "state_rows_per_request", 1)),
    (
        2,
        "model.cache.page_tables[0].page_offset",
        lambda m: setattr(m.model.cache.page_tables[0], "page_offset", 1),
    ),
    (
        2,
        "model.cache.regions[1].kind",
        lambda m: m.model.cache.regions.add(name="more", kind=pb.CACHE_REGION_KIND_CONTINUATION),
    ),
    (2, "model.graphs[3].operation", lambda m: _graph(m, "operation", pb.OPERATION_SPECULATIVE)),
    *(
        (2, "model.graphs[3].bindings[0].source", lambda m, s=source: _source(m, s))
        for source in (
            "SPECULATIVE_PREFIX_LIMIT",
            "PROPOSAL_TOKEN",
            "PROPOSAL_COUNT",
            "PROPOSAL_GENERATION",
            "PROPOSAL_ENDPOINT",
            "PROPOSAL_GRAMMAR_MASK",
        )
    ),
    (
        3,
        "model.input_vocabulary",
        lambda m: setattr(m.model.input_vocabulary, "input_tokens", VOCABULARY),
    ),
    (3, "model.vision", lambda m: m.model.vision.SetInParent()),
    (
        3,
        "model.frontend.image_preparation",
        lambda m: setattr(m.model.frontend, "image_preparation", pb.IMAGE_PREPARATION_NONE),
    ),
    (
        3,
        "model.frontend.image_layout",
        lambda m: setattr(m.model.frontend, "image_layout", pb.IMAGE_LAYOUT_NONE),
    ),
    (3, "model.frontend.image_settings", lambda m: m.model.frontend.image_settings.SetInParent()),
    (
        3,
        "model.graphs[3].tuned_bindings",
        lambda m: m.model.graphs[3].tuned_bindings.add(buffer="choice", producer="tune"),
    ),
    (3, "model.graphs[3].operation", lambda m: _graph(m, "operation", pb.OPERATION_VISION)),
    (
        3,
        "model.graphs[3].pending_token.host_binding.image_tensor",
        lambda m: m.model.graphs[3].pending_token.host_binding.CopyFrom(
            pb.ValueBinding(image_tensor="patches")
        ),
    ),
    *(
        (3, "model.graphs[3].bindings[0].source", lambda m, s=source: _source(m, s))
        for source in (
            "IMAGE_FEATURE_INDEX",
            "IMAGE_CONTEXT_INDEX",
            "IMAGE_FEATURE_SLOT",
            "IMAGE_TENSOR",
        )
    ),
]


def _graph(message: pb.ServingContract, field: str, value: int) -> None:
    setattr(message.model.graphs[3], field, value)


def _source(message: pb.ServingContract, source: str) -> None:
    message.model.graphs[3].bindings[0].CopyFrom(bind("live_rows", source, "ACTIVE_ROW"))


@pytest.mark.clause("CONTRACT-2", "CONTRACT-6")
@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("since", "path", "change"), LATER, ids=[f"{i}-{p}" for i, (_, p, _) in enumerate(LATER)]
)
def test_what_came_later_is_refused_by_its_path(
    version: int, since: int, path: str, change: Change
) -> None:
    message = sample_of_version(version)
    change(message)
    refusal = _refusal(message)
    if since <= version:
        # It is known to this version: whatever else may be wrong with it, not its version.
        assert refusal is None or "came with version" not in refusal.what
    else:
        assert refusal is not None
        assert refusal.where == path
        assert f"came with version {since}, but the contract says {version}" in refusal.what


def _refusal(message: pb.ServingContract) -> ContractError | None:
    try:
        decode(message)
    except ContractError as error:
        return error
    return None


def test_every_addition_of_the_table_has_its_case() -> None:
    fields = {name for _, name in FIELDS_SINCE}
    assert fields <= {path.rsplit(".", 1)[-1] for _, path, _ in LATER}
    values = [path for _, path, _ in LATER if path.endswith((".source", ".kind", ".operation"))]
    assert len(values) == len(VALUES_SINCE)


def test_the_table_names_what_the_schema_has() -> None:
    messages, enums = pb.DESCRIPTOR.message_types_by_name, pb.DESCRIPTOR.enum_types_by_name
    for message, field in FIELDS_SINCE:
        assert field in messages[message].fields_by_name
    for enum, number in VALUES_SINCE:
        assert number in enums[enum].values_by_number


@pytest.mark.clause("CONTRACT-2")
def test_the_newest_version_has_everything() -> None:
    contract = decode(sample_contract())
    assert contract.model.vision is not None
    assert contract.model.input_vocabulary.image_sentinels == (51,)

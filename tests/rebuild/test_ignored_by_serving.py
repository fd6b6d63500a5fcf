"""What describes preparation never changes what is served."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helios.core import open_core
from helios.engine import Engine
from helios.frontend.prepare import GenerationOptions
from ignition.preparation.export import Carrier
from tests.rebuild.altered import PUBLIC_KEY, altered

PROMPTS = ["the sea", "a ship and its long wake"]
OPTIONS = GenerationOptions(max_tokens=12, temperature=0.8, seed=7)
# A varint, a length-delimited field and a fixed one that no version of the schema has.
UNKNOWN_FIELDS = b"\xc0\x3e\x01" + b"\xca\x3e\x03abc" + b"\xd5\x3e\x00\x01\x02\x03"
# Known field numbers with other wire types than theirs: `version` as text, `views` as a number.
OTHER_WIRE_TYPES = b"\x0a\x03abc" + b"\x10\x07"

Change = Callable[[Any], object]


def _ranks(deployment: Any) -> list[Any]:
    return [rank for target in deployment.targets for rank in target.ranks]


def _without_catalogs(deployment: Any) -> None:
    for rank in _ranks(deployment):
        rank.ClearField("weight_catalog")


def _catalogs(version: int, extra: bytes = b"") -> Change:
    def change(deployment: Any) -> None:
        for rank in _ranks(deployment):
            rank.weight_catalog.version = version
            rank.weight_catalog.MergeFromString(extra)

    return change


def _wrong_catalogs(deployment: Any) -> None:
    """Every tensor in another's buffer, in a storage that doesn't exist."""
    for rank in _ranks(deployment):
        views = rank.weight_catalog.views
        names = [view.buffer for view in views]
        for view, name in zip(views, names[1:] + names[:1], strict=True):
            view.buffer, view.storage = name, "SHREDDED"
        views.add(tensor="nothing", buffer="nowhere")


def _rebuild(version: int, extra: bytes = b"") -> Change:
    def change(deployment: Any) -> None:
        deployment.rebuild.version = version
        deployment.rebuild.MergeFromString(extra)

    return change


def _wrong_rebuild(deployment: Any) -> None:
    deployment.rebuild.recipe = "another"
    deployment.rebuild.options.update(max_active="1", storage="int4", target="cuda:sm_90")
    deployment.rebuild.sources.add(name="../../etc/passwd", nbytes=2**63, sha256=b"short")


CHANGES: dict[str, Change] = {
    "no rebuild manifest": lambda d: d.ClearField("rebuild"),
    "no weight catalogs": _without_catalogs,
    "unknown catalog version": _catalogs(2**32 - 1),
    "unknown catalog fields": _catalogs(77, UNKNOWN_FIELDS),
    "catalog of another shape": _catalogs(78, OTHER_WIRE_TYPES),
    "wrong catalogs": _wrong_catalogs,
    "unknown rebuild version": _rebuild(2**32 - 1),
    "unknown rebuild fields": _rebuild(99, UNKNOWN_FIELDS),
    "rebuild manifest of another shape": _rebuild(99, OTHER_WIRE_TYPES),
    "wrong rebuild manifest": _wrong_rebuild,
}


def served(core: Path) -> list[tuple[list[int], list[float]]]:
    """Tokens and log-probabilities of answers with a seed."""
    with Engine.open(core, accept="tests", publisher_key=PUBLIC_KEY, threads=1) as engine:
        answers = engine.generate(PROMPTS, OPTIONS)
    return [(list(answer.tokens), list(answer.logprobs)) for answer in answers]


@pytest.fixture(scope="module")
def expected(cores: dict[Carrier, Path]) -> list[tuple[list[int], list[float]]]:
    """The unaltered core's answers."""
    return served(cores[Carrier.PAYLOAD])


@pytest.mark.clause("CORE-12")
@pytest.mark.parametrize("carrier", list(Carrier))
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_the_same_is_served(
    cores: dict[Carrier, Path],
    expected: list[tuple[list[int], list[float]]],
    tmp_path: Path,
    carrier: Carrier,
    change: Change,
) -> None:
    folder = altered(cores[carrier], tmp_path / "core", lambda body, deployment: change(deployment))
    original = open_core(cores[carrier], accept="tests", publisher_key=PUBLIC_KEY)
    core = open_core(folder, accept="tests", publisher_key=PUBLIC_KEY)
    assert core.digest != original.digest  # something did change
    assert core.contract == original.contract
    assert served(folder) == expected


@pytest.mark.clause("CORE-12")
def test_each_rank_s_catalog_lists_what_its_weights_hold(core: Path) -> None:
    opened = open_core(core, accept="tests", publisher_key=PUBLIC_KEY)
    (rank,) = opened.deployment.targets[0].ranks
    tensors = {view.tensor: (view.buffer, view.storage) for view in rank.weight_catalog.views}
    assert rank.weight_catalog.version == 1
    assert tensors["layers.0.query"][0] == tensors["layers.0.key"][0]
    assert tensors["layers.1.down"][1] == "Q8_0"
    assert tensors["final_norm"][1] == "F32"

"""Drafts that wouldn't become a core that opens and loads: refused before a weight is drawn."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helios.core.format import DRAFT_FILE
from helios.errors import HeliosError
from helios.schema import core_pb2
from ignition.preparation import weightless
from ignition.preparation.weightless import TABLE_FILE, draft, fill
from tests.ignition.test_prepare import Quiet
from tests.ignition.test_weightless import KEY, OPTIONS, _no_compiler, folder

__all__ = ["_no_compiler", "folder"]

Body = core_pb2.CoreBody
Table = dict[str, Any]


@pytest.fixture
def drafted(folder: Callable[[str], Path], tmp_path: Path) -> Path:
    draft(folder("llama"), tmp_path / "draft", OPTIONS, Quiet())
    return tmp_path / "draft"


def refused(drafted: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    def drawn(*_: object) -> None:
        raise AssertionError("weights are drawn")

    monkeypatch.setattr(weightless, "draw", drawn)
    with pytest.raises(HeliosError) as found:
        fill(drafted, drafted.parent / "core", 0, KEY, Quiet())
    assert not (drafted.parent / "core").exists()
    return str(found.value)


BODIES: list[tuple[str, Callable[[Body], object]]] = [
    ("format version 9", lambda b: setattr(b, "format_version", 9)),
    ("publisher.namespace: is empty", lambda b: b.ClearField("publisher")),
    ("deployment.contract: is missing", lambda b: b.deployment.ClearField("contract")),
    ("deployment.targets: there are none", lambda b: b.deployment.ClearField("targets")),
    (
        "weight_resources: rank 0",
        lambda b: b.deployment.targets[0].ranks[0].ClearField("weight_resources"),
    ),
    ("weight_resources: a draft has none", lambda b: b.weight_resources.add(id="x")),
    (
        "two resources have the same id",
        lambda b: b.executable_resources.add().CopyFrom(b.executable_resources[0]),
    ),
    (
        "not the signed 5",
        lambda b: setattr(b.executable_resources[0], "decoded_nbytes", 5),
    ),
    ("not of 'cuda:sm_100'", lambda b: setattr(b.deployment.targets[0], "name", "cuda:sm_100")),
    ("no module", lambda b: b.deployment.targets[0].ranks[0].ClearField("module_resources")),
    ("max_context", lambda b: b.deployment.contract.ClearField("max_context_tokens")),
]


@pytest.mark.parametrize(("said", "change"), BODIES, ids=[said for said, _ in BODIES])
def test_a_body_that_contradicts_the_rest_is_refused(
    drafted: Path, monkeypatch: pytest.MonkeyPatch, said: str, change: Callable[[Body], object]
) -> None:
    body = core_pb2.CoreBody()
    body.ParseFromString((drafted / DRAFT_FILE).read_bytes())
    change(body)
    (drafted / DRAFT_FILE).write_bytes(body.SerializeToString())
    message = refused(drafted, monkeypatch)
    assert f"{drafted}: is damaged: " in message
    assert said in message


def none_finite(table: Table) -> None:
    values = next(tensor for tensor in table["tensors"] if "f32" in tensor)
    raw = base64.b64decode(values["f32"])
    values["f32"] = base64.b64encode(np.full(len(raw) // 4, np.nan, "<f4").tobytes()).decode()


TABLES: list[tuple[str, Callable[[Table], object]]] = [
    (r"the table is of 'other'", lambda t: t.update(resource="other")),
    (r"the table is of '\ud800'", lambda t: t.update(resource="\ud800")),
    (r"tensors[0]: '\ud800' has", lambda t: t["tensors"][0].update(name="\ud800")),
    ("table, nbytes: is 1099511627776", lambda t: t.update(nbytes=1 << 40)),
    ("past the 1 bytes", lambda t: t.update(tensors=[], nbytes=1)),
    ("table, tensors: has no ", lambda t: t.update(tensors=[])),
    ("and the programs have", lambda t: t["tensors"][0].update(outputs=1)),
    ("aren't finite", none_finite),
]


@pytest.mark.parametrize(("said", "change"), TABLES, ids=range(len(TABLES)))
def test_a_table_that_contradicts_the_programs_is_refused(
    drafted: Path, monkeypatch: pytest.MonkeyPatch, said: str, change: Callable[[Table], object]
) -> None:
    table = json.loads((drafted / TABLE_FILE).read_text())
    change(table)
    (drafted / TABLE_FILE).write_text(json.dumps(table))
    assert said in refused(drafted, monkeypatch)

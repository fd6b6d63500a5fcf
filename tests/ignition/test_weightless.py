"""Drafts: recorded without weights (and here without a compiler), filled to the same core again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from helios.core import open_core
from helios.core.format import DRAFT_FILE
from helios.errors import ContractError, CoreError, HeliosError
from helios.runtime.manifest import Packing
from helios.runtime.model_runtime import ModelRuntime
from helios.runtime.oracle import greedy_replay
from helios.runtime.reference.unpack import unpack
from helios.runtime.targets import deployed_rank, read_modules
from ignition.capture import nodes
from ignition.capture.recorder import Recorder
from ignition.capture.target import CPU, TARGETS
from ignition.preparation import capturing, drawing
from ignition.preparation.cuda_modules import Modules
from ignition.preparation.options import Options
from ignition.preparation.packing import CODE_ROWS, Storage
from ignition.preparation.progress import Progress
from ignition.preparation.quantisation import WeightStorage
from ignition.preparation.weight_table import NormalMatrix, Values, WeightTable, read_table
from ignition.preparation.weightless import TABLE_FILE, draft, fill
from tests.ignition import lowered as fakes
from tests.ignition.test_prepare import Quiet, content

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
OPTIONS = Options(
    namespace="tests",
    served_id="tiny",
    target=TARGETS["cuda:sm_90"],
    max_active=2,
    prefill=(8, 64),
    max_context=128,
)


def without_compiler(recorder: Recorder, progress: Progress) -> Modules:
    """Nodes of kernels that nobody compiled."""
    lowered = nodes.lower_all(recorder, fakes.kernels())
    nodes.place(recorder, lowered, fakes.compiled(lowered))
    return Modules(fakes.target(lowered), {"module": b"no cubin"})


@pytest.fixture(autouse=True)
def _no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capturing, "make_nodes", without_compiler)
    monkeypatch.setattr(capturing, "compiler_version", lambda target: "none at all")


@pytest.fixture
def folder(checkpoint_folder: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Path]:
    """A checkpoint's folder without its weights."""

    def stripped(variant: str) -> Path:
        found = shutil.copytree(checkpoint_folder(variant), tmp_path / f"{variant}.folder")
        for weights in found.glob("*.safetensors"):
            weights.unlink()
        return found

    return stripped


@pytest.mark.parametrize(
    ("variant", "storage"),
    [
        ("llama", WeightStorage.AS_STORED),
        ("qwen2", WeightStorage.INT8),
        ("qwen3", WeightStorage.FP8),
    ],
)
def test_a_filled_draft_is_a_core_that_runs(
    folder: Callable[[str], Path], tmp_path: Path, variant: str, storage: WeightStorage
) -> None:
    draft(folder(variant), tmp_path / "draft", replace(OPTIONS, storage=storage), Quiet())
    fill(tmp_path / "draft", tmp_path / "core", 3, KEY, Quiet())
    core = open_core(
        tmp_path / "core", accept="tests", publisher_key=KEY.public_key().public_bytes_raw()
    )
    rank = deployed_rank(core, "cuda:sm_90")
    assert read_modules(core, rank) == {"module": b"no cubin"}
    assert len(core.contract.cache_identity) == 64
    runtime = ModelRuntime.load(core, target="reference")
    try:
        tokens = greedy_replay(runtime, [5, 6, 7, 8], 6)
    finally:
        runtime.close()
    logprobs = np.array([token.logprob for token in tokens])
    assert np.isfinite(logprobs).all()
    # Neither flat nor certain: activations keep their size.
    assert ((logprobs < -0.05) & (logprobs > -5.5)).all()


@pytest.mark.parametrize("storage", [Storage.BF16, *CODE_ROWS])
def test_drawn_rows_have_the_deviation_that_they_are_given(storage: Storage) -> None:
    matrix = NormalMatrix("a", 64, 300, 208, 0.25, storage)
    table = WeightTable("weights", 64 + matrix.nbytes, (matrix,))
    assert read_table(table.to_json(), TABLE_FILE).tensors == table.tensors
    raw = np.frombuffer(b"".join(drawing.draw(table, 7)), np.uint8)[64:]
    packing = Packing.ROWS_BF16 if storage is Storage.BF16 else storage.packing
    values = unpack(raw, packing, 300, 208)
    assert abs(values.std() / 0.25 - 1) < 0.02
    assert abs(values.mean()) < 0.005
    assert len(np.unique(values)) > 100


def test_the_same_seed_gives_the_same_core_and_another_seed_another(
    folder: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft(folder("llama"), tmp_path / "draft", OPTIONS, Quiet())
    # Small blocks, so that there are more than threads.
    monkeypatch.setattr(drawing, "BLOCK_ELEMENTS", 1 << 10)
    for name, seed, threads in (("first", 1, 1), ("second", 1, 7), ("third", 2, 7)):
        monkeypatch.setattr(drawing.os, "sched_getaffinity", lambda pid, n=threads: set(range(n)))
        fill(tmp_path / "draft", tmp_path / name, seed, KEY, Quiet())
    assert content(tmp_path / "first") == content(tmp_path / "second")
    assert content(tmp_path / "first") != content(tmp_path / "third")


def test_matrices_are_normal_and_vectors_as_declared(
    folder: Callable[[str], Path], tmp_path: Path
) -> None:
    draft(folder("qwen2"), tmp_path / "draft", OPTIONS, Quiet())
    table = read_table((tmp_path / "draft" / TABLE_FILE).read_bytes(), TABLE_FILE)
    raw = np.frombuffer(b"".join(drawing.draw(table, 5)), np.uint8)
    assert raw.nbytes == table.nbytes
    kinds = {NormalMatrix: 0, Values: 0}
    for tensor in table.tensors:
        kinds[type(tensor)] += 1
        found = raw[tensor.offset :][: tensor.nbytes]
        if isinstance(tensor, Values):
            assert (found.view("<f4") == tensor.content).all()
            if tensor.name.endswith("norm"):
                assert (tensor.content == 1).all()
            if tensor.name.endswith("bias"):
                assert (tensor.content == 0).all()
            continue
        values = (found.view("<u2").astype(np.uint32) << 16).view(np.float32)
        assert tensor.deviation == pytest.approx(tensor.width**-0.5)
        assert values.std() == pytest.approx(tensor.deviation, rel=0.05)
        assert abs(values.mean()) < 0.1 * tensor.deviation
    assert kinds == {NormalMatrix: 1 + 2 * 4, Values: 1 + 1 + 2 * 3}


def test_a_draft_of_cpu_is_refused(folder: Callable[[str], Path], tmp_path: Path) -> None:
    with pytest.raises(ContractError, match=r"--weightless: .*cpu"):
        draft(folder("llama"), tmp_path / "draft", replace(OPTIONS, target=CPU), Quiet())


def test_a_draft_isnt_replaced_by_its_own_core(
    folder: Callable[[str], Path], tmp_path: Path
) -> None:
    where = tmp_path / "draft"
    draft(folder("llama"), where, OPTIONS, Quiet())
    before = content(where)
    (tmp_path / "link").symlink_to(where)
    for destination in (where, tmp_path / "link"):
        with pytest.raises(CoreError, match=r"is the draft itself.* Choose another folder"):
            fill(where, destination, 0, KEY, Quiet(), replace=True)
    assert content(where) == before


def test_a_damaged_frame_is_refused_and_leaves_nothing(
    folder: Callable[[str], Path], tmp_path: Path
) -> None:
    draft(folder("llama"), tmp_path / "draft", OPTIONS, Quiet())
    for path in (tmp_path / "draft" / "resources").iterdir():
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CoreError, match=r"isn't the file that executable_resources\[0\] names"):
        fill(tmp_path / "draft", tmp_path / "core", 0, KEY, Quiet())
    assert not (tmp_path / "core").exists()
    (tmp_path / "draft" / DRAFT_FILE).write_bytes(b"\xff\xff")
    with pytest.raises(CoreError, match="is no draft"):
        fill(tmp_path / "draft", tmp_path / "core", 0, KEY, Quiet())


TABLE = WeightTable(
    "weights", 4096, (NormalMatrix("a", 0, 16, 32, 0.5), Values("b", 1024, np.ones(4, np.float32)))
)
Change = Callable[[dict[str, object]], object]
WRONG: list[tuple[str, Change]] = [
    ("version", lambda d: d.update(version=2)),
    ("resource", lambda d: d.pop("resource")),
    ("nbytes", lambda d: d.update(nbytes=0)),
    ("tensors", lambda d: d.update(tensors={})),
    (r"'b' isn't behind", lambda d: d["tensors"][0].update(outputs=17)),  # type: ignore[index]
    (r"'b' isn't behind", lambda d: d.update(nbytes=1039)),
    (r"tensors\[0\].*kind", lambda d: d["tensors"][0].update(kind="uniform")),  # type: ignore[index]
    (r"tensors\[0\].*deviation", lambda d: d["tensors"][0].update(deviation=-1)),  # type: ignore[index]
    (r"tensors\[1\].*f32", lambda d: d["tensors"][1].update(f32="AAA=")),  # type: ignore[index]
    (r"tensors\[1\].*offset", lambda d: d["tensors"][1].update(offset=-1)),  # type: ignore[index]
]


def test_a_table_is_read_as_it_was_written() -> None:
    found = read_table(TABLE.to_json(), "weights.json")
    assert found.to_json() == TABLE.to_json()


@pytest.mark.parametrize(("said", "change"), WRONG, ids=range(len(WRONG)))
def test_a_wrong_table_is_refused_by_its_field(said: str, change: Change) -> None:
    document = json.loads(TABLE.to_json())
    change(document)
    with pytest.raises(HeliosError, match=said):
        read_table(json.dumps(document).encode(), "weights.json")

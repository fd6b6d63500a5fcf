"""A core for a GPU, prepared without one: its manifest passes the runtime's checks, its nodes give
each function what its cubin takes, and preparing again gives the same bytes.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from helios.contract.enums import Operation
from helios.core import OpenedCore, ResourceKind, open_core
from helios.errors import CoreError
from helios.runtime import manifest as m
from helios.runtime.manifest_checks import check_manifest, check_modules, check_weights
from helios.runtime.model_runtime import ModelRuntime
from helios.runtime.oracle import check_oracle
from helios.runtime.targets import deployed_rank, read_manifest, read_modules
from helios.schema import core_pb2
from tests.ignition.cuda import cubin_sections
from tests.ignition.test_prepare import Quiet, content
from tests.standin_driver.building import needs_standin, run_child

pytest.importorskip("triton", reason="the extra cuda-prepare isn't installed")

from ignition.capture.target import TARGETS
from ignition.preparation.comparison import Verdict
from ignition.preparation.options import Options
from ignition.preparation.prepare import prepare
from ignition.preparation.quantisation import WeightStorage
from ignition.preparation.rebuild import rebuild
from ignition.preparation.serving import COMPILER

TARGET = "cuda:sm_90"
KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
OPTIONS = Options(
    namespace="tests",
    served_id="tiny",
    target=TARGETS[TARGET],
    max_active=2,
    prefill=(64,),
    decode=(2,),
    max_context=128,
    mixed=(64,),
    scored_prefill=(40,),
    restore=(2,),
)
# Checkpoints, some of them with a weight storage of their own.
VARIANTS = ("smollm", "qwen2", "qwen3", "smollm int8", "smollm fp8")
Prepared = Callable[[str], Path]

# A round over a tiny model's programs takes longest where nothing is in Triton's cache.
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def prepared(
    checkpoint_folder: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Prepared:
    """The core of a variant, with or without a storage, prepared once."""

    @cache
    def core(variant: str) -> Path:
        folder = tmp_path_factory.mktemp("cross") / variant
        name, _, storage = variant.partition(" ")
        options = replace(OPTIONS, storage=WeightStorage(storage)) if storage else OPTIONS
        prepare(checkpoint_folder(name), folder, options, KEY, Quiet())
        return folder

    return core


def opened(folder: Path) -> OpenedCore:
    return open_core(folder, accept="tests", publisher_key=KEY.public_key().public_bytes_raw())


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_manifest_passes_the_checks_of_loading(prepared: Prepared, variant: str) -> None:
    core = opened(prepared(variant))
    rank = deployed_rank(core, TARGET)
    manifest = read_manifest(core, rank)
    check_manifest(manifest, core.contract)
    check_modules(manifest, read_modules(core, rank))
    check_weights(manifest, {w: core.decoded.weights[w].nbytes for w in rank.weight_resources})
    found = {program.operation for program in manifest.programs}
    assert found == {
        Operation.INITIALIZE,
        Operation.PREFILL,
        Operation.DECODE,
        Operation.MIXED,
        Operation.SCORED_PREFILL,
        Operation.RESTORE,
        Operation.RESUME,
        Operation.SNAPSHOT,
    }


@pytest.mark.parametrize("variant", VARIANTS)
def test_nodes_give_functions_what_their_cubins_take(prepared: Prepared, variant: str) -> None:
    core = opened(prepared(variant))
    rank = deployed_rank(core, TARGET)
    manifest, modules = read_manifest(core, rank), read_modules(core, rank)
    assert manifest.cuda is not None
    facts = [cubin_sections.read(modules[f.module], f.function) for f in manifest.cuda.functions]
    launched = set()
    for program in manifest.programs:
        for launch in program.launches:
            for node in launch.nodes:
                launched.add(node.function)
                taken = [nbytes for _, nbytes in facts[node.function].parameters]
                given = [size for a in node.arguments for size in parameter_nbytes(a)]
                assert given == taken, (program.name, launch.kernel.name)
    ends = {manifest.cuda.stage, manifest.cuda.record}
    assert launched == set(range(len(facts))) - ends
    assert {manifest.cuda.functions[end].function for end in ends} == {"stage", "record"}
    assert {fact.architecture for fact in facts} == {90}


def parameter_nbytes(argument: m.CudaArgument) -> list[int]:
    """Sizes of the parameters that an argument becomes."""
    if isinstance(argument, m.CudaTensorMap):
        return [128, 4, 4, 8, 8]
    if isinstance(argument, m.CudaInteger):
        return [argument.width // 8]
    return [8 if isinstance(argument, m.Operand) else 4]


@pytest.mark.parametrize("variant", ["smollm", "smollm int8", "smollm fp8"])
def test_the_oracle_holds_on_the_reference(prepared: Prepared, variant: str) -> None:
    core = opened(prepared(variant))
    wire = core.read_resource(core.decoded.oracle_resource, ResourceKind.ORACLE)
    answers = core_pb2.Oracle.FromString(wire)
    assert answers.cases
    runtime = ModelRuntime.load(core, target="reference")
    try:
        check_oracle(runtime, answers)
    finally:
        runtime.close()


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_device_builds_every_graph_and_runs_it(prepared: Prepared, variant: str) -> None:
    """With a stand-in for the driver, in whose graphs the reference plays the kernels."""
    needs_standin()
    key = KEY.public_key().public_bytes_raw().hex()
    done = run_child("tests.ignition.cuda.standin_core", [str(prepared(variant)), key], {})
    assert done.stdout == "8 programs ran\n"


@pytest.mark.clause("CORE-4")
def test_a_damaged_cubin_is_refused(prepared: Prepared, tmp_path: Path) -> None:
    folder = shutil.copytree(prepared("smollm"), tmp_path / "core")
    core = opened(folder)
    module = deployed_rank(core, TARGET).module_resources[0]
    path = core.find_resource(module)
    stored = bytearray(path.read_bytes())
    stored[len(stored) // 2] ^= 1
    path.write_bytes(stored)
    with pytest.raises(CoreError, match=f"'{re.escape(module)}'.*chunk 0"):
        read_modules(core, deployed_rank(core, TARGET))


@pytest.mark.clause("CORE-5")
def test_a_cubin_in_another_s_place_is_refused(prepared: Prepared, tmp_path: Path) -> None:
    """Each is a good cubin of the same core: what is signed says which one it is."""
    folder = shutil.copytree(prepared("smollm"), tmp_path / "core")
    core = opened(folder)
    first, second = deployed_rank(core, TARGET).module_resources[:2]
    content = core.find_resource(second).read_bytes()
    core.find_resource(first).write_bytes(content)
    with pytest.raises(CoreError, match=f"'{re.escape(first)}'"):
        core.read_resource(first, ResourceKind.MODULE)
    for kind in set(ResourceKind) - {ResourceKind.MODULE}:
        with pytest.raises(CoreError, match="is MODULE, not"):
            core.read_resource(second, kind)


def test_another_preparation_gives_the_same_bytes_without_a_cache(
    prepared: Prepared,
    checkpoint_folder: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})  # in this process alone
    prepare(checkpoint_folder("smollm"), tmp_path / "again", OPTIONS, KEY, Quiet())
    assert content(tmp_path / "again") == content(prepared("smollm"))


def test_a_cuda_core_is_rebuilt_and_says_what_compiled_it(
    prepared: Prepared, checkpoint_folder: Callable[[str], Path]
) -> None:
    comparison = rebuild(prepared("smollm"), checkpoint_folder("smollm"), Quiet())
    assert comparison.verdict is Verdict.SAME
    compiler = opened(prepared("smollm")).deployment.rebuild.tools[COMPILER]
    assert compiler.startswith("triton 3.9.0, ptxas ")

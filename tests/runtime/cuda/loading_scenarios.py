"""Loading over the stand-in driver: memory, modules, graphs, and what may be missing."""

from __future__ import annotations

import logging
import os
import re
import sys

import pytest

from helios.errors import ContractError, ExecutionError
from helios.runtime.capacities import Capacities
from helios.runtime.device import DeviceOptions
from helios.runtime.devices.cuda import device as cuda_device
from helios.runtime.devices.cuda.gpu import Gpu
from helios.runtime.devices.cuda.pinned import PinnedMemory
from helios.runtime.devices.opening import early_start, open_device
from helios.runtime.manifest_decoder import decode_manifest
from helios.schema import execution_pb2 as pb
from helios.wording import show_size
from tests.runtime.cuda.loaded import load, scenario
from tests.runtime.sample_manifest import sample_manifest
from tests.standin_driver.control import Standin
from tests.standin_driver.cubins import cubin
from tests.standin_driver.cuda_manifest import TARGET, TRANSPORT, WORK, as_cuda


@scenario
def a_start_waits_for_its_weights() -> None:
    from helios.runtime.devices.cuda import weights as uploading

    def lose(*_: object) -> None:
        raise ExecutionError("are lost", where="weights on their way")

    uploading.upload = lose
    with pytest.raises(ExecutionError, match="weights on their way: are lost"):
        load()
    assert Standin().taken_nbytes == 0


@scenario
def memory_is_said_before_it_is_taken() -> None:
    lines: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "GPU memory" in record.getMessage():
                lines.append(f"{Standin().taken_nbytes} {record.getMessage()}")

    logging.getLogger("helios").addHandler(Listener())
    logging.getLogger("helios").setLevel(logging.INFO)
    runtime, _ = load()
    (line,) = lines
    assert line.startswith("0 GPU memory: "), line
    assert line.endswith("(Stand-in); graphs, their tables and modules come on top"), line
    for part in ("cache 65,536", "weight 2,048", "1.00 GiB free on GPU 0 (Stand-in)"):
        assert part in line, line
    memory = runtime.memory
    # To the byte: what is taken besides is what the programs' tables take.
    said = sum(int(size.replace(",", "")) for size in re.findall(r"(?<=[a-z] )[\d,]+(?=, )", line))
    assert Standin().taken_nbytes == said + memory["scratch"]
    assert memory["cache"] == 64 << 10
    assert memory["scratch"] > 0
    runtime.close()


@scenario
def pinned_memory_is_said_to_the_byte_before_it_is_taken() -> None:
    pinned: list[int] = []
    lines: list[str] = []
    make = PinnedMemory.__init__

    def counted(memory: PinnedMemory, gpu: Gpu, nbytes: int, what: str) -> None:
        pinned.append(nbytes)
        make(memory, gpu, nbytes, what)

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "pinned" in record.getMessage():
                assert not pinned
                lines.append(record.getMessage())

    PinnedMemory.__init__ = counted  # type: ignore[method-assign]
    logging.getLogger("helios").addHandler(Listener())
    logging.getLogger("helios").setLevel(logging.INFO)
    runtime, _ = load()
    (line,) = lines
    rounds, weights = pinned
    assert line.endswith(f"in bytes: rounds {rounds:,}, weights on their way {weights:,}"), line
    runtime.close()


@scenario
def what_programs_take_is_said_once_it_is_known() -> None:
    lines: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    logging.getLogger("helios").addHandler(Listener())
    logging.getLogger("helios").setLevel(logging.INFO)
    runtime, _ = load()
    said = show_size(runtime.memory["scratch"])
    assert f"programs: {said} of GPU 0 for graphs, tables and modules" in lines
    runtime.close()


@scenario
def the_cache_takes_its_share_of_what_is_free() -> None:
    runtime, _ = load(capacities=Capacities())
    free = 4 << 20  # STANDIN_MEMORY
    beside = sum(n for kind, n in runtime.memory.items() if kind not in ("cache", "scratch"))
    share = runtime.memory["cache"] / (free - beside)
    assert 0.89 < share <= 0.9, share
    runtime.close()
    half, _ = load(capacities=Capacities(cache_share=0.5))
    assert 0.49 < half.memory["cache"] / (free - beside) <= 0.5
    half.close()


@scenario
def a_model_that_the_gpu_has_no_room_for_is_refused() -> None:
    with pytest.raises(ContractError, match=r"cache size: 1\.00 TiB asked for, .* --cache-memory"):
        load(capacities=Capacities(cache_nbytes=1 << 40))
    assert Standin().taken_nbytes == 0


@scenario
def a_gpu_has_to_have_room_for_the_weights_too() -> None:
    runtime, _ = load()
    needed = sum(nbytes for kind, nbytes in runtime.memory.items() if kind != "scratch")
    assert runtime.memory["weight"] == 2048
    runtime.close()
    os.environ["STANDIN_MEMORY"] = str(needed - 1024)
    with pytest.raises(ContractError, match=r"memory: the model takes .* with its weights"):
        load()
    assert Standin().taken_nbytes == 0


@scenario
def memory_that_isn_t_free_after_all_names_class_and_option() -> None:
    Standin().fail("cuMemAlloc", 2, 5)
    with pytest.raises(
        ExecutionError,
        match=r"GPU memory for cache: its 65536 bytes aren't free: \d+ are\. .*--cache-memory",
    ):
        load()
    assert Standin().taken_nbytes == 0


@scenario
def pinned_memory_that_can_t_be_had_is_named() -> None:
    Standin().fail("cuMemHostAlloc", 2)
    with pytest.raises(ExecutionError, match=r"the frames of rounds: .* can't be pinned.*ulimit"):
        load()
    assert Standin().taken_nbytes == 0


@scenario
def functions_that_take_other_parameters_are_refused() -> None:
    def shifted(modules: dict[str, bytes]) -> None:
        modules[TRANSPORT] = cubin({"stage": (8, 8, 8, 4), "record": (8,) * 7})

    with pytest.raises(ContractError, match=r"cuda\.stage: function 'stage' takes parameters"):
        load(change=shifted)

    def missing(modules: dict[str, bytes]) -> None:
        modules[WORK] = cubin({"another": (8,)})

    with pytest.raises(
        ContractError, match=r"program initialize\.b4, launch 0: module 'module\.work' has no"
    ):
        load(change=missing)

    def foreign(modules: dict[str, bytes]) -> None:
        modules[WORK] = cubin({"another": (8,)}, capability=80)

    with pytest.raises(ContractError, match=r"module 'module\.work': .*NO_BINARY_FOR_GPU"):
        load(change=foreign)

    def cut_short(modules: dict[str, bytes]) -> None:
        modules[WORK] = modules[WORK][:-1]

    with pytest.raises(ContractError, match=r"module 'module\.work': its table of sections ends"):
        load(change=cut_short)

    def absent(modules: dict[str, bytes]) -> None:
        del modules[WORK]

    with pytest.raises(ContractError, match=r"module 'module\.work': is not among"):
        load(change=absent)
    assert Standin().taken_nbytes == 0
    assert not Standin().violations, Standin().violations


@scenario
def operands_that_are_too_small_are_refused() -> None:
    def taller(manifest: pb.ExecutionManifest) -> None:
        program = next(one for one in manifest.programs if one.name == "prefill.p8")
        program.launches[1].integers[1] += 16  # embed's vocab

    with pytest.raises(
        ContractError,
        match=r"program prefill\.p8, launch 1: embed: operand 'table' needs 2560 bytes, 'table' has"
        r" 2048 from byte 0 on",
    ):
        load(edit=taller)

    def further_on(manifest: pb.ExecutionManifest) -> None:
        program = next(one for one in manifest.programs if one.name == "decode.b4")
        (commit,) = (one for one in program.launches if len(one.operands) == 11)
        commit.operands[-1].byte_offset = 4

    with pytest.raises(
        ContractError,
        match=r"program decode\.b4, launch \d+: commit: operand 'out_logprobs' needs 16 bytes,"
        r" 'completion\.logprobs' has 12 from byte 4 on",
    ):
        load(edit=further_on)
    assert Standin().taken_nbytes == 0


@scenario
def graphs_that_can_t_be_made_name_their_program() -> None:
    Standin().fail("cuGraphInstantiate", 2, 4)
    with pytest.raises(ExecutionError, match=r"instantiating program prefill\.p8.*OUT_OF_MEMORY"):
        load()
    Standin().fail("cuGraphAddNode", 1, 4)
    with pytest.raises(
        ExecutionError, match=r"building program prefill\.p8, node 0: .*\(function stage"
    ):
        load()
    assert Standin().taken_nbytes == 0
    assert not Standin().violations, Standin().violations


@scenario
def a_gpu_of_another_capability_is_refused() -> None:
    with pytest.raises(
        ExecutionError,
        match=r"cuda:sm_90 is for compute capability 9\.0, and GPU 0 \(Stand-in\) has 8\.0",
    ):
        load()


@scenario
def an_ordinal_without_a_gpu_is_refused() -> None:
    with pytest.raises(ExecutionError, match=r"there is no GPU 3; the driver sees 1\. .*--device"):
        load(options=DeviceOptions(ordinal=3))


@scenario
def the_context_is_there_early_and_is_let_go() -> None:
    standin = Standin()
    for target, ordinal in ((TARGET, 0), ("cuda", 0), (TARGET, 7), ("cpu", 0), (None, 0)):
        with early_start(target, ordinal):
            load()[0].close()
        assert standin.held == 0, (target, ordinal)
        assert not standin.violations, standin.violations


@scenario
def a_machine_without_a_gpu_is_refused() -> None:
    with pytest.raises(ExecutionError, match=r"sees no GPU\. Look at nvidia-smi"):
        load()


@scenario
def a_machine_without_the_driver_is_refused() -> None:
    with pytest.raises(ExecutionError, match=r"there is no NVIDIA driver: libcuda\.so\.1"):
        cuda_device.CudaDevice(
            TARGET, DeviceOptions(), decode_manifest(as_cuda(sample_manifest())[0]).cuda, {}
        )


@scenario
def bindings_that_are_missing_or_of_another_version_are_named() -> None:
    import cuda.bindings

    from helios.runtime.devices.cuda.driver import bindings

    cuda.bindings.__version__ = "12.8.0"
    with pytest.raises(
        ExecutionError, match=r"cuda-bindings is 12\.8\.0, and this Helios calls 13"
    ):
        open_device(TARGET, DeviceOptions(), decode_manifest(as_cuda(sample_manifest())[0]).cuda)
    for name in [name for name in sys.modules if name.split(".")[0] == "cuda"]:
        del sys.modules[name]
    sys.modules["cuda.bindings"] = None  # type: ignore[assignment]
    with pytest.raises(ExecutionError, match=r"pip install 'helios-serve\[cuda\]'"):
        bindings()

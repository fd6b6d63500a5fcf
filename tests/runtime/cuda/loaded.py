"""The sample model on a played cuda device, for scenarios: each is a function in `SCENARIOS`."""

from __future__ import annotations

from collections.abc import Callable

from helios.contract import decode
from helios.runtime.capacities import Capacities
from helios.runtime.device import DeviceOptions
from helios.runtime.manifest_decoder import decode_manifest
from helios.runtime.model_runtime import ModelRuntime
from helios.runtime.rounds import Completion, LaneWork, Round
from helios.schema import execution_pb2 as pb
from tests.contract.sample import sample_contract
from tests.runtime.sample_manifest import sample_manifest, sample_weights
from tests.standin_driver.cuda_manifest import TARGET, as_cuda
from tests.standin_driver.played import PlayedCudaDevice

SCENARIOS: dict[str, Callable[[], None]] = {}
SMALL = Capacities(cache_nbytes=1 << 16)


def scenario(function: Callable[[], None]) -> Callable[[], None]:
    SCENARIOS[function.__name__] = function
    return function


def load(
    *,
    options: DeviceOptions | None = None,
    capacities: Capacities = SMALL,
    change: Callable[[dict[str, bytes]], None] | None = None,
    edit: Callable[[pb.ExecutionManifest], None] | None = None,
    device: type[PlayedCudaDevice] = PlayedCudaDevice,
) -> tuple[ModelRuntime, PlayedCudaDevice]:
    """`change` changes the modules, `edit` the manifest before it is one of a cuda target."""
    sample = sample_manifest()
    if edit is not None:
        edit(sample)
    message, modules = as_cuda(sample)
    if change is not None:
        change(modules)
    manifest = decode_manifest(message)
    played = device(TARGET, options or DeviceOptions(), manifest.cuda, modules)
    runtime = ModelRuntime.from_parts(
        decode(sample_contract()),
        message,
        sample_weights(),
        target=TARGET,
        capacities=capacities,
        device=played,
    )
    return runtime, played


def run(runtime: ModelRuntime, name: str, *lanes: LaneWork) -> Completion:
    program = next(p.index for p in runtime.geometry.programs if p.name == name)
    sequence = runtime.submit(Round(program, lanes))
    assert runtime.wait(sequence, 10_000)
    return runtime.read(sequence)

"""`helios verify`: every byte of a core against its signature, then the whole oracle.

What the server checks at start-up in part, done in full and with figures. `--replay` also holds
every launch of the replay, and of a round of each program, against the reference.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from google.protobuf.message import DecodeError
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from helios.core import OpenedCore, ResourceKind
from helios.core.chunks import worker_count
from helios.core.verification import Verified, verify_content
from helios.errors import CoreError, ExecutionError, HeliosError
from helios.runtime.capacities import Capacities, least_cache
from helios.runtime.device import DeviceOptions
from helios.runtime.every_program import run_every_program
from helios.runtime.native_model import NativeModel
from helios.runtime.oracle import check_oracle
from helios.runtime.served import ServedRuntime
from helios.runtime.targets import (
    CUDA,
    choose_target,
    deployed_ranks,
    read_manifests,
    read_modules,
)
from helios.schema import core_pb2
from helios.wording import counted, escaped, show_rate, show_size
from helios.worker.options import WorkerOptions
from helios.worker.served_core import open_served_core

if TYPE_CHECKING:
    from helios.runtime.reference.differ import LockstepDevice

TARGETS: Final = ("cpu", "reference")
_LOCKSTEP_SNAPSHOTS: Final = 3


def verify_core(options: WorkerOptions, target: str | None, *, lockstep: bool = False) -> None:
    """Prints what was verified and how fast. Raises the first failure."""
    if target is not None and target not in TARGETS and target.partition(":")[0] != CUDA:
        raise HeliosError(
            f"{target!r} can't be replayed here",
            where="--target",
            remedy=f"Use {', '.join(TARGETS)} or a cuda target of the core",
        )
    if lockstep and target == "reference":
        raise HeliosError(
            f"the reference would be held against {target!r}",
            where="--replay",
            remedy="Leave out --target",
        )
    console = Console(highlight=False, soft_wrap=True, markup=False)
    core = open_served_core(options)
    acceptance = core.acceptance
    console.print(
        f"signature: by {acceptance.public_key.hex()} ({acceptance.trust}) for"
        f" {escaped(acceptance.namespace)}"
    )
    verified = _verify_content(core, console)
    console.print(content_line(verified, worker_count()))
    target = choose_target(core, target)
    device_options = DeviceOptions(options.threads, options.instruction_set, options.device)
    differs = _differs(core, target, device_options) if lockstep else ()
    capacities = Capacities(options.request_slots)
    if lockstep:
        # Every program, and little cache: each launch is compared over all of it.
        manifest = read_manifests(core, deployed_ranks(core, target))[0]
        capacities = least_cache(core.contract, manifest, _LOCKSTEP_SNAPSHOTS)
    with NativeModel.load(
        core,
        target=target,
        options=device_options,
        capacities=capacities,
        verify_weights=False,
        devices=differs,
    ) as model:
        try:
            _replay(core, model.runtime, console)
            if lockstep:
                run_every_program(model.runtime)
        except ExecutionError:
            # The launch that went wrong says more than the token that came of it.
            _refuse_difference(differs)
            raise
    _refuse_difference(differs)
    if differs:
        programs = counted(len(model.runtime.geometry.programs), "program")
        ranks = f" on {len(differs)} ranks" if len(differs) > 1 else ""
        compared = sum(differ.compared for differ in differs)
        console.print(
            f"lockstep: all {compared} launches of {programs}{ranks} agree with the reference"
        )


def content_line(verified: Verified, cores: int) -> str:
    """How much content was verified and how fast, where there was enough to tell."""
    checked, read = verified.checked, verified.read
    size = show_size(checked.nbytes)
    rate = show_rate(checked.nbytes, checked.seconds)
    if rate is None:
        return f"content: {size}, too little to say how fast"
    line = f"content: {size} in {checked.seconds:.2f} s, that is {rate} on {counted(cores, 'core')}"
    alone = show_rate(read.nbytes, read.seconds)
    return line if alone is None else f"{line}; reading alone gives {alone}"


def _differs(core: OpenedCore, target: str, options: DeviceOptions) -> tuple[LockstepDevice, ...]:
    """Each rank's device with the reference beside it. Imported here: it brings the reference."""
    from helios.runtime.devices.opening import check_devices, open_device
    from helios.runtime.reference.differ import LockstepDevice

    ranks = deployed_ranks(core, target)
    manifests = read_manifests(core, ranks)
    if len(ranks) == 1:
        own = [options]
    else:
        check_devices(target, options, len(ranks))
        own = [options.of_rank(number, len(ranks)) for number in range(len(ranks))]
    return tuple(
        LockstepDevice(open_device(target, its, manifest.cuda, read_modules(core, rank)))
        for rank, manifest, its in zip(ranks, manifests, own, strict=True)
    )


def _refuse_difference(differs: Sequence[LockstepDevice]) -> None:
    for rank, differ in enumerate(differs):
        if differ.first_difference is not None:
            raise ExecutionError(
                f"this machine computes something else ({differ.first_difference})",
                where="lockstep" if len(differs) == 1 else f"lockstep, rank {rank}",
                remedy="Compare other instruction sets with --isa, and report the launch",
            )


def _verify_content(core: OpenedCore, console: Console) -> Verified:
    """Checks every resource, with a bar where somebody watches."""
    resources = (*core.decoded.executables.values(), *core.decoded.weights.values())
    columns = (TextColumn("verifying content"), BarColumn(), TimeElapsedColumn())
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        task = progress.add_task("", total=sum(resource.stored_nbytes for resource in resources))
        return verify_content(core, lambda nbytes: progress.advance(task, nbytes))


def _replay(core: OpenedCore, runtime: ServedRuntime, console: Console) -> None:
    """Replays the oracle, or says that there is none."""
    oracle = _oracle(core)
    if oracle is None or not oracle.cases:
        console.print("oracle: the core has no cases, so what it computes can't be checked")
        return
    prompt = sum(len(case.prompt_tokens) for case in oracle.cases)
    output = sum(len(case.expected_tokens) for case in oracle.cases)
    began = time.monotonic()
    with console.status(f"replaying {len(oracle.cases)} oracle cases"):
        check_oracle(runtime, oracle)
    seconds = time.monotonic() - began
    console.print(
        f"oracle: {len(oracle.cases)} cases hold on {runtime.geometry.kernel_path}: {prompt} prompt"
        f" and {output} output tokens in {seconds:.2f} s ({(prompt + output) / seconds:.3g}"
        " tokens/s, one request at a time)"
    )


def _oracle(core: OpenedCore) -> core_pb2.Oracle | None:
    resource = core.decoded.oracle_resource
    if not resource:
        return None
    oracle = core_pb2.Oracle()
    try:
        oracle.ParseFromString(core.read_resource(resource, ResourceKind.ORACLE))
    except DecodeError as error:
        raise CoreError(
            f"is no oracle ({error})", where=resource, remedy="Prepare the core again"
        ) from error
    return oracle

"""`helios verify`: every byte of a core against its signature, then the whole oracle.

What the server checks at start-up in part, done in full and with figures. `--replay` also holds
every launch of the replay against the reference.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from google.protobuf.message import DecodeError
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from helios.core import OpenedCore, ResourceKind, open_core
from helios.errors import CoreError, ExecutionError, HeliosError
from helios.runtime.device import DeviceOptions
from helios.runtime.model_runtime import Capacities, ModelRuntime
from helios.runtime.oracle import check_oracle, greedy_replay
from helios.schema import core_pb2
from helios.wording import show_size

if TYPE_CHECKING:
    from helios.runtime.reference.differ import LockstepDevice

TARGETS: Final = ("cpu", "reference")
_ANY_PROMPT_TOKENS: Final = 8
_ANY_OUTPUT_TOKENS: Final = 4


def verify_core(
    path: Path,
    accept: str,
    *,
    target: str,
    lockstep: bool,
    threads: int | None,
    instruction_set: str | None,
    publisher_key: bytes | None,
) -> None:
    """Prints what was verified and how fast. Raises the first failure."""
    if target not in TARGETS:
        raise HeliosError(
            f"{target!r} can't be replayed here",
            where="--target",
            remedy=f"Use {' or '.join(TARGETS)}",
        )
    if lockstep and target != "cpu":
        raise HeliosError(
            f"the reference would be held against {target!r}",
            where="--replay",
            remedy="Leave out --target",
        )
    console = Console(highlight=False, soft_wrap=True)
    core = open_core(path, accept=accept, publisher_key=publisher_key)
    console.print(f"signature: by {core.acceptance.public_key.hex()} for {accept}")
    began = time.monotonic()
    nbytes = _verify_bytes(core, console)
    seconds = time.monotonic() - began
    console.print(
        f"content: {show_size(nbytes)} in {seconds:.2f} s ({show_size(int(nbytes / seconds))}/s)"
    )
    options = DeviceOptions(threads, instruction_set)
    differ = _differ(options) if lockstep else None
    runtime = ModelRuntime.load(
        core,
        target=target,
        options=options,
        capacities=Capacities(request_slots=1),
        verify_weights=False,
        device=differ,
    )
    try:
        if not _replay(core, runtime, console) and lockstep:
            _replay_anything(runtime)
    except ExecutionError:
        # The launch that went wrong says more than the token that came of it.
        _refuse_difference(differ)
        raise
    finally:
        runtime.close()
    _refuse_difference(differ)
    if differ is not None:
        console.print(f"lockstep: all {differ.compared} launches agree with the reference")


def _differ(options: DeviceOptions) -> LockstepDevice:
    """The cpu device with the reference beside it. Imported here: it brings the reference."""
    from helios.runtime.devices.cpu import CpuDevice
    from helios.runtime.reference.differ import LockstepDevice

    return LockstepDevice(CpuDevice(options))


def _refuse_difference(differ: LockstepDevice | None) -> None:
    if differ is not None and differ.first_difference is not None:
        raise ExecutionError(
            f"this machine computes something else ({differ.first_difference})",
            where="lockstep",
            remedy="Compare other instruction sets with --isa, and report the launch",
        )


def _verify_bytes(core: OpenedCore, console: Console) -> int:
    """Reads every resource with all checks; returns their stored size in bytes."""
    frames, weights = core.decoded.frames.values(), core.decoded.weights.values()
    total = sum(frame.stored_nbytes for frame in frames) + sum(w.nbytes for w in weights)
    columns = (TextColumn("verifying content"), BarColumn(), TimeElapsedColumn())
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        task = progress.add_task("", total=total)
        for frame in frames:
            core.read_resource(frame.id, frame.kind)
            progress.advance(task, frame.stored_nbytes)
        for weight in weights:
            core.map_weights(weight.id, verify=True).close()
            progress.advance(task, weight.nbytes)
    return total


def _replay_anything(runtime: ModelRuntime) -> None:
    """A prompt and an answer without a meaning: launches can be compared without an oracle."""
    geometry = runtime.geometry
    count = min(_ANY_OUTPUT_TOKENS, geometry.max_context_tokens - 1)
    prompt = range(min(_ANY_PROMPT_TOKENS, geometry.max_context_tokens - count))
    greedy_replay(runtime, [token % geometry.vocabulary_tokens for token in prompt], count)


def _replay(core: OpenedCore, runtime: ModelRuntime, console: Console) -> bool:
    """Replays the oracle; False where the core has none."""
    oracle = _oracle(core)
    if oracle is None or not oracle.cases:
        console.print("oracle: the core has no cases, so what it computes can't be checked")
        return False
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
    return True


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

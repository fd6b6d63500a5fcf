"""A loaded model: memory, programs and the two execution frames. Submits rounds, reads answers.

Everything is decided at load (capacities, memory, fills); serving allocates nothing. No request
is known here: the scheduler plans rounds, the worker drives this class from one thread.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from helios.contract import PreparedContract
from helios.core import OpenedCore
from helios.core.weights import WeightMap
from helios.errors import ExecutionError
from helios.phases import Phases
from helios.runtime.cache_content import CacheContent
from helios.runtime.capacities import Capacities, with_default_share
from helios.runtime.completions import CompletionReader
from helios.runtime.device import (
    FRAMES,
    AvailableMemory,
    Device,
    DeviceOptions,
    DrainedDevice,
)
from helios.runtime.devices.opening import DeviceOpening, closed_on_failure
from helios.runtime.lanes import extras_of
from helios.runtime.manifest import Manifest
from helios.runtime.manifest_checks import check_manifest, check_modules, check_weights
from helios.runtime.manifest_decoder import decode_manifest
from helios.runtime.memory_fit import check_fits
from helios.runtime.packing import Packer
from helios.runtime.rounds import Completion, InFlight, LaneCompletion, Round
from helios.runtime.selection import refuse_unsupported, select, selected_geometry
from helios.runtime.state_rows import StateRows, rows_per_request
from helios.runtime.targets import deployed_rank, read_manifest, read_modules
from helios.runtime.tuning import run_producers
from helios.schema import execution_pb2

__all__ = ["Capacities", "DeviceOptions", "ModelRuntime"]


class ModelRuntime:
    """Use `load` or `from_parts`; call `close` when done. Not thread-safe."""

    def __init__(
        self,
        contract: PreparedContract,
        manifest: Manifest,
        weights: Mapping[str, memoryview],
        device: Device,
        capacities: Capacities,
        phases: Phases | None = None,
        memory: AvailableMemory | None = None,
    ) -> None:
        """`memory` is what a rank has whose manifest has been checked; without it, a manifest is,
        and the rank has all of the device's."""
        phases = phases or Phases()
        with phases("checks"):
            if memory is None:
                check_manifest(manifest, contract)
                memory = device.available_memory()
            check_weights(manifest, {name: view.nbytes for name, view in weights.items()})
            capacities = with_default_share(capacities, memory)
            selection = select(contract, manifest, capacities, memory.nbytes)
            refuse_unsupported(selection.programs)
            programs, plan = selection.programs, selection.plan
            check_fits(selection, memory.nbytes, capacities, holds_weights=memory.holds_weights)
        self.contract = contract
        self._manifest = manifest
        self._device = device
        self._maps: tuple[WeightMap, ...] = ()
        self._closed = False
        with phases("memory"):
            device.allocate(plan, weights)
        with phases("programs"):
            device.load((*programs, *selection.producers))
        began = time.monotonic_ns()
        self._packer = Packer(
            contract,
            manifest,
            plan,
            programs,
            device.view,
            request_slots=selection.request_slots,
            cache_pages=selection.cache_pages,
        )
        vocabulary = contract.model.vocabulary.sampled_tokens
        self.cache_content = CacheContent(
            device,
            plan,
            page_tokens=contract.model.cache.page_tokens,
            state_rows=StateRows(
                selection.request_slots, selection.snapshots, rows_per_request(contract, programs)
            ),
        )
        self._completions = tuple(
            CompletionReader(one, manifest, plan, device.view, vocabulary)
            if one.completion
            else None
            for one in programs
        )
        phases.ns["packer"] = time.monotonic_ns() - began
        self.geometry = selected_geometry(
            contract, manifest, selection, kernel_path=device.kernel_path
        )
        self.memory = plan.nbytes_by_name(device.scratch_nbytes())
        self.load_ns = {**phases.ns, **{f"device.{k}": ns for k, ns in device.load_ns().items()}}
        # Last, so that whatever waits for a producer is exposed only once it has run.
        began = time.monotonic_ns()
        self._submitted = run_producers(device, selection.producers, len(programs))
        self.tuning_ns = time.monotonic_ns() - began if selection.producers else 0
        self._frames: list[InFlight | None] = [None] * FRAMES
        self._failure: ExecutionError | None = None

    @classmethod
    def load(
        cls,
        core: OpenedCore,
        *,
        target: str = "cpu",
        options: DeviceOptions | None = None,
        capacities: Capacities | None = None,
        verify_weights: bool = True,
        device: Device | None = None,
    ) -> ModelRuntime:
        """Loads a target of an opened core; `device` replaces the target's own. Raises CoreError,
        ContractError or ExecutionError."""
        phases = Phases()
        with phases("manifest"):
            rank = deployed_rank(core, target)
            manifest = read_manifest(core, rank)
        with phases("modules"):
            modules = read_modules(core, rank)
            check_modules(manifest, modules)
        opening = DeviceOpening(target, options or DeviceOptions(), manifest, modules, device)
        copied = manifest.cuda is not None and device is None  # to the GPU
        maps: dict[str, WeightMap] = {}
        try:
            with phases("weights"):
                for name in rank.weight_resources:
                    maps[name] = core.map_weights(name, verify=verify_weights, copied=copied)
            weights = {name: mapped.content for name, mapped in maps.items()}
            runtime = cls._build(core.contract, manifest, weights, capacities, opening, phases)
        except BaseException:
            opening.abandon()
            for mapped in maps.values():
                mapped.close()
            raise
        runtime._maps = tuple(maps.values())
        return runtime

    @classmethod
    def from_parts(
        cls,
        contract: PreparedContract,
        manifest_message: execution_pb2.ExecutionManifest,
        weights: Mapping[str, memoryview | bytes],
        *,
        target: str = "cpu",
        options: DeviceOptions | None = None,
        capacities: Capacities | None = None,
        device: Device | None = None,
        modules: Mapping[str, bytes] | None = None,
    ) -> ModelRuntime:
        """Loads what isn't in a core (yet). `device` replaces the target's own, `modules` are those
        of cuda targets by id."""
        views = {name: memoryview(content).cast("B") for name, content in weights.items()}
        manifest = decode_manifest(manifest_message)
        opening = DeviceOpening(target, options or DeviceOptions(), manifest, modules or {}, device)
        return cls._build(contract, manifest, views, capacities, opening, Phases())

    @classmethod
    def _build(
        cls,
        contract: PreparedContract,
        manifest: Manifest,
        weights: Mapping[str, memoryview],
        capacities: Capacities | None,
        opening: DeviceOpening,
        phases: Phases,
    ) -> ModelRuntime:
        try:
            with phases("checks"):  # while the device is being opened
                check_manifest(manifest, contract)
        except BaseException:
            opening.abandon()
            raise
        with phases("device"):
            device = opening.take()
        with closed_on_failure(device):
            memory, asked = device.available_memory(), capacities or Capacities()
            return cls(contract, manifest, weights, device, asked, phases, memory)

    # ------------------------------------------------------------ rounds

    @property
    def failed(self) -> bool:
        """Whether a round was refused in a way that none can follow."""
        return self._failure is not None

    def can_submit(self) -> bool:
        """Whether the next round's frame is free."""
        return self._frames[(self._submitted + 1) % FRAMES] is None

    def submit(self, work: Round) -> int:
        """Packs and queues a round; returns its sequence. Raises ExecutionError if the frame is
        still in use or a value doesn't fit; nothing is then submitted."""
        if self._failure is not None:
            raise self._failure
        sequence = self._submitted + 1
        frame = sequence % FRAMES
        occupant = self._frames[frame]
        if occupant is not None:
            raise ExecutionError(
                f"frame {frame} is in use until round {occupant.sequence} is read",
                where=f"round {sequence}",
            )
        if not 0 <= work.program < len(self._completions):
            raise ExecutionError(f"no program {work.program}", where=f"round {sequence}")
        self._packer.pack(work.program, frame, work.lanes)
        try:
            self._device.submit(work.program, frame, sequence)
        except Exception as error:
            # The packer remembers page entries that now may never arrive: no round after this.
            self._failure = ExecutionError(
                f"the device refused a round ({error})", where=f"round {sequence}"
            )
            raise self._failure from error
        self._submitted = sequence
        reader = self._completions[work.program]
        lengths: tuple[int, ...] = ()
        scored_tops: tuple[int, ...] = ()
        if reader is not None and reader.scored:
            lengths = tuple(len(lane.tokens) for lane in work.lanes)
            scored_tops = tuple(extras_of(lane).scored_top_logprobs for lane in work.lanes)
        self._frames[frame] = InFlight(
            sequence, work.program, len(work.lanes), lengths, work.top_logprobs, scored_tops
        )
        return sequence

    def pack_ahead(self, work: Round) -> None:
        """Packs the round that is thought to be submitted next, if its frame is free."""
        if self.can_submit():
            self._packer.pack_ahead(work.program, (self._submitted + 1) % FRAMES, work.lanes)

    def completed(self, sequence: int) -> bool:
        """Whether a round has run. Raises ExecutionError if the device failed."""
        return self._device.completed() >= sequence

    def wait(self, sequence: int, timeout_ms: int) -> bool:
        """Waits for a round; False on time-out."""
        return self._device.wait(sequence, timeout_ms)

    def read(self, sequence: int) -> Completion:
        """A completed round's answer; frees its frame. Raises ExecutionError for any other."""
        frame = sequence % FRAMES
        flight = self._frames[frame]
        if flight is None or flight.sequence != sequence:
            raise ExecutionError("is not in flight", where=f"round {sequence}")
        if not self.completed(sequence):
            raise ExecutionError("has not completed", where=f"round {sequence}")
        self._frames[frame] = None
        reader = self._completions[flight.program]
        lanes: tuple[LaneCompletion, ...] = ()
        if reader is not None:
            lanes = reader.read(
                frame, flight.lanes, flight.lengths, flight.top_logprobs, flight.scored_top_logprobs
            )
        return Completion(sequence, lanes, *self._device.timing(sequence))

    def timing(self, sequence: int) -> tuple[int, int]:
        """(start_ns, end_ns) of one of the last 256 rounds, on time.monotonic_ns's clock."""
        return self._device.timing(sequence)

    def launches(self) -> int:
        """Launches begun so far."""
        return self._device.launches()

    def read_buffer(self, name: str) -> NDArray[Any]:
        """A copy of a buffer's values as the last submitted round left them; floating formats as
        float32. Raises ExecutionError for unknown names and while a round is running."""
        index = self._manifest.buffer_index.get(name)
        if index is None:
            raise ExecutionError("no buffer of this name", where=name)
        if not self.completed(self._submitted):
            raise ExecutionError("a round is still running", where=name)
        return self._device.read_buffer(index, self._submitted % FRAMES)

    def close(self, drain_by_ns: int | None = None) -> None:
        """Drains the device, until a time of time.monotonic_ns at most where one is given, and lets
        go of memory and weights. Idempotent."""
        if self._closed:
            return
        self._closed = True
        if drain_by_ns is not None and isinstance(self._device, DrainedDevice):
            self._device.drain_by(drain_by_ns)
        self._device.close()
        for mapped in self._maps:
            mapped.close()

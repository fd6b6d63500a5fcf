"""A null device whose programs answer: completion records come from a script, nothing is computed.

The host's half runs alone on it, as it does on a real device: planning, packing, submission, the
reading of records, events. It keeps what a device's request state keeps (endpoint, emitted tokens,
output limit, end-of-sequence ids, generation), read from the staged inputs as the contract binds
them, so that its records are those that the scheduler expects. Rounds run when somebody waits for
them. For benchmarks and tests.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from helios.contract.enums import Indexing, Operation, ValueSource
from helios.contract.model import PreparedContract, ValueBinding
from helios.dataclass import dataclass
from helios.errors import ContractError
from helios.kernels.catalogue import COMPLETION_LANE_COLUMNS
from helios.runtime.devices.null import NullDevice
from helios.runtime.lanes import ADMITTING, WITH_TOKENS
from helios.runtime.manifest import DeltaDestination, Manifest, Program
from helios.runtime.rounds import DeviceFinish, LaneError
from helios.runtime.value_writers import element_type

# The token and its logprob that a slot emits at a position of its request's sequence.
Script = Callable[[int, int], tuple[int, float]]
# What a round of the named program takes, in nanoseconds, by its packed tokens, or its lanes where
# it consumes none (0 for a SNAPSHOT).
Duration = Callable[[str, int], int]

_READ: Final = (
    ValueSource.LIVE_ROW_COUNT,
    ValueSource.SLOT,
    ValueSource.GENERATION,
    ValueSource.QUERY_LENGTH,
    ValueSource.SAMPLING_DECISION,
    ValueSource.CONSUMED_TOKENS,
    ValueSource.EMITTED_TOKENS,
    ValueSource.OUTPUT_LIMIT,
    ValueSource.EOS_IDS,
)
_LANES: Final = (ValueSource.LIVE_ROW_COUNT, ValueSource.SLOT, ValueSource.GENERATION)
_OF_ADMISSIONS: Final = (ValueSource.OUTPUT_LIMIT, ValueSource.EMITTED_TOKENS, ValueSource.EOS_IDS)
_OF_PROMPTS: Final = (ValueSource.QUERY_LENGTH, ValueSource.SAMPLING_DECISION)


@dataclass(slots=True)
class _SlotState:
    generation: int = 0
    consumed: int = 0
    emitted: int = 0
    output_limit: int = 0
    eos_ids: frozenset[int] = frozenset()
    finish: DeviceFinish = DeviceFinish.RUNNING


def always_token_0(slot: int, position: int) -> tuple[int, float]:
    """The shortest script."""
    return 0, -1.0


class ScriptedDevice(NullDevice):
    """Implements `helios.runtime.device.Device` for the programs of one contract and manifest.

    Time passes only while a round runs, as `duration` says: the device has a clock of its own,
    which starts at 0."""

    def __init__(
        self,
        contract: PreparedContract,
        manifest: Manifest,
        script: Script = always_token_0,
        duration: Duration | None = None,
    ) -> None:
        super().__init__()
        self._manifest = manifest
        self._script = script
        self._duration = duration
        self._bindings = {
            graph.name: {
                binding.source: binding
                for binding in graph.bindings
                if binding.source in _READ and binding.indexing is not Indexing.PACKED_TOKEN
            }
            for graph in contract.model.graphs
        }
        self._queued: deque[tuple[int, int, int]] = deque()
        self._slots: dict[int, _SlotState] = {}
        self._clock_ns = 0
        self._times: deque[tuple[int, int]] = deque(maxlen=256)

    def load(self, programs: Sequence[Program]) -> None:
        """Keeps the programs. Raises ContractError naming a program whose inputs don't say what
        its record must."""
        super().load(programs)
        for program in programs:
            if not program.completion and program.operation not in ADMITTING:
                continue
            bound = self._bindings.get(program.name, {})
            needed = list(_LANES)
            needed += _OF_ADMISSIONS if program.operation in ADMITTING else ()
            needed += _OF_PROMPTS if program.operation in WITH_TOKENS else ()
            missing = [source.name for source in needed if source not in bound]
            if missing:
                raise ContractError(
                    f"binds no {', '.join(missing)}, without which its record can't be scripted",
                    where=f"program {program.name}",
                    remedy="Play its programs with a device of their own",
                )

    # ------------------------------------------------------------ the queue

    def submit(self, program: int, frame: int, sequence: int) -> None:
        """Queues; nothing runs yet."""
        self._queued.append((program, frame, sequence))

    def wait(self, sequence: int, timeout_ms: int) -> bool:
        """Runs rounds up to `sequence`."""
        while self._completed < sequence and self._queued:
            program, frame, self._completed = self._queued.popleft()
            began_ns = self._clock_ns
            self.run(self._programs[program], frame)
            self._times.append((began_ns, self._clock_ns))
            self._launches += len(self._programs[program].launches)
        return sequence <= self._completed

    def timing(self, sequence: int) -> tuple[int, int]:
        """(start_ns, end_ns) on the device's own clock."""
        return self._times[sequence - self._completed - 1]

    # ------------------------------------------------------------ programs

    def run(self, program: Program, frame: int) -> None:
        """Plays one program by its operation."""
        tokens = 0
        if program.operation in ADMITTING:
            inputs = self._inputs(program, frame)
            tokens = len(inputs[ValueSource.SLOT])
            self._admit(inputs)
        elif program.completion:
            inputs = self._inputs(program, frame)
            slots = inputs[ValueSource.SLOT]
            lengths = inputs.get(ValueSource.QUERY_LENGTH, [1] * len(slots))
            samples = inputs.get(ValueSource.SAMPLING_DECISION, [1] * len(slots))
            tokens = sum(lengths)
            self._complete(program, frame, inputs, lengths, samples)
        if self._duration is not None:
            self._clock_ns += self._duration(program.name, tokens)

    def _inputs(self, program: Program, frame: int) -> dict[ValueSource, list[Any]]:
        """Each source's values by lane."""
        bound = self._bindings[program.name]
        live = int(self._staged(bound[ValueSource.LIVE_ROW_COUNT], frame)[0])
        rows = list(range(live))
        values: dict[ValueSource, list[Any]] = {}
        for source in sorted(bound, key=lambda source: source is not ValueSource.SLOT):
            if source is ValueSource.LIVE_ROW_COUNT:
                continue
            binding = bound[source]
            staged = self._staged(binding, frame)
            slots = values.get(ValueSource.SLOT, rows)
            by_slot = binding.indexing is Indexing.PHYSICAL_REQUEST_ROW
            values[source] = staged[slots if by_slot else rows].tolist()
        return values

    def _staged(self, binding: ValueBinding, frame: int) -> NDArray[Any]:
        """A destination's elements, or rows of them, without the binding's offset."""
        assert self._plan is not None
        destination = self._manifest.destinations[binding.destination]
        assert not isinstance(destination, DeltaDestination)
        planned = self._plan.buffers[destination.buffer]
        values = self.view(destination.buffer, frame).view(element_type(planned.buffer.dtype))
        columns = math.prod(planned.shape[1:])
        shaped: NDArray[Any] = values.reshape(-1, columns) if columns > 1 else values
        return shaped.astype(np.int64) - binding.offset

    def _admit(self, inputs: Mapping[ValueSource, list[Any]]) -> None:
        slots = inputs[ValueSource.SLOT]
        starts = inputs.get(ValueSource.CONSUMED_TOKENS, [0] * len(slots))
        for lane, slot in enumerate(slots):
            eos_ids = np.atleast_1d(inputs[ValueSource.EOS_IDS][lane])
            self._slots[slot] = _SlotState(
                generation=inputs[ValueSource.GENERATION][lane],
                consumed=starts[lane],
                emitted=inputs[ValueSource.EMITTED_TOKENS][lane],
                output_limit=inputs[ValueSource.OUTPUT_LIMIT][lane],
                eos_ids=frozenset(eos_ids.tolist()),
            )

    def _complete(
        self,
        program: Program,
        frame: int,
        inputs: Mapping[ValueSource, list[Any]],
        lengths: Sequence[int],
        samples: Sequence[int],
    ) -> None:
        """Moves each lane on and writes the round's record."""
        record = self._manifest.completions[program.completion]
        lanes = self.view(record.lanes, frame).view(np.int32).reshape(-1, COMPLETION_LANE_COLUMNS)
        tokens, logprobs = (
            self._emitted(record.tokens, frame),
            self._emitted(record.logprobs, frame),
        )
        slots, generations = inputs[ValueSource.SLOT], inputs[ValueSource.GENERATION]
        rows = zip(slots, generations, lengths, samples, strict=True)
        for lane, (slot, generation, length, sample) in enumerate(rows):
            state = self._slots.setdefault(slot, _SlotState())
            error = LaneError.NONE
            kept = 0
            if state.generation != generation:
                error = LaneError.STALE_GENERATION
            elif state.finish:
                error = LaneError.ALREADY_FINISHED
            else:
                state.consumed += length
                kept = int(sample)
            if kept:
                token, logprob = self._script(slot, state.consumed)
                tokens.view(np.int32)[lane, 0] = token
                logprobs.view(np.float32)[lane, 0] = logprob
                state.emitted += 1
                if token in state.eos_ids:
                    state.finish = DeviceFinish.EOS
                elif state.emitted == state.output_limit:
                    state.finish = DeviceFinish.LIMIT
            none = (-1, -1)
            lanes[lane] = (
                slot, generation, kept, state.consumed, state.finish, *none, 0, 0, error, 0, 0,
            )  # fmt: skip
        if program.operation is Operation.SCORED_PREFILL and record.scores is not None:
            self.view(record.scores, frame).view(np.float32)[: sum(lengths)] = -1.0

    def _emitted(self, buffer: int, frame: int) -> NDArray[np.uint8]:
        """A record's four-byte elements, a row a lane."""
        assert self._plan is not None
        return self.view(buffer, frame).reshape(-1, 4 * self._plan.buffers[buffer].shape[1])

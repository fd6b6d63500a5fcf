"""Records the programs of a paged text model: admission, prefill and decode with sampling inside.

The frame that any such model stands in: request state, page table, transport and completion
buffers, and the launches around the forward pass. The model gives two functions, `hidden` and
`head`; everything else is the same for all, so recipes hold arithmetic only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from helios.errors import ContractError
from helios.kernels.catalogue import COMPLETION_LANE_COLUMNS, REQUEST_STATE_NBYTES
from helios.schema import contract_pb2
from helios.schema import execution_pb2 as pb
from ignition.capture import request_ops as ops
from ignition.capture.handles import Activation, BufferHandle, Rows
from ignition.capture.ops import PageTable, RowBinding
from ignition.capture.program import ProgramRecorder
from ignition.capture.recorder import Recorder
from ignition.preparation import contract

DEFAULT_MAX_ACTIVE: Final = 32
DEFAULT_PREFILL_EXTENTS: Final = (32, 128, 512)
DEFAULT_DECODE_BATCHES: Final = (1, 2, 4, 8, 16, 32)
PREFILL_LANES_LIMIT: Final = 32
_COMPLETION: Final = "completion"


@dataclass(frozen=True)
class Extents:
    """Captured capacities: request slots, packed tokens of each PREFILL program, lanes of each
    DECODE program, tokens of the longest request. Impossible ones raise ContractError, which
    names the option of `ignition prepare` that sets them."""

    max_active: int
    prefill: tuple[int, ...]
    decode: tuple[int, ...]
    max_context_tokens: int

    def __post_init__(self) -> None:
        # Before the lists: the default decode list follows from --max-active.
        for option, value in (
            ("--max-active", self.max_active),
            ("--max-context", self.max_context_tokens),
        ):
            if value < 1:
                raise ContractError(f"{value} is too few", where=option, remedy="Give 1 or more")
        for option, values in (("--prefill", self.prefill), ("--decode", self.decode)):
            if not values or min(values) < 1 or list(values) != sorted(set(values)):
                raise ContractError(
                    f"capacities must be positive and ascending, got {list(values)}",
                    where=option,
                    remedy="Write them like 1,2,4",
                )
        if self.decode[-1] != self.max_active:
            raise ContractError(
                f"the largest program takes {self.decode[-1]} lanes, not all {self.max_active} "
                "requests that may be active",
                where="--decode",
                remedy=f"End the list with {self.max_active}, or change --max-active",
            )

    def prefill_lanes(self, packed: int) -> int:
        """Lanes of the PREFILL program with `packed` tokens: each has a token at least."""
        return min(self.max_active, packed, PREFILL_LANES_LIMIT)

    @property
    def sampling_lanes(self) -> int:
        """Most lanes that one round samples for."""
        return max(self.decode[-1], self.prefill_lanes(self.prefill[-1]))

    @property
    def pages_per_request(self) -> int:
        """Pages of the longest request."""
        return -(-self.max_context_tokens // contract.PAGE_TOKENS)


class PagedTextModel(Protocol):
    """What a recipe supplies."""

    @property
    def vocabulary_tokens(self) -> int:
        """Width of a row of logits."""

    @property
    def sampled_tokens(self) -> int:
        """Ids below it may be sampled."""

    def hidden(self, program: ProgramRecorder, at: RowBinding, table: PageTable) -> Activation:
        """Records the forward pass of rows: f32 rows before the final norm."""

    def head(
        self, program: ProgramRecorder, rows: Rows, x: Activation, logits: BufferHandle
    ) -> None:
        """Records the final norm and the head of rows into `logits`."""


def record(
    recorder: Recorder, model: PagedTextModel, extents: Extents
) -> list[contract_pb2.GraphContract]:
    """Declares the frame's buffers, records all programs and returns their contracts."""
    frame = _Frame(recorder, model, extents)
    graphs = [frame.initialize(extents.max_active)]
    graphs += [frame.prefill(packed) for packed in extents.prefill]
    graphs += [frame.decode(lanes) for lanes in extents.decode]
    return graphs


class _Frame:
    """The buffers that all programs share, and one method an operation."""

    def __init__(self, recorder: Recorder, model: PagedTextModel, extents: Extents) -> None:
        self._recorder = recorder
        self._model = model
        self._extents = extents
        self._inputs = self._declare_inputs(contract.STAGED)
        self._state = recorder.buffers.plain(
            contract.REQUEST_STATE,
            pb.BUFFER_CLASS_STATE,
            pb.DTYPE_U8,
            (REQUEST_STATE_NBYTES,),
            leading=pb.LEADING_COUNT_REQUEST_SLOTS,
        )
        self._table = PageTable(
            recorder.buffers.plain(
                contract.PAGE_TABLE,
                pb.BUFFER_CLASS_STATE,
                pb.DTYPE_I32,
                (extents.pages_per_request,),
                leading=pb.LEADING_COUNT_REQUEST_SLOTS,
            ),
            contract.PAGE_TOKENS,
            extents.pages_per_request,
        )
        lanes = extents.sampling_lanes
        self._delta_entries = lanes * extents.pages_per_request
        self._delta = recorder.delta_input(
            contract.PAGE_TABLE, self._table.buffer, self._delta_entries
        )
        self._logits = recorder.retained_workspace(
            "logits", pb.DTYPE_F32, (lanes, model.vocabulary_tokens)
        )
        self._completion = self._declare_completion(lanes)

    def initialize(self, lanes: int) -> contract_pb2.GraphContract:
        """Admission: the state rows of new requests."""
        program, graph = self._begin(contract_pb2.OPERATION_INITIALIZE, lanes, 0, 0)
        names = ("slot", "generation", *(d.name for d in contract.ADMISSION))
        ops.initialize_requests(
            program,
            Rows(self._inputs["live_rows"], lanes),
            {name: self._inputs[name] for name in names},
            self._state,
        )
        return graph

    def prefill(self, packed: int) -> contract_pb2.GraphContract:
        """Prompt chunks of several lanes; lanes whose prompt ends here sample."""
        extent = self._extents.prefill_lanes(packed)
        program, graph = self._begin(contract_pb2.OPERATION_PREFILL, extent, 1, packed)
        self._apply_page_deltas(program)
        at = RowBinding(
            Rows(self._inputs["live_tokens"], packed),
            self._inputs["tokens"],
            self._inputs["positions"],
            self._inputs["token_slot"],
        )
        x = self._model.hidden(program, at, self._table)
        lanes = self._lanes(extent)
        prompt = ops.PromptLanes(self._inputs["query_length"], self._inputs["sample"])
        selection = ops.select_last(program, lanes, prompt, x, packed)
        self._model.head(program, selection.rows, selection.x, self._logits)
        sampled = ops.sample(
            program,
            lanes,
            self._state,
            self._logits,
            self._model.sampled_tokens,
            selection=selection,
            prompt=prompt,
        )
        ops.commit(program, lanes, sampled, self._state, self._completion, prompt=prompt)
        graph.tuned_bindings.extend(program.message.tuned_bindings)
        return graph

    def decode(self, extent: int) -> contract_pb2.GraphContract:
        """One token a lane, fed from device state."""
        program, graph = self._begin(contract_pb2.OPERATION_DECODE, extent, 1, extent)
        self._apply_page_deltas(program)
        lanes = self._lanes(extent)
        tokens, positions = ops.load_pending(program, lanes, self._state)
        at = RowBinding(lanes.rows, tokens, positions, lanes.slot)
        x = self._model.hidden(program, at, self._table)
        self._model.head(program, lanes.rows, x, self._logits)
        sampled = ops.sample(program, lanes, self._state, self._logits, self._model.sampled_tokens)
        ops.commit(program, lanes, sampled, self._state, self._completion)
        graph.tuned_bindings.extend(program.message.tuned_bindings)
        return graph

    def _begin(
        self, operation: contract_pb2.Operation, lanes: int, target_tokens: int, packed: int
    ) -> tuple[ProgramRecorder, contract_pb2.GraphContract]:
        kind, extent = {
            contract_pb2.OPERATION_INITIALIZE: ("initialize.b", lanes),
            contract_pb2.OPERATION_PREFILL: ("prefill.p", packed),
            contract_pb2.OPERATION_DECODE: ("decode.b", lanes),
        }[operation]
        graph = contract.graph(f"{kind}{extent}", operation)
        program = self._recorder.program(
            graph.name,
            operation,
            batch_capacity=lanes,
            token_capacity=target_tokens,
            packed_token_capacity=packed,
            accesses=graph.accesses,
        )
        return program, graph

    def _lanes(self, extent: int) -> ops.Lanes:
        return ops.Lanes(
            Rows(self._inputs["live_rows"], extent),
            self._inputs["slot"],
            self._inputs["generation"],
        )

    def _apply_page_deltas(self, program: ProgramRecorder) -> None:
        count, index, value = self._delta
        ops.scatter_i32(program, Rows(count, self._delta_entries), index, value, self._table.buffer)

    def _declare_inputs(
        self, destinations: Sequence[contract.Destination]
    ) -> dict[str, BufferHandle]:
        """INPUT buffers, sized for the largest program."""
        rows = {
            contract_pb2.INDEXING_SCALAR: 1,
            contract_pb2.INDEXING_ACTIVE_ROW: self._extents.max_active,
            contract_pb2.INDEXING_PACKED_TOKEN: self._extents.prefill[-1],
        }
        return {
            d.name: self._recorder.staged_input(
                d.name,
                d.dtype,
                (rows[d.indexing],) if d.per_row == 1 else (rows[d.indexing], d.per_row),
            )
            for d in destinations
        }

    def _declare_completion(self, lanes: int) -> ops.CompletionBuffers:
        def column(part: str, dtype: pb.DType, *shape: int) -> BufferHandle:
            return self._recorder.buffers.plain(
                f"{_COMPLETION}.{part}", pb.BUFFER_CLASS_COMPLETION, dtype, shape
            )

        buffers = ops.CompletionBuffers(
            column("lanes", pb.DTYPE_I32, lanes, COMPLETION_LANE_COLUMNS),
            column("tokens", pb.DTYPE_I32, lanes, 1),
            column("logprobs", pb.DTYPE_F32, lanes, 1),
        )
        self._recorder.completion(
            pb.CompletionRecord(
                name=_COMPLETION,
                lanes=buffers.lanes.name,
                tokens=buffers.tokens.name,
                logprobs=buffers.logprobs.name,
            )
        )
        return buffers

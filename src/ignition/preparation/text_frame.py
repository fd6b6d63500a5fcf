"""The frame that a paged text model's programs stand in: the buffers that they share.

Request state, page table, transport, logits and completion record are declared once; `begin` starts
a program over them. What the programs do is in `request_programs` and `paged_text`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from helios.kernels.catalogue import (
    COMPLETION_LANE_COLUMNS,
    REQUEST_STATE_NBYTES,
    SAMPLING_ROW_NBYTES,
    TOP_CAPACITY,
)
from helios.schema import contract_pb2
from helios.schema import execution_pb2 as pb
from ignition.capture import page_ops
from ignition.capture import request_ops as ops
from ignition.capture.attention_ops import PageTable
from ignition.capture.handles import BufferHandle, Rows
from ignition.capture.needs import mask_words as words_of_mask
from ignition.capture.program import ProgramRecorder
from ignition.capture.recorder import Recorder
from ignition.capture.sampling_ops import SamplingState
from ignition.preparation import contract, destinations
from ignition.preparation.extents import Extents

_COMPLETION: Final = "completion"


class TextFrame:
    """Buffers of all programs of these operations. `logits` has `vocabulary_tokens` columns, of
    which the first `sampled_tokens` may be sampled."""

    def __init__(
        self,
        recorder: Recorder,
        extents: Extents,
        operations: Collection[contract_pb2.Operation],
        vocabulary_tokens: int,
        sampled_tokens: int,
    ) -> None:
        self._recorder = recorder
        self.extents = extents
        mask_words = words_of_mask(sampled_tokens)
        self.inputs = self._declare_inputs(destinations.staged(operations), mask_words)
        self.state = self._table(contract.REQUEST_STATE, pb.DTYPE_U8, REQUEST_STATE_NBYTES)
        self.table = PageTable(
            self._table(contract.PAGE_TABLE, pb.DTYPE_I32, extents.pages_per_request),
            extents.page_tokens,
            extents.pages_per_request,
        )
        self.sampling = SamplingState(
            self.state,
            self._table(contract.SAMPLING_ROWS, pb.DTYPE_U8, SAMPLING_ROW_NBYTES),
            self._table("token_counts", pb.DTYPE_I32, sampled_tokens),
            self._table("output_counts", pb.DTYPE_I32, sampled_tokens),
            self._table(contract.TOKEN_MASK, pb.DTYPE_U32, mask_words),
        )
        lanes = extents.sampling_lanes
        self._delta_entries = lanes * extents.pages_per_request
        self._delta = recorder.delta_input(
            contract.PAGE_TABLE, self.table.buffer, self._delta_entries
        )
        # Each lane's different tokens, of as many as a context has.
        self._histogram_entries = extents.max_active * min(
            sampled_tokens, extents.max_context_tokens
        )
        self._histograms = {
            table: recorder.delta_input(table.name, table, self._histogram_entries)
            for table in (self.sampling.token_counts, self.sampling.output_counts)
        }
        self.logits = recorder.retained_workspace(
            "logits", pb.DTYPE_F32, (extents.logit_rows, vocabulary_tokens)
        )
        scored = extents.scored_prefill[-1] if extents.scored_prefill else 0
        self.completion = self._declare_completion(lanes, scored)

    def begin(
        self,
        name: str,
        operation: contract_pb2.Operation,
        lanes: int,
        target_tokens: int = 0,
        packed: int = 0,
    ) -> tuple[ProgramRecorder, contract_pb2.GraphContract]:
        """A program of this operation, and its contract."""
        graph = contract.graph(name, operation)
        program = self._recorder.program(
            name,
            operation,
            batch_capacity=lanes,
            token_capacity=target_tokens,
            packed_token_capacity=packed,
            accesses=graph.accesses,
        )
        return program, graph

    def lanes(self, extent: int) -> ops.Lanes:
        """The round's lanes, at most `extent`."""
        return ops.Lanes(
            Rows(self.inputs["live_rows"], extent), self.inputs["slot"], self.inputs["generation"]
        )

    def apply_page_deltas(self, program: ProgramRecorder) -> None:
        """Records the entries that the page table gets this round."""
        count, index, value = self._delta
        ops.scatter_i32(program, Rows(count, self._delta_entries), index, value, self.table.buffer)

    def apply_histograms(self, program: ProgramRecorder) -> None:
        """Records the counts that admitted requests begin with."""
        for table, (count, index, value) in self._histograms.items():
            rows = Rows(count, self._histogram_entries)
            ops.scatter_i32(program, rows, index, value, table)

    def declare_saved(self, planes: Sequence[BufferHandle]) -> list[page_ops.SavedPlane]:
        """For each cache plane a buffer whose rows hold a page of it each."""
        return [
            page_ops.SavedPlane(
                plane,
                self._recorder.buffers.plain(
                    f"saved.{plane.name.removeprefix('cache.')}",
                    pb.BUFFER_CLASS_CACHE,
                    plane.dtype,
                    plane.shape,
                    leading=pb.LEADING_COUNT_SNAPSHOT_ROWS,
                ),
            )
            for plane in planes
        ]

    def _table(self, name: str, dtype: pb.DType, elements: int) -> BufferHandle:
        """A row of so many elements for each request slot."""
        return self._recorder.buffers.plain(
            name,
            pb.BUFFER_CLASS_STATE,
            dtype,
            (elements,),
            leading=pb.LEADING_COUNT_REQUEST_SLOTS,
        )

    def _declare_inputs(
        self, staged: Sequence[destinations.Destination], mask_words: int
    ) -> dict[str, BufferHandle]:
        """INPUT buffers, sized for the largest program."""
        rows = {
            contract_pb2.INDEXING_SCALAR: 1,
            contract_pb2.INDEXING_ACTIVE_ROW: self.extents.max_active,
            contract_pb2.INDEXING_PACKED_TOKEN: self.extents.packed_tokens,
        }
        return {
            d.name: self._recorder.staged_input(
                d.name,
                d.dtype,
                (rows[d.indexing],)
                if d.per_row == 1
                else (rows[d.indexing], d.per_row or mask_words),
            )
            for d in staged
        }

    def _declare_completion(self, lanes: int, scored_tokens: int) -> ops.CompletionBuffers:
        def column(part: str, dtype: pb.DType, *shape: int) -> BufferHandle:
            return self._recorder.buffers.plain(
                f"{_COMPLETION}.{part}", pb.BUFFER_CLASS_COMPLETION, dtype, shape
            )

        buffers = ops.CompletionBuffers(
            column("lanes", pb.DTYPE_I32, lanes, COMPLETION_LANE_COLUMNS),
            column("tokens", pb.DTYPE_I32, lanes, 1),
            column("logprobs", pb.DTYPE_F32, lanes, 1),
            column("top_tokens", pb.DTYPE_I32, lanes, TOP_CAPACITY),
            column("top_logprobs", pb.DTYPE_F32, lanes, TOP_CAPACITY),
            *(
                (
                    column("scores", pb.DTYPE_F32, scored_tokens),
                    column("score_ranks", pb.DTYPE_I32, scored_tokens),
                    column("score_top_tokens", pb.DTYPE_I32, scored_tokens, TOP_CAPACITY),
                    column("score_top_logprobs", pb.DTYPE_F32, scored_tokens, TOP_CAPACITY),
                )
                if scored_tokens
                else ()
            ),
        )
        self._recorder.completion(
            pb.CompletionRecord(
                name=_COMPLETION,
                lanes=buffers.lanes.name,
                tokens=buffers.tokens.name,
                logprobs=buffers.logprobs.name,
                top_tokens=buffers.top_tokens.name,
                top_logprobs=buffers.top_logprobs.name,
                **{
                    part: getattr(buffers, part).name
                    for part in ("scores", "score_ranks", "score_top_tokens", "score_top_logprobs")
                    if scored_tokens
                },
            )
        )
        return buffers

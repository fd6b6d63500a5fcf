"""Records the programs of a paged text model: all operations, with sampling inside.

The model gives three functions, `cached`, `finish` and `head`; the launches around them are the
same for all such models, so recipes hold arithmetic only. Buffers are `text_frame`'s, programs
without a forward pass `request_programs`'.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from helios.schema import contract_pb2
from ignition.capture import request_ops as ops
from ignition.capture import sampling_ops, selection_ops
from ignition.capture.attention_ops import PageTable
from ignition.capture.handles import (
    Activation,
    AttendingRows,
    BufferHandle,
    LaneLengths,
    RowBinding,
    Rows,
)
from ignition.capture.program import ProgramRecorder
from ignition.capture.recorder import Recorder
from ignition.preparation import destinations, request_programs
from ignition.preparation.extents import SCORED_ROWS, Extents
from ignition.preparation.text_frame import TextFrame

__all__ = ["Extents", "PagedTextModel", "Recorded", "record"]

_ALWAYS: Final = (
    contract_pb2.OPERATION_INITIALIZE,
    contract_pb2.OPERATION_PREFILL,
    contract_pb2.OPERATION_DECODE,
)
_RESTORING: Final = (
    contract_pb2.OPERATION_RESTORE,
    contract_pb2.OPERATION_RESUME,
    contract_pb2.OPERATION_SNAPSHOT,
)


class PagedTextModel(Protocol):
    """What a recipe supplies."""

    @property
    def vocabulary_tokens(self) -> int:
        """Width of a row of logits."""

    @property
    def sampled_tokens(self) -> int:
        """Ids below it may be sampled."""

    @property
    def planes(self) -> Sequence[BufferHandle]:
        """All cache planes."""

    def cached(
        self, program: ProgramRecorder, tokens: BufferHandle, at: RowBinding, table: PageTable
    ) -> AttendingRows:
        """Records the forward pass of rows until others have all that they will look at: up to the
        last attention."""

    def finish(self, program: ProgramRecorder, rows: AttendingRows, table: PageTable) -> None:
        """Records what is left of it, in `rows.x`, for rows whose result is wanted."""

    def head(
        self, program: ProgramRecorder, rows: Rows, x: Activation, logits: BufferHandle
    ) -> None:
        """Records the final norm and the head of rows into `logits`."""


@dataclass(frozen=True)
class Recorded:
    """The contracts of all programs, and the planes that keep pages which are being filled."""

    graphs: list[contract_pb2.GraphContract]
    saved_planes: list[str]


def record(recorder: Recorder, model: PagedTextModel, extents: Extents) -> Recorded:
    """Declares the frame's buffers and records all programs."""
    frame = TextFrame(
        recorder,
        extents,
        _operations(extents),
        model.vocabulary_tokens,
        model.sampled_tokens,
    )
    saved = frame.declare_saved(model.planes) if extents.restore else []
    text = _TextPrograms(frame, model)
    graphs = [request_programs.initialize(frame, extents.max_active)]
    graphs += [text.prefill(packed) for packed in extents.prefill]
    graphs += [text.decode(lanes) for lanes in extents.decode]
    graphs += [text.mixed(packed) for packed in extents.mixed]
    graphs += [text.scored_prefill(packed) for packed in extents.scored_prefill]
    for lanes in extents.restore:
        graphs += [
            request_programs.restore(frame, saved, lanes),
            request_programs.resume(frame, saved, lanes),
            request_programs.snapshot(frame, saved, lanes),
        ]
    return Recorded(graphs, [plane.rows.name for plane in saved])


def _operations(extents: Extents) -> list[contract_pb2.Operation]:
    operations = list(_ALWAYS)
    if extents.mixed:
        operations.append(contract_pb2.OPERATION_MIXED)
    if extents.scored_prefill:
        operations.append(contract_pb2.OPERATION_SCORED_PREFILL)
    if extents.restore:
        operations.extend(_RESTORING)
    return operations


class _TextPrograms:
    """Programs with a forward pass, one method an operation."""

    def __init__(self, frame: TextFrame, model: PagedTextModel) -> None:
        self._frame = frame
        self._inputs = frame.inputs
        self._model = model

    def prefill(self, packed: int) -> contract_pb2.GraphContract:
        """Prompt chunks of several lanes; lanes whose prompt ends here sample."""
        lanes = self._frame.extents.prefill_lanes(packed)
        program, graph = self._frame.begin(
            f"prefill.p{packed}", contract_pb2.OPERATION_PREFILL, lanes, 1, packed
        )
        self._sample_last(program, lanes, self._prompt(program, lanes, packed))
        graph.tuned_bindings.extend(program.message.tuned_bindings)
        return graph

    def scored_prefill(self, packed: int) -> contract_pb2.GraphContract:
        """As PREFILL, with the logprob of a target at each token, and the likeliest ones there. The
        head runs over a part of the rows at a time, so that logits take no more memory than
        sampling needs anyway."""
        lanes = self._frame.extents.prefill_lanes(packed)
        program, graph = self._frame.begin(
            f"scored_prefill.p{packed}", contract_pb2.OPERATION_SCORED_PREFILL, lanes, 1, packed
        )
        prompt = self._prompt(program, lanes, packed)
        scored = ops.ScoredInputs(self._inputs["targets"], self._inputs["scored_top_logprobs"])
        live, x = prompt.at.rows, prompt.x
        self._model.finish(program, prompt, self._frame.table)
        for start in range(0, packed, SCORED_ROWS):
            part = min(SCORED_ROWS, packed - start)
            with program.section(f"scored.{part}"):
                rows = selection_ops.slice_rows(program, live, start, part)
                self._model.head(program, rows, x.from_row(start), self._frame.logits)
            ops.score_ranked(
                program,
                rows,
                scored,
                self._frame.logits,
                self._model.sampled_tokens,
                self._frame.completion,
                start,
            )
        selection = selection_ops.select_last(
            program, self._frame.lanes(lanes), self._prompt_lanes, x, packed
        )
        self._sample_selected(program, lanes, selection)
        graph.tuned_bindings.extend(program.message.tuned_bindings)
        return graph

    def decode(self, extent: int) -> contract_pb2.GraphContract:
        """One token a lane, fed from device state."""
        program, graph = self._frame.begin(
            f"decode.b{extent}", contract_pb2.OPERATION_DECODE, extent, 1, extent
        )
        self._frame.apply_page_deltas(program)
        lanes = self._frame.lanes(extent)
        tokens, positions = ops.load_pending(program, lanes, self._frame.state)
        at = RowBinding(lanes.rows, positions, lanes.slot)
        rows = self._model.cached(program, tokens, at, self._frame.table)
        self._model.finish(program, rows, self._frame.table)
        self._model.head(program, lanes.rows, rows.x, self._frame.logits)
        self._sample(program, lanes)
        graph.tuned_bindings.extend(program.message.tuned_bindings)
        return graph

    def mixed(self, packed: int) -> contract_pb2.GraphContract:
        """Lanes that decode, and after them a chunk of one prompt."""
        extent = self._frame.extents.mixed_lanes(packed)
        program, graph = self._frame.begin(
            f"mixed.b{extent}p{packed}", contract_pb2.OPERATION_MIXED, extent, 1, packed
        )
        self._frame.apply_page_deltas(program)
        rows = Rows(self._inputs["live_tokens"], packed)
        tokens, positions = ops.merge_pending(
            program,
            self._frame.lanes(extent),
            self._frame.state,
            rows,
            self._inputs["decode_lanes"],
            self._inputs["tokens"],
            self._inputs["positions"],
        )
        slots, lengths = self._inputs["token_slot"], self._lengths(extent)
        at = RowBinding(rows, positions, slots, lengths)
        attending = self._model.cached(program, tokens, at, self._frame.table)
        self._sample_last(program, extent, attending)
        graph.tuned_bindings.extend(program.message.tuned_bindings)
        return graph

    def _prompt(self, program: ProgramRecorder, lanes: int, packed: int) -> AttendingRows:
        """The forward pass of the tokens that the host sends, but for its end."""
        self._frame.apply_page_deltas(program)
        at = RowBinding(
            Rows(self._inputs["live_tokens"], packed),
            self._inputs["positions"],
            self._inputs["token_slot"],
            self._lengths(lanes),
        )
        return self._model.cached(program, self._inputs["tokens"], at, self._frame.table)

    def _lengths(self, lanes: int) -> LaneLengths:
        """How many of the packed rows each of at most `lanes` lanes has."""
        return LaneLengths(self._frame.lanes(lanes).rows, self._inputs["query_length"])

    @property
    def _prompt_lanes(self) -> ops.PromptLanes:
        """What a round that consumes several tokens a lane is told of its lanes."""
        return ops.PromptLanes(self._inputs["query_length"], self._inputs["sample"])

    def _sample_last(self, program: ProgramRecorder, extent: int, rows: AttendingRows) -> None:
        """Samples after the last row of each lane that wants it, and commits all lanes. The other
        rows have cached their keys and values, and end here."""
        lanes = self._frame.lanes(extent)
        selection, attending = selection_ops.select_attending(
            program, lanes, self._prompt_lanes, rows
        )
        with program.section("last"):
            self._model.finish(program, attending, self._frame.table)
        self._sample_selected(program, extent, selection)

    def _sample_selected(
        self, program: ProgramRecorder, extent: int, selection: selection_ops.Selection
    ) -> None:
        """Samples after the selected rows, which are finished, and commits all lanes."""
        self._model.head(program, selection.rows, selection.x, self._frame.logits)
        self._sample(program, self._frame.lanes(extent), selection, self._prompt_lanes)

    def _sample(
        self,
        program: ProgramRecorder,
        lanes: ops.Lanes,
        selection: selection_ops.Selection | None = None,
        prompt: ops.PromptLanes | None = None,
    ) -> None:
        """Samples from the logits, counts what was sampled, and commits all lanes."""
        frame = self._frame
        sampled = sampling_ops.sample(
            program,
            lanes,
            frame.sampling,
            frame.logits,
            frame.completion,
            grammar_mask=self._inputs[destinations.GRAMMAR_MASK.name],
            selection=selection,
            prompt=prompt,
        )
        sampling_ops.count_sampled(program, lanes, sampled, frame.sampling, prompt=prompt)
        ops.commit(program, lanes, sampled, frame.state, frame.completion, prompt=prompt)

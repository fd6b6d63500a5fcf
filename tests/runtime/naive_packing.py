"""A naive packer: one element at a time, in plain Python, from the words of docs/model-contract.md.

It shares nothing with `helios.runtime.packing` but the data types, and remembers by the book: what
each slot's page table and histogram hold, and of which generation.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from helios.contract.enums import Indexing, Operation, ValueSource
from helios.contract.model import ValueBinding
from helios.runtime.manifest import DType
from helios.runtime.rounds import LaneExtras, LaneWork, Proposal
from tests.contract.sample import PAGE_TOKENS
from tests.runtime.packing_bench import (
    CACHE_PAGES,
    CONTEXT_TOKENS,
    HISTOGRAM_TOKENS,
    INPUT_TOKENS,
    MASK_WORDS,
    PAGES,
    SAMPLED_TOKENS,
    SLOTS,
    SNAPSHOTS,
    UNTOUCHED,
    Delta,
    Graph,
    Staged,
)

FORMATS = {
    DType.U8: "<B",
    DType.I8: "<b",
    DType.I32: "<i",
    DType.U32: "<I",
    DType.I64: "<q",
    DType.U64: "<Q",
    DType.F32: "<f",
}
HISTOGRAMS = (ValueSource.PROMPT_HISTOGRAM, ValueSource.OUTPUT_HISTOGRAM)
LISTS = (
    ValueSource.LOGIT_BIAS_TOKEN,
    ValueSource.LOGIT_BIAS,
    ValueSource.STOP_TOKEN_ID,
    ValueSource.BAD_WORD_TOKEN,
)
ADMITTING = (Operation.INITIALIZE, Operation.RESTORE, Operation.RESUME)


class Unfit(Exception):
    """A lane's value is missing or doesn't fit."""


@dataclass
class NaivePacker:
    """Expected staging bytes by buffer and frame. `state_rows` are those of a request."""

    destinations: dict[str, Staged | Delta]
    page_offsets: dict[str, int]
    state_rows: int
    bytes: dict[tuple[str, int], bytearray] = field(default_factory=dict)
    # Of each table (and place in it) and slot: generation, number of pages.
    pages: dict[tuple[str, int, int], tuple[int, int]] = field(default_factory=dict)
    # Of each table, what it counts, and slot: generation and emitted tokens.
    histograms: dict[tuple[str, ValueSource, int], tuple[int, int]] = field(default_factory=dict)

    def pack(self, graph: Graph, frame: int, lanes: list[LaneWork]) -> list[tuple[int, str]]:
        """Packs a round, or says which (lane, destination) don't fit and changes nothing."""
        before = {key: bytearray(content) for key, content in self.bytes.items()}
        pages, histograms = dict(self.pages), dict(self.histograms)
        for binding in graph.bindings:
            unfit = self._pack_binding(graph, binding, frame, lanes)
            if unfit:
                self.bytes, self.pages, self.histograms = before, pages, histograms
                return [(number, binding.destination) for number in unfit]
        return []

    def _pack_binding(
        self, graph: Graph, binding: ValueBinding, frame: int, lanes: list[LaneWork]
    ) -> list[int]:
        destination = self.destinations[binding.destination]
        unfit = []
        entries: list[tuple[int, int]] = []
        if isinstance(destination, Staged) and binding.indexing is Indexing.SUBMISSION_ROW:
            for row in range(len(lanes), graph.lanes):
                for column in range(columns_of(destination)):
                    self._put(binding, frame, row, column, binding.padding)
        first = 0
        for number, work in enumerate(lanes):
            length = query_length(graph.operation, work)
            try:
                if isinstance(destination, Delta):
                    entries += self._entries(binding, destination, work, length)
                else:
                    self._pack_lane(graph, binding, frame, lanes, number, first)
            except (Unfit, struct.error, OverflowError):
                unfit.append(number)
            first += length
        if isinstance(destination, Delta) and not unfit:
            name = binding.destination
            write(self.bytes[f"{name}.count", frame], DType.I32, 0, len(entries))
            for place, (index, value) in enumerate(entries):
                write(self.bytes[f"{name}.index", frame], destination.dtype, place, index)
                write(self.bytes[f"{name}.value", frame], destination.dtype, place, value)
        return unfit

    def _pack_lane(
        self,
        graph: Graph,
        binding: ValueBinding,
        frame: int,
        lanes: list[LaneWork],
        number: int,
        first: int,
    ) -> None:
        """One lane's rows; `first` is its first packed token."""
        work, indexing = lanes[number], binding.indexing
        destination = self.destinations[binding.destination]
        assert isinstance(destination, Staged)
        columns = columns_of(destination)
        length = query_length(graph.operation, work)
        if indexing is Indexing.PACKED_TOKEN:
            for token in range(length):
                values = self._values(graph, binding, columns, lanes, number, token)
                for column in range(columns):
                    self._put(binding, frame, first + token, column, values[column])
            return
        row = number
        if indexing is Indexing.SCALAR:
            row = 0
        if indexing is Indexing.PHYSICAL_REQUEST_ROW:
            row = work.slot
        values = self._values(graph, binding, columns, lanes, number, None)
        for column in range(columns):
            self._put(binding, frame, row, column, values[column])

    def _put(self, binding: ValueBinding, frame: int, row: int, column: int, value: float) -> None:
        destination = self.destinations[binding.destination]
        assert isinstance(destination, Staged)
        place = row * columns_of(destination) + column
        write(self.bytes[binding.destination, frame], destination.dtype, place, value)

    # ------------------------------------------------------------ deltas

    def _entries(
        self, binding: ValueBinding, destination: Delta, work: LaneWork, length: int
    ) -> list[tuple[int, int]]:
        """The (element, value) pairs that the table lacks."""
        if binding.source in HISTOGRAMS:
            key = (destination.table, binding.source, work.slot)
            emitted = work.admission.emitted if work.admission is not None else 0
            if self.histograms.get(key) == (work.generation, emitted):
                return []
            counts = histogram(work, binding.source)
            self.histograms[key] = work.generation, emitted
            return [
                (work.slot * destination.row + token, counts[token])
                for token in range(HISTOGRAM_TOKENS)
                if counts[token] > 0
            ]
        shift = self.page_offsets[binding.destination]
        place = (destination.table, shift, work.slot)
        generation, held = self.pages.get(place, (0, 0))
        if generation != work.generation:
            held = 0
        tokens = work.start + length
        if len(work.pages) * PAGE_TOKENS < tokens or not held <= len(work.pages) <= PAGES:
            raise Unfit
        entries = []
        for number in range(held, len(work.pages)):
            if not 0 <= work.pages[number] < CACHE_PAGES:
                raise Unfit
            element = work.slot * destination.row + shift + number
            entries.append((element, work.pages[number] + binding.offset))
        self.pages[place] = (work.generation, len(work.pages))
        return entries

    # ------------------------------------------------------------ values

    def _values(
        self,
        graph: Graph,
        binding: ValueBinding,
        columns: int,
        lanes: list[LaneWork],
        number: int,
        token: int | None,
    ) -> list[float]:
        """The elements of a lane's row, or of one of its tokens' rows."""
        work = lanes[number]
        extras = work.extras or LaneExtras()
        proposal = extras.proposal or Proposal((), 0, -1)
        length = query_length(graph.operation, work)
        source, offset = binding.source, binding.offset
        everything = [2**32 - 1] * MASK_WORDS
        if source is ValueSource.SEED:
            seed = admitted(work).sampling.seed
            return [seed % 2**32, seed // 2**32]
        if source is ValueSource.EOS_IDS:
            ids = list(admitted(work).eos_ids)
            if len(ids) > columns:
                raise Unfit
            return ids + [-1] * (columns - len(ids))
        if source in HISTOGRAMS:
            return list(histogram(work, source))
        if source is ValueSource.RECENT_OUTPUT_TOKEN:
            tokens = output(work, looks_back=bool(admitted(work).sampling.bad_words))[-columns:]
            return [-1] * (columns - len(tokens)) + tokens
        if source is ValueSource.TOKEN_MASK:
            allowed = admitted(work).sampling.allowed_tokens
            if allowed is None:
                return everything
            known(allowed)
            return [
                sum(1 << bit for bit in range(32) if 32 * word + bit in allowed)
                for word in range(MASK_WORDS)
            ]
        if source in LISTS:
            return self._list(work, source, columns)
        if source is ValueSource.GRAMMAR_MASK:
            return everything if extras.grammar_mask is None else mask_words(extras.grammar_mask)
        if source is ValueSource.PROPOSAL_TOKEN:
            if len(proposal.tokens) >= max(length, 1):
                raise Unfit
            shifted = [token + offset for token in proposal.tokens]
            return shifted + [-1] * (columns - len(shifted))
        if source is ValueSource.PROPOSAL_GRAMMAR_MASK:
            if len(proposal.masks) > length:
                raise Unfit
            masks = [mask_words(mask) for mask in proposal.masks]
            masks += [everything] * (graph.target_tokens - len(masks))
            return masks[token] if token is not None else [w for mask in masks for w in mask]
        if source is ValueSource.IMAGE_TENSOR:
            if binding.image_tensor not in extras.images:
                if graph.operation is Operation.MIXED and not work.tokens:
                    return [0] * columns
                raise Unfit
            tensor = extras.images[binding.image_tensor]
            row = tensor.ravel() if token is None else np.ravel(tensor[token])
            return [value + offset for value in row.tolist()]
        return [self._number(graph, binding, lanes, number, token)]

    def _list(self, work: LaneWork, source: ValueSource, columns: int) -> list[float]:
        sampling = admitted(work).sampling
        found: list[float] = []
        rest = -1
        if source is ValueSource.LOGIT_BIAS_TOKEN:
            found = known([token for token, _ in sampling.logit_bias])
        if source is ValueSource.LOGIT_BIAS:
            found, rest = [bias for _, bias in sampling.logit_bias], 0
        if source is ValueSource.STOP_TOKEN_ID:
            found = known(sampling.stop_ids)
        if source is ValueSource.BAD_WORD_TOKEN:
            rest = 0
            for word in sampling.bad_words:
                if not word:
                    raise Unfit
                found += [len(word), *known(word)]
        if len(found) > columns:
            raise Unfit
        return found + [rest] * (columns - len(found))

    def _number(
        self,
        graph: Graph,
        binding: ValueBinding,
        lanes: list[LaneWork],
        number: int,
        token: int | None,
    ) -> float:
        """A source that is one number, offset included; a missing thing stays −1."""
        work, source, offset = lanes[number], binding.source, binding.offset
        extras = work.extras or LaneExtras()
        missing = {
            ValueSource.RESTORE_SOURCE: work.restore_row == -1,
            ValueSource.SNAPSHOT_DESTINATION: work.snapshot_row == -1,
            ValueSource.PENDING_TOKEN: work.pending_token == -1,
            ValueSource.SCORED_TARGET_TOKEN: not work.targets,
            ValueSource.IMAGE_FEATURE_INDEX: not extras.feature_indices,
            ValueSource.IMAGE_CONTEXT_INDEX: not extras.context_indices,
            ValueSource.PROPOSAL_ENDPOINT: extras.proposal is None,
        }
        if source is ValueSource.PENDING_TOKEN and work.pending_token < 0 and not work.tokens:
            raise Unfit
        if missing.get(source, False):
            return -1
        value = self._plain(graph, binding, lanes, number, token)
        optional = (*missing, ValueSource.IMAGE_FEATURE_SLOT)
        return value if value == -1 and source in optional else value + offset

    def _plain(
        self,
        graph: Graph,
        binding: ValueBinding,
        lanes: list[LaneWork],
        number: int,
        token: int | None,
    ) -> float:
        work = lanes[number]
        extras = work.extras or LaneExtras()
        lengths = [query_length(graph.operation, lane) for lane in lanes]
        live = SLOTS * self.state_rows
        match binding.source:
            case ValueSource.CONSTANT:
                return binding.constant
            case ValueSource.SLOT:
                return work.slot
            case ValueSource.GENERATION:
                return work.generation
            case ValueSource.LIVE_ROW_COUNT:
                return len(lanes)
            case ValueSource.LIVE_TOKEN_COUNT:
                return sum(lengths)
            case ValueSource.QUERY_LENGTH | ValueSource.SPECULATIVE_PREFIX_LIMIT:
                return lengths[number]
            case ValueSource.SAMPLING_DECISION:
                return 1 if work.sample else 0
            case ValueSource.MIXED_PREFILL_ROW:
                return next(n for n, lane in enumerate(lanes) if lane.tokens)
            case ValueSource.PROMPT_TOKEN:
                return work.tokens[token or 0] if work.tokens else 0
            case ValueSource.SCORED_TARGET_TOKEN:
                return per_token(work.targets, lengths[number], token)
            case ValueSource.SCORED_TOP_LOGPROBS:
                return extras.scored_top_logprobs
            case ValueSource.PENDING_TOKEN:
                return work.pending_token
            case ValueSource.PROMPT_POSITION:
                return work.start + (token or 0)
            case ValueSource.IMAGE_FEATURE_INDEX:
                return per_token(extras.feature_indices, lengths[number], token)
            case ValueSource.IMAGE_CONTEXT_INDEX:
                return per_token(extras.context_indices, lengths[number], token)
            case ValueSource.IMAGE_FEATURE_SLOT:
                return extras.feature_slot
            case ValueSource.LIVE_STATE_ROW:
                return work.slot * self.state_rows
            case ValueSource.RESTORE_SOURCE:
                return live + self._snapshot(work.restore_row)
            case ValueSource.SNAPSHOT_DESTINATION:
                return live + self._snapshot(work.snapshot_row)
            case ValueSource.CONSUMED_TOKENS:
                return work.start
            case ValueSource.TEMPERATURE:
                return admitted(work).sampling.temperature
            case ValueSource.TOP_K:
                return admitted(work).sampling.top_k
            case ValueSource.TOP_P:
                return admitted(work).sampling.top_p
            case ValueSource.MIN_P:
                return admitted(work).sampling.min_p
            case ValueSource.REPETITION_PENALTY:
                return admitted(work).sampling.repetition_penalty
            case ValueSource.PRESENCE_PENALTY:
                return admitted(work).sampling.presence_penalty
            case ValueSource.FREQUENCY_PENALTY:
                return admitted(work).sampling.frequency_penalty
            case ValueSource.OUTPUT_LIMIT:
                return admitted(work).output_limit
            case ValueSource.EMITTED_TOKENS:
                return admitted(work).emitted
            case ValueSource.MIN_TOKENS:
                return admitted(work).sampling.min_tokens
            case ValueSource.TOP_LOGPROBS:
                return admitted(work).sampling.top_logprobs
            case ValueSource.PROPOSAL_COUNT:
                return len(extras.proposal.tokens) if extras.proposal else 0
            case ValueSource.PROPOSAL_GENERATION:
                return extras.proposal.generation if extras.proposal else 0
            case ValueSource.PROPOSAL_ENDPOINT:
                assert extras.proposal is not None
                return extras.proposal.endpoint
        raise AssertionError(binding.source)

    def _snapshot(self, row: int) -> int:
        if not 0 <= row < SNAPSHOTS:
            raise Unfit
        return row * self.state_rows


def query_length(operation: Operation, work: LaneWork) -> int:
    """Packed tokens of a lane."""
    if operation is Operation.DECODE:
        return 1
    if operation in ADMITTING or operation is Operation.SNAPSHOT:
        return 0
    if operation in (Operation.PREFILL, Operation.SCORED_PREFILL):
        return len(work.tokens)
    if operation is Operation.MIXED:
        return len(work.tokens) if work.tokens else 1
    return work.extras.length if work.extras else 0


def admitted(work: LaneWork):  # type: ignore[no-untyped-def]
    if work.admission is None:
        raise Unfit
    return work.admission


def per_token(values: object, length: int, token: int | None) -> int:
    assert isinstance(values, tuple)
    if len(values) != length:
        raise Unfit
    return int(values[token or 0])


def known(ids: Sequence[int]) -> list[float]:
    if any(not 0 <= token < SAMPLED_TOKENS for token in ids):
        raise Unfit
    return list(ids)


def history_of(work: LaneWork, *, looks_back: bool) -> list[int]:
    if work.extras is None or work.extras.history is None:
        if looks_back:
            raise Unfit
        return []
    return list(work.extras.history)


def output(work: LaneWork, *, looks_back: bool) -> list[int]:
    history = history_of(work, looks_back=looks_back)
    emitted = admitted(work).emitted
    if work.extras is not None and work.extras.history is not None and emitted > len(history):
        raise Unfit
    return history[len(history) - emitted :] if history else []


def histogram(work: LaneWork, source: ValueSource) -> list[int]:
    penalties = (1.0, 0.0, 0.0)
    if work.admission is not None:
        sampling = work.admission.sampling
        penalties = (
            sampling.repetition_penalty, sampling.presence_penalty, sampling.frequency_penalty,
        )  # fmt: skip
    looks_back = work.admission is None or penalties != (1.0, 0.0, 0.0)
    if source is ValueSource.OUTPUT_HISTOGRAM:
        tokens = output(work, looks_back=looks_back)
    else:
        tokens = history_of(work, looks_back=looks_back)
    if len(tokens) > CONTEXT_TOKENS or any(not 0 <= t < INPUT_TOKENS for t in tokens):
        raise Unfit
    return [tokens.count(token) for token in range(HISTOGRAM_TOKENS)]


def mask_words(mask: bytes) -> list[int]:
    if len(mask) != 4 * MASK_WORDS:
        raise Unfit
    return [int.from_bytes(mask[4 * i : 4 * i + 4], "little") for i in range(MASK_WORDS)]


def columns_of(destination: Staged) -> int:
    columns = 1
    for extent in destination.shape if destination.by_slot else destination.shape[1:]:
        columns *= extent
    return columns


def write(content: bytearray, dtype: DType, place: int, value: float) -> None:
    """One element; a number that doesn't fit raises."""
    form = FORMATS[dtype]
    struct.pack_into(form, content, place * struct.calcsize(form), value)


def untouched(nbytes: int) -> bytearray:
    return bytearray([UNTOUCHED] * nbytes)

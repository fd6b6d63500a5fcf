"""What bounds the values and the rows of a program's inputs: its extents, the selection, the
vocabulary. `checks.bindings` holds destinations against it before anything is loaded, `packing`
again with what was selected.
"""

from __future__ import annotations

from helios.contract.enums import Indexing, Operation
from helios.contract.model import PreparedContract
from helios.dataclass import dataclass
from helios.runtime.manifest import Program
from helios.runtime.state_rows import StateRows


@dataclass(frozen=True, slots=True)
class Bounds:
    """`lanes`, `draft_tokens`, `target_tokens` and `packed_tokens` are the program's B, D, W and P;
    the other counts are the contract's."""

    operation: Operation
    lanes: int
    draft_tokens: int
    target_tokens: int
    packed_tokens: int
    rows: StateRows
    context_tokens: int
    page_tokens: int
    input_tokens: int
    sampled_tokens: int
    histogram_tokens: int
    mask_words: int
    feature_slots: int

    @property
    def active_lanes(self) -> int:
        """Most lanes of a round: no slot is in two."""
        return min(self.lanes, self.rows.request_slots)

    def rows_needed(self, indexing: Indexing) -> int:
        """Rows that a destination of this indexing must have."""
        return {
            Indexing.SCALAR: 1,
            Indexing.SUBMISSION_ROW: self.lanes,
            Indexing.ACTIVE_ROW: self.active_lanes,
            Indexing.PHYSICAL_REQUEST_ROW: self.rows.request_slots,
            Indexing.PACKED_TOKEN: self.packed_tokens,
        }[indexing]


def bounds_of(program: Program, contract: PreparedContract, rows: StateRows) -> Bounds:
    """The bounds of a program in a selection that shares its state rows out as `rows` says."""
    model = contract.model
    return Bounds(
        operation=program.operation,
        lanes=program.batch_capacity,
        draft_tokens=program.draft_tokens,
        target_tokens=program.token_capacity,
        packed_tokens=program.packed_token_capacity,
        rows=rows,
        context_tokens=contract.max_context_tokens,
        page_tokens=model.cache.page_tokens,
        input_tokens=model.input_vocabulary.input_tokens,
        sampled_tokens=model.vocabulary.sampled_tokens,
        histogram_tokens=model.vocabulary.histogram_tokens,
        mask_words=model.vocabulary.mask_words,
        feature_slots=model.vision.feature_slots if model.vision is not None else 0,
    )

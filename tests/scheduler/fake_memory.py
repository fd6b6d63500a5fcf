"""The fake model's memory: pages, live state rows and snapshots, and what may be done to them.

Pages hold tokens, a live row all tokens that its request has consumed, a snapshot what was saved
of both. A lane reads through its page list alone, so a page that was given away, restored wrongly
or written by somebody else changes what it shows. What wouldn't show at once is refused: writing
to a page that somebody else began, writing anywhere but behind what is there, restoring from a row
at an endpoint that it doesn't cover.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from helios.runtime.geometry import Geometry
from helios.runtime.rounds import LaneWork

Owner = tuple[int, int]  # slot and generation


@dataclass(frozen=True)
class Kind:
    """What a token depends on beside its seed: the tokens in the pages, all or those in the
    `window`, and with `rows` the state row."""

    window: int = 0
    rows: bool = False

    def seen(self, shown: Sequence[int | None], kept: Sequence[int]) -> list[int | None]:
        """What is hashed of what the pages show and the row keeps."""
        return [*shown[-self.window :], *((-1, *kept) if self.rows else ())]


PAGED = Kind()


@dataclass(frozen=True)
class Saved:
    """What a snapshot row holds."""

    endpoint: int
    page: tuple[int | None, ...]
    kept: tuple[int, ...]


class FakeMemory:
    """Memory of a geometry for one kind of model."""

    def __init__(self, geometry: Geometry, kind: Kind) -> None:
        assert kind.window == geometry.history.window_tokens
        assert not (kind.rows and geometry.history.starts_at_pages), "pages alone aren't enough"
        assert not (kind.rows and geometry.history.names_endpoint), "rows stand where they stand"
        self.kind = kind
        self._rules = geometry.history
        self._page_tokens = geometry.page_tokens
        self._pages: list[list[int | None]] = [
            [None] * geometry.page_tokens for _ in range(geometry.cache_pages)
        ]
        self._owners: list[Owner | None] = [None] * geometry.cache_pages
        self._filled = [0] * geometry.cache_pages
        self._kept: list[tuple[int, ...]] = [()] * geometry.request_slots
        self._snapshots: list[Saved | None] = [None] * geometry.snapshot_rows

    # ------------------------------------------------------------ tokens

    def consume(self, owner: Owner, table: Sequence[int], start: int, tokens: list[int]) -> None:
        """Adds tokens to the pages and the live row."""
        for position, token in enumerate(tokens, start):
            place, offset = divmod(position, self._page_tokens)
            page = table[place]
            if not offset:
                self._owners[page], self._filled[page] = owner, 0
            assert self._owners[page] == owner, f"page {page} is written by a stranger"
            assert self._filled[page] == offset, f"page {page} isn't written where it ends"
            self._pages[page][offset] = token
            self._filled[page] = offset + 1
        self._kept[owner[0]] += tuple(tokens)

    def seen(self, slot: int, table: Sequence[int], consumed: int) -> list[int | None]:
        """All that the next token depends on."""
        first = max(0, consumed - self.kind.window) if self.kind.window else 0
        size = self._page_tokens
        shown = [self._pages[table[p // size]][p % size] for p in range(first, consumed)]
        return self.kind.seen(shown, self._kept[slot])

    # ------------------------------------------------------------ beginnings and snapshots

    def begin(self, lane: LaneWork) -> None:
        """INITIALIZE: nothing before the endpoint but what its pages show."""
        assert lane.restore_row < 0
        if lane.start:
            assert self._rules.starts_at_pages, "pages alone can't begin a request here"
            assert lane.start % self._page_tokens == 0
        self._kept[lane.slot] = ()

    def restore(self, lane: LaneWork) -> None:
        """RESTORE and RESUME: a snapshot becomes the live row and the part of a page."""
        place, offset = divmod(lane.start, self._page_tokens)
        assert lane.start
        if lane.restore_row < 0:
            assert self._rules.starts_at_pages, "pages alone can't begin a request here"
            assert not offset, "part of a page comes from a row"
            self._kept[lane.slot] = ()
            return
        snapshot = self._snapshots[lane.restore_row]
        assert snapshot is not None, f"row {lane.restore_row} holds no snapshot"
        if self._rules.names_endpoint:
            assert lane.start <= snapshot.endpoint, "the snapshot ends before"
            assert place == snapshot.endpoint // self._page_tokens, "it is of another page"
        else:
            assert lane.start == snapshot.endpoint, "the snapshot stands elsewhere"
        self._kept[lane.slot] = snapshot.kept
        if offset:
            page = lane.pages[place]
            self._owners[page] = lane.slot, lane.generation
            self._filled[page] = offset
            self._pages[page][:offset] = snapshot.page[:offset]

    def save(self, lane: LaneWork, consumed: int) -> None:
        """SNAPSHOT: the live row and the page of the endpoint, as they are now. A request that
        ended earlier than the host knew stands where it ended."""
        place, offset = divmod(lane.start, self._page_tokens)
        endpoint = consumed
        if self._rules.names_endpoint:
            endpoint = min(lane.start, consumed)
            assert lane.start > consumed or place >= (consumed - 1) // self._page_tokens
        page: tuple[int | None, ...] = ()
        if offset:
            page = tuple(self._pages[lane.pages[place]])
        self._snapshots[lane.snapshot_row] = Saved(endpoint, page, self._kept[lane.slot])

    # ------------------------------------------------------------ contents, for a second tier

    def read_page(self, page: int) -> tuple[int | None, ...]:
        """All of a page."""
        return tuple(self._pages[page])

    def write_page(self, page: int, content: tuple[int | None, ...]) -> None:
        """Fills a page that nobody uses."""
        self._pages[page] = list(content)
        self._owners[page], self._filled[page] = None, self._page_tokens

    def read_snapshot(self, row: int) -> Saved:
        """A snapshot."""
        saved = self._snapshots[row]
        assert saved is not None
        return saved

    def write_snapshot(self, row: int, content: Saved) -> None:
        """Fills a row that nobody uses."""
        self._snapshots[row] = content

    # ------------------------------------------------------------ what rounds may share

    def check_sharing(self, lanes: Sequence[LaneWork]) -> None:
        """No lane writes to a page or row that another one has a use for. `lanes` are all that
        are in flight and to be submitted."""
        users: dict[int, set[Owner]] = {}
        rows: dict[int, set[Owner]] = {}
        for lane in lanes:
            owner = lane.slot, lane.generation
            first = 0
            if self.kind.window:
                first = max(0, lane.start - self.kind.window) // self._page_tokens
            if lane.snapshot_row >= 0:  # reads no page but the one that it saves a part of
                first = max(0, lane.start - 1) // self._page_tokens
            used = lane.pages[first:]
            assert len(set(used)) == len(used), f"slot {lane.slot} has a page twice"
            for page in used:
                users.setdefault(page, set()).add(owner)
            for row in (lane.restore_row, lane.snapshot_row):
                rows.setdefault(row, set()).add(owner)
        for lane in lanes:
            owner = lane.slot, lane.generation
            for page in self.written(lane):
                assert users[page] == {owner}, f"page {page} is written and has other users"
            if lane.snapshot_row >= 0:
                assert rows[lane.snapshot_row] == {owner}, "a row is written and has other users"

    def written(self, lane: LaneWork) -> list[int]:
        """The pages that a lane's round writes to."""
        return [lane.pages[place] for place in places_written(lane, self._page_tokens)]


def places_written(lane: LaneWork, page_tokens: int) -> range:
    """The places of the page list that a lane's round writes to."""
    first, offset = divmod(lane.start, page_tokens)
    if lane.admission is not None:
        return range(first, first + (offset > 0))
    if lane.snapshot_row >= 0:
        return range(0)
    length = len(lane.tokens) or 1
    return range(first, -(-(lane.start + length) // page_tokens))

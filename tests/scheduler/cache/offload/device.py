"""Pages and snapshots whose content says which tokens it covers, and requests over them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

from helios.runtime.geometry import HistoryRules
from helios.runtime.rounds import SamplingParameters
from helios.scheduler.cache import PrefixCache
from helios.scheduler.cache.offload.contents import Content
from helios.scheduler.cache.offload.file_tier import FileTier
from helios.scheduler.cache.offload.host_tier import HostTier
from helios.scheduler.cache.offload.keys import KeyChain
from helios.scheduler.cache.offload.offload import Offload
from helios.scheduler.fetching import Fetching
from helios.scheduler.requests import Progress, Request

ROOMY = 1 << 30
WAIT_MS = 60_000
PAGES_ALONE = HistoryRules(starts_at_pages=True)
PAGED = HistoryRules(starts_at_pages=True, restores=True, names_endpoint=True)
EXACT = HistoryRules(restores=True)


def computed(kind: bytes, tokens: Sequence[int], nbytes: int) -> bytes:
    """What a page or snapshot holds that covers these tokens, from the first one on."""
    return hashlib.shake_256(kind + repr(list(tokens)).encode()).digest(nbytes)


class Memory:
    """Implements `PageContents`. `before_read` is called in each read of a page, half way."""

    def __init__(self, pages: int, rows: int) -> None:
        self.page_nbytes = 64
        self.snapshot_nbytes = 32
        self.pages = [bytes(64)] * pages
        self.rows = [bytes(32)] * rows
        self.page_reads = 0
        self.half_way: Callable[[], None] = lambda: None

    def read_page(self, page: int) -> Content:
        self.page_reads += 1
        begin = self.pages[page][:32]
        self.half_way()
        return begin + self.pages[page][32:]

    def write_page(self, page: int, content: Content) -> None:
        assert len(content) == self.page_nbytes
        self.pages[page] = bytes(content)

    def read_snapshot(self, index: int) -> Content:
        return self.rows[index]

    def write_snapshot(self, index: int, content: Content) -> None:
        assert len(content) == self.snapshot_nbytes
        self.rows[index] = bytes(content)


class Machine:
    """A cache over a memory, with tiers: serves prompts as the scheduler would. `row_taken` says
    whether the last one's snapshot was published."""

    def __init__(
        self,
        rules: HistoryRules,
        *,
        pages: int = 64,
        size: int = 4,
        rows: int = 8,
        host_nbytes: int = 0,
        folder: Path | None = None,
        chain: KeyChain | None = None,
    ) -> None:
        self.size = size
        self.memory = Memory(pages, rows)
        self.cache = PrefixCache(pages, size, rows if rules.restores else 0, rules)
        self.offload = Offload(
            self.memory,
            chain or KeyChain(core_digest=b"core", target="t", kernel_path="k", layout_digest=b"l"),
            rules,
            size,
            host=HostTier(host_nbytes) if host_nbytes else None,
            files=FileTier(folder, ROOMY) if folder is not None else None,
        )
        self.cache.listen(self.offload)
        self.fetching = Fetching(self.cache, self.offload)
        self.row_taken = False

    def bring_in(self, tokens: Sequence[int]) -> int:
        """Fetches what the tiers have of a prompt; what can be reused then, which is checked."""
        limit = len(tokens) - 1
        request = Request(0, tuple(tokens), 1, SamplingParameters())
        matched = self.cache.match(tokens, limit).endpoint
        self.fetching.begin(Progress(request, 0, list(tokens)), matched, limit)
        while self.fetching.go_on():
            self.fetching.wait(WAIT_MS)
        self.fetching.drop()
        self.cache.check_books([])
        return self.check(tokens)

    def check(self, tokens: Sequence[int]) -> int:
        """What can be reused of a prompt, page by page what it should be."""
        match = self.cache.match(tokens, len(tokens) - 1)
        for index in range(self.cache.first_page(match.endpoint), len(match.pages)):
            covered = tokens[: (index + 1) * self.size]
            assert self.memory.pages[match.pages[index]] == computed(b"page", covered, 64)
        if match.snapshot is not None:
            whole = match.endpoint // self.size * self.size
            covered = [*tokens[:whole], *match.snapshot.partial]
            assert self.memory.rows[match.row] == computed(b"state", covered, 32)
        return match.endpoint

    def serve(self, tokens: Sequence[int], endpoint: int, *, snapshot: bool = False) -> int:
        """A whole request: what the tiers have is fetched, the rest computed, all published up to
        `endpoint`. Returns what was reused."""
        reused = self.bring_in(tokens)
        hold = self.cache.hold(self.cache.match(tokens, len(tokens) - 1))
        missing = -(-len(tokens) // self.size) - hold.depth
        private: list[int] = []
        assert self.cache.can_take(missing)
        pages = [node.page for node in hold.path]
        self.cache.take(missing, private)
        pages += private
        for index in range(hold.depth, len(tokens) // self.size):
            covered = tokens[: (index + 1) * self.size]
            self.memory.pages[pages[index]] = computed(b"page", covered, 64)
        row = self.cache.take_row() if snapshot else -1
        if row >= 0:
            self.memory.rows[row] = computed(b"state", tokens[:endpoint], 32)
        published = self.cache.publish(hold, tokens, endpoint, pages, row)
        self.row_taken = published.row_taken
        if row >= 0 and not published.row_taken:
            self.cache.give_back_row(row)
        rest = [page for page in private if page not in published.moved]
        self.cache.give_back(rest)
        self.cache.release(hold)
        self.cache.check_books([])
        return reused

    def close(self) -> None:
        self.offload.close()

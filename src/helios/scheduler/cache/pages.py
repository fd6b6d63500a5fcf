"""The page pool: which cache pages are free. It doesn't know who holds a page.

The prefix cache takes pages for residents as rounds need them, and gets them back after a
resident's last fence or when a published page is evicted. Free pages are reused last-in first-out,
so that a lightly loaded server touches few of them.
"""

from __future__ import annotations

from collections.abc import Iterable


class PagePool:
    """Page ids 0 … pages − 1, each free or taken."""

    def __init__(self, pages: int, page_tokens: int) -> None:
        self.pages = pages
        self.page_tokens = page_tokens
        self._free = list(range(pages - 1, -1, -1))

    @property
    def free(self) -> int:
        """Pages that nobody holds."""
        return len(self._free)

    def needed_for(self, tokens: int) -> int:
        """Pages that hold `tokens` tokens of one request."""
        return -(-tokens // self.page_tokens)

    def can_take(self, count: int) -> bool:
        """Whether `count` pages are free."""
        return count <= len(self._free)

    def take(self, count: int, held: list[int]) -> None:
        """Moves `count` free pages to the end of `held`; ask `can_take` first."""
        assert self.can_take(count), "pages taken without asking can_take"
        if count:
            held.extend(reversed(self._free[-count:]))
            del self._free[-count:]

    def give_back(self, held: list[int]) -> None:
        """Moves every page of `held` back to the free ones and empties `held`."""
        held.reverse()
        self._free.extend(held)
        held.clear()

    def put(self, page: int) -> None:
        """Makes one taken page free."""
        self._free.append(page)

    def check_books(self, held: Iterable[Iterable[int]]) -> None:
        """Asserts that free pages and the lists of `held` pages are all pages, each once."""
        taken = [page for pages in held for page in pages]
        assert sorted([*self._free, *taken]) == list(range(self.pages)), (
            f"page books don't balance: {len(self._free)} free and "
            f"{len(taken)} held of {self.pages}"
        )

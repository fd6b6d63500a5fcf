"""A naive prefix cache to compare with: two dicts from token prefixes to what is stored, and
brute force for everything else."""

from __future__ import annotations

from dataclasses import dataclass, field

from helios.runtime.geometry import HistoryRules

Key = tuple[bytes, tuple[int, ...]]


@dataclass(eq=False)
class NaiveHold:
    """Prefixes of whole pages, the first of them that is pinned, and a snapshot's prefix."""

    identity: bytes
    path: list[tuple[int, ...]]
    first: int
    row: int
    attached: bool = True


@dataclass
class NaiveCache:
    """`pages` and `rows` by (identity, tokens that lead there); `order` holds the keys that
    nobody pins, least recently used first."""

    size: int
    rules: HistoryRules
    pages: dict[Key, int] = field(default_factory=dict)
    rows: dict[Key, int] = field(default_factory=dict)
    page_order: list[Key] = field(default_factory=list)
    row_order: list[Key] = field(default_factory=list)
    holds: list[NaiveHold] = field(default_factory=list)

    def first_page(self, endpoint: int) -> int:
        window = self.rules.window_tokens
        return max(0, endpoint - window) // self.size if window else 0

    def _pages_are_there(self, identity: bytes, tokens: tuple[int, ...], endpoint: int) -> bool:
        return all(
            (identity, tokens[: (index + 1) * self.size]) in self.pages
            for index in range(self.first_page(endpoint), endpoint // self.size)
        )

    def match(self, identity: bytes, tokens: tuple[int, ...], limit: int) -> tuple[int, set[int]]:
        """The longest endpoint, and the rows that would do for it (−1: none is needed)."""
        for endpoint in range(limit, 0, -1):
            if not self._pages_are_there(identity, tokens, endpoint):
                continue
            if endpoint % self.size == 0 and self.rules.starts_at_pages:
                return endpoint, {-1}
            whole = endpoint // self.size * self.size
            rows = {
                row
                for (owner, covered), row in self.rows.items()
                if owner == identity
                and covered[:endpoint] == tokens[:endpoint]
                and (
                    len(covered) == endpoint
                    or (self.rules.names_endpoint and endpoint < len(covered) < whole + self.size)
                )
            }
            if rows:
                return endpoint, rows
        return 0, {-1}

    # ------------------------------------------------------------ pins

    def pinned_pages(self) -> set[Key]:
        return {
            (hold.identity, prefix)
            for hold in self.holds
            if hold.attached
            for prefix in hold.path[hold.first :]
        }

    def pinned_rows(self) -> set[int]:
        return {hold.row for hold in self.holds if hold.attached}

    def settle(self) -> None:
        """Puts what has lost its last pin at the end of the orders, deepest pages first, and takes
        out what was pinned or is gone."""
        pages = self.pages.keys() - self.pinned_pages()
        self.page_order = [key for key in self.page_order if key in pages]
        fresh = pages - set(self.page_order)
        self.page_order += sorted(fresh, key=lambda key: -len(key[1]))
        pinned = self.pinned_rows()
        rows = {key for key, row in self.rows.items() if row not in pinned}
        self.row_order = [key for key in self.row_order if key in rows]
        self.row_order += sorted(rows - set(self.row_order))

    # ------------------------------------------------------------ publishing, evicting

    def publish(
        self, hold: NaiveHold, tokens: tuple[int, ...], endpoint: int, pages: list[int], row: int
    ) -> tuple[list[int], list[int], bool]:
        """(moved, kept, row taken), and the hold is deepened."""
        moved: list[int] = []
        kept: list[int] = []
        for index in range(len(hold.path), endpoint // self.size):
            prefix = tokens[: (index + 1) * self.size]
            key = (hold.identity, prefix)
            if pages[index] >= 0:
                if key in self.pages:
                    kept.append(pages[index])
                else:
                    self.pages[key] = pages[index]
                    moved.append(pages[index])
            hold.path.append(prefix)
            self.settle()
        taken = False
        if row >= 0 and endpoint and not (endpoint % self.size == 0 and self.rules.starts_at_pages):
            taken = self._publish_row((hold.identity, tokens[:endpoint]), row)
        return moved, kept, taken

    def _publish_row(self, key: Key, row: int) -> bool:
        identity, covered = key
        whole = len(covered) // self.size * self.size
        for known in sorted(self.rows, key=lambda known: -len(known[1])):
            same_page = known[0] == identity and whole <= len(known[1]) < whole + self.size
            if not same_page:
                continue
            serves = self.rules.names_endpoint and known[1][: len(covered)] == covered
            if known == key or serves:
                if known in self.row_order:
                    self.row_order.remove(known)
                    self.row_order.append(known)
                return False
        if self.rules.names_endpoint:
            pinned = self.pinned_rows()
            for known in list(self.rows):
                shorter = known[0] == identity and covered[: len(known[1])] == known[1]
                if shorter and whole <= len(known[1]) and self.rows[known] not in pinned:
                    del self.rows[known]
        self.rows[key] = row
        self.settle()
        return True

    def evict(self, count: int) -> list[int]:
        evicted = []
        for key in self.page_order[:count]:
            evicted.append(self.pages.pop(key))
            identity, prefix = key
            pinned = self.pinned_rows()
            for owner, covered in list(self.rows):
                on_it = owner == identity and covered[: len(prefix)] == prefix
                on_it = on_it and len(covered) // self.size * self.size == len(prefix)
                needs = self.first_page(len(covered)) < len(prefix) // self.size
                if on_it and needs and self.rows[owner, covered] not in pinned:
                    del self.rows[owner, covered]
        self.settle()
        return evicted

    def evict_row(self) -> None:
        del self.rows[self.row_order.pop(0)]

    def clear(self) -> None:
        for hold in self.holds:
            hold.attached = False
        self.pages.clear()
        self.rows.clear()
        self.settle()

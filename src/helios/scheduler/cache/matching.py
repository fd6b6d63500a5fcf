"""The longest reusable beginning of a prompt: a walk down the prefix tree.

Pure functions of the tree; nothing is touched or pinned. The cost is one dict look-up a page.
"""

from __future__ import annotations

from collections.abc import Sequence

from helios.dataclass import dataclass
from helios.runtime.geometry import HistoryRules
from helios.scheduler.cache.tree import NO_PAGE, PrefixNode, Snapshot


@dataclass(frozen=True, slots=True)
class Walk:
    """The best endpoint: its whole pages' nodes, and the snapshot it needs, if it needs one."""

    endpoint: int
    path: tuple[PrefixNode, ...]
    snapshot: Snapshot | None


def first_page(endpoint: int, page_tokens: int, window_tokens: int) -> int:
    """The first page that is read by tokens from `endpoint` on."""
    if not window_tokens:
        return 0
    return max(0, endpoint - window_tokens) // page_tokens


def longest(
    root: PrefixNode, tokens: Sequence[int], limit: int, page_tokens: int, rules: HistoryRules
) -> Walk:
    """The longest endpoint in (0, limit] that the tree can serve; 0 where there is none."""
    path = _follow(root, tokens, limit, page_tokens)
    holes = [node.depth for node in path[1:] if node.page == NO_PAGE]
    # Upwards from the deepest node: whatever a node can serve is longer than all above it can.
    while path:
        node = path[-1]
        length = node.depth * page_tokens
        if node.snapshots:
            rest = tuple(tokens[length : min(length + page_tokens, limit)])
            reached, snapshot = _best(node.snapshots, rest, rules.names_endpoint)
            endpoint = length + reached
            # At a page's end pages alone will do, where they can.
            needed = reached or not rules.starts_at_pages
            if (
                snapshot is not None
                and endpoint
                and needed
                and _present(holes, endpoint, page_tokens, rules)
            ):
                return Walk(endpoint, tuple(path[1:]), snapshot)
        if length and rules.starts_at_pages and _present(holes, length, page_tokens, rules):
            return Walk(length, tuple(path[1:]), None)
        if holes and holes[-1] == node.depth:
            holes.pop()
        path.pop()
    return Walk(0, (), None)


def _follow(
    root: PrefixNode, tokens: Sequence[int], limit: int, page_tokens: int
) -> list[PrefixNode]:
    """The root and the nodes that the first `limit` tokens lead to."""
    node = root
    path = [root]
    # The same iterator page_tokens times: zip makes whole pages' tuples without slices.
    for page in zip(*[iter(tokens[:limit])] * page_tokens, strict=False):
        child = node.children.get(page)
        if child is None:
            break
        path.append(child)
        node = child
    return path


def _present(holes: list[int], endpoint: int, page_tokens: int, rules: HistoryRules) -> bool:
    """Whether every page is there that tokens from `endpoint` on read; `holes` are depths, and
    the page of depth d has index d − 1."""
    return not holes or holes[-1] <= first_page(endpoint, page_tokens, rules.window_tokens)


def _best(
    snapshots: list[Snapshot], rest: tuple[int, ...], names_endpoint: bool
) -> tuple[int, Snapshot | None]:
    """The snapshot that covers most of the tokens `rest`, and how many."""
    reached, best = -1, None
    for snapshot in snapshots:
        partial = snapshot.partial
        if partial == rest[: len(partial)]:
            common = len(partial)
        elif names_endpoint:
            common = _common(partial, rest)
        else:
            continue
        if common > reached:
            reached, best = common, snapshot
    return reached, best


def _common(partial: tuple[int, ...], rest: tuple[int, ...]) -> int:
    """How many tokens both begin with."""
    common = 0
    for ours, theirs in zip(partial, rest, strict=False):
        if ours != theirs:
            break
        common += 1
    return common

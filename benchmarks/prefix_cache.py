"""Costs of the prefix cache and its second tier, apart from any round.

    python benchmarks/prefix_cache.py CORE --accept NAMESPACE [--folder DIR] [--tokens 32768]

Host data: matching a prompt of so many tokens of which all is cached, holding and releasing it,
publishing and evicting its pages, keys of its pages. Content: copies of the core's pages out of
the device's buffers and back, files of them written and read (the folder's disk, through the page
cache). Smallest of several passes; the machine's other load only ever adds.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from helios.core import open_core
from helios.runtime.cache_content import CacheContent
from helios.runtime.geometry import HistoryRules
from helios.runtime.model_runtime import Capacities, ModelRuntime
from helios.scheduler.cache import PrefixCache
from helios.scheduler.cache.offload.entry_folder import EntryFolder
from helios.scheduler.cache.offload.keys import Entry, KeyChain

Item = TypeVar("Item")

PASSES = 7
PAGES = 64
RULES = HistoryRules(starts_at_pages=True, restores=True, names_endpoint=True)


def best_s(
    act: Callable[[], object], before: Callable[[], object] = lambda: None, passes: int = PASSES
) -> float:
    """Seconds of the fastest pass."""
    fastest = float("inf")
    for _ in range(passes):
        before()
        began = time.perf_counter()
        act()
        fastest = min(fastest, time.perf_counter() - began)
    return fastest


def fastest_s(act: Callable[[Item], object], items: Sequence[Item]) -> float:
    """Seconds of the fastest one of several; nothing is kept, so memory is used again."""
    return min(best_s(lambda item=item: act(item), passes=1) for item in items)


def host_data(tokens: int, page_tokens: int) -> None:
    """Tree, matching, keys."""
    pages = tokens // page_tokens
    text = [1000 + index * 7919 % 40000 for index in range(tokens)]
    # A client's tokens are other objects with the same values.
    prompt = [*(int(str(token)) for token in text), 1]
    cache = PrefixCache(pages, page_tokens, 8, RULES)

    def publish() -> None:
        hold = cache.hold(cache.match(text, 0))
        private: list[int] = []
        cache.take(pages, private)
        began = time.perf_counter()
        cache.publish(hold, text, tokens, private)
        publishing.append(time.perf_counter() - began)
        cache.release(hold)

    publishing: list[float] = []
    evicting = best_s(lambda: cache.evict(pages), before=publish)
    publish()
    match = cache.match(prompt, tokens)
    assert match.endpoint == tokens
    matching = best_s(lambda: cache.match(prompt, tokens))
    holding = best_s(lambda: cache.release(cache.hold(match)))
    missing = best_s(lambda: cache.match([1, *prompt], tokens))
    chain = KeyChain(core_digest=b"", target="", kernel_path="", layout_digest=b"")

    def keys() -> None:
        key = chain.root(b"")
        for start in range(0, tokens, page_tokens):
            key = chain.page(key, prompt[start : start + page_tokens])

    hashing = best_s(keys)
    print(f"host data, {tokens} tokens in {pages} pages of {page_tokens}")
    print(
        f"  match                  {matching * 1e3:9.3f} ms  (nothing cached: {missing * 1e3:.3f})"
    )
    print(f"  hold and release       {holding * 1e3:9.3f} ms")
    print(f"  publish a page         {min(publishing) / pages * 1e6:9.2f} us")
    print(f"  evict a page           {evicting / pages * 1e6:9.2f} us")
    print(f"  keys of all pages      {hashing * 1e3:9.3f} ms")


def contents(content: CacheContent, folder: Path) -> None:
    """Copies and files."""
    kept = content.read_page(0)
    nbytes = content.page_nbytes
    reading = fastest_s(content.read_page, range(PAGES))
    writing = fastest_s(lambda page: content.write_page(page, kept), range(PAGES))
    chain = KeyChain(core_digest=b"", target="", kernel_path="", layout_digest=b"")
    entries = [Entry(chain.page(bytes(32), (index,)), nbytes) for index in range(PAGES)]
    files = EntryFolder(folder, 1 << 40)

    def show(name: str, seconds: float) -> None:
        print(f"  {name:<22} {seconds * 1e6:9.1f} us  {nbytes / seconds / 1e9:6.2f} GB/s")

    print(f"content, {nbytes} bytes a page, {content.snapshot_nbytes} a snapshot")
    show("copy a page out", reading)
    show("copy a page in", writing)
    show("write a page's file", fastest_s(lambda entry: files.write(entry, kept), entries))
    show("read a page's file", fastest_s(files.read, entries))
    listing = best_s(files.list_again)
    print(f"  list the folder        {listing / PAGES * 1e6:9.1f} us a file")
    files.clear()


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("core", type=Path)
    parser.add_argument("--accept", required=True)
    parser.add_argument("--folder", type=Path, help="where files are written and deleted again")
    parser.add_argument("--tokens", type=int, default=32768)
    options = parser.parse_args()
    core = open_core(options.core, accept=options.accept, allow_unknown_publisher=True)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        runtime = ModelRuntime.load(core, capacities=Capacities(cache_nbytes=1 << 30))
        try:
            for page_tokens in sorted({16, runtime.geometry.page_tokens, 128}):
                host_data(options.tokens, page_tokens)
            contents(runtime.cache_content, Path(folder))
        finally:
            runtime.close()


if __name__ == "__main__":
    main()

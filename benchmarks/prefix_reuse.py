"""What the prefix cache saves, and what it costs where nothing is ever the same.

    python benchmarks/prefix_reuse.py CORE --accept NAMESPACE [--passes 9] [--tokens 100,500,2000]
        [--parts first-token,throughput,memory,tiers] [--folder DIR]

Everything that is compared takes turns in one run, so that all see the same machine; medians with
smallest..largest.

- first-token: time to the first token of a prompt of which nothing is cached, its first half in
  whole pages, or all but its last token, beside what the reused part takes alone.
- throughput: output and prompt tokens a second with prefix reuse and without, where every prompt is
  new: mostly decoding, and mostly prefill.
- memory: bytes of a cached token and of a snapshot, on the device, in host memory and in files.
- tiers: time to the first token of prompts that the device's cache had no room for: brought back
  from host memory, from files, or computed again.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any, Final

from helios.engine import Engine
from helios.frontend.bootstrap import Bootstrap
from helios.frontend.prepare import GenerationOptions
from helios.scheduler import SchedulerOptions
from helios.scheduler.cache.offload.file_format import HEADER_NBYTES
from helios.scheduler.cache.offload.host_tier import ENTRY_NBYTES
from helios.worker.options import WorkerOptions
from helios.worker.startup import load_model

NOTHING, HALF, ALL = "nothing", "half", "all but one"
# (what it is, requests, prompt tokens, output tokens)
MIXES: Final = (("mostly decoding", 8, 64, 96), ("mostly prefill", 16, 512, 8))
ROOMY: Final = 1 << 33


class Opened:
    """An engine, and prompts that nobody has had before."""

    def __init__(self, core: str, accept: str, seed: int, **options: Any) -> None:
        self.model = load_model(
            WorkerOptions(
                core=core, accept=accept, allow_unknown_publisher=True, verify_weights=False,
                oracle=False, **options,
            )
        )  # fmt: skip
        self.engine = Engine(self.model, Bootstrap.load(self.model.core))
        self._random = random.Random(seed)

    def prompt(self, tokens: int) -> list[int]:
        """New from its first token on."""
        return [self._random.randrange(100, 40_000) for _ in range(tokens)]

    def first_token_ms(self, prompt: Sequence[int], reused: range | int) -> float:
        """Time to the first token; the reuse that was meant is checked."""
        began = time.perf_counter()
        (delta,) = self.engine.stream(prompt, limit(1))
        took = (time.perf_counter() - began) * 1e3
        wanted = reused if isinstance(reused, range) else range(reused, reused + 1)
        assert delta.reused_prompt_tokens in wanted, f"{delta.reused_prompt_tokens} not {wanted}"
        return took

    def tokens_per_second(self, requests: int, prompt: int, output: int) -> tuple[float, float]:
        """Of so many requests at once, prompt and output together: by the clock, and by the
        processors' time, which other processes take less from."""
        prompts = [self.prompt(prompt) for _ in range(requests)]
        began, busy = time.perf_counter(), time.process_time()
        done = self.engine.generate(prompts, limit(output))
        took, used = time.perf_counter() - began, time.process_time() - busy
        assert not any(one.reused_prompt_tokens for one in done), "a prompt wasn't new"
        tokens = sum(prompt + len(one.tokens) for one in done)
        return tokens / took, tokens / used

    def close(self) -> None:
        """Ends the engine."""
        self.engine.close()


def limit(tokens: int) -> GenerationOptions:
    """Greedy, so many tokens at most."""
    return GenerationOptions(max_tokens=tokens, temperature=0.0)


def spread(values: Sequence[float], digits: int = 1) -> str:
    """Median and range."""
    low, mid, high = (f"{v:,.{digits}f}" for v in (min(values), median(values), max(values)))
    return f"{mid} ({low}..{high})"


def first_tokens(stack: ExitStack, arguments: argparse.Namespace) -> None:
    """Prints what reuse saves of the time to the first token."""
    opened = Opened(arguments.core, arguments.accept, 1)
    stack.callback(opened.close)
    page = opened.engine.info.page_tokens
    for tokens in arguments.tokens:
        half = tokens // 2 // page * page
        base = opened.prompt(tokens)
        opened.first_token_ms(base, 0)
        took: dict[str, list[float]] = defaultdict(list)
        for number in range(arguments.passes + 1):
            new = opened.prompt(tokens)
            cases = [
                (NOTHING, new, 0),
                (HALF, base[:half] + new[half:], half),
                (ALL, base, tokens - 1),
                ("half alone", opened.prompt(half), 0),
                ("one token", opened.prompt(1), 0),
            ]
            for name, prompt, reused in cases if number % 2 else cases[::-1]:
                ms = opened.first_token_ms(prompt, reused)
                if number:  # the first pass warms up
                    took[name].append(ms)
        print(f"\nfirst token of {tokens} prompt tokens, ms")
        for name in (NOTHING, HALF, ALL):
            print(f"  cached: {name:<12} {spread(took[name])}")
        nothing, one = median(took[NOTHING]), median(took["one token"])
        saved, alone = nothing - median(took[HALF]), median(took["half alone"])
        print(f"  half cached saves {saved:.1f} of the {alone:.1f} that its {half} tokens take")
        rest = median(took[ALL])
        print(f"  all but one cached: {rest:.1f}, a prompt of one token {one:.1f}")


def unlike_prompts(stack: ExitStack, arguments: argparse.Namespace) -> None:
    """Prints what reuse costs where there is nothing to reuse."""
    engines = {
        reuse: Opened(
            arguments.core, arguments.accept, 2 + reuse,
            scheduler=SchedulerOptions(prefix_reuse=reuse),
        )
        for reuse in (False, True)
    }  # fmt: skip
    for opened in engines.values():
        stack.callback(opened.close)
    for name, requests, prompt, output in MIXES:
        rates: dict[bool, list[float]] = defaultdict(list)
        busy: dict[bool, list[float]] = defaultdict(list)
        for number in range(arguments.passes + 1):
            for reuse in (False, True) if number % 2 else (True, False):
                rate, by_processor = engines[reuse].tokens_per_second(requests, prompt, output)
                if number:
                    rates[reuse].append(rate)
                    busy[reuse].append(by_processor)
        print(f"\n{name}: {requests} new prompts of {prompt}, {output} output tokens, tok/s")
        print(f"  without reuse {spread(rates[False], 0)}")
        print(f"  with reuse    {spread(rates[True], 0)}")
        for what, found in (("by the clock", rates), ("by processors' time", busy)):
            ratios = [on / off for off, on in zip(found[False], found[True], strict=True)]
            best = max(found[True]) / max(found[False])
            print(f"  with / without {what}: {spread(ratios, 3)}; of the best {best:.3f}")


def memory(stack: ExitStack, arguments: argparse.Namespace) -> None:
    """Prints what is kept for a token and for a snapshot."""
    opened = Opened(arguments.core, arguments.accept, 4)
    stack.callback(opened.close)
    content, page = opened.model.runtime.cache_content, opened.engine.info.page_tokens
    print(f"\nbytes, pages of {page} tokens")
    for where, beside in (
        ("device", 0),
        ("host memory", ENTRY_NBYTES),
        ("files", HEADER_NBYTES),
    ):
        token = (content.page_nbytes + beside) / page
        snapshot = content.snapshot_nbytes + beside
        print(f"  {where:<12} {token:,.0f} a cached token, {snapshot:,} a snapshot")


def second_tier(stack: ExitStack, arguments: argparse.Namespace) -> None:
    """Prints how long content takes to come back, beside computing it again."""
    folder = stack.enter_context(tempfile.TemporaryDirectory(dir=arguments.folder))
    tiers: dict[str, dict[str, Any]] = {
        "computed again": {},
        "from host memory": {"offload_nbytes": ROOMY},
        "from files": {"prompt_cache": str(Path(folder)), "prompt_cache_nbytes": ROOMY},
    }
    # As small as it may be: a context.
    small = {"request_slots": 1, "cache_nbytes": one_context_nbytes(arguments)}
    engines = {
        name: Opened(arguments.core, arguments.accept, 5, **small, **tier)
        for name, tier in tiers.items()
    }
    for opened in engines.values():
        stack.callback(opened.close)
    for tokens in arguments.tokens:
        took: dict[str, list[float]] = defaultdict(list)
        # Each has been evicted when it comes again; the first ones warm up.
        info = next(iter(engines.values())).engine.info
        count = info.cache_pages // (tokens // info.page_tokens) + 2
        prompts = [engines["computed again"].prompt(tokens) for _ in range(count)]
        for opened in engines.values():
            for prompt in prompts:
                opened.first_token_ms(prompt, 0)
        whole = tokens // info.page_tokens * info.page_tokens
        for number in range(arguments.passes + 1):
            for name, opened in engines.items():
                reused = range(1) if name == "computed again" else range(whole, tokens)
                ms = opened.first_token_ms(prompts[number % count], reused)
                if number:
                    took[name].append(ms)
        print(f"\nfirst token of {tokens} prompt tokens that the cache had no room for, ms")
        for name, times in took.items():
            print(f"  {name:<17} {spread(times)}")


def one_context_nbytes(arguments: argparse.Namespace) -> int:
    """Bytes of the smallest cache that a request may fill, with two snapshots."""
    opened = Opened(arguments.core, arguments.accept, 6, request_slots=1)
    content, info = opened.model.runtime.cache_content, opened.engine.info
    pages = -(-info.max_context_tokens // info.page_tokens)
    opened.close()
    return pages * content.page_nbytes + 2 * content.snapshot_nbytes


PARTS: Final = {
    "first-token": first_tokens,
    "throughput": unlike_prompts,
    "memory": memory,
    "tiers": second_tier,
}


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description="Prefix reuse: what it saves and what it costs.")
    parser.add_argument("core")
    parser.add_argument("--accept", required=True)
    parser.add_argument("--passes", type=int, default=9)
    parser.add_argument(
        "--tokens", default=[100, 500, 2000], type=lambda t: [int(n) for n in t.split(",")]
    )
    parser.add_argument("--parts", default=list(PARTS), type=lambda text: text.split(","))
    parser.add_argument("--folder", type=Path, help="where files are written and deleted again")
    arguments = parser.parse_args()
    print(f"load of the last minute: {os.getloadavg()[0]:.1f}")
    for part in arguments.parts:
        with ExitStack() as stack:
            PARTS[part](stack, arguments)
    print(f"\nload of the last minute: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()

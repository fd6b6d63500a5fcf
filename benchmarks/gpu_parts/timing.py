"""Times several ways of doing the same thing in turn: captured launches, replayed, medians."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

import torch

Launch = Callable[[], object]


def captured(launches: Sequence[Launch]) -> torch.cuda.CUDAGraph:
    """A graph of the launches, one after the other, that has run once."""
    launches[0]()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for launch in launches:
            launch()
    graph.replay()
    torch.cuda.synchronize()
    return graph


def microseconds(ways: dict[str, Sequence[Launch]], rounds: int = 5) -> dict[str, float]:
    """Median time of one launch of each way; ways take turns, `rounds` times."""
    graphs = {name: (captured(launches), len(launches)) for name, launches in ways.items()}
    seen: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, (graph, count) in graphs.items():
            begin = torch.cuda.Event(enable_timing=True)
            end = torch.cuda.Event(enable_timing=True)
            begin.record()
            graph.replay()
            end.record()
            torch.cuda.synchronize()
            seen[name].append(begin.elapsed_time(end) * 1000 / count)
    return {name: median(times) for name, times in seen.items()}


def copy_terabytes_per_second() -> float:
    """Bytes read and written a second by a copy of 2 GiB, in 10^12."""
    source = torch.randn(1 << 29, device="cuda")
    target = torch.empty_like(source)
    copy = [lambda: torch.mul(source, 1.0, out=target)]
    return 8 * source.numel() / microseconds({"copy": copy}, rounds=9)["copy"] / 1e6


def product_teraflops() -> float:
    """bf16 operations a second of an 8192³ product through PyTorch, in 10^12."""
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    out = torch.empty_like(a)
    time = microseconds({"mm": [lambda: torch.mm(a, b, out=out)] * 4}, rounds=9)["mm"]
    return 2 * 8192**3 / time / 1e6

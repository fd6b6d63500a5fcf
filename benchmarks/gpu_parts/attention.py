"""Attention: the same bits from decode and prefill, errors against float64, times beside PyTorch's.

PyTorch's kernels read keys and values without pages and may sum in any order.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from gpu_parts.geometries import GEOMETRIES, LONGEST, PAGE, Attention, Geometry, attention_variants
from gpu_parts.launching import Library
from gpu_parts.timing import microseconds

PROMPT: Final = 2304  # tokens of the compared prompt; neither block nor split divides 2,299
LIVE: Final = 2299
PREFILLED: Final = (512, 2048, 8192)
DECODED: Final = tuple(
    (lanes, context) for context in (192, 2048, 8192) for lanes in (1, 8, 32, 128)
)
WORKERS: Final = (1, 2, 4, 8, 16, 32)


@dataclass
class Findings:
    """What was seen of one geometry."""

    model: str
    compared: int = 0
    differing: Counter[str] = field(default_factory=Counter)
    error: dict[str, float] = field(default_factory=dict)
    library_error: float = 0.0
    prefill: dict[int, dict[str, float]] = field(default_factory=dict)  # us by tokens
    decode: dict[str, dict[str, float]] = field(default_factory=dict)  # us by lanes x context


class Cache:
    """Keys and values of `slots` requests in shuffled pages, with NaN wherever nothing lies."""

    def __init__(self, library: Library, geometry: Geometry, slots: int, tokens: int) -> None:
        self._library = library
        self.geometry = geometry
        self.table_pages = -(-tokens // PAGE)
        pages = slots * self.table_pages + 3
        shape = (pages, geometry.kv_heads, PAGE, geometry.head_dim)
        half = {"device": "cuda", "dtype": torch.float16}
        self.keys = torch.full(shape, float("nan"), **half)
        self.values = torch.full(shape, float("nan"), **half)
        order = torch.randperm(pages, device="cuda")[: slots * self.table_pages]
        self.table = order.to(torch.int32).view(slots, self.table_pages)
        self.scale = geometry.head_dim**-0.5

    def fill(self, tokens: int) -> None:
        """Random keys and values for the first tokens of every slot."""
        whole = self.table[:, : -(-tokens // PAGE)].reshape(-1).long()
        for plane in (self.keys, self.values):
            for some in whole.split(4096):
                shape = (len(some), *plane.shape[1:])
                plane[some] = torch.randn(shape, device="cuda", dtype=torch.float16)
            if tokens % PAGE:
                plane[self.table[:, tokens // PAGE].long(), :, tokens % PAGE :] = float("nan")

    def contiguous(self, plane: torch.Tensor, slot: int, tokens: int) -> torch.Tensor:
        """[kv_heads, tokens, head_dim] of a slot."""
        pages = plane[self.table[slot].long()].transpose(0, 1)
        return pages.reshape(self.geometry.kv_heads, -1, self.geometry.head_dim)[:, :tokens]

    def queries(self, rows: int) -> torch.Tensor:
        """Random queries, [rows, q_heads * head_dim]."""
        width = self.geometry.q_heads * self.geometry.head_dim
        return torch.randn(rows, width, device="cuda", dtype=torch.float16)

    def decode(
        self,
        variant: Attention,
        q: torch.Tensor,
        slots: torch.Tensor,
        positions: torch.Tensor,
        workers: int,
    ) -> tuple[torch.Tensor, Callable[[], None]]:
        """Output and launch of a decode variant, a lane a row."""
        lanes = len(q)
        g = self.geometry
        out = torch.full(q.shape, float("nan"), device="cuda", dtype=torch.bfloat16)
        splits = -(-self.table_pages * PAGE // variant.split)
        heads = g.q_heads
        partials = torch.empty(lanes * splits * heads * (g.head_dim + 2), device="cuda")
        arrivals = torch.zeros(lanes * g.kv_heads, device="cuda", dtype=torch.int32)
        live = torch.tensor([lanes], device="cuda", dtype=torch.int32)
        return out, self._library[variant].bind(
            (g.kv_heads, workers, lanes),
            *(live, q, self.keys, self.values, positions, slots, self.table, out),
            *(partials, arrivals, self.table_pages, self.scale * math.log2(math.e)),
        )

    def prefill(
        self, variant: Attention, q: torch.Tensor, chunks: list[tuple[int, int, int]]
    ) -> tuple[torch.Tensor, Callable[[], None]]:
        """Output and launch of a prefill variant; chunks of (slot, first position, length)."""
        g = self.geometry
        out = torch.full(q.shape, float("nan"), device="cuda", dtype=torch.bfloat16)
        whole = {"device": "cuda", "dtype": torch.int32}
        positions = torch.cat([torch.arange(p, p + n, **whole) for _, p, n in chunks])
        lengths = torch.tensor([n for _, _, n in chunks], **whole)
        slots = torch.tensor([slot for slot, _, _ in chunks], **whole)
        live = torch.tensor([len(chunks)], **whole)
        tiles = -(-len(q) // (variant.rows // (g.q_heads // g.kv_heads))) + len(chunks)
        return out, self._library[variant].bind(
            (g.kv_heads, tiles, 1),
            *(live, lengths, q, self.keys, self.values, positions, slots, self.table, out),
            *(self.table_pages, self.scale * math.log2(math.e)),
        )


def measure(library: Library, seeds: int = 3) -> list[Findings]:
    """Everything about every geometry."""
    return [_measure_geometry(library, geometry, seeds) for geometry in GEOMETRIES]


def _measure_geometry(library: Library, geometry: Geometry, seeds: int) -> Findings:
    found = Findings(geometry.name)
    variants = [v for v in attention_variants(geometry) if v in library]
    for seed in range(seeds):
        torch.manual_seed(seed)
        _compare(library, geometry, variants, found)
    timed = [v for v in variants if not v.window]
    for tokens in PREFILLED:
        found.prefill[tokens] = _time_prefill(library, geometry, timed, tokens)
    for lanes, context in DECODED:
        found.decode[f"{lanes}x{context}"] = _time_decode(library, geometry, timed, lanes, context)
    return found


def _compare(
    library: Library, geometry: Geometry, variants: list[Attention], found: Findings
) -> None:
    """Every row of a prompt, decoded one by one, in tiles, in chunks, beside another prompt."""
    cache = Cache(library, geometry, 2, PROMPT)
    cache.fill(LIVE)
    q = cache.queries(LIVE)
    positions = torch.arange(LIVE, device="cuda", dtype=torch.int32)
    slots = torch.zeros_like(positions)
    orders = sorted({(v.block, v.split, v.window) for v in variants})
    for order in orders:
        same = [v for v in variants if (v.block, v.split, v.window) == order]
        results: dict[str, torch.Tensor] = {}
        for v in same:
            if v.kind == "decode":
                for workers in (1, 2, 3, 16):
                    out, launch = cache.decode(v, q, slots, positions, workers)
                    launch()
                    results[f"{v.label} workers {workers}"] = out
                continue
            out, launch = cache.prefill(v, q, [(0, 0, LIVE)])
            launch()
            results[v.label] = out
            # In chunks, and together with the other slot's prompt.
            out = torch.full_like(out, float("nan"))
            for first, length in ((0, 1), (1, 700), (701, 259), (960, LIVE - 960)):
                both = torch.cat([q[first : first + length], q[:77]])
                part, launch = cache.prefill(v, both, [(0, first, length), (1, 0, 77)])
                launch()
                out[first : first + length] = part[:length]
            results[f"{v.label} chunked"] = out
        expected = next(iter(results.values()))
        key = f"block {order[0]} split {order[1]} window {order[2]}"
        found.error[key] = _error(cache, q, expected, order[2])
        for name, out in results.items():
            found.compared += 1
            if not torch.equal(out.view(torch.int16), expected.view(torch.int16)):
                rows = (out.view(torch.int16) != expected.view(torch.int16)).any(1).sum()
                found.differing[f"{key}: {name} ({int(rows)} rows)"] += 1


def _error(cache: Cache, q: torch.Tensor, out: torch.Tensor, window: int) -> float:
    """‖out − exact‖ / ‖exact‖ of some rows, in float64."""
    g = cache.geometry
    some = torch.arange(0, len(q), 41, device="cuda")
    repeat = g.q_heads // g.kv_heads
    k = cache.contiguous(cache.keys, 0, len(q)).double().repeat_interleave(repeat, 0)
    v = cache.contiguous(cache.values, 0, len(q)).double().repeat_interleave(repeat, 0)
    rows = q[some].double().view(len(some), g.q_heads, g.head_dim).transpose(0, 1)
    scores = rows @ k.transpose(1, 2) * cache.scale
    at = torch.arange(len(q), device="cuda")
    hidden = at[None, :] > some[:, None]
    if window:
        hidden |= at[None, :] <= some[:, None] - window
    exact = scores.masked_fill(hidden, -math.inf).softmax(-1) @ v
    got = out[some].double().view(len(some), g.q_heads, g.head_dim).transpose(0, 1)
    return float((got - exact).norm() / exact.norm())


def _time_prefill(
    library: Library, geometry: Geometry, variants: list[Attention], tokens: int
) -> dict[str, float]:
    cache = Cache(library, geometry, 1, LONGEST)
    cache.fill(tokens)
    q = cache.queries(tokens)
    ways: dict[str, Any] = {}
    for v in variants:
        if v.kind == "prefill":
            _, launch = cache.prefill(v, q, [(0, 0, tokens)])
            ways[v.label] = [launch] * 4
    rows = q.view(1, tokens, geometry.q_heads, geometry.head_dim).transpose(1, 2).contiguous()
    k = cache.contiguous(cache.keys, 0, tokens)[None].contiguous()
    v_ = cache.contiguous(cache.values, 0, tokens)[None].contiguous()
    for name, backend in (
        ("flash", SDPBackend.FLASH_ATTENTION),
        ("cudnn", SDPBackend.CUDNN_ATTENTION),
    ):
        ways |= _library_way(name, backend, rows, k, v_, causal=True)
    return microseconds(ways)


def _time_decode(
    library: Library, geometry: Geometry, variants: list[Attention], lanes: int, context: int
) -> dict[str, float]:
    slots = max(
        lanes, min(64, 2 * 10**9 // (context * geometry.kv_heads * geometry.head_dim * 4) // 16)
    )
    cache = Cache(library, geometry, slots, context)
    cache.fill(context)
    q = cache.queries(lanes)
    whole = {"device": "cuda", "dtype": torch.int32}
    positions = torch.full((lanes,), context - 1, **whole)
    ways: dict[str, Any] = {}
    rotations = max(1, slots // lanes)
    for v in variants:
        if v.kind != "decode":
            continue
        for workers in WORKERS:
            if workers > -(-context // v.split) or lanes * geometry.kv_heads * workers > 4096:
                continue
            ways[f"{v.label} workers {workers}"] = [
                cache.decode(
                    v, q, torch.arange(at * lanes, (at + 1) * lanes, **whole), positions, workers
                )[1]
                for at in range(rotations)
            ]
    rows = q.view(lanes, geometry.q_heads, 1, geometry.head_dim)
    keys = [cache.contiguous(cache.keys, slot, context) for slot in range(slots)]
    values = [cache.contiguous(cache.values, slot, context) for slot in range(slots)]
    k = torch.stack(keys[:lanes])
    v_ = torch.stack(values[:lanes])
    ways |= _library_way("flash", SDPBackend.FLASH_ATTENTION, rows, k, v_, causal=False)
    return microseconds(ways)


def _library_way(
    name: str,
    backend: SDPBackend,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool,
) -> dict[str, Any]:
    def attend() -> torch.Tensor:
        with sdpa_kernel(backend):
            return torch.nn.functional.scaled_dot_product_attention(
                q, k, v, is_causal=causal, enable_gqa=True
            )

    try:
        attend()
    except RuntimeError:
        return {}
    return {f"torch {name}": [attend] * 4}

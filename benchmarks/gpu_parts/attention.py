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

from gpu_parts.geometries import GEOMETRIES, LONGEST, Attention, Geometry, attention_variants
from gpu_parts.launching import Described, Library
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

    def __init__(
        self, library: Library, geometry: Geometry, slots: int, tokens: int, page: int
    ) -> None:
        self._library = library
        self.geometry = geometry
        self.page = page
        self.table_pages = -(-tokens // page)
        pages = slots * self.table_pages + 3
        shape = (pages, geometry.kv_heads, page, geometry.head_dim)
        half = {"device": "cuda", "dtype": torch.float16}
        self.keys = torch.full(shape, float("nan"), **half)
        self.values = torch.full(shape, float("nan"), **half)
        order = torch.randperm(pages, device="cuda")[: slots * self.table_pages]
        self.table = order.to(torch.int32).view(slots, self.table_pages)
        self.scale = geometry.head_dim**-0.5

    def fill(self, tokens: int) -> None:
        """Random keys and values for the first tokens of every slot."""
        whole = self.table[:, : -(-tokens // self.page)].reshape(-1).long()
        for plane in (self.keys, self.values):
            for some in whole.split(4096):
                shape = (len(some), *plane.shape[1:])
                plane[some] = torch.randn(shape, device="cuda", dtype=torch.float16)
            if tokens % self.page:
                plane[self.table[:, tokens // self.page].long(), :, tokens % self.page :] = float(
                    "nan"
                )

    @property
    def planes(self) -> tuple[Described, Described]:
        """Keys and values as the kernels see them."""
        width = self.geometry.head_dim
        return Described(self.keys.view(-1, width)), Described(self.values.view(-1, width))

    def contiguous(self, plane: torch.Tensor, slot: int, tokens: int) -> torch.Tensor:
        """[kv_heads, tokens, head_dim] of a slot."""
        pages = plane[self.table[slot].long()].transpose(0, 1)
        return pages.reshape(self.geometry.kv_heads, -1, self.geometry.head_dim)[:, :tokens]

    def copied(self, slots: int, tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values [slots, kv_heads, tokens, head_dim] without pages."""
        keys, values = (
            torch.stack([self.contiguous(plane, slot, tokens) for slot in range(slots)])
            for plane in (self.keys, self.values)
        )
        return keys, values

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
        splits = -(-self.table_pages * self.page // variant.split)
        heads = g.q_heads
        elements = lanes * splits * heads * (g.head_dim + 2)
        partials = torch.full((elements,), float("nan"), device="cuda")
        arrivals = torch.zeros(lanes * g.kv_heads, device="cuda", dtype=torch.int32)
        live = torch.tensor([lanes], device="cuda", dtype=torch.int32)
        return out, self._library[variant].bind(
            (g.kv_heads, workers, lanes),
            *(live, q, *self.planes, positions, slots, self.table, out),
            *(self.keys, self.values, partials, arrivals),
            *(self.table_pages, len(self.table), len(self.keys), self.scale * math.log2(math.e)),
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
        slots = torch.cat([torch.full((n,), slot, **whole) for slot, _, n in chunks])
        rows = torch.tensor([len(q)], **whole)
        lanes = torch.tensor([len(chunks)], **whole)
        tiles = -(-len(q) // (variant.rows // (g.q_heads // g.kv_heads))) + len(chunks)
        return out, self._library[variant].bind(
            (g.kv_heads, tiles, 1),
            *(rows, lanes, lengths, q, *self.planes, positions, slots, self.table, out),
            *(len(chunks), self.table_pages, len(self.table), self.scale * math.log2(math.e)),
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
    for page in sorted({v.page for v in variants}):
        cache = Cache(library, geometry, 2, PROMPT, page)
        cache.fill(LIVE)
        q = cache.queries(LIVE)
        here = [v for v in variants if v.page == page]
        for split, window in sorted({(v.split, v.window) for v in here}):
            same = [v for v in here if (v.split, v.window) == (split, window)]
            results = _results(cache, q, same)
            expected = next(iter(results.values()))
            key = f"page {page} split {split} window {window}"
            found.error[key] = _error(cache, q, expected, window)
            if not found.error[key] < 1e-2:
                found.differing[f"{key} is wrong"] += 1
            for name, out in results.items():
                found.compared += 1
                if not torch.equal(out.view(torch.int16), expected.view(torch.int16)):
                    rows = (out.view(torch.int16) != expected.view(torch.int16)).any(1).sum()
                    found.differing[f"{name} window {window} ({int(rows)} rows)"] += 1


def _results(cache: Cache, q: torch.Tensor, variants: list[Attention]) -> dict[str, torch.Tensor]:
    """Outputs for the same rows in every way that there is."""
    positions = torch.arange(LIVE, device="cuda", dtype=torch.int32)
    slots = torch.zeros_like(positions)
    results: dict[str, torch.Tensor] = {}
    for v in variants:
        if v.kind == "decode":
            for workers in (1, 2, 3, 16):
                out, launch = cache.decode(v, q, slots, positions, workers)
                launch()
                launch()  # the counters are as they were
                results[f"{v.label} workers {workers}"] = out
            inert, launch = cache.decode(v, q[:9], slots[:9], torch.full_like(slots[:9], -1), 2)
            launch()
            if inert.count_nonzero():
                raise RuntimeError(f"{v.label}: inert lanes didn't get zeros")
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
    return results


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
    ways: dict[str, Any] = {}
    for page in sorted({v.page for v in variants}):
        cache = Cache(library, geometry, 1, LONGEST, page)
        cache.fill(tokens)
        q = cache.queries(tokens)
        for v in variants:
            if v.kind == "prefill" and v.page == page:
                ways[v.label] = [cache.prefill(v, q, [(0, 0, tokens)])[1]] * 4
    rows = q.view(1, tokens, geometry.q_heads, geometry.head_dim).transpose(1, 2).contiguous()
    keys, values = cache.copied(1, tokens)
    ways |= _library_way("flash", SDPBackend.FLASH_ATTENTION, rows, [(keys, values)], causal=True)
    ways |= _library_way("cudnn", SDPBackend.CUDNN_ATTENTION, rows, [(keys, values)], causal=True)
    return microseconds(ways)


def _time_decode(
    library: Library, geometry: Geometry, variants: list[Attention], lanes: int, context: int
) -> dict[str, float]:
    # Enough requests that what a graph reads is several times the 60 MB of L2, if they are small.
    token_nbytes = 4 * geometry.kv_heads * geometry.head_dim
    rotations = max(1, min(64, int(200e6 / (context * token_nbytes * lanes))))
    whole = {"device": "cuda", "dtype": torch.int32}
    positions = torch.full((lanes,), context - 1, **whole)
    ways: dict[str, Any] = {}
    for page in sorted({v.page for v in variants}):
        cache = Cache(library, geometry, lanes * rotations, context, page)
        cache.fill(context)
        q = cache.queries(lanes)
        slots = torch.arange(lanes * rotations, **whole).split(lanes)
        for v in (v for v in variants if v.kind == "decode" and v.page == page):
            for workers in WORKERS:
                if workers <= -(-context // v.split) and lanes * workers <= 1024:
                    ways[f"{v.label} workers {workers}"] = [
                        cache.decode(v, q, some, positions, workers)[1] for some in slots
                    ]
    rows = q.view(lanes, geometry.q_heads, 1, geometry.head_dim)
    keys, values = cache.copied(lanes * rotations, context)
    pairs = list(zip(keys.split(lanes), values.split(lanes), strict=True))
    ways |= _library_way("flash", SDPBackend.FLASH_ATTENTION, rows, pairs, causal=False)
    return microseconds(ways)


def _library_way(
    name: str,
    backend: SDPBackend,
    q: torch.Tensor,
    pairs: list[tuple[torch.Tensor, torch.Tensor]],
    *,
    causal: bool,
) -> dict[str, Any]:
    def attend(pair: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        with sdpa_kernel(backend):
            return torch.nn.functional.scaled_dot_product_attention(
                q, *pair, is_causal=causal, enable_gqa=True
            )

    try:
        attend(pairs[0])
    except RuntimeError:
        return {}
    return {f"torch {name}": [lambda pair=pair: attend(pair) for pair in pairs]}

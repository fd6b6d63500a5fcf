"""Launches of the native kernels on random data at any geometry, and a bench that times them.

What benchmarks/kernels.py is made of: builders of single launches, the launches of a whole model
step, and `Bench`, which runs launch lists on a replayer. Nothing here prints.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from helios import _native
from helios.kernels.catalogue import (
    BIAS_CAPACITY,
    BY_NAME,
    CATALOGUE,
    SAMPLING_ROW_NBYTES,
    TOP_CAPACITY,
    ActivationFormat,
)

Array = NDArray[Any]
F32, BF16, Q8, Q16, Q8_PAIRS = ActivationFormat
PACKINGS = {
    "f32": 2,
    "f16": 3,
    "bf16": 4,
    "q8_0": 5,
    "q4_0": 6,
    "q4_1": 7,
    "q6_k": 8,
    "q4_pairs": 9,
}
TILE_BITS = {2: 32.0, 3: 16.0, 4: 16.0, 5: 8.5, 6: 4.5, 7: 5.0, 8: 9.0, 9: 5.0}
PAGE_TOKENS = 32


@dataclass(frozen=True)
class Launch:
    """One launch; operands that are absent are left out."""

    kernel: str
    operands: dict[str, Array]
    integers: dict[str, int]
    floats: dict[str, float] = field(default_factory=dict)


class Bench:
    """Runs launch lists on one replayer and keeps their memory alive."""

    def __init__(self, threads: int, instruction_set: str) -> None:
        self.replayer = _native.Replayer(threads, instruction_set)
        self.sequence = 0
        self.kept: list[Sequence[Launch]] = []

    def program(self, launches: Sequence[Launch]) -> int:
        """Registers a launch list."""
        self.kept.append(launches)
        specs = [BY_NAME[launch.kernel] for launch in launches]
        arrays = [
            launch.operands.get(operand.name)
            for launch, spec in zip(launches, specs, strict=True)
            for operand in spec.operands
        ]

        def starts(lengths: list[int]) -> NDArray[np.int32]:
            return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)

        return self.replayer.add_program(
            np.array([CATALOGUE.index(spec) for spec in specs], np.int32),
            starts([len(spec.operands) for spec in specs]),
            np.array([0 if a is None else a.ctypes.data for a in arrays], np.uint64),
            np.array([0 if a is None else a.nbytes for a in arrays], np.uint64),
            starts([len(spec.integers) for spec in specs]),
            np.array(
                [launch.integers[n] for launch, s in zip(launches, specs, strict=True)
                 for n in s.integers],
                np.int64,
            ),
            starts([len(spec.floats) for spec in specs]),
            np.array(
                [launch.floats[n] for launch, s in zip(launches, specs, strict=True)
                 for n in s.floats],
                np.float64,
            ),
        )  # fmt: skip

    def run(self, program: int) -> float:
        """Seconds of one run of a registered launch list."""
        self.sequence += 1
        self.replayer.submit(program, self.sequence)
        while not self.replayer.wait(self.sequence, 1000):
            pass
        start, end = self.replayer.timing(self.sequence)
        return (end - start) * 1e-9

    def seconds(self, launches: Sequence[Launch], *, budget_s: float = 0.4) -> float:
        """Median time of the launch list, over as many runs as the budget allows (3 to 200)."""
        program = self.program(launches)
        times: list[float] = []
        spent = 0.0
        while len(times) < 4 or (spent < budget_s and len(times) < 200):
            times.append(self.run(program))
            spent += times[-1]
        return statistics.median(times[1:])


RNG = np.random.default_rng(0)


def activations(format_: ActivationFormat, rows: int, width: int) -> Array:
    """Plausible activation rows: small random bytes, scales of 1/100."""
    if format_ is F32:
        return RNG.standard_normal((rows, width), np.float32)
    if format_ is BF16:
        values = RNG.standard_normal((rows, width), np.float32)
        return (values.view(np.uint32) >> 16).astype(np.uint16)
    data = RNG.integers(0, 256, (rows, format_.row_nbytes(width)), np.uint8)
    if format_ is Q8_PAIRS:
        scales = np.full((rows, width // 64), 0.01, np.float32)
        data[:, width : width + width // 16] = scales.view(np.uint8).reshape(rows, -1)
        return data
    scales = np.full((rows, width // 16), 0.01, np.float32)
    data[:, -width // 4 :] = scales.view(np.uint8).reshape(rows, -1)
    return data


def packed(packing: int, outputs: int, width: int) -> Array:
    """Random codes with harmless scales."""
    tiles = -(-outputs // 16)
    if packing == PACKINGS["q4_pairs"]:
        pairs = RNG.integers(0, 256, (tiles, width // 64, 640), np.uint8)
        pairs[..., 512:].view(np.int16)[:] = 20_000
        units = np.full((tiles, 16), 1e-6, np.float32)
        flags = np.zeros(tiles * (-(-(width // 64) // 4) * 4), np.uint8)
        return np.concatenate([pairs.reshape(-1), units.view(np.uint8).reshape(-1), flags])
    nbytes = int(tiles * 16 * width * TILE_BITS[packing] / 8)
    data = RNG.integers(0, 256, nbytes, np.uint8)
    if packing == PACKINGS["bf16"]:
        data.view(np.uint16)[:] = (data.view(np.uint16) & 0x80FF) | 0x3C00
    elif packing == PACKINGS["f16"]:
        data.view(np.uint16)[:] = (data.view(np.uint16) & 0x83FF) | 0x2400
    elif packing == PACKINGS["f32"]:
        data.view(np.float32)[:] = 0.01
    else:
        codes = tiles * (width // 32) * (512 if packing in (5, 8) else 256)
        if packing == PACKINGS["q6_k"]:
            data[:codes] &= 63
            codes += tiles * (width // 32) * 32
        data[codes:].view(np.float16)[:] = 0.01
    return data


def count(rows: int) -> Array:
    """The `rows` operand."""
    return np.array([rows], np.int32)


def linear(
    packing: int, format_: ActivationFormat, rows: int, width: int, outputs: int,
    x: Array | None = None, out: Array | None = None, accumulate: int = 0,
) -> Launch:  # fmt: skip
    """A `linear` launch on random data."""
    x = activations(format_, rows, width) if x is None else x
    out = np.zeros((rows, outputs), np.float32) if out is None else out
    return Launch(
        "linear",
        {"rows": count(rows), "x": x, "weight": packed(packing, outputs, width), "out": out},
        {"capacity": rows, "width": width, "outputs": outputs, "packing": packing,
         "format": format_, "accumulate": accumulate},
    )  # fmt: skip


def silu(packing: int, format_: ActivationFormat, rows: int, width: int, outputs: int,
         x: Array | None = None, out: Array | None = None) -> Launch:  # fmt: skip
    """A `linear_silu_mul` launch whose output has its input's format."""
    x = activations(format_, rows, width) if x is None else x
    out = activations(format_, rows, outputs) if out is None else out
    return Launch(
        "linear_silu_mul",
        {"rows": count(rows), "x": x, "weight": packed(packing, 2 * outputs, width), "out": out},
        {"capacity": rows, "width": width, "outputs": outputs, "packing": packing,
         "format": format_, "out_format": format_},
    )  # fmt: skip


def rms_norm(format_: ActivationFormat, rows: int, width: int,
             x: Array | None = None, out: Array | None = None) -> Launch:  # fmt: skip
    """An `rms_norm` launch."""
    x = activations(F32, rows, width) if x is None else x
    out = activations(format_, rows, width) if out is None else out
    weight = np.ones(width, np.float32)
    return Launch(
        "rms_norm",
        {"rows": count(rows), "x": x, "weight": weight, "out": out},
        {"capacity": rows, "width": width, "format": format_},
        {"epsilon": 1e-5},
    )


def embed(packing: int, rows: int, vocab: int, width: int, out: Array | None = None) -> Launch:
    """An `embed` launch of random tokens."""
    return Launch(
        "embed",
        {"rows": count(rows), "tokens": RNG.integers(0, vocab, rows).astype(np.int32),
         "table": packed(packing, vocab, width),
         "out": np.zeros((rows, width), np.float32) if out is None else out},
        {"capacity": rows, "vocab": vocab, "width": width, "packing": packing},
        {"scale": 1.0},
    )  # fmt: skip


def head_launches(format_: ActivationFormat, *, lanes: int, tokens: int, context: int, q_heads: int,
                  kv_heads: int, head_dim: int, qkv: Array | None = None,
                  out: Array | None = None, bf16: bool = False,
                  ) -> tuple[Launch, Launch]:  # fmt: skip
    """`rope_and_cache` and `attention` of `lanes` requests that add `tokens` tokens each, the last
    at position context - 1; `bf16`: their forms over planes of bf16 pairs."""
    rows = lanes * tokens
    pages = -(-context // PAGE_TOKENS)
    width = (q_heads + 2 * kv_heads) * head_dim
    shape = (lanes * pages, kv_heads, head_dim, PAGE_TOKENS)
    planes: list[Array] = [
        RNG.standard_normal(shape, np.float32).astype(np.float16) for _ in range(2)
    ]
    if bf16:
        # The upper halves: rounded towards zero, and which pair an element is in doesn't matter.
        planes = [(plane.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
                  for plane in planes]  # fmt: skip
    form = "_bf16" if bf16 else ""
    shared: dict[str, Array] = {
        "rows": count(rows),
        "qkv": activations(F32, rows, width) if qkv is None else qkv,
        "positions": np.tile(np.arange(context - tokens, context), lanes).astype(np.int32),
        "slot": np.repeat(np.arange(lanes), tokens).astype(np.int32),
        "page_table": RNG.permutation(lanes * pages).astype(np.int32),
        "k_plane": planes[0],
        "v_plane": planes[1],
    }
    extents = {"capacity": rows, "q_heads": q_heads, "kv_heads": kv_heads, "head_dim": head_dim,
               "page_tokens": PAGE_TOKENS, "table_pages": pages}  # fmt: skip
    frequency = (10000.0 ** -(np.arange(head_dim // 2) / (head_dim // 2))).astype(np.float32)
    rope = Launch(
        f"rope_and_cache{form}", {**shared, "inverse_frequency": frequency}, extents,
        {"epsilon": 1e-5, "attention_factor": 1.0},
    )  # fmt: skip
    out = activations(format_, rows, q_heads * head_dim) if out is None else out
    attention = Launch(
        f"attention{form}", {**shared, "out": out}, {**extents, "window": 0, "format": format_},
        {"scale": head_dim**-0.5},
    )  # fmt: skip
    return rope, attention


def sample(rows: int, vocab: int, *, temperature: float, top_k: int = 0, top_p: float = 1.0,
           logits: Array | None = None) -> Launch:  # fmt: skip
    """A `sample` launch; every lane samples alike."""
    state = np.zeros((rows, 128), np.uint8)
    state[:, 32:44].view(np.float32)[:] = [temperature, top_p, 0.0]
    state[:, 44:48].view(np.int32)[:] = top_k
    logits = RNG.standard_normal((rows, vocab), np.float32) * 4 if logits is None else logits
    return Launch(
        "sample",
        {"rows": count(rows), "slot": np.arange(rows, dtype=np.int32), "state": state,
         "logits": logits, "tokens": np.zeros(rows, np.int32),
         "logprobs": np.zeros(rows, np.float32)},
        {"capacity": rows, "vocab": vocab, "stride": vocab},
    )  # fmt: skip


# What a request may ask of its logits, as fields of its state row and sampling row.
PROCESSING: dict[str, dict[str, float]] = {
    "nothing": {},
    "penalties": {"repetition": 1.1, "presence": 0.5, "frequency": 0.5},
    "300 biases": {"biases": 300},
    "mask": {"masked": 1},
    "20 alternatives": {"top_logprobs": 20},
}


def sample_processed(rows: int, vocab: int, asks: Mapping[str, float], *, temperature: float = 1.0,
                     top_k: int = 0, top_p: float = 1.0) -> Launch:  # fmt: skip
    """A `sample_processed` launch; every lane samples and asks alike."""
    plain = sample(rows, vocab, temperature=temperature, top_k=top_k, top_p=top_p)
    state = plain.operands["state"]
    state[:, 48:60].view(np.float32)[:] = [
        asks.get(name, 0.0) for name in ("repetition", "presence", "frequency")
    ]
    sampling = np.zeros((rows, SAMPLING_ROW_NBYTES), np.uint8)
    head = sampling[:, :20].view(np.int32)
    head[:, 0], head[:, 2], head[:, 4] = (
        int(asks.get(name, 0)) for name in ("top_logprobs", "biases", "masked")
    )
    sampling[:, 448:2496].view(np.int32)[:] = RNG.choice(vocab, BIAS_CAPACITY, replace=False)
    sampling[:, 2496:4544].view(np.float32)[:] = RNG.standard_normal(BIAS_CAPACITY, np.float32)
    outputs = (RNG.random((rows, vocab)) < 0.01).astype(np.int32)
    extra = {
        "sampling": sampling,
        "token_counts": outputs + (RNG.random((rows, vocab)) < 0.02).astype(np.int32),
        "output_counts": outputs,
        "token_mask": RNG.integers(0, 2**32, (rows, -(-vocab // 32)), np.uint32),
        "top_tokens": np.zeros((rows, TOP_CAPACITY), np.int32),
        "top_logprobs": np.zeros((rows, TOP_CAPACITY), np.float32),
    }
    return Launch("sample_processed", {**plain.operands, **extra}, plain.integers)


def count_sampled(rows: int, vocab: int, asks: Mapping[str, float]) -> Launch:
    """A `count_sampled` launch of lanes that run."""
    sampled = sample_processed(rows, vocab, asks).operands
    state = sampled["state"]
    state[:, 16:20].view(np.int32)[:] = 1
    taken = ("rows", "slot", "state", "sampling", "token_counts", "output_counts", "tokens")
    operands = {name: sampled[name] for name in taken}
    operands["generation"] = np.ones(rows, np.int32)
    return Launch("count_sampled", operands, {"capacity": rows, "vocab": vocab})


@dataclass(frozen=True)
class Storage:
    """How the simulated model keeps weights and activations."""

    name: str
    projections: int
    head: int
    qkv_format: ActivationFormat
    format: ActivationFormat
    head_format: ActivationFormat


STORAGES = (
    Storage(
        "q4_1 in pairs, q8_0 head", PACKINGS["q4_pairs"], PACKINGS["q8_0"], Q8_PAIRS, Q8_PAIRS, Q16
    ),
    Storage("q4_1, q8_0 head", PACKINGS["q4_1"], PACKINGS["q8_0"], Q16, Q8, Q16),
    Storage("bf16", PACKINGS["bf16"], PACKINGS["bf16"], BF16, BF16, F32),
)


def model_step(storage: Storage, *, lanes: int, tokens: int, context: int) -> list[Launch]:
    """The launches of one SmolLM2-135M round; the head sees one row a lane."""
    rows, hidden, ff, vocab = lanes * tokens, 576, 1536, 49152
    residual = activations(F32, rows, hidden)
    qkv = activations(F32, rows, 960)
    norms = {f: activations(f, rows, hidden) for f in {storage.qkv_format, storage.format}}
    mixed = activations(storage.format, rows, hidden)
    gated = activations(storage.format, rows, ff)
    launches = [embed(storage.head, rows, vocab, hidden, out=residual)]
    for _ in range(30):
        rope, attention = head_launches(
            storage.format, lanes=lanes, tokens=tokens, context=context, q_heads=9, kv_heads=3,
            head_dim=64, qkv=qkv, out=mixed, bf16=storage.format not in (BF16, F32),
        )  # fmt: skip
        p, f = storage.projections, storage.format
        launches += [
            rms_norm(storage.qkv_format, rows, hidden, x=residual, out=norms[storage.qkv_format]),
            linear(p, storage.qkv_format, rows, hidden, 960, x=norms[storage.qkv_format], out=qkv),
            rope,
            attention,
            linear(p, f, rows, hidden, hidden, x=mixed, out=residual, accumulate=1),
            rms_norm(f, rows, hidden, x=residual, out=norms[f]),
            silu(p, f, rows, hidden, ff, x=norms[f], out=gated),
            linear(p, f, rows, ff, hidden, x=gated, out=residual, accumulate=1),
        ]
    last = activations(storage.head_format, lanes, hidden)
    logits = np.zeros((lanes, vocab), np.float32)
    launches += [
        rms_norm(storage.head_format, lanes, hidden, x=residual[:lanes], out=last),
        linear(storage.head, storage.head_format, lanes, hidden, vocab, x=last, out=logits),
        sample(lanes, vocab, temperature=0.0, logits=logits),
    ]
    return launches

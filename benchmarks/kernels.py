"""Times every native kernel at the geometries of real models, beside ceilings of the same run.

A row names the kernel and its extents, then time, bytes and operations a second, and the per cent
of the ceiling that binds it: memory reads, or multiply-adds of its type. Weights rotate through
more memory than the caches hold, as they do when a model runs. `--model` adds whole steps of
SmolLM2-135M (random weights): one lane, 32 lanes, a 512-token prompt.

    python benchmarks/kernels.py [--threads 2] [--instruction-set avx512] [--only linear] [--model]
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from helios import _native
from helios.kernels.catalogue import BY_NAME, CATALOGUE, ActivationFormat

Array = NDArray[Any]
F32, BF16, Q8, Q16 = ActivationFormat
PACKINGS = {"f32": 2, "f16": 3, "bf16": 4, "q8_0": 5, "q4_0": 6, "q4_1": 7, "q6_k": 8}
TILE_BITS = {2: 32.0, 3: 16.0, 4: 16.0, 5: 8.5, 6: 4.5, 7: 5.0, 8: 9.0}
PAGE_TOKENS = 32
# Bytes that a rotation of weights covers, several times the last-level cache.
ROTATION_NBYTES = 160 << 20


@dataclass(frozen=True)
class Launch:
    """One launch; operands that are absent are left out."""

    kernel: str
    operands: dict[str, Array]
    integers: dict[str, int]
    floats: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Ceilings:
    """Rates a second that the machine reaches: bytes read, operations by kind."""

    memory: float
    rates: dict[str, float]


def measure_ceilings(threads: int) -> Ceilings:
    """Compiles ceilings.cpp for this machine and runs it."""
    source = Path(__file__).with_name("ceilings.cpp")
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "ceilings.so"
        subprocess.run(
            ["c++", "-O3", "-march=native", "-ffast-math", "-std=c++20", "-shared", "-fPIC",
             "-pthread", str(source), "-o", str(library)],
            check=True,
        )  # fmt: skip
        loaded = ctypes.CDLL(str(library))

        def call(name: str) -> float:
            function = getattr(loaded, name)
            function.restype = ctypes.c_double
            return float(function(threads))

        rates = {kind: call(f"{kind}_peak") for kind in ("float", "bf16", "int8")}
        return Ceilings(call("read_bandwidth"), rates)


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

    def seconds(self, launches: Sequence[Launch], *, budget_s: float = 0.4) -> float:
        """Median time of the launch list, over as many runs as the budget allows (3 to 200)."""
        program = self.program(launches)
        times: list[float] = []
        spent = 0.0
        while len(times) < 4 or (spent < budget_s and len(times) < 200):
            self.sequence += 1
            self.replayer.submit(program, self.sequence)
            while not self.replayer.wait(self.sequence, 1000):
                pass
            start, end = self.replayer.timing(self.sequence)
            times.append((end - start) * 1e-9)
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
    scales = np.full((rows, width // 16), 0.01, np.float32)
    data[:, -width // 4 :] = scales.view(np.uint8).reshape(rows, -1)
    return data


def packed(packing: int, outputs: int, width: int) -> Array:
    """Random codes with harmless scales."""
    tiles = -(-outputs // 16)
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
    packing: int,
    format_: ActivationFormat,
    rows: int,
    width: int,
    outputs: int,
    x: Array | None = None,
    out: Array | None = None,
    accumulate: int = 0,
) -> Launch:
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
                  out: Array | None = None) -> tuple[Launch, Launch]:  # fmt: skip
    """`rope_and_cache` and `attention` of `lanes` requests that add `tokens` tokens each, the last
    at position context - 1."""
    rows = lanes * tokens
    pages = -(-context // PAGE_TOKENS)
    width = (q_heads + 2 * kv_heads) * head_dim
    shape = (lanes * pages, kv_heads, head_dim, PAGE_TOKENS)
    planes = [RNG.standard_normal(shape, np.float32).astype(np.float16) for _ in range(2)]
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
        "rope_and_cache", {**shared, "inverse_frequency": frequency}, extents,
        {"epsilon": 1e-5, "attention_factor": 1.0},
    )  # fmt: skip
    out = activations(format_, rows, q_heads * head_dim) if out is None else out
    attention = Launch(
        "attention", {**shared, "out": out}, {**extents, "window": 0, "format": format_},
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


def launch_cost(launch: Launch) -> tuple[float, float, str]:
    """(bytes read of weights and cache, operations, kind of ceiling) of one launch."""
    integers = launch.integers
    rows = integers["capacity"]
    if launch.kernel in ("linear", "linear_silu_mul"):
        outputs = integers["outputs"] * (2 if launch.kernel == "linear_silu_mul" else 1)
        kind = {BF16: "bf16", F32: "float"}.get(ActivationFormat(integers["format"]), "int8")
        return launch.operands["weight"].nbytes, 2.0 * rows * integers["width"] * outputs, kind
    if launch.kernel == "attention":
        context = float(launch.operands["positions"].astype(np.float64).sum()) + rows
        q_heads, head_dim = integers["q_heads"], integers["head_dim"]
        return launch.operands["k_plane"].nbytes * 2.0, 4 * context * q_heads * head_dim, "float"
    touched = {"sample": "logits", "embed": "out", "rms_norm": "x", "rope_and_cache": "qkv"}
    return launch.operands[touched[launch.kernel]].nbytes, 0.0, "float"


def report(bench: Bench, ceilings: Ceilings, name: str, launch: Launch) -> None:
    """Times one launch, rotating over copies of its large operands, and prints its row."""
    nbytes, operations, kind = launch_cost(launch)
    copies = 1
    if launch.kernel in ("linear", "linear_silu_mul"):
        copies = max(1, min(64, round(ROTATION_NBYTES / nbytes)))
        if launch.integers["capacity"] >= 64:
            copies = min(copies, 4)
    launches = [launch]
    for _ in range(copies - 1):
        weight = launch.operands["weight"].copy()
        launches.append(
            Launch(launch.kernel, {**launch.operands, "weight": weight}, launch.integers,
                   launch.floats)
        )  # fmt: skip
    seconds = bench.seconds(launches) / copies
    memory = nbytes / seconds
    rate = operations / seconds
    of_memory, of_peak = memory / ceilings.memory, rate / ceilings.rates[kind]
    bound = "memory" if of_memory >= of_peak else kind
    print(
        f"{name:58s} {seconds * 1e6:10.1f} us {memory / 1e9:8.1f} GB/s {rate / 1e9:8.0f} GOP/s"
        f" {100 * max(of_memory, of_peak):5.0f} % of {bound}",
        flush=True,
    )
    bench.kept.clear()


LINEAR_SHAPES = {
    "135M": {"qkv": (576, 960), "o": (576, 576), "down": (1536, 576)},
    "1.5B": {"qkv": (1536, 2048), "down": (8960, 1536)},
    "8B": {"qkv": (4096, 6144), "down": (14336, 4096)},
}
SILU_SHAPES = {"135M": (576, 1536), "1.5B": (1536, 8960), "8B": (4096, 14336)}


def kernel_rows(only: str) -> list[tuple[str, Launch]]:
    """Every benchmarked launch, by name, made on demand of `only`."""
    made: list[tuple[str, Any]] = []
    for packing, format_ in (("q4_1", Q8), ("q4_1", Q16), ("q8_0", Q8), ("q8_0", Q16),
                             ("q4_0", Q8), ("q6_k", Q8), ("bf16", BF16), ("bf16", F32),
                             ("f16", F32), ("f32", F32)):  # fmt: skip
        wide = packing in ("q4_1", "q8_0", "bf16") and format_ in (Q8, BF16)
        for model in ("135M", "1.5B", "8B") if wide else ("135M",):
            for rows in (1, 8, 32, 512) if model == "135M" else (1, 128):
                label = f"{packing}/{format_.name.lower()} {model} M={rows}"
                for part, (width, outputs) in LINEAR_SHAPES[model].items():
                    made.append((f"linear {label} {part} {width}->{outputs}",
                                 lambda p=PACKINGS[packing], f=format_, r=rows, w=width, o=outputs:
                                 linear(p, f, r, w, o)))  # fmt: skip
                width, outputs = SILU_SHAPES[model]
                made.append((f"linear_silu_mul {label} {width}->2x{outputs}",
                             lambda p=PACKINGS[packing], f=format_, r=rows, w=width, o=outputs:
                             silu(p, f, r, w, o)))  # fmt: skip
        for rows in (1, 32):
            if wide or format_ is Q16:
                made.append((f"linear {packing}/{format_.name.lower()} 135M M={rows} head",
                             lambda p=PACKINGS[packing], f=format_, r=rows:
                             linear(p, f, r, 576, 49152)))  # fmt: skip
    for rows in (1, 32, 512):
        for format_ in (F32, BF16, Q8, Q16):
            made.append((f"rms_norm {format_.name.lower()} M={rows} 576",
                         lambda f=format_, r=rows: rms_norm(f, r, 576)))  # fmt: skip
        made.append((f"embed q8_0 M={rows} 576", lambda r=rows: embed(5, r, 49152, 576)))
    for lanes, tokens, context in ((1, 1, 512), (1, 1, 4096), (32, 1, 512), (1, 512, 512),
                                   (1, 512, 4096)):  # fmt: skip
        for heads in ((9, 3, 64), (32, 8, 128)):
            label = f"{lanes}x{tokens} of {context}, {heads[0]}/{heads[1]}x{heads[2]}"
            for index, kernel in enumerate(("rope_and_cache", "attention")):
                made.append((f"{kernel} {label}",
                             lambda i=index, n=lanes, t=tokens, c=context, h=heads:
                             head_launches(F32, lanes=n, tokens=t, context=c, q_heads=h[0],
                                           kv_heads=h[1], head_dim=h[2])[i]))  # fmt: skip
    for rows in (1, 32):
        for label, parameters in (
            ("greedy", {"temperature": 0.0}),
            ("temperature", {"temperature": 1.0}),
            ("top_k 50", {"temperature": 1.0, "top_k": 50}),
            ("top_p 0.9", {"temperature": 1.0, "top_p": 0.9}),
        ):
            made.append((f"sample M={rows} 49152 {label}",
                         lambda r=rows, p=parameters: sample(r, 49152, **p)))  # fmt: skip
    return [(name, make) for name, make in made if only in name]


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
            head_dim=64, qkv=qkv, out=mixed,
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


def report_model(bench: Bench, ceilings: Ceilings) -> None:
    """Whole steps of SmolLM2-135M, with the share of each kernel of the step's time."""
    for storage in STORAGES:
        for lanes, tokens, context in ((1, 1, 128), (8, 1, 128), (32, 1, 128), (1, 512, 512)):
            launches = model_step(storage, lanes=lanes, tokens=tokens, context=context)
            seconds = bench.seconds(launches, budget_s=2.0)
            weights = sum(
                launch.operands["weight"].nbytes
                for launch in launches
                if launch.kernel.startswith("linear")
            )
            print(
                f"\nSmolLM2-135M {storage.name}: {lanes} lane(s) x {tokens} token(s), context"
                f" {context}: {seconds * 1e3:.2f} ms, {lanes * tokens / seconds:.0f} tok/s, weights"
                f" at {weights / seconds / 1e9:.1f} GB/s"
                f" ({100 * weights / seconds / ceilings.memory:.0f} % of memory)"
            )
            bench.kept.clear()
            by_kernel: dict[str, list[Launch]] = {}
            for launch in launches:
                by_kernel.setdefault(launch.kernel, []).append(launch)
            for kernel, group in by_kernel.items():
                alone = bench.seconds(group)
                print(f"    {kernel:18s} {len(group):4d} launches {alone * 1e3:8.3f} ms")
                bench.kept.clear()


def main() -> None:
    """Parses options and prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--instruction-set", default=_native.instruction_sets()[0])
    parser.add_argument("--only", default="", help="rows whose name contains this")
    parser.add_argument("--model", action="store_true", help="whole steps instead of kernels")
    options = parser.parse_args()
    ceilings = measure_ceilings(options.threads)
    print(
        f"{options.instruction_set}, {options.threads} threads; ceilings:"
        f" {ceilings.memory / 1e9:.0f} GB/s read; "
        + ", ".join(f"{kind} {rate / 1e9:.0f} GOP/s" for kind, rate in ceilings.rates.items())
    )
    bench = Bench(options.threads, options.instruction_set)
    if options.model:
        report_model(bench, ceilings)
    else:
        for name, make in kernel_rows(options.only):
            report(bench, ceilings, name, make())
    bench.replayer.close()


if __name__ == "__main__":
    main()

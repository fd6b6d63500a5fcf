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
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from helios import _native
from helios.kernels.catalogue import ActivationFormat
from native_launches import (
    BF16,
    F32,
    PACKINGS,
    PROCESSING,
    Q8,
    Q8_PAIRS,
    Q16,
    STORAGES,
    Bench,
    Launch,
    count_sampled,
    embed,
    head_launches,
    linear,
    model_step,
    rms_norm,
    sample,
    sample_processed,
    silu,
)

# Bytes that a rotation of weights covers, several times the last-level cache.
ROTATION_NBYTES = 160 << 20


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

        rates = {
            kind: max(call(f"{kind}_peak") for _ in range(3)) for kind in ("float", "bf16", "int8")
        }
        return Ceilings(call("read_bandwidth"), rates)


def launch_cost(launch: Launch) -> tuple[float, float, str]:
    """(bytes read of weights and cache, operations, kind of ceiling) of one launch."""
    integers = launch.integers
    rows = integers["capacity"]
    if launch.kernel in ("linear", "linear_silu_mul"):
        outputs = integers["outputs"] * (2 if launch.kernel == "linear_silu_mul" else 1)
        kind = {BF16: "bf16", F32: "float"}.get(ActivationFormat(integers["format"]), "int8")
        return launch.operands["weight"].nbytes, 2.0 * rows * integers["width"] * outputs, kind
    if launch.kernel in ("attention", "attention_bf16"):
        context = float(launch.operands["positions"].astype(np.float64).sum()) + rows
        q_heads, head_dim = integers["q_heads"], integers["head_dim"]
        kind = "bf16" if launch.kernel == "attention_bf16" else "float"
        return launch.operands["k_plane"].nbytes * 2.0, 4 * context * q_heads * head_dim, kind
    touched = {
        "sample": "logits",
        "sample_processed": "logits",
        "count_sampled": "tokens",
        "embed": "out",
        "rms_norm": "x",
        "rope_and_cache": "qkv",
        "rope_and_cache_bf16": "qkv",
    }
    return launch.operands[touched[launch.kernel]].nbytes, 0.0, "float"


def report(bench: Bench, ceilings: Ceilings, name: str, launch: Launch) -> None:
    """Times one launch, rotating over copies of its large operands, and prints its row."""
    nbytes, operations, kind = launch_cost(launch)
    copies = 1
    if launch.kernel in ("linear", "linear_silu_mul"):
        copies = max(1, min(1024, round(ROTATION_NBYTES / nbytes)))
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
PRODUCTS = (
    ("q4_pairs", Q8_PAIRS), ("q4_1", Q8), ("q4_1", Q16), ("q8_0", Q8), ("q8_0", Q16),
    ("q4_0", Q8), ("q6_k", Q8),
    ("bf16", BF16), ("bf16", F32), ("f16", F32), ("f32", F32),
)  # fmt: skip
# Measured at the shapes of larger models too.
COMMON_PRODUCTS = (("q4_pairs", Q8_PAIRS), ("q4_1", Q8), ("q8_0", Q8), ("bf16", BF16))
CONTEXTS = ((1, 1, 512), (1, 1, 4096), (32, 1, 512), (1, 512, 512), (1, 512, 4096))
SAMPLERS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "temperature": {"temperature": 1.0},
    "top_k 50": {"temperature": 1.0, "top_k": 50},
    "top_p 0.9": {"temperature": 1.0, "top_p": 0.9},
}
Rows = Iterator[tuple[str, Callable[[], Launch]]]


def product_rows() -> Rows:
    """`linear` and `linear_silu_mul`, every pair of packing and format."""
    for packing_name, format_ in PRODUCTS:
        packing = PACKINGS[packing_name]
        common = (packing_name, format_) in COMMON_PRODUCTS
        for model in LINEAR_SHAPES if common else ("135M",):
            for rows in (1, 8, 32, 512) if model == "135M" else (1, 128):
                label = f"{packing_name}/{format_.name.lower()} {model} M={rows}"
                for part, (width, outputs) in LINEAR_SHAPES[model].items():
                    yield (
                        f"linear {label} {part} {width}->{outputs}",
                        partial(linear, packing, format_, rows, width, outputs),
                    )
                width, outputs = SILU_SHAPES[model]
                yield (
                    f"linear_silu_mul {label} {width}->2x{outputs}",
                    partial(silu, packing, format_, rows, width, outputs),
                )
        for rows in (1, 32):
            yield (
                f"linear {packing_name}/{format_.name.lower()} 135M M={rows} head 576->49152",
                partial(linear, packing, format_, rows, 576, 49152),
            )


def other_rows() -> Rows:
    """The kernels around the projections."""
    for rows in (1, 32, 512):
        for format_ in ActivationFormat:
            yield (
                f"rms_norm {format_.name.lower()} M={rows} 576",
                partial(rms_norm, format_, rows, 576),
            )
        yield f"embed q8_0 M={rows} 576", partial(embed, PACKINGS["q8_0"], rows, 49152, 576)
    for lanes, tokens, context in CONTEXTS:
        for q_heads, kv_heads, head_dim in ((9, 3, 64), (32, 8, 128)):
            label = f"{lanes}x{tokens} of {context}, {q_heads}/{kv_heads}x{head_dim}"
            for form, bf16 in (("", False), ("_bf16", True)):
                both = partial(
                    head_launches, F32, lanes=lanes, tokens=tokens, context=context,
                    q_heads=q_heads, kv_heads=kv_heads, head_dim=head_dim, bf16=bf16,
                )  # fmt: skip
                yield f"rope_and_cache{form} {label}", lambda both=both: both()[0]  # type: ignore[misc]
                yield f"attention{form} {label}", lambda both=both: both()[1]  # type: ignore[misc]
    for rows in (1, 32):
        for label, parameters in SAMPLERS.items():
            yield f"sample M={rows} 49152 {label}", partial(sample, rows, 49152, **parameters)
            yield (
                f"sample_processed M={rows} 49152 {label}",
                partial(sample_processed, rows, 49152, {}, **parameters),
            )
        for label, asks in PROCESSING.items():
            yield (
                f"sample_processed M={rows} 49152 temperature, {label}",
                partial(sample_processed, rows, 49152, asks),
            )
        yield f"count_sampled M={rows}, nothing", partial(count_sampled, rows, 49152, {})
        yield (
            f"count_sampled M={rows}, penalties",
            partial(count_sampled, rows, 49152, PROCESSING["penalties"]),
        )


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
    parser.add_argument("--threads", type=int, default=2, help="default: 2")
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
        for name, make in chain(product_rows(), other_rows()):
            if options.only in name:
                report(bench, ceilings, name, make())
    bench.replayer.close()


if __name__ == "__main__":
    main()

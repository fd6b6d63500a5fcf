"""Runs the measurement on a GPU and prints its tables."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from gpu_parts import attention, projections
from gpu_parts.launching import Library
from gpu_parts.timing import copy_terabytes_per_second, product_teraflops


def measure(folder: Path, out: Path | None, only: str | None) -> int:
    """Runs what `only` names, or everything; returns the exit status: 1 where bits differ."""
    torch.zeros(1, device="cuda")
    library = Library(folder)
    ceilings = {"copy_tbs": copy_terabytes_per_second(), "product_tflops": product_teraflops()}
    results: dict[str, Any] = {"device": torch.cuda.get_device_name(), "ceilings": ceilings}
    print(f"{results['device']}: copy {ceilings['copy_tbs']:.2f} TB/s, "
          f"8192³ product {ceilings['product_tflops']:.0f} TFLOP/s", flush=True)  # fmt: skip
    differing: Counter[str] = Counter()
    if only != "attention":
        began = time.monotonic()
        found = projections.measure(library)
        results["projections"] = [asdict(f) for f in found]
        print(f"projections: {time.monotonic() - began:.0f} s")
        for f in found:
            _print_projection(f, ceilings)
            differing += f.differing
    if only != "projections":
        began = time.monotonic()
        attended = attention.measure(library)
        results["attention"] = [asdict(f) for f in attended]
        print(f"attention: {time.monotonic() - began:.0f} s")
        for a in attended:
            _print_attention(a)
            differing += a.differing
    results["ceilings_after"] = {
        "copy_tbs": copy_terabytes_per_second(),
        "product_tflops": product_teraflops(),
    }
    if out is not None:
        out.write_text(json.dumps(results, indent=1))
    return 1 if differing else 0


def _print_projection(f: projections.Findings, ceilings: dict[str, float]) -> None:
    outputs, width = f.shape
    errors = " ".join(f"{splits}:{error:.2e}" for splits, error in f.error.items())
    print(f"\n{f.model} {f.role} {outputs}x{width}: {f.compared} comparisons, "
          f"{f.differing.total()} differ; error by splits {errors}")  # fmt: skip
    for label, count in f.differing.items():
        print(f"  differs {count}x: {label}")
    for rows, times in f.times.items():
        # What is best of few (f) and many (m), with rows (r) or weights (w) first, by splits.
        moved = 2 * (outputs * width + rows * (outputs + width))
        floor = (
            max(
                moved / ceilings["copy_tbs"],
                2 * rows * outputs * width / ceilings["product_tflops"],
            )
            / 1e6
        )
        library = {name: t for name, t in times.items() if name.startswith("cuBLAS")}
        best = sorted((t, label) for label, t in times.items() if label not in library)
        kinds: dict[str, float] = {}
        for time_us, label in best:
            splits = label.split(" split ")[1].split()[0]
            first = "r" if "rows first" in label else "w"
            kinds.setdefault(f"{label[0]}{first}{splits}", time_us)
        print(f"  {rows:5}: " + " / ".join(f"{t:.2f}" for t in library.values())
              + f" us, best {best[0][0]:8.2f} ({library['cuBLAS'] / best[0][0]:.2f}x, "
              f"{floor / best[0][0]:4.0%} of floor) "
              + " ".join(f"{k}={t:.2f}" for k, t in kinds.items())
              + f" | {best[0][1]}")  # fmt: skip


def _print_attention(a: attention.Findings) -> None:
    print(f"\n{a.model} attention: {a.compared} comparisons, {a.differing.total()} differ; "
          "errors "
          + " ".join(f"[{key}] {error:.2e}" for key, error in a.error.items()))  # fmt: skip
    for label, count in a.differing.items():
        print(f"  differs {count}x: {label}")
    for title, table in (("prefill", a.prefill), ("decode", a.decode)):
        for size, times in table.items():
            library = {name: t for name, t in times.items() if name.startswith("torch")}
            ours = sorted((t, name) for name, t in times.items() if name not in library)
            best: dict[str, float] = {}
            for time_us, name in ours:
                words = name.split()
                best.setdefault(f"{words[2]}/{words[4]}", time_us)
            print(f"  {title} {size}: "
                  + " ".join(f"{name} {t:.1f}" for name, t in library.items())
                  + " | page/split "
                  + " ".join(f"{key} {t:.1f}" for key, t in sorted(best.items()))
                  + f" | {ours[0][1]}")  # fmt: skip

"""Trials of the kernels of a forward pass, with the dimensions of real models; attention apart.

Each projection is held against the reference with a moderate number of rows, and its rows then run
in programs of every size, whose tiles differ: one row, a batch, a long prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from ignition.capture.ops import row_blocks
from tests.gpu.trials import (
    WHOLE,
    Build,
    Company,
    Run,
    SameBits,
    Trial,
    companies,
    in_company,
)
from tests.native import cuda_cases, layer_cases
from tests.native.company import rows_of
from tests.native.launches import Array, Case
from tests.native.packings import BF16_FORMAT, F32_FORMAT, Packing, encode
from tests.native.states import i32


@dataclass(frozen=True)
class Model:
    """A decoder's dimensions; `sizes` are the capacities of the programs that are tried."""

    hidden: int
    q_heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocabulary: int = 0  # 0: its head is as another's
    bias: bool = False
    norms: bool = False
    sizes: tuple[int, ...] = (3, 8, 32, 128, 512)


MODELS: Final = {
    "tiny": Model(64, 4, 2, 16, 96, 352, norms=True, sizes=(3, 8, 40)),
    "135M": Model(576, 9, 3, 64, 1536, 49_152, sizes=(3, 8, 32, 128, 512, 2048)),
    "qwen2": Model(896, 14, 2, 64, 4864, bias=True, sizes=(8, 128, 512)),
    "0.6B": Model(1024, 16, 8, 128, 3072, 151_936, norms=True, sizes=(3, 8, 32, 128, 512, 2048)),
    "8B": Model(4096, 32, 8, 128, 14_336, sizes=(3, 32, 128, 512)),
}
_BASE_ROWS: Final = 96


def _weights(rng: np.random.Generator, outputs: int, width: int) -> Array:
    """Random bf16 of magnitudes from 1/8 to 2, made faster than normal ones: some have 10^8."""
    bits = rng.integers(0, 1 << 16, (outputs, width), np.uint16)
    return ((bits & 0x81FF) | 0x3E00).view(np.uint8).reshape(-1)


def linear(
    rng: np.random.Generator, width: int, outputs: int, *, bias: bool, accumulate: bool, rows: int
) -> Case:
    """A product, with poison in an output that isn't added to."""
    out = rng.standard_normal((rows, outputs), np.float32) * 30
    operands: dict[str, Array] = {
        "rows": i32(rows),
        "x": encode(rng.standard_normal((rows, width), np.float32), BF16_FORMAT),
        "weight": _weights(rng, outputs, width),
        "out": out if accumulate else np.full_like(out, np.nan),
    }
    if bias:
        operands["bias"] = rng.standard_normal(outputs, np.float32) * 30
    integers = {
        "capacity": rows,
        "width": width,
        "outputs": outputs,
        "packing": int(Packing.ROWS_BF16),
        "format": BF16_FORMAT,
        "accumulate": int(accumulate),
    }
    return Case("linear", operands, integers)


def silu(rng: np.random.Generator, width: int, outputs: int, out_format: int, *, rows: int) -> Case:
    """Small enough factors that the exponential isn't always 0 or infinite."""
    operands: dict[str, Array] = {
        "rows": i32(rows),
        "x": encode(rng.standard_normal((rows, width), np.float32) / width**0.5, BF16_FORMAT),
        "weight": _weights(rng, 2 * outputs, width),
        "out": np.full((rows, outputs * (2 if out_format == BF16_FORMAT else 4)), 0xFF, np.uint8),
    }
    integers = {
        "capacity": rows,
        "width": width,
        "outputs": outputs,
        "packing": int(Packing.ROWS_BF16),
        "format": BF16_FORMAT,
        "out_format": out_format,
    }
    return Case("linear_silu_mul", operands, integers)


def weighed(rng: np.random.Generator, case: Case, *, whole: bool) -> Case:
    """The product of rows that were weighed, with one sum of squares each or those of blocks."""
    rows, width = case.integers["capacity"], case.integers["width"]
    block = row_blocks(1, width)[0]
    weighing = cuda_cases.weigh(
        rng, rows=rows, capacity=rows, width=width, block=block, whole=whole
    )
    made = cuda_cases.weighed(case, weighing)
    mean = np.float32(width / weighing.integers["blocks"])
    squares = rng.uniform(0.25, 4, made.operands["squares"].shape).astype(np.float32) * mean
    return made.with_operands(x=case.operands["x"], squares=squares)


def projection(rng: np.random.Generator, case: Case, sizes: Sequence[int]) -> Trial:
    """The launch, and its rows in programs of all sizes. Larger ones than the launch itself aren't
    given to numpy: each of their rows has the bits of one that was."""
    rows = case.integers["capacity"]
    return in_company(case, ["out"], companies(rng, rows, sizes), reference=False)


def _projections(model: Model) -> dict[str, Build]:
    """The four matrices of a layer and the head."""
    sizes, rows = model.sizes, min(_BASE_ROWS, model.sizes[-1])
    attended = model.q_heads * model.head_dim
    joint = attended + 2 * model.kv_heads * model.head_dim

    def added(width: int) -> Build:
        return lambda rng: projection(
            rng,
            linear(rng, width, model.hidden, bias=False, accumulate=True, rows=rows),
            sizes,
        )

    def qkv(rng: np.random.Generator) -> Case:
        return linear(rng, model.hidden, joint, bias=model.bias, accumulate=False, rows=rows)

    def gate_up(rng: np.random.Generator) -> Case:
        return silu(rng, model.hidden, model.intermediate, BF16_FORMAT, rows=rows)

    few = [size for size in sizes if row_blocks(size, model.hidden)[1] > 1]
    trials: dict[str, Build] = {
        "qkv": lambda rng: projection(rng, weighed(rng, qkv(rng), whole=True), sizes),
        "qkv blocks": lambda rng: projection(rng, weighed(rng, qkv(rng), whole=False), few),
        "qkv normed": lambda rng: projection(rng, qkv(rng), sizes),
        "output": added(attended),
        "gate_up": lambda rng: projection(rng, weighed(rng, gate_up(rng), whole=True), sizes),
        "gate_up blocks": lambda rng: projection(rng, weighed(rng, gate_up(rng), whole=False), few),
        "gate_up normed": lambda rng: projection(rng, gate_up(rng), sizes),
        "down": added(model.intermediate),
    }
    if model.vocabulary:
        head = sizes[: 4 if model.hidden < 1024 else 3]
        trials["head"] = lambda rng: projection(
            rng,
            weighed(
                rng,
                linear(rng, model.hidden, model.vocabulary, bias=False, accumulate=False, rows=9),
                whole=False,
            ),
            [*head[:-1], 32],
        )
    return trials


def _norm(rng: np.random.Generator, width: int, format_: int) -> Trial:
    case = layer_cases.rms_norm(rng, format_, rows=70, capacity=70, width=width)
    case.operands["x"][3] = 0
    case.operands["x"][4] *= np.float32(1e-12)
    case.operands["x"][5] *= np.float32(1e12)
    return in_company(_poisoned(case), ["out"], companies(rng, 70, [5, 33, 64, 200]))


def _weighing(rng: np.random.Generator, width: int, *, whole: bool) -> Trial:
    block = row_blocks(1, width)[0]
    case = cuda_cases.weigh(rng, rows=70, capacity=70, width=width, block=block, whole=whole)
    return in_company(case, ["out", "squares"], companies(rng, 70, [5, 33, 64, 200]))


def _embedding(rng: np.random.Generator, width: int) -> Trial:
    case = layer_cases.embed(rng, Packing.ROWS_BF16, rows=40, capacity=40, vocab=43, width=width)[0]
    case.operands["tokens"][:4] = [-1, 43, 2**31 - 1, -(2**31)]
    return in_company(_poisoned(case), ["out"], companies(rng, 40, [3, 17, 90]))


def _poisoned(case: Case) -> Case:
    out = case.operands["out"]
    return case.with_operands(
        out=np.full(out.nbytes, 0xFF, np.uint8).view(out.dtype).reshape(out.shape)
    )


def _rope(rng: np.random.Generator, model: Model, rows: int) -> Trial:
    """Cells of the cache have the same bits, too."""
    case = cuda_cases.rope_and_cache_f16(
        rng, rows=rows, capacity=rows, q_heads=model.q_heads, kv_heads=model.kv_heads,
        head_dim=model.head_dim, norms=model.norms, slots=5, table_pages=12,
    )  # fmt: skip
    case.operands["positions"][:2] = [-1, 0]
    place, slot = case.operands["positions"], case.operands["slot"]
    page = case.operands["page_table"][slot, np.maximum(place, 0) // cuda_cases.PAGE_TOKENS]
    runs, same = {WHOLE: Run((case,))}, []
    for one in companies(rng, rows, [2, 7, 64, 90], repeated=False):
        runs[one.name] = Run((rows_of(case, one.rows, one.capacity, beyond=0xFF),))
        chosen = np.asarray(one.rows)
        same.append(SameBits(one.name, "queries", np.arange(len(chosen)), chosen))
        written = chosen[place[chosen] >= 0]
        cells = (page[written], slice(None), place[written] % cuda_cases.PAGE_TOKENS)
        same += [SameBits(one.name, plane, cells, cells) for plane in ("k_plane", "v_plane")]
    return Trial(runs, same)


def _far_rope(rng: np.random.Generator, model: Model) -> Trial:
    case = cuda_cases.rope_and_cache_f16(
        rng, rows=6, capacity=6, q_heads=model.q_heads, kv_heads=model.kv_heads,
        head_dim=model.head_dim, norms=model.norms, slots=1, table_pages=2048,
        positions=[131_071, 99_991, 65_537, 131_072, 40_000, 16_384],
    )  # fmt: skip
    return in_company(case, ["queries"], [Company([2], 1), Company([4, 0], 5)])


def trials() -> dict[str, Build]:
    """All of them by name."""
    found: dict[str, Build] = {}
    for name, model in MODELS.items():
        for matrix, build in _projections(model).items():
            found[f"projection {name} {matrix}"] = build
        found[f"norm {name}"] = partial(_norm, width=model.hidden, format_=BF16_FORMAT)
        for whole in (False, True):
            found[f"weigh {name}{' whole' * whole}"] = partial(
                _weighing, width=model.hidden, whole=whole
            )
        found[f"embed {name}"] = partial(_embedding, width=model.hidden)
        found[f"rope {name}"] = partial(_rope, model=model, rows=70)
    ragged: dict[str, Build] = {
        "ragged": lambda rng: projection(
            rng, linear(rng, 104, 331, bias=True, accumulate=False, rows=70), [5, 129]
        ),
        "narrow part": lambda rng: projection(
            rng, linear(rng, 3072, 72, bias=True, accumulate=True, rows=40), [9, 150]
        ),
        "past the block": lambda rng: projection(
            rng, linear(rng, 1032, 72, bias=False, accumulate=False, rows=40), [9, 33]
        ),
        "gate_up f32": lambda rng: projection(
            rng, silu(rng, 72, 200, F32_FORMAT, rows=40), [7, 150]
        ),
    }
    found |= {f"projection {name}": build for name, build in ragged.items()}
    found["weigh ragged"] = partial(_weighing, width=600, whole=False)
    found["norm f32"] = partial(_norm, width=577, format_=F32_FORMAT)
    found["rope far"] = partial(_far_rope, model=MODELS["tiny"])
    return found

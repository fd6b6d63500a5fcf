"""The models whose shapes are measured, and which kernel variants exist for them.

Known on both machines: the one that compiles and the one with the GPU. Imports no compiler.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

BF16, F32, ADD, SILU_MUL = range(4)


@dataclass(frozen=True)
class Geometry:
    """Widths of a dense decoder; `head_dim` times heads needn't be `hidden`."""

    name: str
    hidden: int
    inner: int
    q_heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int

    @property
    def projections(self) -> dict[str, tuple[int, int, int]]:
        """(outputs N, width K, epilogue) by role."""
        mixed = self.q_heads * self.head_dim
        qkv = mixed + 2 * self.kv_heads * self.head_dim
        return {
            "qkv": (qkv, self.hidden, BF16),
            "output": (self.hidden, mixed, ADD),
            "gate_up": (2 * self.inner, self.hidden, SILU_MUL),
            "down": (self.hidden, self.inner, ADD),
            "head": (self.vocabulary, self.hidden, F32),
        }


GEOMETRIES: Final = (
    Geometry("135M", 576, 1536, 9, 3, 64, 49_152),
    Geometry("0.6B", 1024, 3072, 16, 8, 128, 151_936),
    Geometry("8B", 4096, 14_336, 32, 8, 128, 128_256),
)

PAGE: Final = 32
LONGEST: Final = 8192 + 512  # tokens a request, in the attention measurement


@dataclass(frozen=True)
class Projection:
    """A variant of a projection kernel for one matrix.

    `kind`: few, many or described (many, through tensor maps).
    """

    kind: str
    outputs: int
    width: int
    epilogue: int
    splits: int
    outputs_block: int
    rows_block: int
    width_block: int
    warps: int
    stages: int

    @property
    def label(self) -> str:
        """For tables."""
        return (
            f"{self.kind} {self.outputs_block}x{self.rows_block}x{self.width_block}"
            f" split {self.splits} warps {self.warps} stages {self.stages}"
        )


@dataclass(frozen=True)
class Attention:
    """A variant of an attention kernel for one geometry; `kind`: decode or prefill."""

    kind: str
    q_heads: int
    kv_heads: int
    head_dim: int
    block: int
    split: int
    window: int
    rows: int
    warps: int
    stages: int

    @property
    def label(self) -> str:
        """For tables."""
        return (
            f"{self.kind} {self.rows}x{self.block} split {self.split}"
            f" warps {self.warps} stages {self.stages}"
        )


def projection_variants(outputs: int, width: int, epilogue: int) -> list[Projection]:
    """All variants that are tried for a matrix."""
    shape = (outputs, width, epilogue)
    head = epilogue == F32
    variants = []
    block = 128 if width % 128 == 0 else 64
    deep = (
        {8: 11, 16: 10, 32: 8, 64: 6, 128: 4}
        if block == 128
        else dict.fromkeys((8, 16, 32, 64, 128), 9)
    )
    for splits in _splits(outputs, width):
        for rows in (8, 16, 32, 64, 128):
            stage_counts = {deep[rows], 5} if rows < 128 else {4}
            if head:
                stage_counts = {5} if rows < 128 else {4}
            for stages in sorted(stage_counts):
                k = block if rows < 128 else 64
                variants.append(Projection("few", *shape, splits, 64, rows, k, 4, stages))
        many = [
            ("many", 128, 128, 4, 4),
            ("many", 128, 128, 8, 4),
            ("described", 128, 128, 8, 4),
            ("described", 128, 128, 4, 4),
        ]
        if splits == 1:
            many += [
                ("many", 128, 64, 4, 4),
                ("many", 128, 256, 8, 3),
                ("described", 128, 256, 8, 4),
                ("described", 256, 128, 8, 4),
            ]
        if head:
            many = [("many", 128, 128, 8, 4)]
        variants += [
            Projection(kind, *shape, splits, bn, bm, 64, warps, stages)
            for kind, bn, bm, warps, stages in many
        ]
    return variants


def _splits(outputs: int, width: int) -> tuple[int, ...]:
    """Parts that a matrix could be reduced in; more than one where its tiles are few."""
    if outputs // 64 > 100:
        return (1,)
    if width % 128:  # 576
        return (1, 3)
    return (1, 2, 4) if width >= 3072 else (1, 2)


def attention_variants(geometry: Geometry) -> list[Attention]:
    """All variants that are tried for a geometry."""
    heads = (geometry.q_heads, geometry.kv_heads, geometry.head_dim)
    variants = []
    for block, split in [(64, 128), (64, 256), (64, 512), (64, 1024), (128, 256), (128, 512)]:
        decode_stages = 3 if block == 64 or geometry.head_dim == 64 else 2
        variants.append(Attention("decode", *heads, block, split, 0, 64, 4, decode_stages))
    for block, split in [
        (64, 256),
        (64, 512),
        (64, 1024),
        (64, 1 << 30),
        (128, 512),
        (128, 1 << 30),
    ]:
        variants.append(Attention("prefill", *heads, block, split, 0, 128, 8, 2))
        if block == 64:
            variants.append(Attention("prefill", *heads, block, split, 0, 128, 8, 3))
            variants.append(Attention("prefill", *heads, block, split, 0, 64, 4, 3))
    for kind, rows, warps in (("decode", 64, 4), ("prefill", 128, 8)):
        variants.append(Attention(kind, *heads, 64, 256, 100, rows, warps, 3))
    return variants

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
            "qkv": (qkv, self.hidden, F32),
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

PAGE: Final = 64
LONGEST: Final = 8192 + 512  # tokens a request, in the attention measurement
ENDLESS: Final = 1 << 30  # a split that nothing reaches the end of: no splits


_HEAD_OUTPUTS: Final = 1 << 15  # from here on a matrix is a head

# Of `projection_warps`: rows and outputs of a tile, inputs of a block, stages.
GROUP_TILES: Final = ((128, 128, 64, 6), (64, 128, 64, 8))


@dataclass(frozen=True)
class Projection:
    """A variant of a projection kernel for one matrix.

    `kind`: few, many or groups (of warps, `projection_warps`). `rows_first`: rows are the 64-row
    operand of wgmma, not weights. `flatten`: a CTA loads for its next tile while it finishes one.
    """

    kind: str
    outputs: int
    width: int
    epilogue: int
    splits: int
    rows_first: bool
    rows_block: int
    outputs_block: int
    width_block: int
    warps: int
    stages: int
    flatten: bool = False

    @property
    def label(self) -> str:
        """For tables: rows x outputs x width of a block."""
        first = "rows" if self.rows_first else "weights"
        return (
            f"{self.kind}{' flat' * self.flatten} {first} first "
            f"{self.rows_block}x{self.outputs_block}x{self.width_block}"
            f" split {self.splits} warps {self.warps} stages {self.stages}"
        )


@dataclass(frozen=True)
class Attention:
    """A variant of an attention kernel for one geometry; `kind`: decode or prefill.

    `groups`: warps share the work, one loading for two groups that compute.
    """

    kind: str
    q_heads: int
    kv_heads: int
    head_dim: int
    page: int
    split: int
    window: int
    rows: int
    warps: int
    stages: int
    groups: bool = False

    @property
    def label(self) -> str:
        """For tables."""
        split = "none" if self.split == ENDLESS else self.split
        return (
            f"{self.kind} page {self.page} split {split}"
            f" rows {self.rows} warps {self.warps} stages {self.stages}"
            f"{' groups' * self.groups}"
        )


def projection_variants(outputs: int, width: int, epilogue: int) -> list[Projection]:
    """All variants that are tried for a matrix."""
    shape = (outputs, width, epilogue)
    k = 128 if width % 128 == 0 else 64
    narrow = [
        (False, rows, 64, k, stages if k == 128 else 9)
        for rows, stages in ((8, 10), (16, 9), (32, 8))
    ]
    few = [(1, *tile) for tile in narrow]
    persistent = (1, True, 128, 256, 64, 8, 4 if epilogue in (BF16, SILU_MUL) else 3, True)
    many = [
        (1, False, 16, 64, 128, 4, 8, False),
        (1, False, 32, 64, 128, 4, 8, False),
        (1, True, 64, 64, 128, 4, 6, False),
        (1, True, 64, 128, 64, 4, 6, False),
        (1, True, 128, 128, 64, 8, 4, False),
        persistent,
    ]
    if outputs < _HEAD_OUTPUTS:
        # The first is too narrow for wgmma and uses the older mma.sync.
        few += [(1, False, 16, 32, k, 8), (1, True, 64, 32, k, 8)]
        many += [
            (1, True, 64, 128, 128, 4, 4, False),
            (1, True, 128, 128, 128, 8, 3, False),
            (1, False, 256, 128, 64, 8, 4, False),
            (1, True, 128, 128, 64, 8, 4, True),
        ]
    if outputs <= 1024 and width >= 3072:
        few += [(4, *tile) for tile in (*narrow, (False, 64, 64, k, 6))]
        many += [(4, True, 64, 64, 128, 4, 6, False), (4, True, 128, 128, 64, 8, 4, False)]
    return [
        *(
            Projection("few", *shape, splits, first, rows, columns, block, 4, stages)
            for splits, first, rows, columns, block, stages in few
        ),
        *(
            Projection("many", *shape, splits, first, rows, columns, block, warps, stages, flat)
            for splits, first, rows, columns, block, warps, stages, flat in many
        ),
        *(
            Projection("groups", *shape, 1, True, rows, columns, block, 4, stages, True)
            for rows, columns, block, stages in GROUP_TILES
        ),
    ]


def attention_variants(geometry: Geometry) -> list[Attention]:
    """All variants that are tried for a geometry."""
    heads = (geometry.q_heads, geometry.kv_heads, geometry.head_dim)
    decode = [(256, 0, 64, 4, 2), (256, 0, 64, 4, 3), (512, 0, 64, 4, 2), (256, 100, 64, 4, 2)]
    prefill = [
        (split, 0, rows, warps, stages)
        for split in (256, 512, ENDLESS)
        for rows, warps, stages in ((64, 4, 2), (128, 8, 3))
    ]
    prefill.append((256, 100, 128, 8, 2))
    for stages in (3, 4):
        prefill.append((256, 0, 128, 4, stages, True))
    return [
        *(Attention("decode", *heads, PAGE, *variant) for variant in decode),
        *(Attention("prefill", *heads, PAGE, *variant) for variant in prefill),
    ]

"""What recording depends on of a target: how matrices lie, how attention is split, how large a page
is. Recipes are the same for all; the op layer and the weight set look here.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from helios.errors import ContractError

CUDA_PREFIX: Final = "cuda:"
# Those that kernels have been measured on; each new one needs the run of docs/cuda.md first.
CUDA_ARCHITECTURES: Final = ("sm_90",)


class MatrixLayout(Enum):
    """How weight matrices lie."""

    TILES = "tiles of 16 outputs, in the storage chosen"
    ROWS = "row by row, bf16 or 8-bit codes with scales"


@dataclass(frozen=True)
class Target:
    """`architecture` is the GPU's, empty elsewhere. With `queries_apart`, rotated queries are f16
    rows of their own and planes of keys lie as those of values do; else queries stay in the joint
    rows, and a page's keys lie transposed."""

    name: str
    abi: str
    page_tokens: int
    layout: MatrixLayout
    queries_apart: bool
    architecture: str = ""

    @property
    def is_cuda(self) -> bool:
        """Whether launches need nodes."""
        return bool(self.architecture)


CPU: Final = Target("cpu", "helios-cpu-1", 32, MatrixLayout.TILES, queries_apart=False)


def _cuda(architecture: str) -> Target:
    return Target(
        f"{CUDA_PREFIX}{architecture}",
        "helios-cuda-1",
        64,
        MatrixLayout.ROWS,
        queries_apart=True,
        architecture=architecture,
    )


TARGETS: Final = {target.name: target for target in (CPU, *map(_cuda, CUDA_ARCHITECTURES))}


def named(name: str) -> Target:
    """The target of this name. Raises ContractError naming those that there are."""
    found = TARGETS.get(name)
    if found is None:
        raise ContractError(
            f"there is no target {name!r}",
            where="--target",
            remedy=f"Targets are: {', '.join(TARGETS)}",
        )
    return found

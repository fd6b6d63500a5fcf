"""What a GPU can't be asked for, however it is lowered: grids and rows of tensor maps."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from helios.errors import ContractError
from ignition.capture import nodes
from ignition.kernels.cuda.launches import CatalogueLaunch, CudaKernel, TensorMap
from tests.ignition import lowered as fakes
from tests.ignition.test_nodes import Record, kernel_with, recorded

__all__ = ["recorded"]


@pytest.mark.parametrize("axis", [1, 2])
def test_a_grid_that_no_gpu_launches_names_the_options(recorded: Record, axis: int) -> None:
    grid = [1, 65_535, 65_535]

    def lowering(launch: CatalogueLaunch) -> tuple[CudaKernel, ...]:
        (kernel,) = fakes.any_kernel(launch)
        return (replace(kernel, grid=(grid[0], grid[1], grid[2])),)

    lowerings = {**fakes.LOWERINGS, "load_pending": lowering}
    made = recorded("llama")
    made.lower(lowerings=lowerings)
    grid[axis] += 1
    with pytest.raises(ContractError, match=rf"takes 65,536 CTAs along {'xyz'[axis]}, .*--max-act"):
        made.lower(lowerings=lowerings)


def test_rows_that_no_tensor_map_takes_name_what_to_change(recorded: Record) -> None:
    """60 columns of f32 would do; of what the kernel reads, bf16, they wouldn't."""
    made = recorded("llama")
    wrong = kernel_with("tensordesc", TensorMap("x", 60))
    lowered = made.lower(lowerings={**fakes.LOWERINGS, "linear": wrong})
    maps = [SimpleNamespace(name="value", element=9, box=(64, 64), swizzle=3)]
    with pytest.raises(ContractError, match=r"rows of 60 elements, no multiple of 8.*hidden_size"):
        nodes.place(made.recorder, lowered, fakes.compiled(lowered, descriptors=maps))

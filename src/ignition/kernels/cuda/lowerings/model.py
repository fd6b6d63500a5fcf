"""Lowerings of a forward pass: embedding, norms, rotation; and what all of a pass share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from helios.errors import ContractError
from helios.kernels.catalogue import ActivationFormat
from helios.schema import execution_pb2 as pb
from ignition.kernels.cuda import rotary, rows, tiles, weighing
from ignition.kernels.cuda.compile import KernelRequest
from ignition.kernels.cuda.launches import Argument, At, CatalogueLaunch, CudaKernel, RowsOf

# Types of embedding tables by their packing.
TABLES: Final[Mapping[int, str]] = {pb.PACKING_ROWS_BF16: "*bf16", pb.PACKING_ROWS_Q8: "*u8"}
_POINTERS: Final = {ActivationFormat.F32: "*fp32", ActivationFormat.BF16: "*bf16"}
_I32: Final = 4
_F16: Final = 2


def embed(launch: CatalogueLaunch) -> tuple[CudaKernel, ...]:
    """A row a program, or a piece of it where rows are few."""
    at = launch.integers
    table = TABLES.get(at["packing"])
    if table is None:
        raise ContractError(
            f"the packing is {at['packing']}",
            where=launch.kernel,
            remedy=f"Embeddings are ROWS_BF16 ({pb.PACKING_ROWS_BF16}) or ROWS_Q8"
            f" ({pb.PACKING_ROWS_Q8})",
        )
    block = min(power_of_two(at["width"]), 1024)
    request = KernelRequest(
        rows.embed,
        {"rows": "*i32", "tokens": "*i32", "table": table, "out": "*fp32"}
        | {"vocab": "i32", "scale": "fp32"},
        {"WIDTH": at["width"], "BLOCK": block},
        num_warps=4,
        num_stages=1,
    )
    operands = {name: At(name) for name in ("rows", "tokens", "table", "out")}
    scalars = {"vocab": at["vocab"], "scale": launch.floats["scale"]}
    grid = (at["capacity"], -(-at["width"] // block), 1)
    return (CudaKernel(request, grid, {**operands, **scalars}),)


def rms_norm(launch: CatalogueLaunch) -> tuple[CudaKernel, ...]:
    """A row a program."""
    at = launch.integers
    padded = max(power_of_two(at["width"]), 64)
    request = KernelRequest(
        rows.rms_norm,
        {"rows": "*i32", "x": "*fp32", "weight": "*fp32", "out": pointer(launch, "format")}
        | {"epsilon": "fp32"},
        {"WIDTH": at["width"], "PADDED": padded},
        num_warps=tiles.norm_warps(at["capacity"], padded),
        num_stages=1,
    )
    operands = {name: At(name) for name in ("rows", "x", "weight", "out")}
    grid = (at["capacity"], 1, 1)
    return (CudaKernel(request, grid, {**operands, "epsilon": launch.floats["epsilon"]}),)


def weigh(launch: CatalogueLaunch) -> tuple[CudaKernel, ...]:
    """A row a program."""
    at = launch.integers
    check_blocks(launch)
    if pointer(launch, "format") != "*bf16":
        raise ContractError(
            "writes f32", where=launch.kernel, remedy="Rows are weighed for the tensor cores: bf16"
        )
    padded = max(power_of_two(at["width"]), at["block"])
    request = KernelRequest(
        weighing.weigh,
        {"rows": "*i32", "x": "*fp32", "weight": "*fp32", "out": "*bf16", "squares": "*fp32"},
        {"WIDTH": at["width"], "PADDED": padded, "BLOCK": at["block"], "BLOCKS": at["blocks"]},
        num_warps=tiles.norm_warps(at["capacity"], padded),
        num_stages=1,
    )
    operands = {name: At(name) for name in ("rows", "x", "weight", "out", "squares")}
    return (CudaKernel(request, (at["capacity"], 1, 1), operands),)


def check_blocks(launch: CatalogueLaunch) -> None:
    """Raises ContractError where a weighed row isn't cut as sums of its squares can be made."""
    block, blocks = launch.integers["block"], launch.integers["blocks"]
    if not 16 <= block <= 64 or block & (block - 1):
        raise ContractError(
            f"a block has {block} columns", where=launch.kernel, remedy="It has 16, 32 or 64"
        )
    if blocks not in (1, -(-launch.integers["width"] // block)):
        raise ContractError(
            f"a row has {blocks} sums of squares",
            where=launch.kernel,
            remedy="It has one, or one for each block of its columns",
        )


def rope_and_cache_f16(launch: CatalogueLaunch) -> tuple[CudaKernel, ...]:
    """All heads of a row in a program, a few of them where rows are few."""
    at = launch.integers
    check_heads(launch)
    heads = at["q_heads"] + 2 * at["kv_heads"]
    together = min(power_of_two(heads), 4 if at["capacity"] <= 64 else 64)
    names = (
        *("rows", "qkv", "positions", "slot", "page_table", "inverse_frequency", "q_norm"),
        *("k_norm", "queries", "k_plane", "v_plane"),
    )
    parameters = list(rotary.rope_and_cache.arg_names)[: len(names)]
    kinds = ("*i32", "*fp32", "*i32", "*i32", "*i32", *("*fp32",) * 3, *("*fp16",) * 3)
    request = KernelRequest(
        rotary.rope_and_cache,
        dict(zip(parameters, kinds, strict=True))
        | dict.fromkeys(("table_pages", "slot_count", "pages"), "i32")
        | dict.fromkeys(("epsilon", "attention_factor"), "fp32"),
        {"Q_HEADS": at["q_heads"], "KV_HEADS": at["kv_heads"], "D": at["head_dim"]}
        | {"PAGE": at["page_tokens"], "HEADS": together}
        | {"Q_NORM": "q_norm" in launch.operands, "K_NORM": "k_norm" in launch.operands}
        | {"SETTLED": places_settled(launch)},
        num_warps=1 if together <= 4 else 4,
        num_stages=1,
    )
    operands = {p: At(name) for p, name in zip(parameters, names, strict=True)}
    counts: dict[str, Argument] = {
        "table_pages": at["table_pages"],
        "slot_count": slot_count(at["table_pages"]),
        "pages": RowsOf("k_plane", page_nbytes(launch)),
    }
    floats = {name: launch.floats[name] for name in ("epsilon", "attention_factor")}
    grid = (at["capacity"], -(-heads // together), 1)
    arguments = {**operands, **counts, **floats}
    return (CudaKernel(request, grid, arguments, settled=settled(launch)),)


# Arguments that say where rows lie, and the operands that they are.
_PLACES: Final = {
    "rows": "rows", "positions": "positions", "slots": "slot", "page_table": "page_table",
}  # fmt: skip


def places_settled(launch: CatalogueLaunch) -> bool:
    """Whether a kernel may look up where its rows lie before it waits."""
    return launch.settled.issuperset(_PLACES.values())


def settled(launch: CatalogueLaunch) -> frozenset[str]:
    """The arguments with which it does, if it may."""
    return frozenset(_PLACES) if places_settled(launch) else frozenset()


def slot_count(table_pages: int, launch: int = 0) -> RowsOf:
    """Request slots, by their rows of the page table."""
    return RowsOf("page_table", _I32 * table_pages, launch)


def page_nbytes(launch: CatalogueLaunch) -> int:
    """Bytes of a page of one plane."""
    at = launch.integers
    return _F16 * at["kv_heads"] * at["page_tokens"] * at["head_dim"]


def power_of_two(count: int) -> int:
    """The power of two at or above `count`."""
    return 1 << (count - 1).bit_length()


def pointer(launch: CatalogueLaunch, attribute: str) -> str:
    """The type of an activation operand. Raises ContractError for a format that a GPU hasn't."""
    form = ActivationFormat(launch.integers[attribute])
    if form not in _POINTERS:
        raise ContractError(
            f"{attribute} is {form.name.lower()}",
            where=launch.kernel,
            remedy="Kernels of a GPU take f32 and bf16 activations",
        )
    return _POINTERS[form]


def check_packing(launch: CatalogueLaunch) -> None:
    """Raises ContractError where weights lie otherwise than row by row."""
    packing = launch.integers["packing"]
    if packing != pb.PACKING_ROWS_BF16:
        raise ContractError(
            f"the packing is {packing}",
            where=launch.kernel,
            remedy=f"Kernels of a GPU take ROWS_BF16 ({pb.PACKING_ROWS_BF16}), ROWS_Q8"
            f" ({pb.PACKING_ROWS_Q8}) and ROWS_FP8 ({pb.PACKING_ROWS_FP8})",
        )


def check_heads(launch: CatalogueLaunch) -> None:
    """Raises ContractError for heads that don't fill a tile."""
    width = launch.integers["head_dim"]
    if width != power_of_two(width) or not 16 <= width <= 256:
        raise ContractError(
            f"heads are {width} wide",
            where=launch.kernel,
            remedy="Kernels of a GPU take heads of 16, 32, 64, 128 or 256",
        )

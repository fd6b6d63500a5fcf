"""Kernels compiled ahead of time: what a launch is told is what the cubin says."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from helios.errors import ContractError
from tests.ignition.cuda import cubin_sections

pytest.importorskip("triton", reason="the extra cuda-prepare isn't installed")

import triton
import triton.language as tl

from ignition.kernels.cuda import attention, projection, projection_warps
from ignition.kernels.cuda.compile import KernelRequest, compile, parameter_layout

WEIGHING = {"factor": "*fp32", "weighed": "*bf16", "squares": "*fp32"}
SOURCES = Path(projection.__file__).parents[3]


def few(rows_block: int = 8, **constants: int) -> KernelRequest:
    return KernelRequest(
        projection.project_few,
        dict.fromkeys(("rows",), "*i32")
        | dict.fromkeys(("x", "w"), "*bf16")
        | {"bias": "*fp32", "out": "*bf16"}
        | WEIGHING
        | {"partials": "*fp32", "arrivals": "*i32", "epsilon": "fp32"},
        {"N": 128, "K": 256, "SPLITS": 2, "BN": 64, "BM": rows_block, "BK": 64}
        | {"ROWS_FIRST": False, "EPILOGUE": projection.BF16, "BIAS": True, "SETTLED": False}
        | {"BLOCKS": 0, "PADDED_BLOCKS": 1, "BLOCK": 1}
        | constants,
        num_warps=4,
        num_stages=3,
    )


def many(**constants: int) -> KernelRequest:
    return KernelRequest(
        projection.project_many,
        {"rows": "*i32", "x": "tensordesc<bf16[64, 64]>", "w": "tensordesc<bf16[64, 64]>"}
        | {"bias": "*fp32", "out": "*bf16"}
        | WEIGHING
        | {"epsilon": "fp32"},
        {"N": 128, "K": 128, "SPLITS": 1, "BN": 64, "BM": 64, "BK": 64, "GROUP": 8}
        | {"FLATTEN": True, "ROWS_FIRST": True, "EPILOGUE": projection.SILU_MUL, "BIAS": False}
        | {"SETTLED": True, "BLOCKS": 2, "PADDED_BLOCKS": 2, "BLOCK": 1}
        | constants,
        num_warps=4,
        num_stages=2,
    )


def in_groups() -> KernelRequest:
    return KernelRequest(
        projection_warps.project_in_groups,
        {"rows": "*i32", "x": "tensordesc<bf16[64, 64]>", "w": "tensordesc<bf16[128, 64]>"}
        | {"bias": "*fp32", "out": "*fp32", "squares": "*fp32", "epsilon": "fp32"},
        {"N": 256, "K": 512, "BN": 128, "BM": 64, "BK": 64, "STAGES": 4, "GROUP": 8}
        | {"EPILOGUE": projection.ADD, "BIAS": True, "WEIGHED": False},
        num_warps=4,
        num_stages=1,
    )


def prefill() -> KernelRequest:
    return KernelRequest(
        attention.attend_prefill,
        dict.fromkeys(("rows", "lanes", "query_lengths"), "*i32")
        | {"q": "*fp16"}
        | dict.fromkeys(("keys", "values"), "tensordesc<fp16[32, 128]>")
        | dict.fromkeys(("positions", "slots", "page_table"), "*i32")
        | {"out": "*bf16"}
        | dict.fromkeys(("lane_capacity", "table_pages", "slot_count"), "i32")
        | {"scale_log2": "fp32"},
        {"Q_HEADS": 4, "KV_HEADS": 2, "D": 128, "PAGE": 32, "SPLIT": 256}
        | {"WINDOW": 0, "ROWS": 64, "LANES": 4},
        num_warps=4,
        num_stages=2,
    )


@pytest.mark.parametrize("request_of", [few, many, in_groups, prefill], ids=lambda f: f.__name__)
def test_a_cubin_has_the_parameters_that_its_description_names(request_of):
    compiled = compile(request_of(), "sm_90")
    facts = cubin_sections.read(compiled.cubin, compiled.function)
    assert facts.machine == cubin_sections.CUDA_MACHINE
    assert facts.architecture == 90
    described = compiled.parameters
    assert [nbytes for _, nbytes in facts.parameters] == [p.nbytes for p in described]
    if described[0].offset is not None:
        assert [offset for offset, _ in facts.parameters] == [p.offset for p in described]
    # Two groups of four warps, and the one that loads in a third.
    assert compiled.threads == (384 if request_of is in_groups else 128)
    assert 0 < compiled.shared_nbytes <= 232_448


def test_layout_aligns_each_argument_to_its_size_and_ends_with_two_hidden_pointers():
    kinds = ("*i32", "i32", "i64", "fp32", "i8", "i32", "*i32")
    layout = parameter_layout({f"a{i}": kind for i, kind in enumerate(kinds)})
    assert [(p.offset, p.nbytes) for p in layout] == [
        (0, 8), (8, 4), (16, 8), (24, 4), (28, 1), (32, 4), (40, 8), (48, 8), (56, 8),
    ]  # fmt: skip


def test_a_descriptor_is_a_map_then_shape_then_strides():
    layout = parameter_layout({"x": "tensordesc<bf16[64, 32]>"})
    assert [(p.kind, p.nbytes) for p in layout[:-2]] == [
        ("map", 128), ("i32", 4), ("i32", 4), ("i64", 8), ("i64", 8),
    ]  # fmt: skip
    assert {p.offset for p in layout} == {None}


def test_a_descriptors_box_is_no_wider_than_its_swizzle():
    keys, values = compile(prefill()).descriptors
    assert (keys.name, values.name) == ("keys", "values")
    # 128 elements of 2 bytes a row, copied in two boxes of 128 bytes.
    assert (keys.box, keys.swizzle, keys.element) == ((32, 64), 3, 6)
    x, w = compile(many()).descriptors
    assert (x.box, x.element) == ((64, 64), 9)
    assert w.name == "w"


def test_an_unknown_type_is_refused_by_name():
    with pytest.raises(ContractError, match="argument n has the unknown type int"):
        parameter_layout({"n": "int"})


def test_an_unknown_architecture_is_refused_before_anything_is_compiled():
    with pytest.raises(ContractError, match="architecture sm_12 is unknown"):
        compile(few(), "sm_12")


def test_arguments_that_are_not_the_kernels_are_refused():
    request = few()
    missing = {name: kind for name, kind in request.arguments.items() if name != "bias"}
    with pytest.raises(ContractError, match="where the kernel has"):
        compile(replace(request, arguments=missing))
    swapped = dict(sorted(request.arguments.items()))
    with pytest.raises(ContractError, match="in the order"):
        compile(replace(request, arguments=swapped))


def test_more_shared_memory_than_a_block_may_have_is_refused():
    with pytest.raises(ContractError, match="bytes of shared memory, of 232448"):
        compile(replace(few(64, K=4096, SPLITS=1, BK=128), num_stages=12))


def test_names_differ_where_the_code_would():
    requests = [few(), few(16), few(K=512), replace(few(), num_stages=4), many()]
    assert len({request.name for request in requests}) == len(requests)
    assert few().name == few().name


@triton.jit
def _product_and_sum(x, out):
    at = tl.arange(0, 32)
    values = tl.load(x + at)
    tl.store(out + at, values * values + values)


def test_products_and_sums_are_rounded_each_by_itself(tmp_path):
    compiled = compile(KernelRequest(_product_and_sum, {"x": "*fp32", "out": "*fp32"}, {}, 1, 1))
    cubin = tmp_path / "kernel.cubin"
    cubin.write_bytes(compiled.cubin)
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "nvdisasm"
    listing = subprocess.run([tool, cubin], capture_output=True, text=True, check=True).stdout
    assert "FMUL" in listing
    assert "FADD" in listing
    assert "FFMA" not in listing


def test_the_same_request_gives_the_same_bytes_from_a_copy_elsewhere(tmp_path):
    copied = tmp_path / "elsewhere"
    shutil.copytree(SOURCES, copied, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    here = Path(__file__).parents[3]
    shutil.copytree(here / "tests" / "ignition" / "cuda", copied / "tests" / "ignition" / "cuda")
    program = (
        "import hashlib\n"
        "from tests.ignition.cuda.test_compile import compile, few, many\n"
        "for request in (few(), many()):\n"
        "    print(hashlib.sha256(compile(request).cubin).hexdigest())\n"
    )
    digests = set()
    for number, sources in enumerate((SOURCES, copied)):
        root = here if sources == SOURCES else copied
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(root), str(sources)]),
            "TRITON_CACHE_DIR": str(tmp_path / f"cache{number}"),
        }
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True, text=True, check=True, env=environment, cwd=tmp_path,
        )  # fmt: skip
        digests.add(done.stdout)
    assert len(digests) == 1

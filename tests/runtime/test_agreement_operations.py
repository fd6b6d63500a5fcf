"""Programs that restore, snapshot, mix and score against their operation: one thing is broken at a
time, and its field and program are named."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from helios.contract import PreparedContract
from helios.errors import ContractError
from helios.runtime.checks.launches import check_launches
from helios.runtime.checks.places import Place
from helios.runtime.manifest import Buffer, BufferClass, DType, Launch, Manifest, Program
from helios.runtime.manifest_checks import check_manifest
from helios.runtime.manifest_decoder import decode_manifest
from tests.checkpoints import TOKENS
from tests.model_parts import capture_tiny

Model = tuple[PreparedContract, Manifest]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    parts = capture_tiny(tmp_path_factory.mktemp("checkpoints"), "llama")
    return parts.contract, decode_manifest(parts.manifest)


def index_of(manifest: Manifest, name: str) -> int:
    return [program.name for program in manifest.programs].index(name)


def with_program(manifest: Manifest, name: str, **changes: Any) -> Manifest:
    programs = [replace(p, **changes) if p.name == name else p for p in manifest.programs]
    return replace(manifest, programs=tuple(programs))


def with_buffer(manifest: Manifest, name: str, **changes: Any) -> Manifest:
    buffers: list[Buffer] = [
        replace(b, **changes) if b.name == name else b for b in manifest.buffers
    ]
    return replace(manifest, buffers=tuple(buffers))


def test_as_captured_all_agree(model: Model) -> None:
    contract, manifest = model
    check_manifest(manifest, contract)


@pytest.mark.parametrize(
    ("name", "field", "value", "message"),
    [
        ("restore.b32", "token_capacity", 1, "is 1, but RESTORE samples nothing"),
        ("resume.b32", "packed_token_capacity", 32, "is 32, but RESUME consumes nothing"),
        ("snapshot.b32", "packed_token_capacity", 1, "is 1, but SNAPSHOT consumes nothing"),
        ("snapshot.b32", "batch_capacity", 33, "is 33, but 32 requests are active at most"),
        ("snapshot.b32", "draft_tokens", 1, "is 1, but SNAPSHOT draws nothing"),
        ("restore.b32", "completion", "completion", "is set, but RESTORE reports nothing"),
        ("resume.b32", "completion", "completion", "is set, but RESUME reports nothing"),
        ("mixed.b32p128", "completion", "", "is missing: MIXED reports to the host"),
        ("mixed.b32p128", "draft_tokens", 1, "is 1, but MIXED draws nothing"),
        ("mixed.b32p128", "token_capacity", 0, "is 0, but MIXED gives one token a lane"),
        ("mixed.b32p128", "batch_capacity", 1, "is 1, but MIXED takes a prompt beside"),
        ("mixed.b32p128", "packed_token_capacity", 31, "is 31, but there are 32 lanes"),
        ("scored_prefill.p128", "completion", "", "is missing: SCORED_PREFILL reports"),
        ("scored_prefill.p128", "token_capacity", 0, "is 0, but SCORED_PREFILL samples a token"),
        ("scored_prefill.p128", "packed_token_capacity", 31, "is 31, but there are 32 lanes"),
    ],
)
def test_extents_and_record_follow_from_the_operation(
    model: Model, name: str, field: str, value: object, message: str
) -> None:
    contract, manifest = model
    broken = with_program(manifest, name, **{field: value})
    with pytest.raises(ContractError, match=message) as caught:
        check_manifest(broken, contract)
    assert caught.value.where == f"programs[{index_of(manifest, name)}].{field}"
    assert f"(program {name})" in str(caught.value)


def test_a_scored_program_has_a_score_for_each_token(model: Model) -> None:
    contract, manifest = model
    number = index_of(manifest, "scored_prefill.p128")
    few = with_buffer(manifest, "completion.scores", shape=(127,), nbytes=4 * 127)
    with pytest.raises(ContractError, match="is 128, but 'completion' has 127 scores") as caught:
        check_manifest(few, contract)
    assert caught.value.where == f"programs[{number}].packed_token_capacity"
    records = {n: replace(r, scores=None) for n, r in manifest.completions.items()}
    none = replace(manifest, completions=records)
    with pytest.raises(ContractError, match="'completion' has no scores"):
        check_manifest(none, contract)


RANKED = ("score_ranks", "score_top_tokens", "score_top_logprobs")


@pytest.mark.parametrize("part", RANKED)
def test_a_scored_program_writes_its_ranking_where_its_record_has_one(
    model: Model, part: str
) -> None:
    contract, manifest = model
    buffer = getattr(manifest.completions["completion"], part)
    program = next(p for p in manifest.programs if p.name == "scored_prefill.p32")
    launches = tuple(
        x if x.kernel.name != "score_ranked" else _elsewhere(x, buffer, manifest)
        for x in program.launches
    )
    broken = with_program(manifest, "scored_prefill.p32", launches=launches)
    with pytest.raises(ContractError, match=f"{part} of 'completion' are never written"):
        check_manifest(broken, contract)


def test_likeliest_tokens_are_asked_for_where_the_record_has_room(model: Model) -> None:
    contract, manifest = model
    record = replace(manifest.completions["completion"], **dict.fromkeys(RANKED))
    bare = replace(manifest, completions={"completion": record})
    with pytest.raises(ContractError, match="record has no score_top_tokens") as caught:
        check_manifest(bare, contract)
    assert re.fullmatch(r"model\.graphs\[\d+\]\.bindings\[\d+\]\.source", caught.value.where)


def changed_launch(program: Program, kernel: str, **integers: int) -> Program:
    """The program whose first launch of a kernel has other attributes."""

    def change(launch: Launch) -> Launch:
        values = dict(zip(launch.kernel.integers, launch.integers, strict=True)) | integers
        return replace(launch, integers=tuple(values.values()))

    at = next(i for i, launch in enumerate(program.launches) if launch.kernel.name == kernel)
    launches = [change(x) if i == at else x for i, x in enumerate(program.launches)]
    return replace(program, launches=tuple(launches))


@pytest.mark.parametrize(
    ("name", "kernel", "integers", "message"),
    [
        ("scored_prefill.p32", "score_ranked", {"vocab": 330}, "reads 330 logits, but .* has 331"),
        ("snapshot.b32", "save_page", {"page_tokens": 16}, "takes pages of 16 tokens"),
        ("restore.b32", "load_page", {"table_pages": 15}, "takes tables of 15 pages"),
        ("restore.b32", "load_page", {"dtype": DType.BF16}, "holds F16, load_page takes BF16"),
    ],
)
def test_launches_say_what_the_contract_does(
    model: Model, name: str, kernel: str, integers: dict[str, int], message: str
) -> None:
    contract, manifest = model
    number = index_of(manifest, name)
    programs = list(manifest.programs)
    programs[number] = changed_launch(programs[number], kernel, **integers)
    with pytest.raises(ContractError, match=message) as caught:
        check_manifest(replace(manifest, programs=tuple(programs)), contract)
    assert caught.value.where.startswith(f"programs[{number}].launches[")


def test_a_page_is_copied_between_buffers_of_one_type(model: Model) -> None:
    contract, manifest = model
    other = with_buffer(manifest, "saved.k.0", dtype=DType.BF16)
    with pytest.raises(ContractError, match=r"'saved\.k\.0' holds BF16, load_page takes F16"):
        check_manifest(other, contract)


TABLES = {
    "request_state": "128",
    "sampling_rows": "8640",
    "token_counts": str(4 * TOKENS),
    "output_counts": str(4 * TOKENS),
    "token_mask": str(4 * -(-TOKENS // 32)),
}


@pytest.mark.parametrize("table", TABLES)
def test_rows_of_slots_are_as_wide_as_kernels_take_them_for(model: Model, table: str) -> None:
    contract, manifest = model
    buffer = next(b for b in manifest.buffers if b.name == table)
    wider = with_buffer(
        manifest,
        table,
        shape=(buffer.shape[0] + 4,),
        nbytes=buffer.nbytes // buffer.shape[0] * (buffer.shape[0] + 4),
    )
    index = manifest.buffer_index[table]
    program = next(p for p in wider.programs if p.name == "decode.b1")
    with pytest.raises(
        ContractError, match=f"{table!r} isn't a row of {TABLES[table]} bytes"
    ) as caught:
        check_launches(program, Place("programs[0]", "program decode.b1"), wider, contract)
    found = re.fullmatch(
        r"programs\[0\]\.launches\[(\d+)\]\.operands\[(\d+)\]\.buffer", caught.value.where
    )
    assert found is not None
    operand = program.launches[int(found[1])].operands[int(found[2])]
    assert operand is not None
    assert operand.buffer == index


@pytest.mark.parametrize("part", ["top_tokens", "top_logprobs"])
def test_a_program_writes_the_likeliest_tokens_where_its_record_has_them(
    model: Model, part: str
) -> None:
    contract, manifest = model
    record = manifest.completions["completion"]
    buffer = getattr(record, part)
    program = next(p for p in manifest.programs if p.name == "decode.b1")
    launches = tuple(
        x if x.kernel.name != "sample_processed" else _elsewhere(x, buffer, manifest)
        for x in program.launches
    )
    broken = with_program(manifest, "decode.b1", launches=launches)
    with pytest.raises(ContractError, match=f"{part} of 'completion' are never written"):
        check_manifest(broken, contract)
    # A record without them has nothing that the program may write.
    records = {"completion": replace(record, top_tokens=None, top_logprobs=None)}
    with pytest.raises(ContractError, match="is no part of the program's completion record"):
        check_manifest(replace(manifest, completions=records), contract)


def _elsewhere(launch: Launch, buffer: int, manifest: Manifest) -> Launch:
    """The launch with scratch in the place of a buffer."""
    kinds = {manifest.buffers[buffer].dtype}
    scratch = next(
        i
        for i, b in enumerate(manifest.buffers)
        if b.buffer_class is BufferClass.WORKSPACE and b.dtype in kinds and b.name != "logits"
    )
    return replace(
        launch,
        operands=tuple(
            replace(o, buffer=scratch) if o is not None and o.buffer == buffer else o
            for o in launch.operands
        ),
    )

"""Structure of the recorded programs, against what the architecture says, counted by hand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from helios.contract.enums import AccessMode
from helios.kernels.catalogue import ActivationFormat
from helios.runtime.manifest_checks import check_manifest
from helios.runtime.manifest_decoder import decode_manifest
from helios.schema import execution_pb2 as pb
from ignition.preparation.extents import SCORED_ROWS
from ignition.preparation.quantisation import WeightStorage
from tests.checkpoints import TOKENS, VARIANTS
from tests.ignition.conftest import EXTENTS, Captured

Capture = Callable[..., Captured]

LAYER = [
    "rms_norm",
    "linear",
    "rope_and_cache",
    "attention",
    "linear",
    "rms_norm",
    "linear_silu_mul",
    "linear",
]
ATTENDING = 5  # launches from a layer's attention on
ADMISSION = ["initialize_requests", "initialize_sampling", "scatter_i32", "scatter_i32"]


@pytest.mark.parametrize("storage", [s for s in WeightStorage if s is not WeightStorage.FP8])
@pytest.mark.parametrize("variant", list(VARIANTS))
def test_the_runtime_accepts_manifest_and_contract(
    captured: Capture, variant: str, storage: WeightStorage
) -> None:
    found = captured(variant, storage)
    check_manifest(decode_manifest(found.manifest), found.contract)


@pytest.mark.parametrize("variant", list(VARIANTS))
def test_the_launches_are_those_of_the_architecture(captured: Capture, variant: str) -> None:
    found = captured(variant)
    layers = VARIANTS[variant].layers * LAYER
    # What the last layer caches is of all rows, what it computes of those that sample.
    selecting = [*layers[:-ATTENDING], "select_attending", *layers[-ATTENDING:]]
    tail = ["rms_norm", "linear", "sample_processed", "count_sampled", "commit"]
    assert found.kernels("initialize.b3") == ADMISSION
    for packed in EXTENTS.prefill:
        assert found.kernels(f"prefill.p{packed}") == [
            "scatter_i32",
            "embed",
            *selecting,
            *tail,
        ]
    for lanes in EXTENTS.decode:
        assert found.kernels(f"decode.b{lanes}") == [
            "scatter_i32",
            "load_pending",
            "embed",
            *layers,
            *tail,
        ]
    assert found.kernels("mixed.b3p40") == [
        "scatter_i32",
        "merge_pending",
        "embed",
        *selecting,
        *tail,
    ]
    for packed in EXTENTS.scored_prefill:
        parts = -(-packed // SCORED_ROWS)
        assert found.kernels(f"scored_prefill.p{packed}") == [
            "scatter_i32",
            "embed",
            *layers,
            *(parts * ["slice_rows", "rms_norm", "linear", "score_ranked"]),
            "select_last",
            *tail,
        ]


@pytest.mark.parametrize("variant", list(VARIANTS))
@pytest.mark.parametrize(
    ("program", "lanes"), [("prefill.p2", 2), ("prefill.p40", 3), ("mixed.b3p40", 3)]
)
def test_rows_that_nobody_samples_end_in_the_last_layer_s_cache(
    captured: Capture, variant: str, program: str, lanes: int
) -> None:
    found = captured(variant)
    (selection,) = found.launches(program, "select_attending")
    selected = found.operands(selection)
    joint = found.buffer(f"{program}/qkv")
    assert found.attributes(selection)["elements"] == joint.shape[-1]
    *others, last = found.launches(program, "attention")
    operands = found.operands(last)
    assert operands["rows"] == selected["selected_rows"]
    assert operands["qkv"] == selected["out_queries"]
    assert operands["positions"] == selected["out_positions"]
    assert operands["slot"] == selected["out_slot"]
    assert found.attributes(last)["capacity"] == lanes
    # And everything after it: the output projection is added to the selected rows.
    output, down, head = map(found.operands, found.launches(program, "linear")[-3:])
    assert output["out"] == down["out"] == selected["out"]
    assert {o["rows"] for o in (output, down, head)} == {selected["selected_rows"]}
    packed = found.program(program).packed_token_capacity
    assert {found.attributes(other)["capacity"] for other in others} <= {packed}


@pytest.mark.parametrize("variant", list(VARIANTS))
def test_pages_are_copied_plane_by_plane(captured: Capture, variant: str) -> None:
    found, planes = captured(variant), 2 * VARIANTS[variant].layers
    admit = ["scatter_i32", *ADMISSION, *(planes * ["load_page"])]
    for lanes in EXTENTS.restore:
        assert found.kernels(f"restore.b{lanes}") == admit
        assert found.kernels(f"resume.b{lanes}") == [*admit, "set_pending"]
        assert found.kernels(f"snapshot.b{lanes}") == planes * ["save_page"]
        for program, kernel in ((f"restore.b{lanes}", "load_page"),
                                (f"snapshot.b{lanes}", "save_page")):  # fmt: skip
            launches = found.launches(program, kernel)
            copied = [(o["plane"], o["saved"]) for o in map(found.operands, launches)]
            assert copied == [
                (f"cache.{kind}.{layer}", f"saved.{kind}.{layer}")
                for layer in range(VARIANTS[variant].layers)
                for kind in "kv"
            ]
            plane = found.buffer("cache.k.0")
            for attributes in map(found.attributes, launches):
                assert attributes["elements"] * 2 == plane.nbytes
                assert attributes["dtype"] == plane.dtype


def test_scored_rows_take_no_more_logits_than_sampling_needs(captured: Capture) -> None:
    """The head runs over a part of the rows at a time; parts cover all of them, one by one."""
    found = captured("llama")
    assert found.buffer("logits").shape[0] == SCORED_ROWS
    program = found.program("scored_prefill.p70")
    names = found.manifest.kernels
    heads = [x for x in program.launches if names[x.kernel].name == "rms_norm"]
    x, parts = found.buffer("scored_prefill.p70/x"), []
    for launch, norm in zip(
        found.launches("scored_prefill.p70", "score_ranked"), heads[-4:], strict=False
    ):
        rows = found.attributes(launch)["capacity"]
        by_row = [launch.operands[place].byte_offset for place in (1, 2, 4, 5)]
        top_tokens, top_logprobs = launch.operands[6:]
        start, rest = divmod(norm.operands[1].byte_offset, x.nbytes // 70)
        assert rest == 0
        assert set(by_row) == {4 * start}
        assert top_tokens.byte_offset == top_logprobs.byte_offset == 80 * start
        parts.append((start, rows))
    assert parts == [(0, 32), (32, 32), (64, 6)]
    sliced = [found.attributes(x) for x in found.launches("scored_prefill.p70", "slice_rows")]
    assert [(a["start"], a["limit"]) for a in sliced] == parts


def test_programs_have_their_extents(captured: Capture) -> None:
    extents = {
        p.name: (p.batch_capacity, p.draft_tokens, p.token_capacity, p.packed_token_capacity)
        for p in captured("llama").manifest.programs
    }
    assert extents == {
        "initialize.b3": (3, 0, 0, 0),
        "prefill.p2": (2, 0, 1, 2),
        "prefill.p40": (3, 0, 1, 40),
        "decode.b1": (1, 0, 1, 1),
        "decode.b3": (3, 0, 1, 3),
        "mixed.b3p40": (3, 0, 1, 40),
        "scored_prefill.p2": (2, 0, 1, 2),
        "scored_prefill.p70": (3, 0, 1, 70),
        "restore.b1": (1, 0, 0, 0),
        "resume.b1": (1, 0, 0, 0),
        "snapshot.b1": (1, 0, 0, 0),
        "restore.b3": (3, 0, 0, 0),
        "resume.b3": (3, 0, 0, 0),
        "snapshot.b3": (3, 0, 0, 0),
    }


@pytest.mark.parametrize("variant", list(VARIANTS))
def test_projections_have_the_model_s_dimensions(captured: Capture, variant: str) -> None:
    v = VARIANTS[variant]
    found = captured(variant)
    launches = found.launches("decode.b3", "linear")
    widths = [(a["width"], a["outputs"], a["accumulate"]) for a in map(found.attributes, launches)]
    layer = [
        (v.hidden, (v.heads + 2 * v.kv_heads) * v.head_dim, 0),
        (v.heads * v.head_dim, v.hidden, 1),
        (v.intermediate, v.hidden, 1),
    ]
    assert widths == [*(v.layers * layer), (v.hidden, v.vocabulary, 0)]
    gated = [found.attributes(x) for x in found.launches("decode.b3", "linear_silu_mul")]
    assert {(a["width"], a["outputs"]) for a in gated} == {(v.hidden, v.intermediate)}
    assert len(gated) == v.layers


@pytest.mark.parametrize("variant", list(VARIANTS))
def test_variants_differ_where_they_should(captured: Capture, variant: str) -> None:
    v = VARIANTS[variant]
    found = captured(variant)
    qkv = [
        found.operands(x)
        for x in found.launches("prefill.p40", "linear")
        if ".qkv" in found.operands(x)["weight"]
    ]
    assert len(qkv) == v.layers
    assert all(("bias" in operands) == v.biases for operands in qkv)
    rope = [found.operands(x) for x in found.launches("prefill.p40", "rope_and_cache")]
    assert all(("q_norm" in operands) == v.norms for operands in rope)
    assert all(("k_norm" in operands) == v.norms for operands in rope)
    attention = [found.attributes(x) for x in found.launches("prefill.p40", "attention")]
    assert {a["window"] for a in attention} == {v.sliding_window or 0}
    assert all(a["scale"] == pytest.approx(v.head_dim**-0.5) for a in attention)
    head = found.operands(found.launches("decode.b1", "linear")[-1])["weight"]
    embedding = found.operands(found.launches("decode.b1", "embed")[0])["table"]
    assert (head == embedding) == v.tied


def test_each_layer_has_its_own_planes_and_weights(captured: Capture) -> None:
    found = captured("smollm")
    for kernel in ("rope_and_cache", "attention"):
        planes = [
            (o["k_plane"], o["v_plane"])
            for o in map(found.operands, found.launches("decode.b1", kernel))
        ]
        assert planes == [(f"cache.k.{i}", f"cache.v.{i}") for i in range(3)]
    used = Counter(
        name
        for launch in found.program("decode.b1").launches
        for name in found.operands(launch).values()
        if found.buffer(name).buffer_class == pb.BUFFER_CLASS_WEIGHT
    )
    # Tied: the embedding serves twice; the rope table once a layer.
    assert used.pop("embedding") == 2
    assert used.pop("inverse_frequency") == 3
    assert set(used.values()) == {1}
    declared = {b.name for b in found.manifest.buffers if b.buffer_class == pb.BUFFER_CLASS_WEIGHT}
    assert declared == {*used, "embedding", "inverse_frequency"}


@pytest.mark.parametrize(
    ("storage", "qkv", "inner", "down", "head"),
    [
        (WeightStorage.BF16, "BF16", "BF16", "BF16", "F32"),
        (WeightStorage.INT8, "Q16", "Q8", "Q8", "Q16"),
        # The variant's down projection is 96 wide, which leaves a block without its pair.
        (WeightStorage.INT4, "Q8_PAIRS", "Q8_PAIRS", "Q8", "Q16"),
    ],
)
def test_producers_write_what_their_consumer_reads(
    captured: Capture, storage: WeightStorage, qkv: str, inner: str, down: str, head: str
) -> None:
    found = captured("qwen3", storage)
    seen: dict[str, set[str]] = {}
    for program in ("prefill.p40", "decode.b3"):
        written: dict[str, float] = {}
        for launch in found.program(program).launches:
            kernel = found.manifest.kernels[launch.kernel].name
            operands, attributes = found.operands(launch), found.attributes(launch)
            if kernel in ("rms_norm", "attention", "attention_bf16"):
                written[operands["out"]] = attributes["format"]
            elif kernel in ("linear", "linear_silu_mul"):
                assert written[operands["x"]] == attributes["format"]
                weight = operands["weight"].rpartition(".")[2]
                seen.setdefault(weight, set()).add(ActivationFormat(int(attributes["format"])).name)
            if kernel == "linear_silu_mul":
                written[operands["out"]] = attributes["out_format"]
    assert seen == {
        "qkv": {qkv},
        "output": {inner},
        "gate_up": {inner},
        "down": {down},
        "head": {head},
    }


def test_int4_keeps_embedding_and_head_in_8_bits(captured: Capture) -> None:
    found = captured("llama", WeightStorage.INT4)
    packings = {
        buffer.name: buffer.packing
        for buffer in found.manifest.buffers
        if buffer.packing != pb.PACKING_PLAIN
    }
    assert packings.pop("embedding") == pb.PACKING_TILE16_Q8_0
    assert packings.pop("head") == pb.PACKING_TILE16_Q8_0
    # The variant's down projection is 96 wide, and attention writes 32 elements at a time: blocks
    # without a pair.
    alone = {"output", "down"}
    for name, packing in packings.items():
        pairs = name.rpartition(".")[2] not in alone
        assert packing == (pb.PACKING_TILE16_Q4_PAIRS if pairs else pb.PACKING_TILE16_Q4_1), name
    assert found.buffer("final_norm").dtype == pb.DTYPE_F32


def test_logits_stay_readable_after_a_round(captured: Capture) -> None:
    """One buffer for all programs, sized for the most lanes; nothing written after the head may
    lie on it."""
    found = captured("llama")
    logits = found.buffer("logits")
    assert list(logits.shape) == [SCORED_ROWS, VARIANTS["llama"].vocabulary]
    sampling = [p for p in found.manifest.programs if p.completion]
    assert len(sampling) == 7
    for program in sampling:
        written = [found.operands(launch) for launch in program.launches]
        head = max(i for i, o in enumerate(written) if o.get("out") == "logits")
        for operands in written[head + 1 :]:
            for operand in ("tokens", "logprobs"):
                if operand not in operands:
                    continue
                other = found.buffer(operands[operand])
                if other.buffer_class == pb.BUFFER_CLASS_WORKSPACE:
                    assert (
                        other.offset + other.nbytes <= logits.offset
                        or logits.offset + logits.nbytes <= other.offset
                    )


@pytest.mark.parametrize("storage", [WeightStorage.BF16, WeightStorage.INT4])
@pytest.mark.parametrize("variant", list(VARIANTS))
def test_what_a_launch_reads_still_lies_where_it_was_written(
    captured: Capture, variant: str, storage: WeightStorage
) -> None:
    """Replays each program's accesses over an arena that remembers who wrote each 64 bytes."""
    found = captured(variant, storage)
    for program in found.manifest.programs:
        owner: list[str] = [""] * (found.manifest.workspace_nbytes // 64)
        for launch in program.launches:
            names = found.manifest.kernels[launch.kernel].operands
            uses = [
                (found.manifest.buffers[o.buffer - 1], o.access, name)
                for o, name in zip(launch.operands, names, strict=True)
                if o.buffer
            ]
            scratch = [u for u in uses if u[0].buffer_class == pb.BUFFER_CLASS_WORKSPACE]
            fresh = found.attributes(launch).get("accumulate") == 0
            for buffer, access, operand in scratch:
                blocks = slice(buffer.offset // 64, -(-(buffer.offset + buffer.nbytes) // 64))
                if AccessMode(access).reads and not (fresh and operand == "out"):
                    assert set(owner[blocks]) == {buffer.name}, (program.name, operand)
            for buffer, access, _ in scratch:
                if AccessMode(access).writes:
                    blocks = slice(buffer.offset // 64, -(-(buffer.offset + buffer.nbytes) // 64))
                    owner[blocks] = [buffer.name] * len(owner[blocks])


def test_workspace_is_shared_by_programs_and_layers(captured: Capture) -> None:
    found = captured("smollm")
    workspace = [b for b in found.manifest.buffers if b.buffer_class == pb.BUFFER_CLASS_WORKSPACE]
    largest = sum(b.nbytes for b in workspace if b.name.startswith("scored_prefill.p70/"))
    assert found.manifest.workspace_nbytes < largest + found.buffer("logits").nbytes
    assert all(b.offset + b.nbytes <= found.manifest.workspace_nbytes for b in workspace)
    assert all(b.offset % 64 == 0 for b in workspace)


def test_buffers_follow_the_conventions(captured: Capture) -> None:
    found = captured("qwen3")
    v, pages = VARIANTS["qwen3"], 4  # 100 tokens
    state, table = found.buffer("request_state"), found.buffer("page_table")
    assert (state.dtype, list(state.shape), state.nbytes) == (pb.DTYPE_U8, [128], 128)
    assert (table.dtype, list(table.shape)) == (pb.DTYPE_I32, [pages])
    assert {state.leading, table.leading} == {pb.LEADING_COUNT_REQUEST_SLOTS}
    keys, values = found.buffer("cache.k.0"), found.buffer("cache.v.0")
    assert list(keys.shape) == [v.kv_heads, v.head_dim, 32]
    assert list(values.shape) == [v.kv_heads, 32, v.head_dim]
    assert {keys.dtype, values.dtype} == {pb.DTYPE_F16}
    assert {keys.leading, values.leading} == {pb.LEADING_COUNT_CACHE_PAGES}
    for plane in (keys, values):
        saved = found.buffer(f"saved.{plane.name.removeprefix('cache.')}")
        assert (saved.dtype, saved.shape, saved.nbytes) == (plane.dtype, plane.shape, plane.nbytes)
        assert saved.buffer_class == pb.BUFFER_CLASS_CACHE
        assert saved.leading == pb.LEADING_COUNT_SNAPSHOT_ROWS
    shapes = {
        b.name: (pb.DType.Name(b.dtype), list(b.shape))
        for b in found.manifest.buffers
        if b.buffer_class in (pb.BUFFER_CLASS_INPUT, pb.BUFFER_CLASS_COMPLETION)
    }
    i32, f32 = "DTYPE_I32", "DTYPE_F32"
    histograms = {
        f"in.{name}.{part}": (i32, [entries])
        for name in ("token_counts", "output_counts")
        for part, entries in (("count", 1), ("index", 3 * 100), ("value", 3 * 100))
    }
    assert shapes == {
        **histograms,
        **{f"in.{name}": (i32, [3]) for name in ("min_tokens", "top_logprobs")},
        **{f"in.{name}_penalty": (f32, [3]) for name in ("repetition", "presence", "frequency")},
        "in.stop_ids": (i32, [3, 64]),
        "in.bias_tokens": (i32, [3, 512]),
        "in.bias": (f32, [3, 512]),
        "in.bad_words": (i32, [3, 1024]),
        "in.recent": (i32, [3, 32]),
        "in.mask": ("DTYPE_U32", [3, -(-TOKENS // 32)]),
        "in.grammar_mask": ("DTYPE_U32", [3, -(-TOKENS // 32)]),
        "completion.top_tokens": (i32, [3, 20]),
        "completion.top_logprobs": (f32, [3, 20]),
        **{f"in.{name}": (i32, [1]) for name in ("live_rows", "live_tokens", "decode_lanes")},
        **{
            f"in.{name}": (i32, [3])
            for name in ("slot", "generation", "query_length", "sample", "consumed", "emitted")
        },
        **{f"in.{name}": (i32, [3]) for name in ("output_limit", "top_k")},
        **{f"in.{name}": (f32, [3]) for name in ("temperature", "top_p", "min_p")},
        **{f"in.{name}": (i32, [3]) for name in ("restore_row", "snapshot_row", "pending_token")},
        **{f"in.{name}": (i32, [70]) for name in ("tokens", "positions", "token_slot", "targets")},
        "in.scored_top_logprobs": (i32, [70]),
        "in.seed": ("DTYPE_U32", [3, 2]),
        "in.eos_ids": (i32, [3, 16]),
        "in.page_table.count": (i32, [1]),
        "in.page_table.index": (i32, [3 * pages]),
        "in.page_table.value": (i32, [3 * pages]),
        "completion.lanes": (i32, [3, 12]),
        "completion.tokens": (i32, [3, 1]),
        "completion.logprobs": (f32, [3, 1]),
        "completion.scores": (f32, [70]),
        "completion.score_ranks": (i32, [70]),
        "completion.score_top_tokens": (i32, [70, 20]),
        "completion.score_top_logprobs": (f32, [70, 20]),
    }

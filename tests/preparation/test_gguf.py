"""GGUF files: every variant and storage read back bit-exact, and every fault named."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ignition.preparation.checkpoints import open_checkpoint
from ignition.preparation.checkpoints.checkpoint import (
    GenerationDefaults,
    LinearRopeScaling,
    RopeFrequencyDivisors,
    TemplateTokens,
)
from ignition.preparation.checkpoints.gguf_file import read_gguf
from ignition.preparation.checkpoints.rope import inverse_frequencies
from ignition.preparation.checkpoints.tensor_names import (
    gguf_name,
    hugging_face_name,
    tensor_shapes,
)
from ignition.preparation.errors import CheckpointError
from ignition.preparation.packing import CODE_ROWS, Storage
from ignition.preparation.quantisation import WeightStorage, store_as
from tests.checkpoints import (
    CHAT_TEMPLATE,
    VARIANTS,
    Variant,
    llama3_divisors,
    weights,
    wide,
    write_gguf,
    write_huggingface,
)
from tests.smollm2 import require_gguf

from .damage import opens_or_is_refused, read_everything

STORAGES = [storage.value for storage in Storage if storage not in CODE_ROWS]


def _variant(name: str, storage: str) -> Variant:
    return wide(name) if storage == "Q6_K" else VARIANTS[name]


@pytest.mark.parametrize("name", VARIANTS)
def test_parameters_are_those_of_the_folder(tmp_path: Path, name: str) -> None:
    """Except what GGUF states otherwise: epsilon as float32, Llama 3's scaling as divisors."""
    ours = open_checkpoint(write_gguf(tmp_path / "tiny.gguf", name))
    folder = open_checkpoint(write_huggingface(tmp_path / "folder", name))
    expected = dict(vars(folder.parameters))
    if name == "llama":
        expected["rope_scaling"] = RopeFrequencyDivisors(
            tuple(llama3_divisors(VARIANTS[name]).tolist())
        )
    expected["rms_epsilon"] = float(np.float32(1e-5))
    assert vars(ours.parameters) == expected
    # Mistral's GGUF files are llama files.
    family = "LlamaForCausalLM" if name == "mistral" else folder.family
    assert ours.family == family
    assert np.allclose(
        inverse_frequencies(ours.parameters), inverse_frequencies(folder.parameters), rtol=1e-6
    )


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("name", VARIANTS)
def test_tensors_are_those_of_the_gguf_package(tmp_path: Path, name: str, storage: str) -> None:
    """Bit for bit as the file has them, once the query and key rows are back in place."""
    path = write_gguf(tmp_path / "tiny.gguf", _variant(name, storage), storage=storage)
    checkpoint = open_checkpoint(path)
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    p = checkpoint.parameters
    for canonical, shape in tensor_shapes(p).items():
        stored = tensors[gguf_name(canonical)]
        values = gguf.quants.dequantize(stored.data, stored.tensor_type).reshape(shape)
        part = canonical.rpartition(".")[2]
        if checkpoint.family == "LlamaForCausalLM" and part in ("query", "key"):
            values = _split_halves(values, p.head_dim)
        if len(shape) == 1:
            assert np.array_equal(checkpoint.vector(canonical), values)
        else:
            matrix = checkpoint.matrix(canonical)
            assert matrix.storage.value == stored.tensor_type.name
            assert np.array_equal(matrix.dequantise(), values)


def _split_halves(rows: np.ndarray, head_dim: int) -> np.ndarray:
    """Moves row 2 i + h of each head to row h · D/2 + i, one by one."""
    result = np.empty_like(rows)
    for row in range(rows.shape[0]):
        head, inside = divmod(row, head_dim)
        pair, half = divmod(inside, 2)
        result[head * head_dim + half * (head_dim // 2) + pair] = rows[row]
    return result


@pytest.mark.parametrize("name", VARIANTS)
def test_plain_files_hold_the_folder_s_weights(tmp_path: Path, name: str) -> None:
    """The writer of test files permutes as llama.cpp's converter does; reading undoes it."""
    checkpoint = open_checkpoint(write_gguf(tmp_path / "tiny.gguf", name, storage="BF16"))
    written = weights(VARIANTS[name])
    for canonical, shape in tensor_shapes(checkpoint.parameters).items():
        expected = written[hugging_face_name(canonical)]
        if len(shape) == 1:
            assert np.array_equal(checkpoint.vector(canonical), expected)
        else:
            assert np.array_equal(checkpoint.matrix(canonical).dequantise(), expected)


def test_biases_of_llama_files_are_permuted_with_their_rows(tmp_path: Path) -> None:
    def add_biases(writer: gguf.GGUFWriter) -> None:
        for layer in range(2):
            for part, rows in (("q", 64), ("k", 32), ("v", 32)):
                writer.add_tensor(f"blk.{layer}.attn_{part}.bias", np.arange(rows, dtype="f4"))

    checkpoint = open_checkpoint(write_gguf(tmp_path / "x.gguf", "llama", edit=add_biases))
    assert checkpoint.parameters.attention_biases
    halves = [*range(0, 16, 2), *range(1, 16, 2)]
    assert checkpoint.vector("layers.0.key_bias")[:16].tolist() == halves
    assert checkpoint.vector("layers.0.value_bias").tolist() == [*range(32)]


def test_frontend_metadata(tmp_path: Path) -> None:
    def add(writer: gguf.GGUFWriter) -> None:
        writer.add_eot_token_id(0)
        writer.add_float32("general.sampling.temp", 0.5)
        writer.add_int32("general.sampling.top_k", 20)

    path = write_gguf(tmp_path / "tiny.gguf", "smollm", edit=add)
    checkpoint = open_checkpoint(path)
    assert checkpoint.chat_template() == CHAT_TEMPLATE
    assert checkpoint.eos_ids == (0, 2)
    assert checkpoint.generation_defaults == GenerationDefaults(temperature=0.5, top_k=20)
    assert checkpoint.template_tokens == TemplateTokens(
        "<|im_start|>", "<|im_end|>", "<|im_end|>", "<|endoftext|>", False
    )
    (source,) = checkpoint.sources
    assert (source.name, source.nbytes) == ("tiny.gguf", path.stat().st_size)


def test_smollm2_is_read_and_dequantised_as_the_gguf_package_does() -> None:
    path = require_gguf()
    checkpoint = open_checkpoint(path)
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    for canonical in ("layers.3.down", "layers.29.value", "layers.0.output"):
        stored = tensors[gguf_name(canonical)]
        values = gguf.quants.dequantize(stored.data, stored.tensor_type)
        matrix = checkpoint.matrix(canonical)
        assert np.array_equal(matrix.dequantise(), values)
        assert store_as(matrix, WeightStorage.AS_STORED).row_bytes.tobytes() == (
            stored.data.tobytes()
        )
    stored = tensors["blk.7.attn_q.weight"]
    values = gguf.quants.dequantize(stored.data, stored.tensor_type)
    assert np.array_equal(
        checkpoint.matrix("layers.7.query").dequantise(), _split_halves(values, 64)
    )
    assert checkpoint.eos_ids == (2,)


def test_linear_scaling(tmp_path: Path) -> None:
    def add(writer: gguf.GGUFWriter) -> None:
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(4.0)

    path = write_gguf(tmp_path / "tiny.gguf", "smollm", edit=add)
    assert open_checkpoint(path).parameters.rope_scaling == LinearRopeScaling(4.0)
    both = write_gguf(tmp_path / "both.gguf", "llama", edit=add)
    with pytest.raises(CheckpointError, match="no other rope scaling"):
        open_checkpoint(both)


Edit = Callable[[gguf.GGUFWriter], None]


@pytest.mark.parametrize(
    ("variant", "edit", "message"),
    [
        ("smollm", lambda w: w.add_expert_count(8), "`llama.expert_count` is 8"),
        ("smollm", lambda w: w.add_uint16("split.count", 3), "`split.count` is 3"),
        (
            "smollm",
            lambda w: w.add_rope_scaling_type(gguf.RopeScalingType.YARN),
            "`llama.rope.scaling.type` is 'yarn'",
        ),
        (
            "smollm",
            lambda w: w.add_tensor("blk.0.attn_qkv.weight", np.zeros(4, "f4")),
            "`blk.0.attn_qkv.weight` has no place",
        ),
        (
            "smollm",
            lambda w: w.add_tensor("blk.0.attn_q_norm.weight", np.zeros(16, "f4")),
            "`blk.0.attn_q_norm.weight` has no place",
        ),
        (
            "smollm",
            lambda w: w.add_tensor("rope_freqs.weight", np.zeros(8, "f4")),
            "must hold 8 positive divisors",
        ),
        (
            "smollm",
            lambda w: w.add_tensor(
                "extra", np.zeros((4, 22), np.uint8), raw_dtype=gguf.GGMLQuantizationType.Q5_0
            ),
            "`extra` is stored as Q5_0",
        ),
        (
            "smollm",
            lambda w: w.add_tensor("extra", np.zeros(4, np.int8)),
            "`extra` is stored as GGML type 24",
        ),
    ],
)
def test_what_is_not_supported_is_named(
    tmp_path: Path, variant: str, edit: Edit, message: str
) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", variant, edit=edit)
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(path)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("general.architecture", "gpt2", "`general.architecture` is 'gpt2'"),
        ("llama.block_count", None, "`llama.block_count` is missing"),
        ("llama.block_count", 4, "`blk.3.attn_norm.weight` is missing"),
        ("llama.embedding_length", 0, "`llama.embedding_length` is 0"),
        ("llama.feed_forward_length", "x", "`llama.feed_forward_length` must be an integer"),
        ("llama.attention.head_count", [4, 4], "`llama.attention.head_count` must be an integer"),
        ("llama.attention.head_count_kv", 3, "no divisor of 4 heads"),
        ("llama.attention.key_length", 15, "`llama.attention.value_length` is 16, not the 15"),
        ("llama.rope.dimension_count", 8, "`llama.rope.dimension_count` is 8, not the 16"),
        ("llama.rope.freq_base", 0.0, "`llama.rope.freq_base` is 0.0"),
        ("llama.attention.layer_norm_rms_epsilon", -1.0, "is -1.0, which is outside"),
        ("tokenizer.ggml.eos_token_id", None, "`tokenizer.ggml.eos_token_id` is missing"),
        ("tokenizer.chat_template", 3, "`tokenizer.chat_template` must be a string"),
        ("general.alignment", 48, "`general.alignment` is 48"),
        ("general.alignment", 1 << 40, "`general.alignment` is"),
    ],
)
def test_metadata_that_cannot_be_right_is_named(
    tmp_path: Path, field: str, value: object, message: str
) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", "smollm")
    _rewrite_field(path, field, value)
    with pytest.raises(CheckpointError, match=message):
        read_everything(path)


def _rewrite_field(path: Path, field: str, value: object) -> None:
    """Puts a field into the header (the reader's own order), or takes it out with None."""
    content = path.read_bytes()
    tensor_count, field_count = struct.unpack_from("<QQ", content, 8)
    reader = gguf.GGUFReader(path)
    old = reader.fields.get(field)
    parts = b"" if value is None else _text(field) + _value(value)
    start = end = 24
    if old is not None:
        start = int(old.offset)
        end = start + sum(part.nbytes for part in old.parts)
    elif value is None:
        raise AssertionError(f"{field} isn't there to be removed")
    field_count += (value is not None) - (old is not None)
    header_end = int(reader.data_offset)
    header = bytearray(content[8:24] + content[24:start] + parts + content[end:header_end])
    header[:16] = struct.pack("<QQ", tensor_count, field_count)
    # The header now ends elsewhere; tensors start at the next multiple of the alignment.
    used = _header_nbytes(reader) - (end - start) + len(parts)
    header = header[: used - 8]
    header += bytes(-used % 32)
    path.write_bytes(content[:8] + bytes(header) + content[header_end:])


def _header_nbytes(reader: gguf.GGUFReader) -> int:
    last = reader.tensors[-1].field
    return int(last.offset) + sum(part.nbytes for part in last.parts)


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def _value(value: object) -> bytes:
    if isinstance(value, str):
        return struct.pack("<I", 8) + _text(value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, int):
        return struct.pack("<IQ", 10, value)
    assert isinstance(value, list)
    return struct.pack("<IIQ", 9, 4, len(value)) + b"".join(struct.pack("<I", v) for v in value)


def _header(*, version: int = 3, tensors: int = 0, fields: int = 0, rest: bytes = b"") -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, fields) + rest


_HUGE = 1 << 60


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "ends inside its header, at byte 0"),
        (b"GGML" + bytes(20), "isn't a GGUF file"),
        (_header(version=1), "has GGUF version 1"),
        (_header(version=3 << 24), "is a big-endian GGUF file"),
        (_header(tensors=_HUGE), f"announces {_HUGE} tensors"),
        (_header(fields=_HUGE), f"announces {_HUGE} metadata fields"),
        (_header(fields=1), "ends inside its header"),
        (_header(fields=1, rest=struct.pack("<Q", _HUGE)), f"announces {_HUGE} bytes of text"),
        (_header(fields=1, rest=_text("a") + b"\x63\0\0\0"), "has the unknown type 99"),
        (_header(fields=2, rest=(_text("a") + _value(1)) * 2), "`a` occurs twice"),
        (
            _header(fields=1, rest=_text("a") + struct.pack("<IIQ", 9, 8, _HUGE)),
            f"announces {_HUGE} elements in `a`",
        ),
        (
            _header(fields=1, rest=_text("a") + struct.pack("<IIQ", 9, 10, 9) + bytes(64)),
            "ends inside its header",
        ),
        (_header(fields=1, rest=_text("a") + struct.pack("<IIQ", 9, 9, 0)), "array of type 9"),
        (_header(fields=1, rest=struct.pack("<Q", 1) + b"\xff"), "isn't UTF-8"),
        (_header(tensors=1, rest=_text("t") + struct.pack("<I", 9)), "has 9 dimensions"),
        (
            _header(tensors=1, rest=_text("t") + struct.pack("<IQIQ", 1, 8, 0, _HUGE)),
            "`t` ends at byte",
        ),
        (
            _header(tensors=1, rest=_text("t") + struct.pack("<IQQIQ", 2, _HUGE, _HUGE, 0, 0)),
            "no valid one",
        ),
        (_header(tensors=1, rest=_text("t") + struct.pack("<IQIQ", 1, 0, 0, 0)), "no valid one"),
        (_header(tensors=1, rest=_text("t") + struct.pack("<IIQ", 0, 0, 0)), "no valid one"),
        (
            _header(tensors=1, rest=_text("t") + struct.pack("<IQIQ", 1, 33, 8, 0)),
            "no whole number of Q8_0 blocks",
        ),
        (
            _header(
                tensors=2, rest=(_text("t") + struct.pack("<IQIQ", 1, 1, 0, 0)) * 2 + bytes(64)
            ),
            "tensor `t` occurs twice",
        ),
        (_header(), "`general.architecture` is missing"),
    ],
)
def test_hostile_headers_are_named(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "hostile.gguf"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(path)


@settings(max_examples=100, deadline=None)
@given(
    entries=st.lists(
        st.tuples(
            st.text(max_size=8).filter(lambda t: t != "general.alignment"),
            st.integers(0, 2**63 - 1)
            | st.text(max_size=8)
            | st.lists(st.integers(0, 99), max_size=3),
        ),
        unique_by=lambda entry: entry[0],
        max_size=5,
    )
)
def test_metadata_comes_back(tmp_path_factory: pytest.TempPathFactory, entries: list) -> None:
    path = tmp_path_factory.mktemp("metadata") / "x.gguf"
    rest = b"".join(_text(name) + _value(value) for name, value in entries)
    path.write_bytes(_header(fields=len(entries), rest=rest))
    metadata = read_gguf(path).metadata
    assert list(metadata) == [name for name, _ in entries]
    for name, value in entries:
        found = metadata[name]
        assert (found.tolist() if isinstance(found, np.ndarray) else found) == value


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return write_gguf(tmp_path_factory.mktemp("good") / "x.gguf", "smollm").read_bytes()


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_any_damage_is_refused_or_harmless(
    tmp_path: Path, good: bytes, data: st.DataObject
) -> None:
    damaged = bytearray(good)
    # The header holds the counts, lengths and offsets; half of the damage goes to its start.
    limit = data.draw(st.sampled_from([2000, len(good)]))
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, limit - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.none() | st.integers(0, len(good)))
    path = tmp_path / "damaged.gguf"
    path.write_bytes(bytes(damaged[:cut]))
    opens_or_is_refused(path)


def test_more_tokens_than_embedding_rows_are_refused(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "small.gguf", replace(VARIANTS["llama"], vocabulary=100))
    with pytest.raises(CheckpointError, match="lists 331 tokens, but the embedding has 100 rows"):
        open_checkpoint(path)

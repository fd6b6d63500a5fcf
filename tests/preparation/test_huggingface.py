"""Hugging Face folders: every variant read back, and every fault named."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, processors

from helios.frontend.template import ChatTemplate
from ignition.preparation.checkpoints import open_checkpoint
from ignition.preparation.checkpoints.checkpoint import (
    GenerationDefaults,
    LinearRopeScaling,
    Llama3RopeScaling,
    TemplateTokens,
)
from ignition.preparation.checkpoints.tensor_names import hugging_face_name, tensor_shapes
from ignition.preparation.errors import CheckpointError
from ignition.preparation.packing import Storage
from tests.checkpoints import (
    CHAT_TEMPLATE,
    VARIANTS,
    weights,
    write_huggingface,
    write_safetensors,
)

from .damage import edit_json, opens_or_is_refused, read_everything


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    return write_huggingface(tmp_path / "llama", "llama")


@pytest.mark.parametrize("name", VARIANTS)
def test_parameters_of_each_variant(tmp_path: Path, name: str) -> None:
    variant = VARIANTS[name]
    checkpoint = open_checkpoint(write_huggingface(tmp_path, variant))
    p = checkpoint.parameters
    assert checkpoint.family == variant.architecture
    assert (p.vocabulary, p.hidden, p.layers) == (variant.vocabulary, 64, variant.layers)
    assert (p.heads, p.kv_heads, p.head_dim) == (4, 2, variant.head_dim)
    assert (p.intermediate, p.context_tokens) == (variant.intermediate, 512)
    assert (p.rms_epsilon, p.rope_theta) == (1e-5, variant.rope_theta)
    assert p.sliding_window == variant.sliding_window
    assert p.attention_biases == (name == "qwen2")
    assert not p.output_bias
    assert p.query_key_norms == (name == "qwen3")
    assert p.tied_embeddings == variant.tied
    expected = Llama3RopeScaling(8.0, 1.0, 4.0, 128) if name == "llama" else None
    assert p.rope_scaling == expected


@pytest.mark.parametrize("name", VARIANTS)
def test_transformers_5_configurations_say_the_same(tmp_path: Path, name: str) -> None:
    old = write_huggingface(tmp_path / "old", name)
    new = write_huggingface(tmp_path / "new", name, rope_parameters=True)
    assert open_checkpoint(new).parameters == open_checkpoint(old).parameters


@pytest.mark.parametrize("dtype", ["BF16", "F16", "F32"])
@pytest.mark.parametrize("name", VARIANTS)
def test_tensors_are_those_written(tmp_path: Path, name: str, dtype: str) -> None:
    shards = 3 if dtype == "BF16" else 1
    checkpoint = open_checkpoint(write_huggingface(tmp_path, name, dtype=dtype, shards=shards))
    written = weights(VARIANTS[name])
    shapes = tensor_shapes(checkpoint.parameters)
    assert {hugging_face_name(canonical) for canonical in shapes} == set(written)
    for canonical, shape in shapes.items():
        expected = written[hugging_face_name(canonical)]
        if dtype == "F16":
            expected = expected.astype(np.float16).astype(np.float32)
        if len(shape) == 1:
            assert np.array_equal(checkpoint.vector(canonical), expected)
        else:
            matrix = checkpoint.matrix(canonical)
            assert matrix.storage is Storage[dtype]
            assert np.array_equal(matrix.dequantise(), expected)


def test_frontend_files(llama: Path) -> None:
    checkpoint = open_checkpoint(llama)
    assert checkpoint.tokenizer_json() == (llama / "tokenizer.json").read_bytes()
    assert checkpoint.chat_template() == CHAT_TEMPLATE
    assert checkpoint.eos_ids == (0, 2)
    assert checkpoint.generation_defaults == GenerationDefaults(temperature=0.7, top_p=0.9)
    assert checkpoint.template_tokens == TemplateTokens(
        "<|im_start|>", "<|im_end|>", "<|im_end|>", "<|endoftext|>", False
    )


def test_a_template_file_goes_before_the_tokenizer_configuration(llama: Path) -> None:
    (llama / "chat_template.jinja").write_text("from a file: {{ messages }}")
    assert open_checkpoint(llama).chat_template() == "from a file: {{ messages }}"


def test_of_several_templates_the_default_is_taken(llama: Path) -> None:
    templates = [{"name": "tool", "template": "T"}, {"name": "default", "template": "D"}]
    edit_json(llama / "tokenizer_config.json", lambda c: c.update(chat_template=templates))
    assert open_checkpoint(llama).chat_template() == "D"
    edit_json(llama / "tokenizer_config.json", lambda c: c.update(chat_template=templates[:1]))
    with pytest.raises(CheckpointError, match="`default` is missing"):
        open_checkpoint(llama).chat_template()


@pytest.mark.parametrize("stored", ["config", "files"])
def test_a_template_for_tools_renders_conversations_with_tools(llama: Path, stored: str) -> None:
    by_name = {
        "default": "\n  {% for m in messages %}[{{ m.content }}]\n  {% endfor %} \n",
        "tool_use": "\n {% set x = 1 %}\n {{ tools | length }}{{ x }} \n\n",
    }
    if stored == "config":
        templates = [{"name": name, "template": source} for name, source in by_name.items()]
        edit_json(llama / "tokenizer_config.json", lambda c: c.update(chat_template=templates))
    else:
        (llama / "chat_template.jinja").write_text(by_name["default"])
        (llama / "additional_chat_templates").mkdir()
        (llama / "additional_chat_templates" / "tool_use.jinja").write_text(by_name["tool_use"])
    found = open_checkpoint(llama).chat_template()
    assert found is not None
    asked = [{"role": "user", "content": "q"}]
    for tools, name in ((None, "default"), ([{}], "tool_use")):
        expected = ChatTemplate(by_name[name], {}).render(asked, tools=tools)
        assert ChatTemplate(found, {}).render(asked, tools=tools) == expected


def test_a_checkpoint_may_lack_template_and_generation_defaults(llama: Path) -> None:
    (llama / "generation_config.json").unlink()
    (llama / "tokenizer_config.json").unlink()
    checkpoint = open_checkpoint(llama)
    assert checkpoint.chat_template() is None
    assert checkpoint.eos_ids == (2,)
    assert checkpoint.generation_defaults == GenerationDefaults()
    assert checkpoint.template_tokens == TemplateTokens(None, None, None, None, False)


@pytest.mark.parametrize("adds", [True, False])
def test_without_the_flag_the_tokenizer_shows_whether_it_adds_bos(llama: Path, adds: bool) -> None:
    edit_json(llama / "tokenizer_config.json", lambda c: c.pop("add_bos_token"))
    if adds:
        path = str(llama / "tokenizer.json")
        tokenizer = Tokenizer.from_file(path)
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<|im_start|> $A", special_tokens=[("<|im_start|>", 1)]
        )
        tokenizer.save(path)
    assert open_checkpoint(llama).template_tokens.add_bos_token == adds


def test_sources_name_size_and_digest_every_file_read(tmp_path: Path) -> None:
    folder = write_huggingface(tmp_path, "smollm", shards=2)
    (folder / "notes.txt").write_text("not read")
    sources = open_checkpoint(folder).sources
    assert [source.name for source in sources] == sorted(
        path.name for path in folder.iterdir() if path.name != "notes.txt"
    )
    for source in sources:
        content = (folder / source.name).read_bytes()
        assert source.nbytes == len(content)
        assert source.sha256 == hashlib.sha256(content).digest()


def test_attention_biases_of_llama_are_on_all_four_projections(llama: Path) -> None:
    edit_json(llama / "config.json", lambda c: c.update(attention_bias=True))
    with pytest.raises(CheckpointError, match=r"q_proj\.bias` is missing"):
        open_checkpoint(llama)
    tensors = weights(VARIANTS["llama"])
    for layer in range(2):
        for part, rows in (("q", 64), ("k", 32), ("v", 32), ("o", 64)):
            bias = np.full(rows, 0.5, np.float32)
            tensors[f"model.layers.{layer}.self_attn.{part}_proj.bias"] = bias
    write_safetensors(llama / "model.safetensors", tensors, "F32")
    checkpoint = open_checkpoint(llama)
    assert checkpoint.parameters.attention_biases
    assert checkpoint.parameters.output_bias
    assert checkpoint.vector("layers.1.output_bias").tolist() == [0.5] * 64


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        ({"rope_scaling": {"type": "linear", "factor": 4.0}}, LinearRopeScaling(4.0)),
        ({"rope_scaling": {"rope_type": "default"}}, None),
        ({"rope_parameters": {"rope_type": "linear", "factor": 2}}, LinearRopeScaling(2.0)),
    ],
)
def test_rope_scalings(llama: Path, edit: dict[str, object], expected: object) -> None:
    edit_json(llama / "config.json", lambda c: c.update(edit))
    assert open_checkpoint(llama).parameters.rope_scaling == expected


@pytest.mark.parametrize(
    ("variant", "edit", "window"),
    [
        ("qwen2", {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": 0}, 9),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": 2}, None),
        ("qwen2", {"use_sliding_window": False, "sliding_window": 9}, None),
        ("mistral", {"sliding_window": None}, None),
        ("mistral", {"layer_types": ["full_attention"] * 2}, None),
        ("mistral", {"layer_types": ["sliding_attention"] * 2}, 24),
    ],
)
def test_windows(tmp_path: Path, variant: str, edit: dict[str, object], window: int | None) -> None:
    folder = write_huggingface(tmp_path, variant)
    edit_json(folder / "config.json", lambda c: c.update(edit))
    assert open_checkpoint(folder).parameters.sliding_window == window


LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ({"architectures": ["GPT2LMHeadModel"]}, r"`architectures` is \['GPT2LMHeadModel'\]"),
        ({"architectures": None}, "`architectures` is None"),
        ({"hidden_size": None}, "`hidden_size` is missing"),
        ({"hidden_size": "64"}, "`hidden_size` must be an integer, not '64'"),
        ({"hidden_size": True}, "`hidden_size` must be an integer, not True"),
        ({"hidden_size": 1 << 40}, "`hidden_size` is 1099511627776, which is outside"),
        ({"hidden_size": 96}, r"tensor `model.embed_tokens.weight` has shape \[331, 64\]"),
        ({"num_hidden_layers": 3}, r"tensor `model.layers.2.input_layernorm.weight` is missing"),
        ({"num_hidden_layers": 1}, r"tensor `model.layers.1.\S+` and 8 more has no place"),
        ({"num_key_value_heads": 3}, "no divisor of 4 heads"),
        ({"head_dim": 15}, "must be even"),
        ({"head_dim": None, "num_attention_heads": 5}, "num_key_value_heads` is 2, no divisor"),
        ({"rms_norm_eps": float("nan")}, "`rms_norm_eps` is nan"),
        ({"rms_norm_eps": "x" * 99}, r"must be a number, not 'x+\.\.\."),
        ({"hidden_act": "gelu"}, "`hidden_act` is 'gelu'"),
        ({"mlp_bias": True}, "`mlp_bias` is true"),
        ({"quantization_config": {}}, "`quantization_config` asks for quantised weights"),
        ({"partial_rotary_factor": 0.5}, "`partial_rotary_factor` is 0.5"),
        ({"rope_scaling": {"type": "yarn", "factor": 4}}, "`rope_type` is 'yarn'"),
        ({"rope_scaling": "linear"}, "`rope_scaling` must be an object"),
        ({"rope_scaling": LLAMA3}, "`original_max_position_embeddings` is missing"),
        (
            {"rope_scaling": {**LLAMA3, "high_freq_factor": 1.0}},
            "`high_freq_factor` is 1.0, not above",
        ),
        ({"rope_parameters": {"full_attention": {}}}, "differ by layer type"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "`partial_rotary_factor` is 0.5"),
    ],
)
def test_configurations_that_cannot_be_served_are_named(
    llama: Path, edit: dict[str, object], message: str
) -> None:
    edit_json(llama / "config.json", lambda c: c.update(edit))
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(llama)


@pytest.mark.parametrize(
    ("variant", "edit", "message"),
    [
        ("mistral", {"layer_types": ["full_attention", "sliding_attention"]}, "mix full and"),
        (
            "qwen3",
            {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": 1},
            "mix full and",
        ),
    ],
)
def test_layers_with_different_windows_are_refused(
    tmp_path: Path, variant: str, edit: dict[str, object], message: str
) -> None:
    folder = write_huggingface(tmp_path, variant)
    edit_json(folder / "config.json", lambda c: c.update(edit))
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(folder)


def test_mistral_must_state_its_window(tmp_path: Path) -> None:
    folder = write_huggingface(tmp_path, "mistral")
    edit_json(folder / "config.json", lambda c: c.pop("sliding_window"))
    with pytest.raises(CheckpointError, match="`sliding_window` is missing"):
        open_checkpoint(folder)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("config.json", b"{", "config.json: isn't valid JSON"),
        ("config.json", b"[" * 100_000, "config.json: isn't valid JSON"),
        ("config.json", b"\xff", "config.json: isn't valid JSON"),
        ("config.json", b"[]", "must hold a JSON object"),
        ("model.safetensors", b"", "too short"),
        ("model.safetensors", b"\xff" * 8, "announces a header of"),
        ("model.safetensors", b"\x02" + bytes(7) + b"[]", "must hold a JSON object"),
        ("model.safetensors", b"\x02" + bytes(7) + b"{}", "embed_tokens.weight` is missing"),
        ("tokenizer_config.json", b'{"bos_token": 3}', "`bos_token` must be a string"),
        ("tokenizer_config.json", b'{"bos_token": {}}', "`content` is missing"),
        ("tokenizer.json", b"{}", "tokenizer.json: isn't a tokenizer"),
        ("config.json", b'{"a": 1, "a": 2}', "'a' is there twice"),
        ("generation_config.json", b'{"eos_token_id": 331}', "holds 331, no id"),
        ("generation_config.json", b'{"eos_token_id": [true]}', "holds True, no id"),
        ("generation_config.json", b'{"temperature": -1}', "`temperature` is -1"),
        ("chat_template.jinja", b"\xff\xff", "isn't UTF-8"),
    ],
)
def test_damaged_files_are_named(llama: Path, file: str, content: bytes, message: str) -> None:
    edit_json(llama / "tokenizer_config.json", lambda c: c.pop("add_bos_token"))
    (llama / file).write_bytes(content)
    with pytest.raises(CheckpointError, match=message):
        read_everything(llama)


@pytest.mark.parametrize("file", ["config.json", "model.safetensors", "tokenizer.json"])
def test_missing_files_are_named(llama: Path, file: str) -> None:
    (llama / file).unlink()
    with pytest.raises(CheckpointError, match=f"{file}.* can't be read"):
        read_everything(llama)


@pytest.mark.parametrize(
    "edit",
    [
        lambda t: t["model"].update(unk_token=[]),
        lambda t: t["model"]["vocab"].pop("n"),
        lambda t: t["model"]["vocab"].update(n="a" * 5000),
        lambda t: t["model"]["vocab"].update(n=-1),
        lambda t: t["model"]["vocab"].update(n=1.5),
        lambda t: t["model"]["vocab"].update(n=1 << 40),
        lambda t: t["model"].update(merges=[1]),
        lambda t: t["model"].update(type="é"),
        lambda t: t["model"].update(fuse_unk=0),
        lambda t: t.update(model=None),
        lambda t: t.update(pre_tokenizer={}),
        lambda t: t.update(decoder=[]),
        lambda t: t["added_tokens"][0].update(id="1"),
        lambda t: t["added_tokens"][0].update(special=[]),
    ],
)
def test_a_damaged_tokenizer_is_refused_when_the_checkpoint_is_opened(
    llama: Path, edit: Callable[[dict[str, Any]], object]
) -> None:
    edit_json(llama / "tokenizer.json", edit)
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: isn't a tokenizer") as caught:
        open_checkpoint(llama)
    assert len(str(caught.value)) < 400


def test_token_ids_beyond_the_embedding_are_refused(llama: Path) -> None:
    edit_json(llama / "tokenizer.json", lambda t: t["model"]["vocab"].update(zzz=331))
    with pytest.raises(CheckpointError, match=r"token 'zzz' has the id 331.* has 331 rows"):
        open_checkpoint(llama)


def test_no_such_folder(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no such file or folder"):
        open_checkpoint(tmp_path / "nothing")


def test_end_of_sequence_must_be_known(llama: Path) -> None:
    edit_json(llama / "generation_config.json", lambda c: c.pop("eos_token_id"))
    edit_json(llama / "config.json", lambda c: c.pop("eos_token_id"))
    with pytest.raises(CheckpointError, match="`eos_token_id` is missing"):
        read_everything(llama)


@pytest.mark.parametrize("name", ["../other.safetensors", "/etc/passwd", "weights.bin"])
def test_an_index_does_not_lead_out_of_the_folder(tmp_path: Path, name: str) -> None:
    folder = write_huggingface(tmp_path, "smollm", shards=2)
    edit_json(
        folder / "model.safetensors.index.json",
        lambda c: c["weight_map"].update({"lm_head.weight": name}),
    )
    with pytest.raises(CheckpointError, match="no safetensors file of the folder"):
        open_checkpoint(folder)


def test_a_tensor_in_two_shards_is_refused(tmp_path: Path) -> None:
    folder = write_huggingface(tmp_path, "smollm", shards=2)
    write_safetensors(
        folder / "model-00002-of-00002.safetensors", weights(VARIANTS["smollm"]), "BF16"
    )
    with pytest.raises(CheckpointError, match="is also in model-00001-of-00002"):
        open_checkpoint(folder)


def edit_header(path: Path, edit: Callable[[dict[str, Any]], object], tail: bytes = b"") -> None:
    content = path.read_bytes()
    nbytes = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + nbytes])
    edit(header)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + nbytes :] + tail)


QUERIES = [f"model.layers.{layer}.self_attn.q_proj.weight" for layer in range(2)]


def test_tensors_that_share_bytes_are_refused(llama: Path) -> None:
    def share(header: dict[str, Any]) -> None:
        header[QUERIES[0]]["data_offsets"] = header[QUERIES[1]]["data_offsets"]

    edit_header(llama / "model.safetensors", share)
    with pytest.raises(CheckpointError, match=r"tensor `\S+` (overlaps|leaves \d+ bytes after)"):
        open_checkpoint(llama)


def test_tensors_must_follow_each_other(llama: Path) -> None:
    edit_header(llama / "model.safetensors", lambda header: header.pop(QUERIES[0]))
    with pytest.raises(CheckpointError, match=r"leaves 8192 bytes after `\S+`"):
        open_checkpoint(llama)


def test_bytes_after_the_last_tensor_are_refused(llama: Path) -> None:
    edit_header(llama / "model.safetensors", lambda header: None, b"junk")
    with pytest.raises(CheckpointError, match="has 4 bytes after its last tensor"):
        open_checkpoint(llama)


def test_a_tensor_named_twice_is_refused(llama: Path) -> None:
    path = llama / "model.safetensors"
    content = path.read_bytes()
    nbytes = int.from_bytes(content[:8], "little")
    header = content[8 : 8 + nbytes].rstrip()
    entry = json.dumps({QUERIES[0]: json.loads(header)[QUERIES[1]]})
    text = header[:-1] + b"," + entry[1:].encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + nbytes :])
    with pytest.raises(CheckpointError, match=f"'{QUERIES[0]}' is there twice"):
        open_checkpoint(llama)


def test_an_unknown_dtype_of_a_tensor_is_named(llama: Path) -> None:
    edit_header(
        llama / "model.safetensors", lambda header: header["lm_head.weight"].update(dtype="I16")
    )
    with pytest.raises(CheckpointError, match=r"`lm_head\.weight` is stored as I16"):
        read_everything(llama)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_any_damage_to_the_weights_header_is_refused_or_harmless(
    llama: Path, data: st.DataObject
) -> None:
    path = llama / "model.safetensors"
    good = path.read_bytes()
    header_nbytes = 8 + int.from_bytes(good[:8], "little")
    damaged = bytearray(good)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, header_nbytes - 1))
        damaged[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.none() | st.integers(0, len(good)))
    path.write_bytes(bytes(damaged[:cut]))
    try:
        opens_or_is_refused(llama)
    finally:
        path.write_bytes(good)

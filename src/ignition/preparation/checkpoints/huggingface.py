"""Opens a Hugging Face checkpoint folder: config, safetensors, tokenizer, template, defaults.

`HuggingFaceCheckpoint` checks the parameters and every tensor's shape when it is made; weights
stay mapped. `HuggingFaceFolder` is all but weights. The rules of config.json are in
`huggingface_config`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ignition.preparation.checkpoints.checkpoint import (
    GenerationDefaults,
    SourceFile,
    TemplateTokens,
)
from ignition.preparation.checkpoints.files import describe_sources
from ignition.preparation.checkpoints.huggingface_config import read_family, read_parameters
from ignition.preparation.checkpoints.safetensors_file import FileTensor, read_safetensors
from ignition.preparation.checkpoints.tensor_names import (
    check_tensors,
    hugging_face_name,
    tensor_shapes,
)
from ignition.preparation.errors import CheckpointError
from ignition.preparation.fields import (
    JSON_LIMIT_NBYTES,
    Fields,
    read_bounded,
    read_json_object,
)
from ignition.preparation.stored_matrix import StoredMatrix
from ignition.preparation.tokenizers.tokenizer_file import load_tokenizer, starts_with

_SINGLE: Final = "model.safetensors"
_INDEX: Final = "model.safetensors.index.json"
_GENERATION: Final = "generation_config.json"
_TOKENIZER: Final = "tokenizer.json"
_TOKENIZER_CONFIG: Final = "tokenizer_config.json"
_TEMPLATE: Final = "chat_template.jinja"
_TOOL_TEMPLATE: Final = "additional_chat_templates/tool_use.jinja"


def _by_tools(default: str, tool_use: str | None) -> str:
    """One template of the two that a checkpoint has: `tool_use` renders conversations with tools.
    The signs beside the tags keep all white space, and a template's last line break is none."""
    if tool_use is None:
        return default
    with_tools, without = (source.removesuffix("\n") for source in (tool_use, default))
    return f"{{% if tools +%}}{with_tools}{{%+ else +%}}{without}{{%+ endif %}}"


class HuggingFaceFolder:
    """A folder as `save_pretrained` writes it, but for its weights."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._config = read_json_object(folder / "config.json")
        self._generation = self._optional(_GENERATION)
        self._tokenizer_config = self._optional(_TOKENIZER_CONFIG)
        self.family = read_family(self._config)
        self.parameters = read_parameters(self._config, self.family)
        self._tokenizer_json = read_bounded(folder / _TOKENIZER, JSON_LIMIT_NBYTES)
        self._tokenizer = load_tokenizer(
            self._tokenizer_json, _TOKENIZER, self.parameters.vocabulary
        )

    def _optional(self, name: str) -> Fields:
        """The fields of a file that may be absent."""
        path = self._folder / name
        return read_json_object(path) if path.exists() else Fields({}, name)

    def tokenizer_json(self) -> bytes:
        """See `Checkpoint.tokenizer_json`: the folder's file, byte for byte."""
        return self._tokenizer_json

    def chat_template(self) -> str | None:
        """See `Checkpoint.chat_template`: chat_template.jinja, else that of the tokenizer."""
        default = self._template_file(_TEMPLATE)
        if default is not None:
            return _by_tools(default, self._template_file(_TOOL_TEMPLATE))
        templates = self._tokenizer_config.values.get("chat_template")
        if isinstance(templates, list):
            named = Fields(
                {
                    str(entry.get("name")): entry.get("template")
                    for entry in templates
                    if isinstance(entry, dict)
                },
                f"{_TOKENIZER_CONFIG}, chat_template",
            )
            return _by_tools(named.text("default"), named.text_or_none("tool_use"))
        return self._tokenizer_config.text_or_none("chat_template")

    def _template_file(self, name: str) -> str | None:
        path = self._folder / name
        if not path.exists():
            return None
        try:
            return read_bounded(path, JSON_LIMIT_NBYTES).decode()
        except UnicodeDecodeError as error:
            raise CheckpointError("isn't UTF-8 text", where=name) from error

    @cached_property
    def eos_ids(self) -> tuple[int, ...]:
        """See `Checkpoint.eos_ids`: of generation_config.json, else of config.json."""
        for fields in (self._generation, self._config):
            ids = tuple(sorted(set(_token_ids(fields, self.parameters.vocabulary))))
            if ids:
                return ids
        raise self._config.refusal(
            "eos_token_id", f"is missing here and in {_GENERATION}", "Name the token that ends text"
        )

    @cached_property
    def template_tokens(self) -> TemplateTokens:
        """See `Checkpoint.template_tokens`."""
        config = self._tokenizer_config
        bos = _token_text(config, "bos_token")
        adds_bos = config.flag_or_none("add_bos_token")
        if adds_bos is None:
            # Without the flag, the tokenizer's post-processor decides.
            adds_bos = bos is not None and starts_with(self._tokenizer, bos)
        return TemplateTokens(
            bos_token=bos,
            eos_token=_token_text(config, "eos_token"),
            pad_token=_token_text(config, "pad_token"),
            unk_token=_token_text(config, "unk_token"),
            add_bos_token=adds_bos and bos is not None,
        )

    @cached_property
    def generation_defaults(self) -> GenerationDefaults:
        """See `Checkpoint.generation_defaults`: of generation_config.json."""
        fields = self._generation
        return GenerationDefaults(
            temperature=fields.number_or_none("temperature", 0.0, 100.0),
            top_k=fields.integer_or_none("top_k", 0, 1 << 30),
            top_p=fields.number_or_none("top_p", 0.0, 1.0),
            min_p=fields.number_or_none("min_p", 0.0, 1.0),
            repetition_penalty=fields.number_or_none("repetition_penalty", 0.01, 100.0),
            max_output_tokens=fields.integer_or_none("max_new_tokens", 1, 1 << 30),
        )

    def other_files(self) -> list[Path]:
        """The files beside the weights, of which some may be absent."""
        names = ("config.json", _TOKENIZER, _GENERATION, _TOKENIZER_CONFIG, _TEMPLATE, _INDEX)
        return [self._folder / name for name in names]


class HuggingFaceCheckpoint(HuggingFaceFolder):
    """The folder with its weights; implements `Checkpoint`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._weight_files = _weight_files(folder)
        self._tensors = self._read_tensors()

    def _read_tensors(self) -> dict[str, FileTensor]:
        tensors: dict[str, FileTensor] = {}
        for path in self._weight_files:
            for name, tensor in read_safetensors(path).items():
                if name in tensors:
                    raise CheckpointError(
                        f"tensor `{name}` is also in {tensors[name].file}", where=path.name
                    )
                tensors[name] = tensor
        shapes = tensor_shapes(self.parameters)
        expected = {hugging_face_name(name): shape for name, shape in shapes.items()}
        found = {name: tensor.shape for name, tensor in tensors.items()}
        # Old files keep rope's frequencies; a tied head may be stored beside the embedding.
        ignored = {name for name in found if name.endswith(".rotary_emb.inv_freq")}
        if self.parameters.tied_embeddings:
            ignored.add(hugging_face_name("head"))
        check_tensors(expected, found, ignored, self._folder.name)
        return tensors

    def matrix(self, name: str) -> StoredMatrix:
        """See `Checkpoint.matrix`."""
        tensor = self._tensors[hugging_face_name(name)]
        outputs, width = tensor.shape
        return StoredMatrix(tensor.storage, (outputs, width), tensor.data.reshape(outputs, -1))

    def vector(self, name: str) -> NDArray[np.float32]:
        """See `Checkpoint.vector`."""
        tensor = self._tensors[hugging_face_name(name)]
        (width,) = tensor.shape
        row = StoredMatrix(tensor.storage, (1, width), tensor.data.reshape(1, -1))
        return row.dequantise().reshape(width)

    @cached_property
    def sources(self) -> tuple[SourceFile, ...]:
        """See `Checkpoint.sources`."""
        found = [path for path in self.other_files() if path.exists()]
        return describe_sources([*found, *self._weight_files])


def _weight_files(folder: Path) -> tuple[Path, ...]:
    """The safetensors files: those that the index lists, else the single one."""
    index = folder / _INDEX
    if not index.exists():
        return (folder / _SINGLE,)
    weight_map = read_json_object(index).fields_or_none("weight_map")
    if weight_map is None or not weight_map.values:
        raise CheckpointError("`weight_map` is missing or empty", where=_INDEX)
    names = {weight_map.text(tensor) for tensor in weight_map.values}
    for name in names:
        # An index must not lead out of the folder.
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise CheckpointError(
                f"lists {name!r}, no safetensors file of the folder", where=_INDEX
            )
    return tuple(folder / name for name in sorted(names))


def _token_ids(fields: Fields, vocabulary: int) -> Iterator[int]:
    """`eos_token_id`, which is an id, a list of ids or absent."""
    value = fields.values.get("eos_token_id")
    for token in value if isinstance(value, list) else [value]:
        if token is None:
            continue
        if not isinstance(token, int) or isinstance(token, bool) or not 0 <= token < vocabulary:
            raise fields.refusal("eos_token_id", f"holds {token!r}, no id of a token")
        yield token


def _token_text(fields: Fields, name: str) -> str | None:
    """A special token, which is its text or an object that holds it."""
    if isinstance(fields.values.get(name), dict):
        nested = fields.fields_or_none(name)
        return nested.text("content") if nested is not None else None
    return fields.text_or_none(name)

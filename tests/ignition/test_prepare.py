"""Whole preparations of tiny checkpoints: what Helios opens, and that twice gives equal bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from helios.core import ResourceKind, open_core
from helios.errors import ContractError, CoreError, HeliosError
from helios.runtime.model_runtime import ModelRuntime
from helios.runtime.oracle import check_oracle, greedy_replay
from helios.schema import core_pb2
from ignition.capture.target import TARGETS
from ignition.preparation.errors import CheckpointError
from ignition.preparation.prepare import Options, prepare
from ignition.preparation.quantisation import WeightStorage
from tests.checkpoints import (
    VARIANTS,
    weights,
    write_gguf,
    write_huggingface,
    write_safetensors,
)

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
OPTIONS = Options(
    namespace="tests",
    served_id="tiny",
    aliases=("small",),
    licence_terms="none",
    max_active=2,
    prefill=(8, 64),
    decode=(1, 2),
    max_context=128,
)


class Quiet:
    """Progress that remembers."""

    def __init__(self) -> None:
        self.stages: dict[str, tuple[int | None, int]] = {}
        self.notes: list[str] = []

    @contextmanager
    def stage(self, title: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
        self.stages[title] = (total, 0)

        def advance(done: int) -> None:
            self.stages[title] = (total, done)

        yield advance

    def note(self, text: str) -> None:
        self.notes.append(text)


def content(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


Folder = Callable[[str], Path]


@pytest.mark.parametrize("oracle", [False, True])
def test_what_helios_would_refuse_is_not_written(
    checkpoint_folder: Folder, tmp_path: Path, oracle: bool
) -> None:
    """With an oracle or without one, which is where nothing loads the programs here."""
    options = replace(OPTIONS, served_id="two\nlines", oracle=oracle)
    with pytest.raises(ContractError, match="served_id"):
        prepare(checkpoint_folder("llama"), tmp_path / "core", options, KEY, Quiet())
    assert not (tmp_path / "core").exists()


@pytest.mark.parametrize("storage", [WeightStorage.AS_STORED, WeightStorage.INT4])
def test_preparing_twice_gives_the_same_bytes(
    checkpoint_folder: Folder, tmp_path: Path, storage: WeightStorage
) -> None:
    options = replace(OPTIONS, storage=storage)
    for name in ("first", "second"):
        prepare(checkpoint_folder("qwen2"), tmp_path / name, options, KEY, Quiet())
    assert content(tmp_path / "first") == content(tmp_path / "second")


def test_helios_opens_what_was_prepared(checkpoint_folder: Folder, tmp_path: Path) -> None:
    progress = Quiet()
    prepare(checkpoint_folder("llama"), tmp_path / "core", OPTIONS, KEY, progress)
    public = KEY.public_key().public_bytes_raw()
    core = open_core(tmp_path / "core", accept="tests", publisher_key=public)

    assert (core.contract.served_id, core.contract.aliases) == ("tiny", ("small",))
    assert core.contract.max_context_tokens == 128
    deployment = core.deployment
    tokenizer = core.read_resource(deployment.tokenizer_resource, ResourceKind.TOKENIZER)
    assert tokenizer == (checkpoint_folder("llama") / "tokenizer.json").read_bytes()
    template = core.read_resource(deployment.template_resource, ResourceKind.CHAT_TEMPLATE)
    assert b"<|im_start|>" in template
    rebuild = deployment.rebuild
    assert (rebuild.version, rebuild.recipe) == (1, "llama")
    assert rebuild.options["decode"] == "1,2"
    assert {"config.json", "model.safetensors"} <= {source.name for source in rebuild.sources}
    assert core.acceptance.licence_terms == "none"
    assert progress.stages["replaying the oracle"] == (5, 5)
    total, done = progress.stages["packing weights"]
    assert total == done > 0


@pytest.mark.parametrize("variant", list(VARIANTS))
def test_the_oracle_is_what_the_reference_replays_from_the_core(
    checkpoint_folder: Folder, tmp_path: Path, variant: str
) -> None:
    prepare(checkpoint_folder(variant), tmp_path / "core", OPTIONS, KEY, Quiet())
    core = open_core(tmp_path / "core", accept="tests")
    oracle = core_pb2.Oracle.FromString(
        core.read_resource(core.deployment.oracle_resource, ResourceKind.ORACLE)
    )
    lengths = [len(case.expected_tokens) for case in oracle.cases]
    assert lengths == sorted(lengths)
    assert all(length >= 4 for length in lengths)
    assert all(case.smallest_lead >= 0.5 for case in oracle.cases)
    runtime = ModelRuntime.load(core, target="reference")
    try:
        check_oracle(runtime, oracle)
        tokens = greedy_replay(runtime, [1, 70, 71, 72, 73, 74, 75, 76, 77, 78], 6)
    finally:
        runtime.close()
    assert len({token.token for token in tokens}) > 1
    assert all(token.logprob < 0 <= token.lead for token in tokens)


@pytest.mark.parametrize("storage", [WeightStorage.INT8, WeightStorage.INT4])
@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_dim", "kept"),
    [(4, 2, 24, True), (6, 2, 24, True), (12, 4, 16, True), (8, 2, 16, False)],
)
def test_head_geometries_whose_blocks_cross_heads_are_served(
    tmp_path: Path,
    heads: int,
    kv_heads: int,
    head_dim: int,
    kept: bool,
    storage: WeightStorage,
) -> None:
    variant = replace(VARIANTS["llama"], heads=heads, kv_heads=kv_heads, head_dim=head_dim)
    progress = Quiet()
    source = write_huggingface(tmp_path / "source", variant)
    prepare(source, tmp_path / "core", replace(OPTIONS, storage=storage), KEY, progress)
    said = [note for note in progress.notes if note.startswith("layers.0.output")]
    assert ["kept as bf16" in note for note in said] == [True] * kept
    core = open_core(tmp_path / "core", accept="tests")
    answers = []
    for target in ("cpu", "reference"):
        runtime = ModelRuntime.load(core, target=target)
        try:
            answers.append(greedy_replay(runtime, [1, 70, 71, 72, 73], 2))
        finally:
            runtime.close()
    for native, exact in zip(*answers, strict=True):
        assert abs(native.logprob - exact.logprob) < 0.25
        if exact.lead > 0.5:
            assert native.token == exact.token


def test_weights_that_are_not_finite_leave_no_core(tmp_path: Path) -> None:
    tensors = weights(VARIANTS["llama"])
    tensors["model.layers.1.mlp.down_proj.weight"][3, 5] = np.inf
    source = write_huggingface(tmp_path / "source", "llama")
    write_safetensors(source / "model.safetensors", tensors, "BF16")
    with pytest.raises(
        CheckpointError, match=r"tensor `layers\.1\.down`: holds a value that isn't"
    ):
        prepare(source, tmp_path / "core", OPTIONS, KEY, Quiet())
    assert not (tmp_path / "core").exists()


def test_both_file_formats_give_the_same_answers(checkpoint_folder: Folder, tmp_path: Path) -> None:
    """The same weights as a folder in bf16 and as a GGUF file in F32, whose heads interleave."""
    gguf = write_gguf(tmp_path / "llama.gguf", "llama", storage="F32")
    answers = []
    for name, source in (("folder", checkpoint_folder("llama")), ("file", gguf)):
        prepare(source, tmp_path / name, OPTIONS, KEY, Quiet())
        core = open_core(tmp_path / name, accept="tests")
        runtime = ModelRuntime.load(core, target="reference")
        answers.append(greedy_replay(runtime, list(range(3, 40)), 8))
        runtime.close()
    folder, file = answers
    assert [t.token for t in folder] == [t.token for t in file]
    assert [t.logprob for t in folder] == pytest.approx([t.logprob for t in file], abs=1e-3)


def test_the_cache_identity_follows_weights_and_programs(
    checkpoint_folder: Folder, tmp_path: Path
) -> None:
    changes: dict[str, dict[str, object]] = {
        "plain": {},
        "renamed": {"served_id": "other", "namespace": "tests", "licence_terms": "some"},
        "quantised": {"storage": WeightStorage.INT8},
        "shorter": {"max_context": 64},
    }
    identities = {}
    for name, change in changes.items():
        options = replace(OPTIONS, **change)  # type: ignore[arg-type]
        prepare(checkpoint_folder("smollm"), tmp_path / name, options, KEY, Quiet())
        identities[name] = open_core(tmp_path / name, accept="tests").contract.cache_identity
    assert identities["plain"] == identities["renamed"]
    assert len(set(identities.values())) == 3


def test_a_checkpoint_without_a_template_gives_a_core_without_one(tmp_path: Path) -> None:
    source = write_huggingface(tmp_path / "checkpoint", "llama")
    config = source / "tokenizer_config.json"
    text = config.read_text()
    assert '"chat_template"' in text
    config.write_text(text.replace('"chat_template"', '"not_a_template"'))
    progress = Quiet()
    prepare(source, tmp_path / "core", OPTIONS, KEY, progress)
    core = open_core(tmp_path / "core", accept="tests")
    assert core.deployment.template_resource == ""
    assert progress.stages["replaying the oracle"] == (3, 3)


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        ({"namespace": ""}, ContractError, "namespace: is empty"),
        (
            {"target": TARGETS["cuda:sm_90"], "storage": WeightStorage.INT4},
            ContractError,
            "storage: of target cuda:sm_90 there is no int4.*bf16, int8, fp8",
        ),
        (
            {"storage": WeightStorage.FP8},
            ContractError,
            "storage: of target cpu there is no fp8.*int8, int4",
        ),
        ({"target": TARGETS["cuda:sm_90"], "tuning": True}, ContractError, "--tuning: "),
        ({"recipe": "gpt"}, CheckpointError, "no recipe 'gpt'.*llama"),
        ({"max_context": 10_000}, ContractError, "more than the model's 512"),
        ({"decode": (1,)}, ContractError, "not all 2 requests"),
    ],
)
def test_impossible_options_are_refused_before_anything_is_written(
    checkpoint_folder: Folder,
    tmp_path: Path,
    change: dict[str, object],
    error: type[HeliosError],
    match: str,
) -> None:
    options = replace(OPTIONS, **change)  # type: ignore[arg-type]
    with pytest.raises(error, match=match):
        prepare(checkpoint_folder("llama"), tmp_path / "core", options, KEY, Quiet())
    assert list(tmp_path.iterdir()) == []


def test_an_existing_core_is_replaced_only_on_request(
    checkpoint_folder: Folder, tmp_path: Path
) -> None:
    destination = tmp_path / "core"
    prepare(checkpoint_folder("llama"), destination, OPTIONS, KEY, Quiet())
    before = content(destination)
    renamed = replace(OPTIONS, served_id="renamed")
    with pytest.raises(CoreError, match="exists already"):
        prepare(checkpoint_folder("llama"), destination, renamed, KEY, Quiet())
    assert content(destination) == before
    prepare(checkpoint_folder("llama"), destination, renamed, KEY, Quiet(), replace=True)
    assert open_core(destination, accept="tests").contract.served_id == "renamed"

"""What a frontend is made of: the core's tokenizer data and chat template, and nothing beside."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from helios.core import open_core
from helios.core.opened_core import OpenedCore
from helios.core.resources import ResourceKind
from helios.frontend.bootstrap import Bootstrap, Frontend
from helios.frontend.prepare import GenerationOptions

# What checkpoints come with, all of it contradicting the core.
STRAY = {
    "config.json": {"eos_token_id": 7, "vocab_size": 5, "max_position_embeddings": 3},
    "generation_config.json": {"temperature": 0.125, "top_k": 3, "eos_token_id": [8]},
    "tokenizer_config.json": {"chat_template": "{{ 'stray' }}", "eos_token": "a"},
    "tokenizer.json": {"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}},
    "special_tokens_map.json": {"eos_token": "b"},
}
_opened: list[str] | None = None


def _hear(event: str, arguments: tuple[object, ...]) -> None:
    if _opened is not None and event == "open":
        _opened.append(str(arguments[0]))


sys.addaudithook(_hear)  # for good: hooks can't be taken back


def made_of(frontend: Frontend) -> object:
    messages = [{"role": "user", "content": "hello"}]
    prepared = frontend.preparer.prepare_chat(messages, GenerationOptions(seed=3))
    return prepared, frontend.tokenizer.encode("hello there"), frontend.contract.defaults


@pytest.mark.clause("FRONT-16")
def test_files_beside_a_core_are_neither_read_nor_heeded(
    tiny_core: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    global _opened
    folder = tmp_path / "core"
    shutil.copytree(tiny_core, folder)
    for name, content in STRAY.items():
        (folder / name).write_text(json.dumps(content))
    (folder / "README.md").write_text("temperature: 0.125\ntop_k: 3\n")
    kinds: list[ResourceKind] = []
    read = OpenedCore.read_resource

    def noted(self: OpenedCore, name: str, kind: ResourceKind) -> bytes:
        kinds.append(kind)
        return read(self, name, kind)

    monkeypatch.setattr(OpenedCore, "read_resource", noted)
    _opened = []
    try:
        frontend = Bootstrap.load(open_core(folder, accept="tests", allow_unknown_publisher=True))
    finally:
        opened, _opened = _opened, None
    assert sorted(kinds) == sorted([ResourceKind.TOKENIZER, ResourceKind.CHAT_TEMPLATE])
    stray = {str(folder / name) for name in (*STRAY, "README.md")}
    assert any(name.startswith(str(folder)) for name in opened)
    assert not stray & set(opened)
    plain = Bootstrap.load(open_core(tiny_core, accept="tests", allow_unknown_publisher=True))
    assert made_of(frontend) == made_of(plain)

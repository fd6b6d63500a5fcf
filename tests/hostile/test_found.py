"""What fuzzing found, each as the smallest input that showed it."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from fuzz.stored import KEY, stored

from helios.contract.json_form import from_json
from helios.core import ResourceKind, open_core
from helios.errors import ContractError, CoreError, ExecutionError, RequestError
from helios.frontend import template as templates
from helios.frontend.template import ChatTemplate
from helios.frontend.tokenizer import Tokenizer
from helios.runtime.capacities import Capacities
from helios.runtime.device import DeviceOptions
from helios.runtime.model_runtime import ModelRuntime
from helios.runtime.oracle import check_oracle
from helios.schema import core_pb2
from ignition.preparation import signing


@pytest.mark.parametrize("logprobs", [[], [-1.0, -2.0, -3.0]])
def test_an_oracle_with_more_or_fewer_numbers_than_tokens(logprobs: list[float]) -> None:
    oracle = core_pb2.Oracle(logprob_tolerance=1e9)
    oracle.cases.add(prompt_tokens=[5], expected_tokens=[1, 2], expected_logprobs=logprobs)
    runtime = ModelRuntime.load(
        stored("payload-2"),
        options=DeviceOptions(threads=1),
        capacities=Capacities(request_slots=1),
    )
    try:
        with pytest.raises(
            ExecutionError, match=r"oracle case 0: 2 tokens are expected with \d log-prob"
        ):
            check_oracle(runtime, oracle)
    finally:
        runtime.close()


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ('{"\\ud800": 1}', ""),
        ('{"served_id": "\\ud800"}', "served_id"),
        ('{"aliases": ["a", "\\udfff"]}', "aliases[1]"),
        ('{"model": {"graphs": [{"operation": "\\ud800"}]}}', "model.graphs[0].operation"),
    ],
)
def test_json_with_half_a_character(text: str, where: str) -> None:
    with pytest.raises(ContractError, match="half a character") as raised:
        from_json(text)
    assert raised.value.where == where


@pytest.mark.parametrize(
    ("field", "digits", "where"),
    [
        ('{"max_active": %s}', 5000, ""),
        ('{"max_active": %s}', 400, "max_active"),
        ('{"defaults": {"sampling": {"temperature": %s}}}', 400, "defaults.sampling.temperature"),
    ],
)
def test_json_with_a_number_that_nothing_holds(field: str, digits: int, where: str) -> None:
    with pytest.raises(ContractError) as raised:
        from_json(field % ("9" * digits))
    assert raised.value.where == where


@cache
def _tokenizer() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(
        stored("payload-2").read_resource("tokenizer", ResourceKind.TOKENIZER)
    )
    return content


def test_a_tokenizer_at_which_the_library_panics() -> None:
    content = json.loads(json.dumps(_tokenizer()))
    model = content["model"]
    model["vocab"] = {"a": 0, "##": 1, "b": 2, "ab": 3, "a##": 4}
    model["merges"] = [["a", "b"]]
    model["continuing_subword_prefix"] = "##"
    with pytest.raises(CoreError, match=r"tokenizer: not a readable tokenizer\.json"):
        Tokenizer(json.dumps(content).encode())


def test_a_tokenizer_that_can_t_take_every_text() -> None:
    content = json.loads(json.dumps(_tokenizer()))
    content["model"] = {"type": "Unigram", "unk_id": None, "vocab": [["x", -1.0]]}
    content["pre_tokenizer"] = content["normalizer"] = None
    content["added_tokens"] = []
    tokenizer = Tokenizer(json.dumps(content).encode())
    with pytest.raises(RequestError, match="prompt: the model's tokenizer has no tokens"):
        tokenizer.encode("the sea")


def test_a_template_that_needs_all_memory_to_be_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(templates.BoundedEnvironment, "from_string", refuse)
    with pytest.raises(CoreError, match="invalid chat template"):
        ChatTemplate("{{ 'a' | center(99999999999) }}", {})


@pytest.mark.parametrize("carrier", ["payload", "logical"])
def test_content_of_an_unknown_publisher_isn_t_parsed(tmp_path: Path, carrier: str) -> None:
    """Messages without content take forty times their bytes once they are parsed."""
    publisher = core_pb2.Publisher(namespace="somebody")
    # The list of resources holds a message that ends within its first field.
    broken = b"\x22\x03\xff\xff\xff"
    if carrier == "payload":
        body = core_pb2.CoreBody(format_version=2, publisher=publisher)
        envelope = signing.sign(body.SerializeToString() + broken, KEY)
    else:
        index = core_pb2.ProtectedIndex(version=6, publisher=publisher)
        envelope = signing.sign_index(index.SerializeToString() + broken, KEY)
    (tmp_path / "core.pb").write_bytes(envelope.SerializeToString())
    with pytest.raises(CoreError, match="is signed as 'somebody'"):
        open_core(tmp_path, accept="somebody")
    with pytest.raises(CoreError, match=r"core\.pb: the signed content is no \w+ "):
        open_core(tmp_path, accept="somebody", allow_unknown_publisher=True)

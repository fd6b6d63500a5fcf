"""Hostile content of good cores: contract, manifest, oracle, tokenizer, template."""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from typing import Final

from fuzz.stored import parsed, stored, stored_resource
from helios import contract as contracts
from helios.contract.json_form import from_json
from helios.errors import CoreError
from helios.frontend.bootstrap import assemble
from helios.frontend.budget import RenderBudget
from helios.frontend.prepare import GenerationOptions
from helios.frontend.template import ChatTemplate
from helios.frontend.token_bytes import read_token_bytes
from helios.runtime.capacities import Capacities
from helios.runtime.device import DeviceOptions
from helios.runtime.manifest_checks import check_manifest
from helios.runtime.manifest_decoder import decode_manifest
from helios.runtime.model_runtime import ModelRuntime
from helios.runtime.oracle import check_oracle, greedy_replay
from helios.schema import contract_pb2, core_pb2, execution_pb2

_CACHE_NBYTES: Final = 1 << 20
_SOME_TOKENS: Final = 300
_FEW_ITERATIONS: Final = 2000
_LITTLE_WORK: Final = 1 << 22


def run_contract(data: bytes) -> None:
    """A serving contract, from the wire."""
    contracts.decode(parsed(contract_pb2.ServingContract, data))


def run_contract_json(data: bytes) -> None:
    """The JSON form of a contract."""
    contracts.decode(from_json(data.decode("utf-8", "surrogateescape")))


def run_manifest(data: bytes) -> None:
    """An execution manifest, alone and against a good contract."""
    manifest = decode_manifest(parsed(execution_pb2.ExecutionManifest, data))
    check_manifest(manifest, stored("payload-2").contract)


def run_programs(data: bytes) -> None:
    """A manifest that passes every check is loaded and executed by the native library: nothing
    that it says may make a kernel read or write outside of its buffers, or never end. The good
    contract is given the manifest's tuned bindings, so that its producers run too."""
    message = parsed(execution_pb2.ExecutionManifest, data)
    runtime = ModelRuntime.from_parts(
        contracts.decode(_contract_for(message)),
        message,
        {"weights.cpu": _weights()},
        target="cpu",
        options=DeviceOptions(threads=1),
        capacities=Capacities(cache_nbytes=_CACHE_NBYTES),
    )
    try:
        greedy_replay(runtime, [5, 260, 17], 2)
    finally:
        runtime.close()


def _contract_for(manifest: execution_pb2.ExecutionManifest) -> contract_pb2.ServingContract:
    contract = contract_pb2.ServingContract()
    contract.CopyFrom(stored("payload-2").deployment.contract)
    tuned = {program.name: program.tuned_bindings for program in manifest.programs}
    for graph in contract.model.graphs:
        for binding in tuned.get(graph.name, ()):
            graph.tuned_bindings.add(buffer=binding.buffer, producer=binding.producer)
    return contract


@cache
def _weights() -> memoryview:
    return stored("payload-2").map_weights("weights.cpu").content


def run_oracle(data: bytes) -> None:
    """An oracle, replayed."""
    check_oracle(_runtime(), parsed(core_pb2.Oracle, data))


@cache
def _runtime() -> ModelRuntime:
    return ModelRuntime.load(
        stored("payload-2"),
        options=DeviceOptions(threads=1),
        capacities=Capacities(request_slots=1),
    )


def run_tokenizer(data: bytes) -> None:
    """A tokenizer, its tokens' bytes as the worker reads them, and a prompt through it."""
    with suppress(CoreError):
        spelled = read_token_bytes(data)
        for token in range(_SOME_TOKENS):
            spelled.token_bytes(token)
    frontend = assemble(stored("payload-2").contract, data, None)
    frontend.preparer.prepare_completion("the sea ", GenerationOptions(max_tokens=1))


def run_template(data: bytes) -> None:
    """A chat template, and a conversation through it. One that uses up a small budget is left at
    that: all of the usual one may take ten seconds, and shows nothing more."""
    text = data.decode("utf-8", "replace")
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "the sea "}]
    tokens = {"bos_token": "<s>", "eos_token": "</s>"}
    budget = RenderBudget(iterations=_FEW_ITERATIONS, work=_LITTLE_WORK)
    ChatTemplate(text, tokens).render(messages, budget=budget)
    frontend = assemble(stored("payload-2").contract, _tokenizer(), text)
    frontend.preparer.prepare_chat(messages, GenerationOptions(max_tokens=1))


@cache
def _tokenizer() -> bytes:
    return stored_resource("payload-2", "tokenizer")

"""`/v1/models` and `/server_info`: what can be asked of the model, and how it is served."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from helios.contract.enums import Operation, ReasoningParser, ToolParser, ValueSource
from helios.contract.model import GraphContract, PreparedContract
from helios.frontend.bootstrap import Frontend
from helios.server.capabilities import capabilities
from helios.server.options import HttpOptions
from helios.server.options.access import AccessOptions, key_digest
from helios.server.options.liveness import LivenessOptions
from helios.server.options.tls import TlsOptions
from helios.server.options_in_force import OF_HTTP, OF_WORKER, options_in_force
from helios.server.server import ServerOptions
from helios.version import VERSION
from helios.worker.options import WorkerOptions
from tests.server.real import ServerProcess, server_process
from tests.server.scripted import (
    FRONTEND,
    READY,
    ScriptedClient,
    running_server,
    says,
    served_model,
)

CLIENT = ScriptedClient(says("x"))


def with_contract(contract: PreparedContract) -> Frontend:
    return Frontend(contract, FRONTEND.tokenizer, FRONTEND.preparer)


def with_model(**changes: Any) -> Frontend:
    contract = FRONTEND.contract
    return with_contract(replace(contract, model=replace(contract.model, **changes)))


def without(graphs: tuple[GraphContract, ...], *sources: ValueSource) -> tuple[GraphContract, ...]:
    """The graphs without bindings of these sources."""
    return tuple(
        replace(graph, bindings=tuple(b for b in graph.bindings if b.source not in sources))
        for graph in graphs
    )


# ---------------------------------------------------------------- models


def test_a_model_says_what_can_be_asked_of_it(real_server: ServerProcess) -> None:
    model = real_server.http.get("/v1/models/little").json()
    assert model["root"] == "tiny"
    assert model["max_model_len"] == model["max_context_tokens"] == 512
    able = model["capabilities"]
    assert able["chat"] is True
    assert able["input_modalities"] == ["text"]
    assert (able["tools"], able["structured_output"], able["reasoning"]) == (True, True, False)
    assert (able["tool_syntax"], able["reasoning_syntax"]) == ("tagged_json", None)
    assert able["top_logprobs"] == 20
    assert able["prefix_reuse"] is True
    assert able["speculative_width"] == 0
    listed = real_server.http.get("/v1/models").json()["data"]
    assert [(one["id"], one["root"]) for one in listed] == [("tiny", "tiny"), ("little", "tiny")]


@pytest.mark.parametrize("field", ["temperature", "repetition_penalty", "bad_words"])
def test_what_a_model_lists_as_sampling_it_takes(real_server: ServerProcess, field: str) -> None:
    values = {"temperature": 0.5, "repetition_penalty": 1.1, "bad_words": ["x"]}
    able = real_server.http.get("/v1/models/tiny").json()["capabilities"]
    assert field in able["sampling"]
    body = {"model": "tiny", "prompt": "a", "max_tokens": 1, field: values[field]}
    assert real_server.http.post("/v1/completions", json=body).status_code == 200


def test_sampling_that_programs_dont_apply_isnt_listed() -> None:
    graphs = FRONTEND.contract.model.graphs
    full = capabilities(served_model(CLIENT))
    bare = with_model(
        graphs=without(
            graphs, ValueSource.REPETITION_PENALTY, ValueSource.LOGIT_BIAS, ValueSource.TOP_LOGPROBS
        )
    )
    less = capabilities(served_model(CLIENT, frontend=bare))
    assert "temperature" in less.sampling
    gone = {"repetition_penalty", "presence_penalty", "frequency_penalty", "logit_bias"}
    assert gone.isdisjoint(less.sampling)
    assert set(less.sampling) == set(full.sampling) - gone
    assert less.top_logprobs == 0


def test_syntaxes_are_the_contracts() -> None:
    syntax = FRONTEND.contract.model.frontend
    writes = replace(
        syntax, tool_parser=ToolParser.TAGGED_JSON, reasoning_parser=ReasoningParser.THINK_TAGS
    )
    able = capabilities(served_model(CLIENT, frontend=with_model(frontend=writes)))
    assert (able.tool_syntax, able.reasoning_syntax) == ("tagged_json", "think_tags")
    plain = replace(syntax, tool_parser=ToolParser.NONE, reasoning_parser=ReasoningParser.NONE)
    able = capabilities(served_model(CLIENT, frontend=with_model(frontend=plain)))
    assert (able.tool_syntax, able.reasoning_syntax) == (None, None)


def test_a_capability_needs_the_model_and_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("helios.server.capabilities.is_unsupported", lambda name: False)
    graphs = FRONTEND.contract.model.graphs
    scored = (*graphs, replace(graphs[0], operation=Operation.SCORED_PREFILL))
    masked = ValueSource.TOKEN_MASK, ValueSource.GRAMMAR_MASK
    able = capabilities(served_model(CLIENT, frontend=with_model(graphs=scored)))
    assert able.prompt_logprobs
    unscored = tuple(g for g in graphs if g.operation is not Operation.SCORED_PREFILL)
    unable = with_model(graphs=without(unscored, *masked))
    able = capabilities(served_model(CLIENT, frontend=unable))
    assert (able.prompt_logprobs, able.structured_output) == (False, False)
    monkeypatch.setattr("helios.server.capabilities.is_unsupported", lambda name: True)
    able = capabilities(served_model(CLIENT, frontend=with_model(graphs=scored)))
    assert (able.prompt_logprobs, able.structured_output) == (False, False)


# ---------------------------------------------------------------- server_info


def test_server_info_shows_options_and_capacities(core_folder: Path) -> None:
    options = ("--threads", "1", "--max-active", "3", "--queue-capacity", "5")
    more = ("--frontend-workers", "2", "--stall-timeout", "45")
    with server_process(core_folder, *options, *more) as server:
        info = server.http.get("/server_info").json()
        version = server.http.get("/version").json()
        metrics = server.metrics()
    assert info["version"] == VERSION
    assert info["phase"] == "ready"
    assert {"frontend", "worker_load", "ready"} <= info["startup_ms"].keys()
    core = info["core"]
    assert (core["served_id"], core["aliases"], core["namespace"]) == ("tiny", ["little"], "tests")
    assert (core["digest"], core["kernel_path"]) == (version["core"], version["kernel_path"])
    assert core["threads"] == 1
    assert core["contract_version"] >= 1
    capacities = core["capacities"]
    assert capacities["request_slots"] == metrics["flare_request_slots"] == 3
    assert capacities["permits"] == metrics["flare_http_permit_capacity"] == 8
    assert capacities["cache_pages"] == metrics["flare_cache_pages"]
    assert capacities["preparation_slots"] == 2
    given = info["options"]
    assert given["worker"]["core"] == str(core_folder)
    assert given["worker"]["request_slots"] == 3
    assert given["worker"]["scheduler"]["queue_capacity"] == 5
    assert given["http"]["liveness"] == {"stall_timeout_s": 45}
    assert given["http"]["limits"]["max_body_nbytes"] == 16 << 20


def test_server_info_before_the_model_is_there() -> None:
    with running_server(says("x"), loaded=False) as server:
        info = server.http.get("/server_info").json()
    assert (info["phase"], info["core"]) == ("loading_core", None)


def test_every_option_is_shown_or_hidden_on_purpose() -> None:
    """A new option fails this test until somebody has decided."""
    secrets = {"publisher_key", "core_key", "peers"}
    assert set(WorkerOptions.__struct_fields__) == set(OF_WORKER) | secrets
    in_part = {"access", "tls"}
    assert {field.name for field in fields(HttpOptions)} == set(OF_HTTP) | in_part
    shown = options_in_force(ServerOptions("::1", 80, WorkerOptions(core="a", accept="b")))
    assert {field.name for field in fields(ServerOptions)} == set(shown)


def test_no_secret_is_among_the_options() -> None:
    worker = WorkerOptions(
        core="demo.core", accept="demo", publisher_key=b"\x07" * 32, core_key="/secrets/core.key"
    )
    access = AccessOptions((key_digest(b"sesame"),), origins=("https://example.org",))
    tls = TlsOptions("/secrets/tls.pem", "/secrets/tls.key")
    http = HttpOptions(access=access, liveness=LivenessOptions(5.0), tls=tls)
    shown = options_in_force(ServerOptions("::1", 80, worker, None, http))
    assert shown["worker"]["core"] == "demo.core"
    assert (shown["http"]["api_keys"], shown["http"]["tls"]) == (True, True)
    assert shown["http"]["origins"] == ["https://example.org"]
    text = json.dumps(shown)
    assert "secrets" not in text
    assert not {"core_key", "publisher_key"} & shown["worker"].keys()
    assert key_digest(b"sesame").hex() not in text


def test_capacities_are_the_workers() -> None:
    with running_server(says("x"), permits=7) as server:
        capacities = server.http.get("/server_info").json()["core"]["capacities"]
    for name in ("request_slots", "queue_capacity", "cache_pages", "page_tokens", "cache_nbytes"):
        assert capacities[name] == getattr(READY, name)
    assert capacities["permits"] == 7

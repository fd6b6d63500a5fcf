"""Where prompts can be cut for reuse, as a contract's rules say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helios import contract
from helios.contract.enums import Indexing, Operation, ValueSource
from helios.contract.model import PrefixBoundaryRule, PreparedContract, ValueBinding
from helios.errors import RequestError
from helios.frontend.bootstrap import assemble
from helios.frontend.options import GenerationOptions
from helios.frontend.prefix_boundaries import LIMIT, boundaries, candidates
from helios.frontend.prompts import PromptMaker
from tests.contract.sample import sample_contract
from tests.frontend.chat_styles import reference
from tests.frontend.chat_styles.conversations import TOOLS
from tests.frontend.chat_styles.styles import STYLES
from tests.frontend.vocabularies import CHAT_TEMPLATE, byte_level, prepared_contract

SYSTEM = {"role": "system", "content": "s"}
ASK = {"role": "user", "content": "q"}
ANSWER = {"role": "assistant", "content": "a"}
TURNS = [SYSTEM, ASK, ANSWER, ASK, ANSWER, ASK]
USERS = PrefixBoundaryRule(("user",), needs_generation_prompt=False)
ANSWERS = PrefixBoundaryRule(("assistant",), needs_generation_prompt=True)


def _maker(style: str, *rules: PrefixBoundaryRule) -> PromptMaker:
    return replace(reference.maker(STYLES[style], "bytes"), boundary_rules=rules)


def _texts(prompts: PromptMaker, messages: list[dict[str, Any]], **options: Any) -> list[str]:
    """What is before each boundary, backwards from the whole."""
    prompt = prompts.of_messages(messages, **options)
    return [prompts.text_of(prompt.tokens[:count]) for count in prompt.boundaries]


SYSTEM_TEXT = "<|im_start|>system\ns<|im_end|>\n"
ASK_TEXT, ANSWER_TEXT = "<|im_start|>user\nq<|im_end|>\n", "<|im_start|>assistant\na<|im_end|>\n"
HEADER = "<|im_start|>user\n"


@pytest.mark.clause("FRONT-8")
def test_a_boundary_is_where_a_message_of_the_role_begins() -> None:
    assert _texts(_maker("think_json", USERS), TURNS) == [
        SYSTEM_TEXT + HEADER,
        SYSTEM_TEXT + ASK_TEXT + ANSWER_TEXT + HEADER,
        SYSTEM_TEXT + (ASK_TEXT + ANSWER_TEXT) * 2 + HEADER,
    ]


@pytest.mark.clause("FRONT-8")
def test_it_is_shared_with_conversations_that_go_on_otherwise() -> None:
    prompts = _maker("think_json", USERS)
    found = prompts.of_messages(TURNS)
    other = prompts.of_messages([*TURNS[:3], {**ASK, "content": "something else"}])
    shared = found.boundaries[1]
    assert found.tokens[:shared] == other.tokens[:shared]
    assert found.boundaries[:2] == other.boundaries


@pytest.mark.clause("FRONT-8")
def test_with_the_generation_prompt_it_is_where_an_earlier_prompt_ended() -> None:
    prompts = _maker("think_json", ANSWERS)
    found = prompts.of_messages(TURNS)
    earlier = [prompts.of_messages(TURNS[:index]).tokens for index in (2, 4)]
    assert [found.tokens[:count] for count in found.boundaries] == earlier


@pytest.mark.clause("FRONT-8")
def test_a_template_that_opens_reasoning_has_no_such_boundary() -> None:
    """Its generation prompt isn't how an answered message begins."""
    assert _texts(_maker("function_tags", ANSWERS), TURNS) == []
    without = replace(ANSWERS, needs_generation_prompt=False)
    assert len(_texts(_maker("function_tags", without), TURNS)) == 2


@pytest.mark.clause("FRONT-8")
def test_a_part_that_is_rendered_otherwise_now_is_no_boundary() -> None:
    """The generation prompt without thinking closes reasoning, which no earlier answer has."""
    prompts, off = _maker("think_json", ANSWERS), {"enable_thinking": False}
    assert _texts(prompts, TURNS, variables=off) == []
    assert len(_texts(prompts, TURNS)) == 2


def test_what_a_template_refuses_is_no_boundary() -> None:
    """Questions and answers take turns here, and instructions alone are nothing."""
    answers = replace(ANSWERS, needs_generation_prompt=False)
    assert _texts(_maker("model_turns", answers), [SYSTEM, ASK, ANSWER, ASK])[0].endswith("model\n")
    systems = PrefixBoundaryRule(("system",), needs_generation_prompt=False)
    assert _texts(_maker("brackets", systems), TURNS) == []


def test_parts_that_a_template_refuses_have_no_boundary() -> None:
    def encoded(messages: Sequence[Mapping[str, Any]], prompted: bool) -> list[int]:
        if len(messages) < 4:
            raise RequestError("refused", where="messages")
        return [7] * len(messages)

    assert boundaries([7] * 9, TURNS, [ANSWERS], encoded) == (4,)


def test_tools_are_before_the_first_question() -> None:
    (before,) = _texts(_maker("think_json", USERS), [ASK], tools=TOOLS)
    assert "find_part" in before
    assert before.endswith(HEADER)


@given(st.lists(st.sampled_from(["user", "assistant", "system"]), max_size=60))
def test_candidates_are_bounded(roles: list[str]) -> None:
    messages = [{"role": role} for role in roles]
    found = candidates(messages, [USERS, ANSWERS])
    assert len(found) <= LIMIT
    every = [
        (i, role == "assistant")
        for i, role in enumerate(roles)
        if role == "user" or (role == "assistant" and i)
    ]
    assert found == (every if len(every) <= LIMIT else [every[0], *every[1 - LIMIT :]])


@given(st.lists(st.sampled_from([ASK, ANSWER, SYSTEM]), min_size=1, max_size=8))
def test_boundaries_ascend_within_the_prompt(messages: list[dict[str, Any]]) -> None:
    prompt = _maker("think_json", USERS, ANSWERS).of_messages(messages)
    assert list(prompt.boundaries) == sorted(set(prompt.boundaries))
    assert all(0 < count < len(prompt.tokens) for count in prompt.boundaries)


def _keeping_state(contract: PreparedContract) -> PreparedContract:
    """The contract of a model that keeps state rows: snapshots, and no beginning by pages alone."""
    graphs = [
        replace(
            graph,
            bindings=tuple(
                b for b in graph.bindings if b.source is not ValueSource.CONSUMED_TOKENS
            ),
        )
        for graph in contract.model.graphs
        if graph.operation is not Operation.SNAPSHOT
    ]
    first = next(graph for graph in graphs if graph.operation is Operation.INITIALIZE)
    snapshot = replace(first, name="snapshot", operation=Operation.SNAPSHOT)
    return replace(contract, model=replace(contract.model, graphs=(*graphs, snapshot)))


@pytest.mark.clause("FRONT-8")
def test_rules_come_from_the_contract() -> None:
    """Its rules, and none where it has none, reach the prepared request."""
    plain = prepared_contract({})
    with_rules = _keeping_state(plain)
    assert with_rules.model.frontend.prefix_boundaries
    message = sample_contract()
    rule = message.model.frontend.prefix_boundaries[0]
    rule.roles[:] = ["user", "tool"]
    rule.needs_generation_prompt = True
    decoded = contract.decode(message).model.frontend.prefix_boundaries
    assert decoded == (PrefixBoundaryRule(("user", "tool"), needs_generation_prompt=True),)
    frontend = assemble(with_rules, byte_level(), CHAT_TEMPLATE)
    prepared = frontend.preparer.prepare_chat(TURNS, GenerationOptions())
    assert len(prepared.prefix_boundaries) == 3
    bare = replace(with_rules.model.frontend, prefix_boundaries=())
    without = replace(with_rules, model=replace(with_rules.model, frontend=bare))
    frontend = assemble(without, byte_level(), CHAT_TEMPLATE)
    assert frontend.preparer.prepare_chat(TURNS, GenerationOptions()).prefix_boundaries == ()


def test_boundaries_are_looked_for_only_where_they_are_used() -> None:
    """Each costs a rendering, and models that begin requests at pages have no use for them."""
    plain = prepared_contract({})
    assert plain.model.frontend.prefix_boundaries
    frontend = assemble(plain, byte_level(), CHAT_TEMPLATE)
    assert frontend.preparer.prepare_chat(TURNS, GenerationOptions()).prefix_boundaries == ()
    state = _keeping_state(plain).model
    endpoint = ValueBinding(
        "consumed", ValueSource.CONSUMED_TOKENS, Indexing.ACTIVE_ROW, 0, 0, 0, ""
    )
    graphs = tuple(replace(g, bindings=(*g.bindings, endpoint)) for g in state.graphs)
    paged = replace(plain, model=replace(state, graphs=graphs))
    frontend = assemble(paged, byte_level(), CHAT_TEMPLATE)
    assert frontend.preparer.prepare_chat(TURNS, GenerationOptions()).prefix_boundaries == ()

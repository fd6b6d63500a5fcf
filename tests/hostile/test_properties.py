"""Hostile input by structure: real tiny cores are altered and signed again, and nothing but a
refusal comes of it. The promises beyond that are asserted in `fuzz.targets`."""

from __future__ import annotations

import json
from random import Random

import pytest
from fuzz import json_values
from fuzz.messages import mutate
from fuzz.targets import TARGETS, Target
from fuzz.words import dictionary
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

MESSAGES = {name: target for name, target in TARGETS.items() if target.message is not None}
JSON = {name: target for name, target in TARGETS.items() if target.json}
EXAMPLES = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def altered_message(target: Target, seed: bytes, random: Random, changes: int) -> bytes:
    assert target.message is not None
    message = target.message.FromString(seed)
    mutate(message, random, changes)
    return message.SerializeToString()


@pytest.mark.parametrize("name", TARGETS)
def test_good_input_passes(name: str) -> None:
    first, *others = TARGETS[name].seeds()
    assert TARGETS[name].accepts(first)
    for seed in others:  # a mirror's refusals are among them
        TARGETS[name].accepts(seed)


@pytest.mark.parametrize("name", MESSAGES)
@EXAMPLES
@given(random=st.randoms(use_true_random=False), changes=st.integers(1, 6), data=st.data())
def test_altered_messages(name: str, random: Random, changes: int, data: st.DataObject) -> None:
    target = MESSAGES[name]
    seed = data.draw(st.sampled_from(target.seeds()))
    target.accepts(altered_message(target, seed, random, changes))


@pytest.mark.parametrize("name", JSON)
@EXAMPLES
@given(random=st.randoms(use_true_random=False), changes=st.integers(1, 6), data=st.data())
def test_altered_json(name: str, random: Random, changes: int, data: st.DataObject) -> None:
    seed = data.draw(st.sampled_from(JSON[name].seeds()))
    JSON[name].accepts(json_values.altered(seed, random, changes))


@pytest.mark.parametrize("name", TARGETS)
@EXAMPLES
@given(data=st.data())
def test_altered_bytes(name: str, data: st.DataObject) -> None:
    content = bytearray(data.draw(st.sampled_from(TARGETS[name].seeds())))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(content)))
        match data.draw(st.sampled_from(["replace", "insert", "remove", "repeat"])):
            case "replace" if at < len(content):
                content[at] = data.draw(st.integers(0, 255))
            case "insert":
                content[at:at] = data.draw(st.binary(max_size=12))
            case "remove":
                del content[at : at + data.draw(st.integers(1, 40))]
            case _:
                content[at:at] = content[at : at + data.draw(st.integers(1, 200))]
    TARGETS[name].accepts(bytes(content))


@pytest.mark.parametrize("name", TARGETS)
@EXAMPLES
@given(content=st.binary(max_size=300))
def test_any_bytes(name: str, content: bytes) -> None:
    TARGETS[name].accepts(content)


def test_altered_inputs_do_differ() -> None:
    """The tests above would say nothing if the mutations changed nothing or broke the wire."""
    for name, target in MESSAGES.items():
        seed = target.seeds()[0]
        altered = {altered_message(target, seed, Random(n), 1) for n in range(50)}
        assert len(altered - {seed}) > 20, name
    for name, target in JSON.items():
        seed = target.seeds()[0]
        altered = {json_values.altered(seed, Random(n), 1) for n in range(50)}
        assert len({data for data in altered if json.loads(data) != json.loads(seed)}) > 30, name


@given(document=st.recursive(st.none() | st.text() | st.floats(), st.lists), seed=st.integers())
def test_any_json_can_be_altered(document: object, seed: int) -> None:
    data = json.dumps(document).encode()
    altered = json_values.altered(data, Random(seed), 8)
    json.loads(altered)
    assert json_values.altered(data, Random(seed), 8) == altered


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"[" * 100_000])
def test_what_is_no_json_isn_t_altered(data: bytes) -> None:
    with pytest.raises(ValueError):
        json_values.altered(data, Random(0))


def test_words_as_libfuzzer_reads_them() -> None:
    assert dictionary(("a b", 'q"\\', "\r\n")) == '"a b"\n"q\\x22\\x5c"\n"\\x0d\\x0a"\n'

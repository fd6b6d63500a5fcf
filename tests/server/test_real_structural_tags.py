"""Structural tags over HTTP, in each way that clients write them, from a whole server."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

import pytest
from openai import OpenAI

from tests.engine.schemas import fits
from tests.server.real import DEADLINE_S, ServerProcess

LAMP: Final = {
    "type": "object",
    "properties": {"lamp": {"enum": ["red", "green"]}, "on": {"type": "boolean"}},
    "required": ["lamp", "on"],
    "additionalProperties": False,
}
STRUCTURES: Final[dict[str, Any]] = {
    "type": "structural_tag",
    "structures": [
        {"begin": "<lamp>", "schema": LAMP, "end": "</lamp>"},
        {"begin": "<day=", "schema": {"enum": [1, 2]}, "end": ">"},
    ],
    "triggers": ["<"],
}
FORMAT: Final[dict[str, Any]] = {
    "type": "structural_tag",
    "format": {
        "type": "triggered_tags",
        "triggers": ["<"],
        "tags": [
            {
                "begin": one["begin"],
                "content": {"type": "json_schema", "json_schema": one["schema"]},
                "end": one["end"],
            }
            for one in STRUCTURES["structures"]
        ],
    },
}
WAYS: Final[dict[str, dict[str, Any]]] = {
    "structures": {"response_format": STRUCTURES},
    "format": {"response_format": FORMAT},
    "structured_outputs": {"structured_outputs": {"structural_tag": json.dumps(STRUCTURES)}},
    "structural_tag": {"structural_tag": json.dumps(FORMAT)},
}


@pytest.fixture(scope="module")
def sdk(real_server: ServerProcess) -> Iterator[OpenAI]:
    with OpenAI(
        base_url=real_server.url + "/v1", api_key="none", timeout=DEADLINE_S, max_retries=0
    ) as client:
        yield client


@pytest.fixture(scope="module")
def bias(real_server: ServerProcess) -> dict[str, float]:
    """White space seldom, the trigger often."""
    body = {"model": "tiny", "prompt": "<", "add_special_tokens": False}
    (token,) = real_server.http.post("/tokenize", json=body).json()["tokens"]
    return {str(token): 4.0, **dict.fromkeys(("200", "201", "204", "223"), -100.0)}


def check(text: str) -> int:
    """How many whole structures a text has; every trigger begins one."""
    found = 0
    for part in text.split("<")[1:]:
        whole = re.fullmatch(r"lamp>(.*)", part) or re.match(r"day=([12])>|/lamp>", part)
        if whole is None:
            # The limit may cut the last one.
            assert text.endswith(part), part
            assert part.startswith("lamp>") or "<day=2>"[1:].startswith(part[:5]), part
        elif part.startswith("lamp>"):
            if text.endswith(part):
                continue
            assert fits(json.loads(whole[1]), LAMP)
            found += 1
        else:
            found += part.startswith("day=")
    return found


@pytest.mark.tiny_model
@pytest.mark.clause("FRONT-14")
@pytest.mark.parametrize("way", WAYS)
def test_text_and_structures(sdk: OpenAI, bias: dict[str, float], way: str) -> None:
    found, said = 0, ""
    for seed in range(4):
        asked: dict[str, Any] = {
            "model": "tiny",
            "messages": [{"role": "user", "content": "the lamp"}],
            "temperature": 1.0,
            "seed": seed,
            "max_tokens": 120,
            "logit_bias": bias,
            "extra_body": WAYS[way],
        }
        content = sdk.chat.completions.create(**asked).choices[0].message.content or ""
        streamed = "".join(
            chunk.choices[0].delta.content or ""
            for chunk in sdk.chat.completions.create(**asked, stream=True)
        )
        assert streamed == content
        found += check(content)
        said += content.split("<")[0]
    assert found
    assert said, "text before the first structure"


@pytest.mark.tiny_model
@pytest.mark.parametrize("way", WAYS)
def test_completions(sdk: OpenAI, bias: dict[str, float], way: str) -> None:
    texts = [
        sdk.completions.create(
            model="tiny", prompt="the lamp", temperature=1.0, seed=seed, max_tokens=120,
            logit_bias=bias, extra_body=WAYS[way],
        ).choices[0].text
        for seed in range(3)
    ]  # fmt: skip
    assert sum(map(check, texts))


def _with(**structure: Any) -> dict[str, Any]:
    return {**STRUCTURES, "structures": [{**STRUCTURES["structures"][0], **structure}]}


@pytest.mark.parametrize(
    ("asked", "param", "code"),
    [
        ({"response_format": _with(begin="lamp")}, "response_format.triggers[0]", "invalid_value"),
        (
            {"response_format": _with(schema={"not": {}})},
            "response_format.structures[0].schema",
            "invalid_value",
        ),
        (
            {"response_format": _with(flavour=1)},
            "response_format.structures[0].flavour",
            "unsupported_parameter",
        ),
        (
            {
                "response_format": {
                    "type": "structural_tag",
                    "format": {"type": "qwen_xml_parameter", "json_schema": LAMP},
                }
            },
            "response_format.format.type",
            "unsupported_parameter",
        ),
        (
            {"structured_outputs": {"structural_tag": "{"}},
            "structured_outputs.structural_tag",
            "invalid_value",
        ),
        ({"structural_tag": 5}, "structural_tag", "invalid_value"),
        ({"response_format": STRUCTURES, "stop": "x"}, "stop", "invalid_value"),
        ({"response_format": STRUCTURES, "regex": "a"}, "regex", "invalid_value"),
    ],
)
def test_what_cannot_be_is_refused_by_its_place(
    real_server: ServerProcess, asked: dict[str, Any], param: str, code: str
) -> None:
    body = {"model": "tiny", "messages": [{"role": "user", "content": "the lamp"}], **asked}
    refused = real_server.http.post("/v1/chat/completions", json=body)
    error = refused.json()["error"]
    assert (refused.status_code, error["param"].removesuffix(".not"), error["code"]) == (
        400, param, code,
    )  # fmt: skip

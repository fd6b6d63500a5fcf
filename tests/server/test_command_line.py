"""`serve`'s command line, read twice: without a library, and by Typer, which knows better."""

from __future__ import annotations

import inspect
from functools import wraps
from typing import Annotated, Any

import pytest
import typer
from hypothesis import example, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from helios.cli import served
from helios.cli_serve import asked_server
from helios.cli_typer import for_typer
from helios.command_line import Argument, Group, Option, parameter_hints, read, with_groups

PLAIN = ["core", "--accept", "tests"]
DEFAULTS = {
    one.name: one.default
    for one in inspect.signature(asked_server).parameters.values()
    if one.default is not one.empty
}


def read_by_typer(words: list[str]) -> dict[str, Any] | None:
    """What Typer would call the command with; None where it refuses."""
    called: list[dict[str, Any]] = []

    @wraps(asked_server)
    def takes(**given: Any) -> None:
        called.append(given)

    takes.__annotations__ = parameter_hints(asked_server)
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(for_typer(takes))
    CliRunner().invoke(app, words)
    return called[0] if called else None


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--port", "0"],
        ["--port=8001", "--host=::1"],
        ["--no-oracle", "--history-drafting", "--no-access-log"],
        ["--threads", "2", "--isa", "avx2", "--cache-memory", "25%", "--max-active", "8"],
        ["--prefill-share", "0.25", "--max-step-ms", "30"],
        ["--api-key", "a", "--api-key=b", "--cors-origin", "https://a.example"],
        ["--log-level", "debug", "--log-format", "json"],
        ["--tls-cert", "a.pem", "--tls-key", "b.pem"],
        ["--prompt-cache", "kept", "--prompt-cache-size", "1GiB"],
        ["--http-workers", "4", "--root-path", "/llm", "--forwarded-allow-ips", "*"],
    ],
)
def test_plain_command_lines_are_read_as_typer_reads_them(words: list[str]) -> None:
    found = read(asked_server, [*PLAIN, *words])
    assert found is not None
    assert DEFAULTS | found == read_by_typer([*PLAIN, *words])


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["core"],
        ["--accept", "tests"],
        ["core", "--accept"],
        ["core", "--accept", ""],
        ["core", "--accept", "--no-oracle"],
        [*PLAIN, "--help"],
        [*PLAIN, "-h"],
        [*PLAIN, "another"],
        [*PLAIN, "--", "--port"],
        [*PLAIN, "--prt", "1"],
        [*PLAIN, "--port", "65536"],
        [*PLAIN, "--port", "-1"],
        [*PLAIN, "--port", "1_0"],
        [*PLAIN, "--port", "1", "--port", "2"],
        [*PLAIN, "--threads", "0"],
        [*PLAIN, "--queue-capacity", "65537"],
        [*PLAIN, "--frontend-workers", "1025"],
        [*PLAIN, "--max-connections", "1048577"],
        [*PLAIN, "--device", "1024"],
        [*PLAIN, "--prefill-share", "nan"],
        [*PLAIN, "--log-level", "loud"],
        [*PLAIN, "--no-oracle=1"],
    ],
)
def test_everything_else_is_left_to_typer(words: list[str]) -> None:
    assert read(asked_server, words) is None


WORDS = st.sampled_from(
    [
        *("core", "--accept", "tests", "--port", "0", "8000", "65536", "-1", "--threads", "--"),
        *("--no-oracle", "--api-key", "--api-key=k", "--isa", "--cache-memory", "25%", "-h"),
        *("--log-level", "info", "loud", "--prefill-share", "0.5", ".5", "1e-1", "--host=::"),
        *("--port=7", "--http-workers=65", "--max-active="),
    ]
)


@given(st.lists(WORDS, max_size=7))
@example(["--no-oracle", "--port", "7", "--accept", "a", "core"])
@settings(max_examples=150, deadline=None)
def test_what_is_read_at_all_is_what_typer_reads(words: list[str]) -> None:
    words = [*PLAIN, *words]
    found = read(asked_server, words)
    if found is not None:
        assert DEFAULTS | found == read_by_typer(words)


@pytest.mark.parametrize("words", [[], ["-h"], ["--version"], ["verify", "core"], ["serve"]])
def test_other_commands_are_typers(words: list[str]) -> None:
    assert not served(words)


def _made(
    size: Annotated[int, Option("A size.", minimum=1)] = 1,
    loud: Annotated[bool, Option("Loud.", name="--loud")] = False,
) -> tuple[int, bool]:
    return size, loud


@with_groups
def _grouped(
    place: Annotated[str, Argument("A place.")],
    name: Annotated[str, Option("A name.")] = "nobody",
    *,
    made: Annotated[tuple[int, bool], Group(_made)],
) -> tuple[object, ...]:
    return place, name, made


def test_a_group_s_options_are_the_command_s_and_it_is_given_what_they_make() -> None:
    assert list(inspect.signature(_grouped).parameters) == ["place", "name", "size", "loud"]
    assert _grouped(place="here") == ("here", "nobody", (1, False))
    for words, expected in (
        (["here", "--size", "3"], ("here", "nobody", (3, False))),
        (["here", "--loud", "--name=me"], ("here", "me", (1, True))),
    ):
        found = read(_grouped, words)
        assert found is not None
        assert _grouped(**found) == expected
    assert read(_grouped, ["here", "--size", "0"]) is None
    assert read(_grouped, ["here", "--made", "0"]) is None
    with pytest.raises(TypeError):
        _grouped(place="here", volume=3)

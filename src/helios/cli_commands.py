"""All commands of `helios`, as Typer runs them: their options.

Each imports what it needs when it runs, so that help appears at once. What the commands do is in
`cli_*`. `serve` comes by here only where its command line is unusual (`cli`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from helios.cli_cores import inspect, verify
from helios.cli_options import (
    Accept,
    CacheMemory,
    Core,
    Keeping,
    Machine,
    MaxTokens,
    Mirrors,
    Opening,
    Seed,
    Target,
    Temperature,
    capacity_options,
)
from helios.cli_serve import asked_server, serve
from helios.cli_trust import trust
from helios.cli_typer import for_typer
from helios.command_line import Group, with_groups
from helios.errors import HeliosError
from helios.version import VERSION

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.add_typer(trust, name="trust")


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"helios {VERSION}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Serves prepared language models."""


@with_groups
def engine_options(
    *,
    machine: Machine,
    keeping: Keeping,
    opening: Opening,
    mirrors: Mirrors,
    target: Target = None,
    cache_memory: CacheMemory = None,
) -> dict[str, Any]:
    """What an engine is given that answers one request after the other in this process, its core
    apart. Raises as the others."""
    own = {"target": target, **capacity_options(1, cache_memory), "oracle": False}
    return opening | mirrors | machine | own | keeping


EngineOptions = Annotated[dict[str, Any], Group(engine_options)]


app.command("serve")(for_typer(asked_server, then=serve))


@app.command()
@for_typer
@with_groups
def generate(
    core: Core,
    accept: Accept,
    prompt: Annotated[str, typer.Argument(help="Text to continue.", show_default=False)],
    max_tokens: MaxTokens = None,
    temperature: Temperature = None,
    seed: Seed = None,
    *,
    engine: EngineOptions,
) -> None:
    """Continue a text and print it as it grows."""
    from helios.cli_chat import generate_text
    from helios.frontend.prepare import GenerationOptions

    wanted = GenerationOptions(max_tokens=max_tokens, temperature=temperature, seed=seed)
    generate_text(core, accept, prompt, wanted, engine)


@app.command()
@for_typer
@with_groups
def chat(
    core: Annotated[
        Path | None, typer.Argument(help="The core's folder.", show_default=False)
    ] = None,
    accept: Annotated[
        str | None, typer.Option(help="The publisher's namespace, exactly.", show_default=False)
    ] = None,
    server: Annotated[
        str | None,
        typer.Option(
            help="Talk to a running server at this URL instead of a core; its API key is read from"
            " HELIOS_API_KEY."
        ),
    ] = None,
    message: Annotated[
        str | None,
        typer.Option(
            help="Send this, print the answer, and end. Cut after about 1024 tokens, unless"
            " --max-tokens says otherwise."
        ),
    ] = None,
    system: Annotated[str | None, typer.Option(help="A system message.")] = None,
    max_tokens: MaxTokens = None,
    temperature: Temperature = None,
    seed: Seed = None,
    *,
    engine: EngineOptions,
) -> None:
    """Talk to a core in the terminal, or to a running server."""
    from helios.cli_chat import (
        UNWATCHED_PIECES,
        CoreSpeaker,
        ServerSpeaker,
        Speaker,
        answer_once,
        converse,
    )
    from helios.frontend.prepare import GenerationOptions

    wanted = GenerationOptions(max_tokens=max_tokens, temperature=temperature, seed=seed)

    def talk(speaker: Speaker) -> None:
        if message is None:
            converse(speaker, system)
        else:
            limit = UNWATCHED_PIECES if max_tokens is None else None
            answer_once(speaker, message, system, limit)

    if message is not None and not message.strip():
        raise HeliosError("is empty", where="--message", remedy="Give it some text")
    if (core is None) == (server is None):
        raise HeliosError(
            "one of CORE and --server is needed",
            where="chat",
            remedy="Give a core's folder with --accept, or a server's URL",
        )
    if server is not None:
        talk(ServerSpeaker(server, wanted))
        return
    assert core is not None
    if accept is None:
        raise HeliosError(
            "a core needs --accept", where="chat", remedy="Repeat its publisher's namespace"
        )
    with CoreSpeaker(core, accept, wanted, engine) as speaker:
        talk(speaker)


app.command()(for_typer(inspect))
app.command()(for_typer(verify))

"""The `ignition` command: prepare a checkpoint, prepare a core again, complete a draft, say
where its files lie, list recipes, make keys.

Reads options; the work is `preparation.prepare`'s, and `rebuild` has a module of its own. What is
wrong is said in one line, with exit status 2. SIGINT and SIGTERM end a command cleanly, with 128
and their number.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.table import Table

from helios.errors import HeliosError
from helios.standard_streams import open_closed_streams
from helios.version import VERSION
from helios.wording import escaped
from ignition import recipes
from ignition.capture.target import TARGETS
from ignition.cli_fill import fill_command
from ignition.cli_rebuild import rebuild_command
from ignition.cli_values import capacities, default, one_target, optional
from ignition.interruption import Interrupted, interruptible
from ignition.preparation import signing
from ignition.preparation.chat_syntax import AUTO
from ignition.preparation.export import Carrier
from ignition.preparation.locating import locate
from ignition.preparation.options import Options
from ignition.preparation.prepare import prepare as prepare_core
from ignition.preparation.quantisation import WeightStorage
from ignition.preparation.sampling import parse as parse_sampling
from ignition.preparation.template_choice import read_options
from ignition.preparation.templates import BY_NAME
from ignition.preparation.weightless import draft
from ignition.terminal import Terminal

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"ignition {VERSION}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Prepares language models into cores, which Helios serves."""


@app.command()
def prepare(
    checkpoint: Annotated[Path, typer.Argument(help="A GGUF file or a Hugging Face folder.")],
    out: Annotated[Path, typer.Argument(help="The folder that becomes the core.")],
    namespace: Annotated[str, typer.Option(help="Publisher, as --accept must repeat it.")],
    key: Annotated[Path | None, typer.Option(help="Private key that signs the core.")] = None,
    recipe: Annotated[str, typer.Option(help="Recipe, see `ignition recipes`.")] = "auto",
    storage: Annotated[
        WeightStorage, typer.Option(help="How weight matrices are kept.")
    ] = WeightStorage.AS_STORED,
    served_id: Annotated[
        str | None, typer.Option(help="Model name that clients send; default: from CHECKPOINT.")
    ] = None,
    alias: Annotated[list[str] | None, typer.Option(help="Another name; repeatable.")] = None,
    max_active: Annotated[
        int | None, typer.Option(min=1, help=f"Requests that run at once; {default('max_active')}")
    ] = None,
    prefill: Annotated[
        str | None, typer.Option(help=f"Tokens of each prefill program; {default('prefill')}")
    ] = None,
    decode: Annotated[
        str | None,
        typer.Option(
            help=f"Lanes of each decode program, MAX_ACTIVE the last; {default('decode')}"
        ),
    ] = None,
    mixed: Annotated[
        str | None,
        typer.Option(
            help="Tokens of each program that decodes and takes a prompt's chunk in one, or none;"
            " default: the most of PREFILL, of cuda targets 512,2048; at least two a request."
        ),
    ] = None,
    scored_prefill: Annotated[
        str | None,
        typer.Option(
            help="Tokens of each program that scores a prompt, or none;"
            f" {default('scored_prefill')}"
        ),
    ] = None,
    restore: Annotated[
        str | None,
        typer.Option(
            help="Lanes of each program that takes or restores snapshots, or none;"
            " default: MAX_ACTIVE."
        ),
    ] = None,
    max_context: Annotated[
        int | None,
        typer.Option(min=1, help="Tokens of the longest request; default: the model's."),
    ] = None,
    sampling: Annotated[
        str,
        typer.Option(
            help="What the model card recommends, as in temperature=0.2,top_p=0.9;"
            " default: the checkpoint's generation_config.json."
        ),
    ] = "",
    tools: Annotated[
        str,
        typer.Option(help="How the model writes tool calls, or none; default: by its template."),
    ] = AUTO,
    reasoning: Annotated[
        str, typer.Option(help="How the model writes reasoning, or none; default: by its template.")
    ] = AUTO,
    chat_template: Annotated[
        str,
        typer.Option(
            help="A Jinja file to use in place of the checkpoint's template, or a family whose"
            f" template Ignition has: {', '.join(BY_NAME)}; none: only the checkpoint's; default:"
            " the checkpoint's, or that of the family whose markers its tokenizer has."
        ),
    ] = AUTO,
    template_words: Annotated[
        Path | None,
        typer.Option(help="A JSON file with the checkpoint's own words in a family's template."),
    ] = None,
    target: Annotated[
        list[str] | None,
        typer.Option(help=f"What the core runs on: {', '.join(TARGETS)}; default: cpu."),
    ] = None,
    tuning: Annotated[
        bool,
        typer.Option("--tuning", help="Let each start measure how projections are blocked."),
    ] = False,
    oracle: Annotated[
        bool,
        typer.Option(
            help="Replay prompts, so that Helios can prove at start-up that it computes what was"
            " prepared."
        ),
    ] = True,
    carrier: Annotated[
        Carrier, typer.Option(help="In which message the core travels, see docs/core-format.md.")
    ] = Carrier.PAYLOAD,
    licence_terms: Annotated[str, typer.Option(help="Licence of the weights.")] = "",
    weightless: Annotated[
        bool,
        typer.Option(
            "--weightless",
            help="Write a draft, which `ignition fill` completes with random weights: CHECKPOINT is"
            " a folder with config.json and tokenizer.json. Needs no KEY.",
        ),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing core.")] = False,
) -> None:
    """Prepare a checkpoint into a core."""
    options = Options(
        namespace=namespace,
        served_id=served_id or _default_name(checkpoint),
        aliases=tuple(alias or ()),
        licence_terms=licence_terms,
        recipe=recipe,
        storage=storage,
        target=one_target(target or []),
        carrier=carrier,
        max_active=max_active,
        prefill=None if prefill is None else capacities("--prefill", prefill),
        decode=None if decode is None else capacities("--decode", decode),
        max_context=max_context,
        sampling=parse_sampling(sampling),
        tuning=tuning,
        oracle=oracle,
        mixed=None if mixed is None else optional("--mixed", mixed),
        scored_prefill=(
            None if scored_prefill is None else optional("--scored-prefill", scored_prefill)
        ),
        restore=None if restore is None else optional("--restore", restore),
        tools=tools,
        reasoning=reasoning,
        template=read_options(chat_template, template_words),
    )
    options.check()
    if weightless != (key is None):
        raise typer.BadParameter("give --key, or --weightless", param_hint="--key")
    console = Console(stderr=True, markup=False)
    terminal = Terminal(console)
    if key is None:
        draft(checkpoint, out, options, terminal, replace=force)
    else:
        private_key = signing.read_private_key(key)
        prepare_core(checkpoint, out, options, private_key, terminal, replace=force)
    console.print(f"wrote {out}", highlight=False)


app.command("rebuild")(rebuild_command)
app.command("fill")(fill_command)


@app.command("recipes")
def list_recipes() -> None:
    """List the model families that can be prepared."""
    table = Table("recipe", "prepares", "architectures")
    for recipe in recipes.RECIPES:
        table.add_row(recipe.name, recipe.summary, ", ".join(recipe.families))
    Console().print(table)


@app.command("locate")
def locate_command(
    core: Annotated[Path, typer.Argument(help="The core's folder.")],
    mirror: Annotated[
        list[str] | None,
        typer.Option(help="URL below which the files of resources/ are served; repeatable."),
    ] = None,
) -> None:
    """Say from where a core's resources can be fetched. Needs no key: locations aren't signed."""
    count = locate(core, mirror or ())
    unasked = "; no mirror was asked whether it has them" if mirror else ""
    Console(stderr=True, markup=False).print(
        f"wrote the locations of {count} resources{unasked}", highlight=False
    )


@app.command()
def keygen(
    out: Annotated[Path, typer.Argument(help="Private key file; OUT.pub gets the public key.")],
) -> None:
    """Make a key that signs cores."""
    public = signing.generate(out)
    Console(stderr=True, markup=False).print(
        f"wrote {out} (keep it private) and {public}", highlight=False
    )


def _default_name(checkpoint: Path) -> str:
    """A served id from the checkpoint's name; folder names may hold dots, as in `1.7B`."""
    path = checkpoint.resolve()
    return (path.stem if path.suffix.lower() == ".gguf" else path.name).lower()


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the `ignition` script."""
    open_closed_streams()
    try:
        with interruptible():
            app(args=arguments)
    except HeliosError as error:
        _end(str(error), 2)
    except OSError as error:
        _end(f"{error.filename or 'input or output'}: {error.strerror}", 2)
    except Interrupted as interrupted:
        _end("interrupted", 128 + interrupted.number)


def _end(text: str, status: int) -> NoReturn:
    # One line, and nothing that a terminal obeys: errors name what others wrote.
    print(f"ignition: {escaped(text)}", file=sys.stderr)
    sys.exit(status)


if __name__ == "__main__":
    main()

"""The `ignition` command: prepare a checkpoint, prepare a core again, say where its files lie,
list recipes, make keys.

Reads options; the work is `preparation.prepare`'s, and `rebuild` has a module of its own. What is
wrong is said in one line, with exit status 2.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from helios.errors import HeliosError
from ignition import recipes
from ignition.cli_rebuild import rebuild_command
from ignition.preparation import signing
from ignition.preparation.export import Carrier
from ignition.preparation.locating import locate
from ignition.preparation.paged_text import DEFAULT_MAX_ACTIVE, DEFAULT_PREFILL_EXTENTS
from ignition.preparation.prepare import Options
from ignition.preparation.prepare import prepare as prepare_core
from ignition.preparation.quantisation import WeightStorage
from ignition.terminal import Terminal

app = typer.Typer(
    help="Prepares language models into cores, which Helios serves.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.command()
def prepare(
    checkpoint: Annotated[Path, typer.Argument(help="A GGUF file or a Hugging Face folder.")],
    out: Annotated[Path, typer.Argument(help="The folder that becomes the core.")],
    key: Annotated[Path, typer.Option(help="Private key that signs the core.")],
    namespace: Annotated[str, typer.Option(help="Publisher, as --accept must repeat it.")],
    recipe: Annotated[str, typer.Option(help="Recipe, see `ignition recipes`.")] = "auto",
    storage: Annotated[
        WeightStorage, typer.Option(help="How weight matrices are kept.")
    ] = WeightStorage.AS_STORED,
    served_id: Annotated[
        str | None, typer.Option(help="Model name that clients send; default: from CHECKPOINT.")
    ] = None,
    alias: Annotated[list[str] | None, typer.Option(help="Another name; repeatable.")] = None,
    max_active: Annotated[int, typer.Option(help="Requests that run at once.")] = (
        DEFAULT_MAX_ACTIVE
    ),
    prefill: Annotated[str, typer.Option(help="Tokens of each prefill program.")] = ",".join(
        map(str, DEFAULT_PREFILL_EXTENTS)
    ),
    decode: Annotated[
        str | None,
        typer.Option(help="Lanes of each decode program; default: 1,2,4,8,16,32 and MAX_ACTIVE."),
    ] = None,
    max_context: Annotated[
        int | None, typer.Option(help="Tokens of the longest request; default: the model's.")
    ] = None,
    target: Annotated[str, typer.Option(help="What the core runs on.")] = "cpu",
    tuning: Annotated[
        bool,
        typer.Option("--tuning", help="Let each start measure how projections are blocked."),
    ] = False,
    carrier: Annotated[
        Carrier, typer.Option(help="In which message the core travels, see docs/core-format.md.")
    ] = Carrier.PAYLOAD,
    licence_terms: Annotated[str, typer.Option(help="Licence of the weights.")] = "",
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
        target=target,
        carrier=carrier,
        max_active=max_active,
        prefill=_capacities("--prefill", prefill),
        decode=None if decode is None else _capacities("--decode", decode),
        max_context=max_context,
        tuning=tuning,
    )
    private_key = signing.read_private_key(key)
    console = Console(stderr=True)
    prepare_core(checkpoint, out, options, private_key, Terminal(console), replace=force)
    console.print(f"wrote {out}", highlight=False)


app.command("rebuild")(rebuild_command)


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
    Console(stderr=True).print(f"wrote the locations of {count} resources", highlight=False)


@app.command()
def keygen(
    out: Annotated[Path, typer.Argument(help="Private key file; OUT.pub gets the public key.")],
) -> None:
    """Make a key that signs cores."""
    public = signing.generate(out)
    Console(stderr=True).print(f"wrote {out} (keep it private) and {public}", highlight=False)


def _default_name(checkpoint: Path) -> str:
    """A served id from the checkpoint's name; folder names may hold dots, as in `1.7B`."""
    path = checkpoint.resolve()
    return (path.stem if path.suffix.lower() == ".gguf" else path.name).lower()


def _capacities(option: str, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise typer.BadParameter(
            f"{text!r} is no list of numbers like 1,2,4", param_hint=option
        ) from error


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the `ignition` script."""
    try:
        app(args=arguments)
    except HeliosError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except OSError as error:
        print(f"error: {error.filename or 'input or output'}: {error.strerror}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()

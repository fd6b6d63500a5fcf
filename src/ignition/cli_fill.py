"""`ignition fill`: completes a draft with random weights. `preparation.weightless` does it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from ignition.preparation import signing
from ignition.preparation.export import Carrier
from ignition.preparation.weightless import fill
from ignition.terminal import Terminal


def fill_command(
    draft: Annotated[Path, typer.Argument(help="What `ignition prepare --weightless` wrote.")],
    out: Annotated[Path, typer.Argument(help="The folder that becomes the core.")],
    key: Annotated[Path, typer.Option(help="Private key that signs the core.")],
    seed: Annotated[int, typer.Option(min=0, help="What the weights are drawn from.")] = 0,
    carrier: Annotated[
        Carrier, typer.Option(help="In which message the core travels, see docs/core-format.md.")
    ] = Carrier.PAYLOAD,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing core.")] = False,
) -> None:
    """Complete a draft with random weights into a core, for measurements and tests."""
    console = Console(stderr=True, markup=False)
    private_key = signing.read_private_key(key)
    fill(draft, out, seed, private_key, Terminal(console), carrier=carrier, replace=force)
    console.print(f"wrote {out}", highlight=False)

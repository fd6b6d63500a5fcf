"""`ignition rebuild`: prepares a core again and says how the result differs.

Exit status 0 where everything but the signature is the same, 1 where it differs, 3 where it
differs and other tool versions explain all of it, 4 where all that could be compared is the same.
The work is `preparation.rebuild`'s.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from helios.core.sealed import read_core_key
from ignition.preparation import signing
from ignition.preparation.comparison import Comparison, Difference, Verdict
from ignition.preparation.rebuild import rebuild
from ignition.terminal import Terminal

_STATUS: Final = {
    Verdict.SAME: 0,
    Verdict.DIFFERENT: 1,
    Verdict.OTHER_TOOLS: 3,
    Verdict.SAME_CONTENT: 4,
}


def rebuild_command(
    core: Annotated[Path, typer.Argument(help="The core that is prepared again.")],
    checkpoint: Annotated[Path, typer.Argument(help="What it was prepared from.")],
    out: Annotated[
        Path | None, typer.Argument(help="The folder that becomes the new core; needs --key.")
    ] = None,
    key: Annotated[Path | None, typer.Option(help="Private key that signs the new core.")] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Only compare; the new core is thrown away.")
    ] = False,
    core_key: Annotated[
        Path | None, typer.Option(help="Key file that opens a sealed core, to compare its content.")
    ] = None,
) -> None:
    """Prepare a core again and compare everything but the signature, which is verified."""
    if check == (out is not None):
        raise typer.BadParameter("give OUT and --key, or --check")
    if (key is None) != (out is None):
        raise typer.BadParameter("OUT and --key belong together")
    console = Console(stderr=True, markup=False)
    comparison = rebuild(
        core,
        checkpoint,
        Terminal(console),
        destination=out,
        key=None if key is None else signing.read_private_key(key),
        core_key=None if core_key is None else read_core_key(core_key),
    )
    if out is not None:
        console.print(f"wrote {out}", highlight=False)
    for line in report(comparison):
        typer.echo(line)
    raise typer.Exit(_STATUS[comparison.verdict])


def report(comparison: Comparison) -> list[str]:
    """The comparison in lines."""
    lines = [f"signature: valid, by the key {comparison.public_key.hex()}"]
    lines += [f"tool: {name}: {_tool(*pair)}" for name, pair in comparison.tools.items()]
    lines += [f"not compared: {what}" for what in comparison.left_out]
    lines += [
        f"{_origin(difference, comparison)}: {difference.where}: {difference.what}"
        for difference in comparison.differences
    ]
    return [*lines, comparison.verdict.value]


def _tool(recorded: str | None, used: str | None) -> str:
    if recorded is None:
        return f"the core doesn't record it, {used} is used now"
    if used is None:
        return f"the core records {recorded!r}, Ignition no longer does"
    return f"{recorded} made the core, {used} is used now"


def _origin(difference: Difference, comparison: Comparison) -> str:
    """Whether other tools explain a difference, and which."""
    if not difference.causes:
        return "differs"
    changes = []
    for name in difference.causes:
        recorded, used = comparison.tools[name]
        changes.append(f"{name} {recorded}, now {used}")
    return f"other tools ({'; '.join(changes)})"

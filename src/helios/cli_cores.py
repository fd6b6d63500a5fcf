"""The `helios` commands that look at a core and serve nothing: `inspect` and `verify`.

Their options; what they do is in `cli_inspect` and `cli_verify`, imported when it is done.
"""

from __future__ import annotations

from typing import Annotated

import typer

from helios.cli_options import (
    Accept,
    CapacityOptions,
    Core,
    CoreKey,
    Machine,
    Mirrors,
    Opening,
    PublisherKey,
    Target,
    opening_options,
)
from helios.command_line import with_groups


@with_groups
def inspect(
    core: Core,
    target: Target = None,
    program: Annotated[
        str | None, typer.Option(help="Show this program's launches.", show_default=False)
    ] = None,
    contract: Annotated[
        bool, typer.Option("--contract", help="Print the serving contract as JSON.")
    ] = False,
    publisher_key: PublisherKey = None,
    core_key: CoreKey = None,
    *,
    capacities: CapacityOptions,
    mirrors: Mirrors,
) -> None:
    """Print what a core holds: resources, memory by class, programs. Loads nothing."""
    # Looking at a core is safe, whoever signed it; the table says whether the key is trusted.
    opening = opening_options(publisher_key, True, core_key)
    from helios.cli_inspect import inspect_core, print_contract
    from helios.worker.options import WorkerOptions

    options = WorkerOptions(core=str(core), accept="", **opening, **mirrors, **capacities)
    if contract:
        print_contract(options)
    else:
        inspect_core(options, target, program)


@with_groups
def verify(
    core: Core,
    accept: Accept,
    target: Annotated[
        str | None,
        typer.Option(
            help="What replays the oracle: cpu, cuda, or reference (numpy, slow); default: cpu"
            " where the core has it."
        ),
    ] = None,
    replay: Annotated[
        bool,
        typer.Option(
            "--replay",
            help="Run the reference in lockstep and name the first launch that differs (slow).",
        ),
    ] = False,
    *,
    machine: Machine,
    opening: Opening,
    mirrors: Mirrors,
) -> None:
    """Check every byte of a core, then replay its whole oracle."""
    from helios.cli_verify import verify_core
    from helios.worker.options import WorkerOptions

    options = WorkerOptions(
        core=str(core), accept=accept, request_slots=1, **machine, **opening, **mirrors
    )
    verify_core(options, target, lockstep=replay)

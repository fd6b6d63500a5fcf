"""The `helios` commands that look at a core and serve nothing: `inspect` and `verify`.

Their options; what they do is in `cli_inspect` and `cli_verify`, imported when it is done.
"""

from __future__ import annotations

from typing import Annotated

import typer

from helios.cli_options import (
    Accept,
    AllowPrivateMirrors,
    AllowUnknownPublisher,
    CacheDir,
    CacheMemory,
    Core,
    CoreKey,
    GpuOrdinal,
    InstructionSet,
    MaxActive,
    MirrorTimeout,
    PublisherKey,
    Snapshots,
    Target,
    Threads,
    mirror_options,
    opening_options,
    running_options,
)


def inspect(
    core: Core,
    target: Target = None,
    max_active: MaxActive = None,
    cache_memory: CacheMemory = None,
    snapshots: Snapshots = None,
    program: Annotated[
        str | None, typer.Option(help="Show this program's launches.", show_default=False)
    ] = None,
    contract: Annotated[
        bool, typer.Option("--contract", help="Print the serving contract as JSON.")
    ] = False,
    publisher_key: PublisherKey = None,
    core_key: CoreKey = None,
    cache_dir: CacheDir = None,
    allow_private_mirrors: AllowPrivateMirrors = False,
    mirror_timeout: MirrorTimeout = None,
) -> None:
    """Print what a core holds: resources, memory by class, programs. Loads nothing."""
    # Looking at a core is safe, whoever signed it; the table says whether the key is trusted.
    opening = opening_options(publisher_key, True, core_key)
    opening |= mirror_options(cache_dir, allow_private_mirrors, mirror_timeout)
    running = running_options(None, None, max_active, cache_memory, snapshots)
    from helios.cli_inspect import inspect_core, print_contract
    from helios.worker.options import WorkerOptions

    options = WorkerOptions(core=str(core), accept="", **opening, **running)
    if contract:
        print_contract(options)
    else:
        inspect_core(options, target, program)


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
    device: GpuOrdinal = 0,
    replay: Annotated[
        bool,
        typer.Option(
            "--replay",
            help="Run the reference in lockstep and name the first launch that differs (slow).",
        ),
    ] = False,
    threads: Threads = None,
    isa: InstructionSet = None,
    publisher_key: PublisherKey = None,
    allow_unknown_publisher: AllowUnknownPublisher = False,
    core_key: CoreKey = None,
    cache_dir: CacheDir = None,
    allow_private_mirrors: AllowPrivateMirrors = False,
    mirror_timeout: MirrorTimeout = None,
) -> None:
    """Check every byte of a core, then replay its whole oracle."""
    opening = opening_options(publisher_key, allow_unknown_publisher, core_key)
    opening |= mirror_options(cache_dir, allow_private_mirrors, mirror_timeout)
    from helios.cli_verify import verify_core
    from helios.worker.options import WorkerOptions

    running = running_options(threads, isa, device=device)
    options = WorkerOptions(core=str(core), accept=accept, **opening, **running)
    verify_core(options, target, lockstep=replay)

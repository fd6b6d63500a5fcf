"""`helios inspect`: what a core holds, what it would take, what it would run.

Prints tables of what `helios.runtime.inspection` and the opened core say. Inspecting isn't
serving, so it asks for no acceptance: the core's own namespace is taken.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from helios.contract import PreparedContract
from helios.contract.json_form import to_json
from helios.core import OpenedCore, read_folder
from helios.core.body import DeploymentTarget
from helios.core.resources import SealedResource
from helios.runtime.capacities import available_nbytes
from helios.runtime.inspection import (
    FunctionRow,
    LaunchRow,
    MemoryReport,
    ProgramRow,
    function_rows,
    launch_rows,
    memory_report,
    program_rows,
)
from helios.runtime.targets import choose_target, deployed_ranks, ranks_by_manifest, read_manifests
from helios.wording import counted, escaped, show_name, show_size
from helios.worker.options import WorkerOptions
from helios.worker.served_core import asked_capacities, open_served_core

_PIPE_WIDTH: Final = 200


def print_contract(options: WorkerOptions) -> None:
    """Prints the core's serving contract as JSON, exactly as signed."""
    print(to_json(_open(options).deployment.contract))


def _open(options: WorkerOptions) -> OpenedCore:
    """The core, its own namespace accepted."""
    publisher = read_folder(Path(options.core), options.publisher_key).head.publisher
    return open_served_core(msgspec.structs.replace(options, accept=publisher.namespace))


def inspect_core(options: WorkerOptions, asked: str | None, program: str | None) -> None:
    """Prints the core; with `program` only that program's launches. Raises CoreError or
    ContractError as loading would."""
    # Where nobody sets a width, as in a pipe, names must not be cut.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else _PIPE_WIDTH)
    core = _open(options)
    target = choose_target(core, asked)
    manifests = read_manifests(core, deployed_ranks(core, target))
    # Ranks of one manifest are told of together; others have launches and bytes of their own.
    ranks = [
        (manifest, _title(own, len(manifests))) for manifest, own in ranks_by_manifest(manifests)
    ]
    if program is not None:
        for manifest, which in ranks:
            console.print(_launch_table(program + which, launch_rows(manifest, program)))
        return
    capacities, available = asked_capacities(options), available_nbytes() // len(manifests)
    for table in (_core_table(core), _contract_table(core.contract), _resource_table(core)):
        console.print(table)
    for manifest, which in ranks:
        report = memory_report(manifest, core.contract, capacities, available)
        console.print(_memory_table(target + which, report))
        rows = program_rows(manifest, report.request_slots, report.speculative_width)
        console.print(_program_table(rows))
        functions = function_rows(manifest)
        if functions:
            console.print(_function_table(functions))


def _title(own: Sequence[int], ranks: int) -> str:
    """The end of a title of what some of several ranks run."""
    if ranks == 1:
        return ""
    return f", {'each of ranks' if len(own) > 1 else 'rank'} {', '.join(map(str, own))}"


def _text(text: str) -> Text:
    """What others wrote, as it is: no markup, and nothing but line ends that a terminal obeys."""
    return Text("\n".join(map(escaped, text.split("\n"))))


def _add_row(table: Table, *cells: str) -> None:
    table.add_row(*map(_text, cells))


def _pairs(title: str, pairs: list[tuple[str, str]]) -> Table:
    table = Table(title=title, title_justify="left", show_header=False)
    for name, value in pairs:
        _add_row(table, name, value)
    return table


def _core_table(core: OpenedCore) -> Table:
    acceptance = core.acceptance
    return _pairs(
        "Core",
        [
            ("folder", str(core.folder)),
            ("carrier", core.decoded.carrier),
            ("digest", core.digest),
            ("publisher", _publisher(acceptance.namespace)),
            ("licence", acceptance.licence_terms or "none stated"),
            ("signed by", f"{acceptance.public_key.hex()} ({acceptance.trust})"),
            ("targets", ", ".join(map(_target, core.targets.values()))),
        ],
    )


def _target(target: DeploymentTarget) -> str:
    ranks = len(target.ranks)
    return target.name if ranks == 1 else f"{target.name} ({ranks} ranks)"


def _publisher(namespace: str) -> str:
    plain = namespace.isascii() and namespace.isprintable()
    return namespace if plain else show_name(namespace)


def _contract_table(contract: PreparedContract) -> Table:
    sampling = contract.defaults.sampling
    recommended = [
        f"{name}={getattr(sampling, name):g}"
        for name in sampling.__slots__
        if getattr(sampling, name) is not None
    ]
    model = contract.model
    return _pairs(
        "Contract",
        [
            ("model", ", ".join((contract.served_id, *contract.aliases))),
            ("context", f"{contract.max_context_tokens} tokens"),
            ("concurrency", counted(contract.max_active, "request")),
            ("vocabulary", f"{model.vocabulary.sampled_tokens} tokens"),
            ("end of sequence", ", ".join(map(str, model.frontend.eos_ids))),
            ("recommended", ", ".join(recommended) or "nothing"),
            ("contract version", str(model.version)),
        ],
    )


def _resource_table(core: OpenedCore) -> Table:
    table = Table("resource", "kind", "stored", "decoded", title="Resources", title_justify="left")
    for executable in core.decoded.executables.values():
        _add_row(
            table,
            executable.id,
            executable.kind.name.lower(),
            show_size(executable.stored_nbytes),
            show_size(executable.decoded_nbytes),
        )
    for weight in core.decoded.weights.values():
        decoded = "used in place"
        if isinstance(weight, SealedResource):
            decoded = show_size(weight.decoded_nbytes)
        _add_row(table, weight.id, "weights", show_size(weight.stored_nbytes), decoded)
    return table


def _memory_table(target: str, report: MemoryReport) -> Table:
    title = (
        f"Memory on {target} with {counted(report.request_slots, 'slot')} and"
        f" {counted(report.cache_pages, 'page')} of {report.page_tokens} tokens"
        f" ({show_size(report.page_nbytes)} each)"
    )
    if report.snapshot_nbytes:
        title += (
            f", {counted(report.snapshots, 'snapshot')} ({show_size(report.snapshot_nbytes)} each)"
        )
    table = Table("class", "buffers", "memory", title=_text(title), title_justify="left")
    for row in report.classes:
        _add_row(table, row.buffer_class, str(row.buffers), show_size(row.nbytes))
    table.add_section()
    _add_row(
        table, "all", str(sum(r.buffers for r in report.classes)), show_size(report.total_nbytes)
    )
    return table


def _program_table(rows: tuple[ProgramRow, ...]) -> Table:
    table = Table(
        "program", "operation", "B", "D", "W", "P", "launches", "completion", "serves",
        title="Programs", title_justify="left",
    )  # fmt: skip
    for row in rows:
        _add_row(
            table,
            row.name,
            row.operation.lower(),
            str(row.batch_capacity),
            str(row.draft_tokens),
            str(row.token_capacity),
            str(row.packed_token_capacity),
            str(row.launches),
            row.completion or "-",
            "yes" if row.selected else "no",
        )
    return table


def _launch_table(program: str, rows: tuple[LaunchRow, ...]) -> Table:
    with_nodes = any(row.nodes for row in rows)
    headings = ("", "kernel", "operands", "attributes", *(("nodes",) if with_nodes else ()))
    table = Table(*headings, title=_text(program), title_justify="left")
    for row in rows:
        lists = (row.operands, row.attributes, *((row.nodes,) if with_nodes else ()))
        _add_row(table, str(row.index), row.kernel, *("\n".join(cell) for cell in lists))
    return table


def _function_table(rows: tuple[FunctionRow, ...]) -> Table:
    table = Table(
        "function", "module", "threads", "shared memory", "nodes",
        title="Functions", title_justify="left",
    )  # fmt: skip
    for row in rows:
        _add_row(
            table,
            row.function,
            row.module,
            str(row.threads),
            show_size(row.shared_nbytes),
            str(row.nodes),
        )
    return table

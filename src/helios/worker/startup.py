"""From a core's folder to a model that can serve: open, load, replay one oracle case.

Called by the worker process and by the in-process engine; the phases' durations go to the client.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from helios.contract.model import ServingDefaults
from helios.core import OpenedCore, ResourceKind
from helios.errors import CoreError
from helios.runtime.model_runtime import DeviceOptions, ModelRuntime
from helios.runtime.native_model import NativeModel
from helios.runtime.oracle import check_oracle
from helios.scheduler.options import SchedulerOptions
from helios.schema import core_pb2
from helios.worker.messages import WorkerReady
from helios.worker.options import WorkerOptions
from helios.worker.served_core import asked_capacities, open_served_core

if TYPE_CHECKING:
    from helios.frontend.tokenizer import Tokenizer


@dataclass(slots=True)
class LoadedModel:
    """A model that can serve. `startup_ms` holds each phase's duration in milliseconds; times of
    tokens count from `origin_ns`, when the native runtime began to start."""

    core: OpenedCore
    native: NativeModel
    scheduler: SchedulerOptions
    origin_ns: int
    startup_ms: dict[str, float] = field(default_factory=dict)

    @property
    def runtime(self) -> ModelRuntime:
        """The rank that takes rounds."""
        return self.native.runtime

    def open_tokenizer(self) -> Tokenizer:
        """The core's tokenizer. Raises CoreError."""
        # Imported on use: most workers never need it.
        from helios.frontend.tokenizer import Tokenizer

        resource = self.core.deployment.tokenizer_resource
        return Tokenizer(self.core.read_resource(resource, ResourceKind.TOKENIZER))

    def ready_message(self) -> WorkerReady:
        """What the client is told."""
        (geometry,) = self.native.manifests
        return WorkerReady(
            kernel_path=geometry.kernel_path,
            request_slots=geometry.request_slots,
            speculative_width=geometry.speculative_width,
            cache_pages=geometry.cache_pages,
            cache_nbytes=geometry.cache_nbytes,
            page_tokens=geometry.page_tokens,
            max_context_tokens=geometry.max_context_tokens,
            queue_capacity=self.scheduler.queue_limit,
            startup_ms=self.startup_ms,
            snapshots=geometry.snapshot_rows,
            origin_ns=self.origin_ns,
            event_capacity=self.core.contract.defaults.event_capacity or 0,
        )


def load_model(options: WorkerOptions) -> LoadedModel:
    """Raises CoreError, ContractError or, where the oracle doesn't hold, ExecutionError."""
    clock = time.monotonic_ns
    began = clock()
    core = open_served_core(options)
    opened = clock()
    native = NativeModel.load(
        core,
        target=options.target,
        options=DeviceOptions(options.threads, options.instruction_set),
        capacities=asked_capacities(options),
        peers=options.peers,
        verify_weights=options.verify_weights,
    )
    loaded = clock()
    try:
        if options.oracle:
            replay_oracle(core, native.runtime, cases=1)
    except BaseException:
        native.close()
        raise
    replayed = clock()
    tuned = native.runtime.tuning_ns
    phases = {"open": opened - began, "load": loaded - opened - tuned, "oracle": replayed - loaded}
    if tuned:
        phases["tune"] = tuned
    return LoadedModel(
        core,
        native,
        resolved_scheduler(options.scheduler, core.contract.defaults),
        opened,
        {name: ns / 1e6 for name, ns in phases.items()},
    )


def resolved_scheduler(explicit: SchedulerOptions, defaults: ServingDefaults) -> SchedulerOptions:
    """The scheduler's settings: what was said explicitly, else what the core recommends."""
    if explicit.queue_capacity is not None or defaults.queue_capacity is None:
        return explicit
    return replace(explicit, queue_capacity=defaults.queue_capacity)


def replay_oracle(core: OpenedCore, runtime: ModelRuntime, cases: int | None = None) -> None:
    """Holds the runtime against the first `cases` cases of the core's oracle, if it has one.
    Raises ExecutionError that names the first difference."""
    resource = core.decoded.oracle_resource
    if not resource:
        return
    oracle = core_pb2.Oracle()
    try:
        oracle.ParseFromString(core.read_resource(resource, ResourceKind.ORACLE))
    except DecodeError as error:
        raise CoreError(
            f"is no oracle ({error})", where=resource, remedy="Prepare the core again"
        ) from error
    check_oracle(runtime, oracle, cases)

"""From a core's folder to a model that can serve: open, load, replay one oracle case.

Called by the worker process and by the in-process engine; the phases' durations go to the client.
"""

from __future__ import annotations

import time
from dataclasses import field, replace
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from helios.contract.model import ServingDefaults
from helios.core import OpenedCore, ResourceKind
from helios.dataclass import dataclass
from helios.errors import CoreError
from helios.runtime.devices.opening import early_start
from helios.runtime.model_runtime import DeviceOptions
from helios.runtime.native_model import NativeModel
from helios.runtime.oracle import check_oracle
from helios.runtime.served import ServedRuntime
from helios.runtime.targets import choose_target
from helios.scheduler import SchedulerOptions, can_reuse
from helios.schema import core_pb2
from helios.worker.messages import WorkerReady
from helios.worker.options import WorkerOptions
from helios.worker.served_core import asked_capacities, open_served_core, prepare_prompt_cache

if TYPE_CHECKING:
    from helios.scheduler.cache.offload import Offload

if TYPE_CHECKING:
    from llguidance import LLTokenizer

    from helios.frontend.token_bytes import TokenBytes


@dataclass(slots=True)
class LoadedModel:
    """A model that can serve. Times of tokens count from `origin_ns`, when the native runtime began
    to start; `tier` is the prefix cache's second tier, where one is asked for; `startup_ms` holds
    each phase's duration in milliseconds and its parts' (behind a dot), `device` how it uses the
    machine."""

    core: OpenedCore
    native: NativeModel
    scheduler: SchedulerOptions
    origin_ns: int
    tier: Offload | None = None
    startup_ms: dict[str, float] = field(default_factory=dict)
    device: DeviceOptions = field(default_factory=DeviceOptions)

    @property
    def runtime(self) -> ServedRuntime:
        """What takes rounds."""
        return self.native.runtime

    def open_token_bytes(self) -> TokenBytes:
        """What the core's tokens spell. Raises CoreError."""
        # Imported on use: most workers never need it.
        from helios.frontend.token_bytes import read_token_bytes

        resource = self.core.deployment.tokenizer_resource
        return read_token_bytes(self.core.read_resource(resource, ResourceKind.TOKENIZER))

    def open_vocabulary(self) -> LLTokenizer:
        """The core's vocabulary as grammars see it. Raises CoreError."""
        # Imported on use, as above.
        from helios.frontend.responses import ResponseReading
        from helios.frontend.tokenizer import Tokenizer

        contract = self.core.contract
        resource = self.core.deployment.tokenizer_resource
        tokenizer = Tokenizer(self.core.read_resource(resource, ResourceKind.TOKENIZER))
        sampled_tokens = contract.model.vocabulary.sampled_tokens
        return ResponseReading(contract.model.frontend, tokenizer, sampled_tokens).vocabulary

    def ready_message(self) -> WorkerReady:
        """What the client is told."""
        geometry = self.native.runtime.geometry
        tiers = {} if self.tier is None else self.tier.limits()
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
            prefix_reuse=self.scheduler.prefix_reuse and can_reuse(geometry),
            tiers_nbytes=tiers,
            origin_ns=self.origin_ns,
            event_capacity=self.core.contract.defaults.event_capacity or 0,
            threads=self.device.thread_count,
            ranks=len(self.native.ranks),
        )

    def close(self) -> None:
        """Ends the second tier's threads, which read the device's memory, then drains the device
        and lets go of it. Idempotent."""
        if self.tier is not None:
            self.tier.close()
        self.native.close()


def load_model(options: WorkerOptions) -> LoadedModel:
    """Raises CoreError, ContractError or, where the oracle doesn't hold, ExecutionError;
    HeliosError for a second tier that can't be had."""
    with early_start(options.target, options.device):
        return _load(options)


def _load(options: WorkerOptions) -> LoadedModel:
    clock = time.monotonic_ns
    began = clock()
    core = open_served_core(options)
    prepare_prompt_cache(options)
    opened = clock()
    device = DeviceOptions(options.threads, options.instruction_set, options.device)
    native = NativeModel.load(
        core,
        target=choose_target(core, options.target),
        options=device,
        capacities=asked_capacities(options),
        peers=options.peers,
        verify_weights=options.verify_weights,
    )
    loaded = clock()
    try:
        if options.oracle:
            replay_oracle(core, native.runtime, cases=1)
        replayed = clock()
        tier = _open_tier(options, core, native.runtime)
    except BaseException:
        native.close()
        raise
    tuned = native.runtime.tuning_ns
    phases = {"open": opened - began, "load": loaded - opened - tuned, "oracle": replayed - loaded}
    phases |= {f"load.{part}": ns for part, ns in native.runtime.load_ns.items()}
    if tuned:
        phases["tune"] = tuned
    if tier is not None:
        phases["second_tier"] = clock() - replayed
    return LoadedModel(
        core,
        native,
        resolved_scheduler(options.scheduler, core.contract.defaults),
        opened,
        tier,
        {name: ns / 1e6 for name, ns in phases.items()},
        device,
    )


def _open_tier(options: WorkerOptions, core: OpenedCore, runtime: ServedRuntime) -> Offload | None:
    if not options.asks_for_second_tier:
        return None
    # Imported on use: who has no second tier doesn't wait for it.
    from helios.worker.second_tier import open_tier

    return open_tier(options, core.digest, runtime)


def resolved_scheduler(explicit: SchedulerOptions, defaults: ServingDefaults) -> SchedulerOptions:
    """The scheduler's settings: what was said explicitly, else what the core recommends."""
    if explicit.queue_capacity is not None or defaults.queue_capacity is None:
        return explicit
    return replace(explicit, queue_capacity=defaults.queue_capacity)


def replay_oracle(core: OpenedCore, runtime: ServedRuntime, cases: int | None = None) -> None:
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

"""`/server_info`: what runs here, with which options, and the capacities that resulted."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from helios.server.lifecycle import Lifecycle, ServedModel
from helios.version import VERSION


class Capacities(msgspec.Struct, frozen=True):
    """What there is room for."""

    request_slots: Annotated[int, Meta(description="Requests that can run at once.")]
    queue_capacity: Annotated[int, Meta(description="Requests that can wait for a slot.")]
    permits: Annotated[int, Meta(description="Requests that the server takes at once.")]
    preparation_slots: Annotated[
        int, Meta(description="Prompts that each HTTP process can make at once.")
    ]
    event_capacity: Annotated[
        int, Meta(description="Events that every answer's queue holds at the least.")
    ]
    max_context_tokens: Annotated[
        int, Meta(description="Most tokens of prompt and output together.")
    ]
    speculative_width: Annotated[
        int, Meta(description="Most tokens that a step of a request verifies; 0 without.")
    ]
    cache_pages: Annotated[int, Meta(description="Pages of the attention cache.")]
    page_tokens: Annotated[int, Meta(description="Tokens that a page holds.")]
    cache_nbytes: Annotated[
        int, Meta(description="Bytes of the attention cache on all ranks, snapshots included.")
    ]
    snapshots: Annotated[int, Meta(description="Snapshots that there is room for.")]
    prefix_reuse: Annotated[bool, Meta(description="Prompts may begin from earlier ones.")]
    second_tier_nbytes: Annotated[
        dict[str, int],
        Meta(description="Bytes that each part of the second tier may keep, by its name."),
    ]


class LoadedCore(msgspec.Struct, frozen=True):
    """The core that is served, and what runs it."""

    served_id: Annotated[str, Meta(description="The model's name in answers.")]
    aliases: Annotated[list[str], Meta(description="Its other names.")]
    namespace: Annotated[str, Meta(description="Of the core's publisher.")]
    digest: Annotated[str, Meta(description="SHA-256 of the core's signed body.")]
    contract_version: Annotated[int, Meta(description="Version of the model's contract.")]
    kernel_path: Annotated[str, Meta(description="Target and instruction set of the kernels.")]
    threads: Annotated[int, Meta(description="Compute threads of the worker.")]
    ranks: Annotated[int, Meta(description="Devices of this host that run every step together.")]
    created: Annotated[int, Meta(description="When it was loaded, Unix time in seconds.")]
    capacities: Annotated[Capacities, Meta(description="What there is room for.")]


class ServerInfo(msgspec.Struct, frozen=True):
    """What runs here and how."""

    version: Annotated[str, Meta(description="Version of Helios.")]
    phase: Annotated[
        str,
        Meta(
            description="`loading_core`, `loading_model`, `ready`, `draining` or `failed`.",
        ),
    ]
    startup_ms: Annotated[
        dict[str, float], Meta(description="Durations of the start-up phases so far.")
    ]
    options: Annotated[
        dict[str, Any],
        Meta(
            description="Options that the server was started with; no secrets. Null is a default"
            " that the core or the machine decides."
        ),
    ]
    core: Annotated[
        LoadedCore | None, Meta(description="What is served; null until it is loaded.")
    ] = None


def server_info(lifecycle: Lifecycle) -> ServerInfo:
    """What is known now."""
    model = lifecycle.model
    return ServerInfo(
        version=VERSION,
        phase=lifecycle.phase.value,
        startup_ms=lifecycle.startup_ms,
        options=dict(lifecycle.options),
        core=None if model is None else _core(model),
    )


def _core(model: ServedModel) -> LoadedCore:
    ready, contract = model.ready, model.frontend.contract
    return LoadedCore(
        served_id=model.served_id,
        aliases=list(contract.aliases),
        namespace=model.namespace,
        digest=model.digest,
        contract_version=contract.model.version,
        kernel_path=ready.kernel_path,
        threads=ready.threads,
        ranks=ready.ranks,
        created=model.created,
        capacities=Capacities(
            request_slots=ready.request_slots,
            queue_capacity=ready.queue_capacity,
            permits=model.admission.capacity,
            preparation_slots=model.preparation_slots,
            event_capacity=ready.event_capacity,
            max_context_tokens=ready.max_context_tokens,
            speculative_width=ready.speculative_width,
            cache_pages=ready.cache_pages,
            page_tokens=ready.page_tokens,
            cache_nbytes=ready.cache_nbytes,
            snapshots=ready.snapshots,
            prefix_reuse=ready.prefix_reuse,
            second_tier_nbytes=ready.tiers_nbytes,
        ),
    )

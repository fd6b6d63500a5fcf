"""The options that several `helios` commands share, and what they amount to.

The commands themselves are in `cli`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from helios.command_line import Argument, Group, Option

Core = Annotated[Path, Argument("The core's folder.")]
Accept = Annotated[
    str,
    Option(
        "The publisher's namespace, exactly: you trust it and take its licence terms.",
    ),
]
PublisherKey = Annotated[
    Path | None,
    Option("Public key file (PEM); only a core that it signed is opened."),
]
AllowUnknownPublisher = Annotated[
    bool,
    Option("Take a core whose key `helios trust` doesn't know.", name="--allow-unknown-publisher"),
]
CoreKey = Annotated[
    Path | None,
    Option("Key file of a sealed core: 32 bytes, raw or in hexadecimal."),
]
CacheDir = Annotated[
    Path | None,
    Option("Where fetched resources are kept; default: HELIOS_CACHE or ~/.cache/helios."),
]
AllowPrivateMirrors = Annotated[
    bool,
    Option("Fetch from this machine and private networks too.", name="--allow-private-mirrors"),
]
MirrorTimeout = Annotated[
    float | None,
    Option(minimum=0.1, help="Seconds that a mirror may leave one without an answer; default: 5."),
]
Threads = Annotated[
    int | None, Option(minimum=1, help="Compute threads; default: the machine's cores.")
]
InstructionSet = Annotated[
    str | None,
    Option("avx512, avx2 or portable; default: the widest there is.", name="--isa"),
]
Target = Annotated[
    str | None,
    Option(
        "cpu, cuda, or a target that the core names, like cuda:sm_90; default: cpu where the core"
        " has it."
    ),
]
GpuOrdinal = Annotated[
    int,
    Option(
        "Which GPU, counting from 0, on a cuda target.", name="--device", minimum=0, maximum=1023
    ),
]
MaxActive = Annotated[
    int | None, Option(minimum=1, help="Requests that run at once; default: the core's.")
]
CacheMemory = Annotated[
    str | None,
    Option(
        "Attention cache, like 2GiB, or a share of what is free beside the model, like 25%;"
        " default: by context and free memory, on a GPU 90%."
    ),
]
Snapshots = Annotated[
    int | None,
    Option(
        minimum=0,
        help="Prompts' and answers' ends that are kept for reuse, in the cache's memory;"
        " default: two a request that can run.",
    ),
]
PromptCache = Annotated[
    Path | None,
    Option(
        "Keep what prompts leave in this folder, for requests after a restart too. Whoever can"
        " read it can tell what was prompted; default: nothing is kept.",
    ),
]
PromptCacheSize = Annotated[
    str | None,
    Option("Most that --prompt-cache takes, like 50GB; default: 16GiB."),
]
OffloadMemory = Annotated[
    str | None,
    Option(
        "Host memory, like 4GiB, for prompts that the cache has no room for; default: none.",
    ),
]
SpeculativeWidth = Annotated[
    int | None,
    Option(
        minimum=0,
        help="Most tokens a request verifies at once; 0 without speculation; default: all.",
    ),
]
HistoryDrafting = Annotated[
    bool,
    Option(
        "Draft from a request's own text too, where the core speculates and takes copied tokens.",
        name="--history-drafting",
    ),
]
QueueCapacity = Annotated[
    int | None,
    Option(minimum=1, maximum=65536, help="Requests that may wait; default: the core's, or 256."),
]
MaxStepMs = Annotated[
    float | None,
    Option(
        "Milliseconds between two tokens of a request that prompts of others may stretch it"
        " to; default: no bound, prompts go in short chunks."
    ),
]
PrefillShare = Annotated[
    float,
    Option("Share of the time that prompts take while other requests generate, 0.05 to 0.95."),
]
NoPrefixReuse = Annotated[
    bool,
    Option(
        "Compute every prompt, whatever of it an earlier request left.", name="--no-prefix-reuse"
    ),
]
FrontendWorkers = Annotated[
    int | None,
    Option(minimum=1, maximum=1024, help="Requests prepared at once; default: the core's, or 2."),
]
NoOracle = Annotated[
    bool, Option("Serve without replaying an oracle case first.", name="--no-oracle")
]
MaxTokens = Annotated[int | None, Option(minimum=1, help="Most tokens to generate.")]
Temperature = Annotated[float | None, Option("0 takes the likeliest token each time.")]
Seed = Annotated[int | None, Option("Equal seeds give equal answers.")]


def opening_options(
    publisher_key: PublisherKey = None,
    allow_unknown_publisher: AllowUnknownPublisher = False,
    core_key: CoreKey = None,
) -> dict[str, Any]:
    """The fields of `WorkerOptions` that say how a core is opened. Raises CoreError for a key
    file that is none."""
    options: dict[str, Any] = {
        "allow_unknown_publisher": allow_unknown_publisher,
        "core_key": None if core_key is None else str(core_key),
    }
    if publisher_key is not None:
        from helios.cli_values import read_public_key

        options["publisher_key"] = read_public_key(publisher_key)
    return options


def mirror_options(
    cache_dir: CacheDir = None,
    allow_private_mirrors: AllowPrivateMirrors = False,
    mirror_timeout: MirrorTimeout = None,
) -> dict[str, Any]:
    """The fields of `WorkerOptions` that say how what the core's folder lacks is fetched."""
    return {
        "cache_dir": None if cache_dir is None else str(cache_dir),
        "allow_private_mirrors": allow_private_mirrors,
        "mirror_timeout_s": mirror_timeout,
    }


def keeping_options(
    prompt_cache: PromptCache = None,
    prompt_cache_size: PromptCacheSize = None,
    offload_memory: OffloadMemory = None,
) -> dict[str, Any]:
    """The fields of `WorkerOptions` that say what is kept of prompts beyond the attention cache.
    Raises HeliosError for a size that is none."""
    options: dict[str, Any] = {"prompt_cache": None if prompt_cache is None else str(prompt_cache)}
    for field, size, option in (
        ("prompt_cache_nbytes", prompt_cache_size, "--prompt-cache-size"),
        ("offload_nbytes", offload_memory, "--offload-memory"),
    ):
        if size is not None:
            from helios.sizes import parse_size

            options[field] = parse_size(size, option)
    return options


def machine_options(
    threads: Threads = None, isa: InstructionSet = None, device: GpuOrdinal = 0
) -> dict[str, Any]:
    """The fields of `WorkerOptions` that say what of the machine a core runs on."""
    return {"threads": threads, "instruction_set": isa, "device": device}


def capacity_options(
    max_active: MaxActive = None, cache_memory: CacheMemory = None, snapshots: Snapshots = None
) -> dict[str, Any]:
    """The fields of `WorkerOptions` that say how much a core has room for. Raises HeliosError for
    a size that is none."""
    options: dict[str, Any] = {"request_slots": max_active, "snapshots": snapshots}
    if cache_memory is not None:
        from helios.sizes import parse_size_or_share

        size = parse_size_or_share(cache_memory)
        options["cache_share" if isinstance(size, float) else "cache_nbytes"] = size
    return options


Opening = Annotated[dict[str, Any], Group(opening_options)]
Mirrors = Annotated[dict[str, Any], Group(mirror_options)]
Keeping = Annotated[dict[str, Any], Group(keeping_options)]
Machine = Annotated[dict[str, Any], Group(machine_options)]
CapacityOptions = Annotated[dict[str, Any], Group(capacity_options)]

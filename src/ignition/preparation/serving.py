"""The serving contract and the rebuild manifest: what a core says of itself beside its model.

Assembled from a captured model, its checkpoint and the options of the preparation. Called by
`prepare`.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Final

import zstandard

from helios.schema import contract_pb2, core_pb2
from helios.version import VERSION
from ignition.preparation.checkpoints.checkpoint import GenerationDefaults, SourceFile
from ignition.preparation.extents import Extents

REBUILD_VERSION: Final = 1
QUEUE_CAPACITY_PER_SLOT: Final = 8
FRONTEND_WORKERS: Final = 2
EVENT_CAPACITY: Final = 256
# Beside one request of full length, the cache's working set holds this much for each other slot.
_WORKING_SET_TOKENS: Final = 512
_SNAPSHOTS_PER_SLOT: Final = 2
# The names under which the tools that make a core's bytes are recorded, whatever they are.
GENERATOR: Final = "generator"
COMPRESSOR: Final = "compressor"
COMPILER: Final = "compiler"
NO_COMPILER: Final = "none"
# Packages whose version can change a core's bytes.
_PACKAGES: Final = ["gguf", "jinja2", "numpy", "protobuf", "safetensors", "tokenizers", "zstandard"]


def serving_contract(
    model: contract_pb2.ModelContract,
    extents: Extents,
    defaults: GenerationDefaults,
    *,
    served_id: str,
    aliases: Sequence[str],
    cache_identity: str,
) -> contract_pb2.ServingContract:
    """The contract of a model prepared with these extents."""
    return contract_pb2.ServingContract(
        served_id=served_id,
        aliases=aliases,
        cache_identity=cache_identity,
        max_context_tokens=extents.max_context_tokens,
        prefill_extents=extents.prefill,
        cache_pages=_cache_pages(extents),
        snapshot_rows=_SNAPSHOTS_PER_SLOT * extents.max_active if extents.restore else 0,
        max_active=extents.max_active,
        defaults=contract_pb2.ServingDefaults(
            sampling=contract_pb2.SamplingDefaults(
                temperature=defaults.temperature,
                top_k=defaults.top_k,
                top_p=defaults.top_p,
                min_p=defaults.min_p,
                repetition_penalty=defaults.repetition_penalty,
                max_output_tokens=defaults.max_output_tokens,
            ),
            queue_capacity=QUEUE_CAPACITY_PER_SLOT * extents.max_active,
            frontend_workers=FRONTEND_WORKERS,
            event_capacity=EVENT_CAPACITY,
        ),
        model=model,
    )


def rebuild_manifest(
    recipe: str,
    options: Mapping[str, str],
    sources: Sequence[SourceFile],
    *,
    compiler: str = NO_COMPILER,
) -> core_pb2.RebuildManifest:
    """What to prepare again, how and with which tools, to get the same bytes."""
    return core_pb2.RebuildManifest(
        version=REBUILD_VERSION,
        recipe=recipe,
        options=options,
        tools=tool_versions(compiler),
        sources=[
            core_pb2.SourceFile(name=source.name, nbytes=source.nbytes, sha256=source.sha256)
            for source in sources
        ],
    )


def tool_versions(compiler: str = NO_COMPILER) -> dict[str, str]:
    """The tools of this environment. Programs for `cpu` name kernels of Helios's library, so no
    compiler takes part in making them."""
    return {
        GENERATOR: f"ignition {VERSION}",
        COMPRESSOR: f"zstd {'.'.join(map(str, zstandard.ZSTD_VERSION))}",
        COMPILER: compiler,
        "python": platform.python_version(),
        **{package: _package_version(package) for package in _PACKAGES},
    }


def _cache_pages(extents: Extents) -> int:
    others = -(-_WORKING_SET_TOKENS // extents.page_tokens) * (extents.max_active - 1)
    return extents.pages_per_request + min(
        others, (extents.max_active - 1) * extents.pages_per_request
    )


def _package_version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"

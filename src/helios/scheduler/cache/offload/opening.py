"""Opens a second tier for a loaded model, from what the operator asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from helios.dataclass import dataclass
from helios.errors import HeliosError
from helios.runtime.geometry import Geometry
from helios.scheduler.cache.offload.contents import LaidOutContents
from helios.scheduler.cache.offload.file_tier import FileTier
from helios.scheduler.cache.offload.host_tier import HostTier
from helios.scheduler.cache.offload.keys import KeyChain
from helios.scheduler.cache.offload.offload import Offload

FOLDER_NBYTES: Final = 16 << 30


@dataclass(frozen=True, slots=True)
class TierOptions:
    """`host_nbytes` of host memory for evicted content (0: none), and `folder` for files of at
    most `folder_nbytes` in all (None: none)."""

    host_nbytes: int = 0
    folder: Path | None = None
    folder_nbytes: int = FOLDER_NBYTES

    def __post_init__(self) -> None:
        for name in ("host_nbytes", "folder_nbytes"):
            if getattr(self, name) < 0:
                raise HeliosError(
                    "the size is negative",
                    where=f"TierOptions.{name}",
                    remedy="Set it to 0 or more",
                )


def open_second_tier(
    contents: LaidOutContents, geometry: Geometry, core_digest: str, options: TierOptions
) -> Offload | None:
    """The tier, or None where nothing is asked for. `contents` is the runtime's `cache_content`,
    `core_digest` the hex digest of the opened core. Close it before the runtime. Raises
    HeliosError for a folder that other users may write to."""
    if not options.host_nbytes and options.folder is None:
        return None
    chain = KeyChain(
        core_digest=bytes.fromhex(core_digest),
        target=geometry.target,
        kernel_path=geometry.kernel_path,
        layout_digest=contents.layout_digest,
    )
    files = None
    if options.folder is not None:
        files = FileTier(options.folder, options.folder_nbytes)
    return Offload(
        contents,
        chain,
        geometry.history,
        geometry.page_tokens,
        host=HostTier(options.host_nbytes) if options.host_nbytes else None,
        files=files,
    )

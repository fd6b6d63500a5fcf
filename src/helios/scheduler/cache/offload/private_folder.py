"""A folder for what prompts leave behind: there, usable, and nobody else's.

Prompts can be told from what is in it, and who may write to it could change what is computed.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from helios.errors import HeliosError


def refuse_shared(folder: Path) -> None:
    """Raises HeliosError for a folder that other users may write to. One that isn't there or can't
    be looked at passes: nothing can be read or written then."""
    try:
        status = folder.stat()
    except OSError:
        return
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) or status.st_uid not in (0, os.geteuid()):
        raise HeliosError(
            "can be written by other users, who could change what is computed",
            where=str(folder),
            remedy=f"Make it yours, and empty it first: chmod 700 {folder}",
        )


def prepare_folder(folder: Path, option: str) -> None:
    """Makes the folder where it is missing, for this user alone. Raises HeliosError that names
    `option` for one that can't be made, read or written, and as `refuse_shared`."""
    reason = ""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.listdir(folder)
        if not os.access(folder, os.W_OK | os.X_OK):
            reason = "it can't be written to"
    except FileExistsError:
        reason = "it is no folder"
    except OSError as error:
        reason = error.strerror or str(error)
    if reason:
        raise HeliosError(
            f"{folder} can't be used ({reason})",
            where=option,
            remedy="Name a folder that you may write to, or one that can be made",
        )
    refuse_shared(folder)

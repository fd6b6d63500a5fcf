"""The cores that the tests store: what hostile input starts from, and where it is put."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from google.protobuf.message import DecodeError

from helios.core import OpenedCore, open_core
from helios.core import format as core_format
from helios.schema import core_pb2

STORED: Final = Path(__file__).parents[1] / "tests" / "data" / "cores"
NAMESPACE: Final = "tests"
KEY: Final = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
PUBLIC_KEY: Final = KEY.public_key().public_bytes_raw()
_SCRATCH_VARIABLE: Final = "HELIOS_FUZZ_SCRATCH"
_MEMORY: Final = Path("/dev/shm")


def scratch_folder() -> tempfile.TemporaryDirectory[str]:
    """A new folder, in memory: a disk that stalls would look like a hang."""
    memory = _MEMORY if _MEMORY.is_dir() else None
    place = os.environ.get(_SCRATCH_VARIABLE, memory)
    return tempfile.TemporaryDirectory(prefix="helios-fuzz-", dir=place)


@contextmanager
def scratch_of_children() -> Iterator[dict[str, str]]:
    """An environment in which processes have their folders in one that is deleted at the end:
    libFuzzer ends a process at once, and its folder would stay."""
    with scratch_folder() as folder:
        yield {**os.environ, _SCRATCH_VARIABLE: folder}


@cache
def scratch() -> Path:
    """This process's folder."""
    folder = scratch_folder()
    _KEPT.append(folder)
    return Path(folder.name)


_KEPT: Final[list[tempfile.TemporaryDirectory[str]]] = []  # deleted when the process ends


@cache
def stored(name: str) -> OpenedCore:
    """A stored core, open."""
    return open_stored(name, STORED / name)


def open_stored(name: str, folder: Path) -> OpenedCore:
    """Opens a folder as the stored core that it was made from."""
    key = _core_key(name)
    return open_core(folder, accept=NAMESPACE, publisher_key=PUBLIC_KEY, core_key=key)


@cache
def _core_key(name: str) -> bytes | None:
    """The key of a stored core, if it is sealed."""
    described = json.loads((STORED / f"{name}.json").read_text())
    return bytes.fromhex(described["core_key"]) if described["core_key"] else None


def stored_envelope(name: str) -> core_pb2.SignedEnvelope:
    """A stored core's envelope."""
    content = (STORED / name / core_format.ENVELOPE_FILE).read_bytes()
    return core_pb2.SignedEnvelope.FromString(content)


@cache
def copy_of(name: str) -> Path:
    """A copy of a stored core in this process's folder, to be altered."""
    return Path(shutil.copytree(STORED / name, scratch() / name))


def stored_resource(name: str, resource: str) -> bytes:
    """The content of an executable resource of a stored core."""
    core = stored(name)
    return core.read_resource(resource, core.decoded.executables[resource].kind)


class NoInput(Exception):
    """The bytes aren't what a target takes: the libraries before Helios refuse them."""


def parsed(kind: type[Any], data: bytes) -> Any:
    """The message. NoInput where the bytes are none: Protobuf's own refusal."""
    try:
        return kind.FromString(data)
    except DecodeError as error:
        raise NoInput from error

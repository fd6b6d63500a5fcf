"""The stored corpus: of each target the inputs that together reach what fuzzing has reached.

One file a target, `tests/data/fuzz_corpus/TARGET.zst`: each input after its length (u32, little
endian), the shortest first, all in one zstd frame. A target's inputs resemble each other, so
together they take a tenth of their bytes. The same inputs give the same file. `python -m fuzz`
starts from it and `--distil` writes it; tests/hostile/test_corpus.py replays it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import zstandard

FOLDER: Final = Path(__file__).parents[1] / "tests" / "data" / "fuzz_corpus"
_LENGTH_NBYTES: Final = 4
_LEVEL: Final = 19
_WINDOW_LOG: Final = 24  # 16 MiB: all inputs of a target see each other


class DamagedCorpus(Exception):
    """A stored corpus that isn't what was written."""


def path_of(name: str, folder: Path = FOLDER) -> Path:
    """Where a target's inputs are stored."""
    return folder / f"{name}.zst"


def read(name: str, folder: Path = FOLDER) -> list[bytes]:
    """A target's inputs, the shortest first; none where none were stored. DamagedCorpus."""
    path = path_of(name, folder)
    if not path.exists():
        return []
    try:
        return unpack(path.read_bytes())
    except DamagedCorpus as error:
        raise DamagedCorpus(f"{path} {error}. Take it from the repository again") from error


def write(name: str, inputs: Iterable[bytes], folder: Path = FOLDER) -> None:
    """Stores a target's inputs in the place of those before."""
    folder.mkdir(parents=True, exist_ok=True)
    path_of(name, folder).write_bytes(pack(inputs))


def pack(inputs: Iterable[bytes]) -> bytes:
    """A corpus as it is stored; an input given twice is stored once."""
    ordered = sorted(set(inputs), key=lambda content: (len(content), content))
    parts = [len(content).to_bytes(_LENGTH_NBYTES, "little") + content for content in ordered]
    parameters = zstandard.ZstdCompressionParameters.from_level(
        _LEVEL, window_log=_WINDOW_LOG, write_checksum=True
    )
    return zstandard.ZstdCompressor(compression_params=parameters).compress(b"".join(parts))


def unpack(packed: bytes) -> list[bytes]:
    """The inputs of a stored corpus. DamagedCorpus where they aren't all there."""
    decompressor = zstandard.ZstdDecompressor().decompressobj()
    try:
        content = decompressor.decompress(packed)
    except zstandard.ZstdError as error:
        raise DamagedCorpus(f"is damaged ({error})") from error
    if not decompressor.eof or decompressor.unused_data:
        raise DamagedCorpus("is cut short" if not decompressor.eof else "has more than one frame")
    inputs, at = [], 0
    while at < len(content):
        start = at + _LENGTH_NBYTES
        at = start + int.from_bytes(content[at:start], "little")
        inputs.append(content[start:at])
        if start > len(content) or at > len(content):
            raise DamagedCorpus(f"ends within its input {len(inputs) - 1}")
    return inputs

"""Reading a resource takes the memory of a chunk and a window, whatever the resource's length."""

from __future__ import annotations

import hashlib
import os
import pickle
import random
import subprocess
import sys
import textwrap
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
import zstandard

from helios.core import open_core
from helios.core.chunks import PIECE_NBYTES, first_damaged, open_content, verified_chunks
from helios.core.format import CHUNK_NBYTES, WINDOW_LIMIT_NBYTES
from helios.core.frames import decode_frame
from helios.core.resources import FrameResource, ResourceKind, SealedResource
from helios.core.sealed import check_sealed, open_sealed
from tests.core.logical_core import CORE_KEY, seal
from tests.core.sample_core import NAMESPACE, PUBLIC_KEY, compress, write_core

DECODED_NBYTES = 96 << 20
WRITTEN_NBYTES = 1 << 20


def _pieces() -> Iterator[bytes]:
    """Content of which about three quarters don't compress, with matches far apart."""
    random_bytes = random.Random(7).randbytes
    repeated = random_bytes(WRITTEN_NBYTES // 4)
    for _ in range(DECODED_NBYTES // WRITTEN_NBYTES):
        yield repeated + random_bytes(WRITTEN_NBYTES - len(repeated))


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, FrameResource, bytes]:
    """A frame of over 64 MiB with the widest window, its resource, and its content's digest."""
    path = tmp_path_factory.mktemp("frames") / "frame"
    parameters = zstandard.ZstdCompressionParameters.from_level(
        3, window_log=WINDOW_LIMIT_NBYTES.bit_length() - 1
    )
    compressor = zstandard.ZstdCompressor(compression_params=parameters)
    content = hashlib.sha256()
    with path.open("wb") as file, compressor.stream_writer(file, size=DECODED_NBYTES) as writer:
        for piece in _pieces():
            content.update(piece)
            writer.write(piece)
    digests, whole = [], hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_NBYTES):
            digests.append(hashlib.sha256(chunk).digest())
            whole.update(chunk)
    resource = FrameResource(
        "large",
        ResourceKind.MODULE,
        path.stat().st_size,
        whole.digest(),
        DECODED_NBYTES,
        tuple(digests),
    )
    assert resource.stored_nbytes > 64 << 20
    return path, resource, content.digest()


@pytest.mark.clause("CORE-4", "CORE-6")
def test_decoding_to_a_sink_keeps_one_chunk(stored: tuple[Path, FrameResource, bytes]) -> None:
    path, resource, expected = stored
    content = hashlib.sha256()
    tracemalloc.start()
    try:
        with open_content(path, resource) as file:
            for piece in decode_frame(resource, verified_chunks(file, resource)):
                content.update(piece)
        peak_nbytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert content.digest() == expected
    assert peak_nbytes < CHUNK_NBYTES + (1 << 20)


def test_content_that_is_kept_is_held_once(tmp_path: Path) -> None:
    content = b"".join(_pieces())
    folder = write_core(
        tmp_path / "core",
        lambda body: setattr(body.executable_resources[1], "decoded_nbytes", DECODED_NBYTES),
        {"tokenizer": compress(content)},
    )
    core = open_core(folder, accept=NAMESPACE, publisher_key=PUBLIC_KEY)
    expected = hashlib.sha256(content).digest()
    del content
    tracemalloc.start()
    try:
        read = core.read_resource("tokenizer", ResourceKind.TOKENIZER)
        peak_nbytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert hashlib.sha256(read).digest() == expected
    # It grows by an eighth at a time.
    assert peak_nbytes < DECODED_NBYTES * 9 // 8 + CHUNK_NBYTES + (1 << 20)


# The decoder's window is not Python's memory, so it takes a process of its own to see it.
_PROBE = textwrap.dedent("""
    import pickle, sys
    from pathlib import Path
    from helios.core.chunks import open_content, verified_chunks
    from helios.core.frames import decode_frame

    def peak_nbytes():
        status = Path("/proc/self/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) << 10

    path, frame = pickle.load(sys.stdin.buffer)
    before = peak_nbytes()
    with open_content(path, frame) as file:
        total = sum(map(len, decode_frame(frame, verified_chunks(file, frame))))
    print(total, peak_nbytes() - before)
""")


@pytest.mark.clause("CORE-6")
def test_a_process_that_decodes_grows_by_window_and_chunk(
    stored: tuple[Path, FrameResource, bytes],
) -> None:
    path, resource, _ = stored
    ended = subprocess.run(
        [sys.executable, "-c", _PROBE],
        input=pickle.dumps((path, resource)),
        capture_output=True,
        check=True,
    )
    total, grown_nbytes = map(int, ended.stdout.split())
    assert total == DECODED_NBYTES
    # At least the window shows that the measure sees it.
    assert WINDOW_LIMIT_NBYTES < grown_nbytes < WINDOW_LIMIT_NBYTES + 2 * CHUNK_NBYTES


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, SealedResource]:
    """A sealed resource of 64 MiB."""
    resource, stored = seal("large", ResourceKind.WEIGHTS, random.Random(7).randbytes(64 << 20))
    path = tmp_path_factory.mktemp("sealed") / "file"
    path.write_bytes(stored)
    return path, resource


@pytest.mark.parametrize("kept", [False, True], ids=["checked", "opened"])
def test_sealed_content_takes_two_pieces_a_core(
    sealed: tuple[Path, SealedResource], monkeypatch: pytest.MonkeyPatch, kept: bool
) -> None:
    """Beside the output, where there is one."""
    path, resource = sealed
    cores = 4
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(cores)))
    output = memoryview(bytearray(resource.decoded_nbytes if kept else 0))
    done: list[int] = []
    tracemalloc.start()
    try:
        if kept:
            open_sealed(path, resource, CORE_KEY, output)
        else:
            check_sealed(path, resource, CORE_KEY, done.append)
        peak_nbytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert sum(done) == (0 if kept else resource.stored_nbytes)
    assert peak_nbytes < 2 * cores * PIECE_NBYTES + (1 << 20)
    assert 2 * cores * PIECE_NBYTES + (1 << 20) < CHUNK_NBYTES


_SEALED_PROBE = textwrap.dedent("""
    import pickle, sys
    from pathlib import Path
    from helios.core.sealed import check_sealed

    def peak_nbytes():
        status = Path("/proc/self/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) << 10

    path, small_path, resource, small, key = pickle.load(sys.stdin.buffer)
    check_sealed(small_path, small, key, lambda nbytes: None)  # what any resource takes once
    before = peak_nbytes()
    done = []
    check_sealed(path, resource, key, done.append)
    print(sum(done), peak_nbytes() - before)
""")


def test_a_process_that_checks_sealed_content_hardly_grows(
    sealed: tuple[Path, SealedResource], tmp_path: Path
) -> None:
    path, resource = sealed
    small, stored = seal("small", ResourceKind.WEIGHTS, bytes(CHUNK_NBYTES))
    small_path = tmp_path / "small"
    small_path.write_bytes(stored)
    ended = subprocess.run(
        [sys.executable, "-c", _SEALED_PROBE],
        input=pickle.dumps((path, small_path, resource, small, CORE_KEY)),
        capture_output=True,
        check=True,
    )
    total, grown_nbytes = map(int, ended.stdout.split())
    assert total == resource.stored_nbytes
    cores = len(os.sched_getaffinity(0))
    assert grown_nbytes < CHUNK_NBYTES + 2 * cores * PIECE_NBYTES


def test_checking_in_place_keeps_a_piece_a_core(stored: tuple[Path, FrameResource, bytes]) -> None:
    path, resource, _ = stored
    cores = len(os.sched_getaffinity(0))
    tracemalloc.start()
    try:
        with open_content(path, resource) as file:
            assert first_damaged(file, resource) is None
        peak_nbytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_nbytes < (cores + 1) << 20

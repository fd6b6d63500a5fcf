"""Verification beside plain reading: does checking every byte of a core keep up with the disk?

    python benchmarks/verification.py CORE --accept NAMESPACE [--folder DIR] [--gib 2]
        [--passes 7] [--sealed]

Writes a core in DIR that says what CORE says and has so many GiB of random weights more, signed
with a key of its own, and deletes it at the end. Then, in turn, `--passes` times each: all content
verified as `helios verify` does it, and the same files read by one thread and by as many as there
are cores, into one buffer a thread and without looking at what was read. The files are dropped
from the system's memory before each (as root all of the page cache is, otherwise by advice), so on
a disk this measures the disk; a folder in memory (/dev/shm) shows what the processor allows. A
line before the figures says how fast the cores hash what lies in memory already. `--sealed` writes
index version 4 instead, in which the weights are AES-GCM chunks.

Figures are medians with smallest and largest, ratios those of each pass. `others` is the median
share of the processor that other programs took: a figure means something where it is small.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from helios.core import OpenedCore, open_core
from helios.core.verification import verify_content
from helios.schema import core_pb2
from ignition.preparation.export import CoreWriter

READ_NBYTES = 1 << 20
PIECE_NBYTES = 16 << 20
CORE_KEY = bytes(range(32))


def random_pieces(nbytes: int) -> Iterator[bytes]:
    """So many random bytes, a piece at a time."""
    while nbytes:
        piece = os.urandom(min(nbytes, PIECE_NBYTES))
        nbytes -= len(piece)
        yield piece


def write_large(core: OpenedCore, folder: Path, nbytes: int) -> OpenedCore:
    """A payload core that says what `core` says, with `nbytes` of weights more."""
    deployment = core_pb2.DeploymentBody.FromString(core.deployment.SerializeToString())
    folder.mkdir()
    writer = CoreWriter(folder)
    for frame in core.decoded.executables.values():
        content = core.read_resource(frame.id, frame.kind)
        writer.add_frame(frame.id, frame.kind.value, content)  # type: ignore[arg-type]
    for name in core.decoded.weights:
        writer.add_weights(name, [core.map_weights(name).content])
    writer.add_weights("ballast", random_pieces(nbytes))
    key = Ed25519PrivateKey.generate()
    writer.finish(core_pb2.Publisher(namespace="benchmark"), deployment, key)
    public_key = key.public_key().public_bytes_raw()
    return open_core(folder, accept="benchmark", publisher_key=public_key)


def write_sealed(core: OpenedCore, folder: Path, nbytes: int) -> OpenedCore:
    """The same in index version 4, which only tests write."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from tests.core.logical_core import sealed_index, write_index
    from tests.core.sample_core import PUBLIC_KEY

    body = core_pb2.CoreBody(
        publisher=core_pb2.Publisher(namespace="benchmark"),
        deployment=core_pb2.DeploymentBody.FromString(core.deployment.SerializeToString()),
    )
    contents = {}
    for frame in core.decoded.executables.values():
        body.executable_resources.add(id=frame.id, kind=frame.kind.value)
        contents[frame.id] = core.read_resource(frame.id, frame.kind)
    for name in core.decoded.weights:
        body.weight_resources.add(id=name)
        contents[name] = bytes(core.map_weights(name).content)
    body.weight_resources.add(id="ballast")
    contents["ballast"] = b"".join(random_pieces(nbytes))
    write_index(folder, *sealed_index(body, contents, CORE_KEY))
    return open_core(folder, accept="benchmark", publisher_key=PUBLIC_KEY, core_key=CORE_KEY)


def forget(paths: Sequence[Path]) -> None:
    """Drops files from the system's memory."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)
    try:
        Path("/proc/sys/vm/drop_caches").write_text("3")
    except OSError:
        return


def read_plainly(paths: Sequence[Path], threads: int) -> float:
    """Seconds in which threads read the files, each its share of every file."""

    def read() -> None:
        buffer = memoryview(bytearray(READ_NBYTES))
        for descriptor, position in left:
            os.preadv(descriptor, [buffer], position)

    opened = [os.open(path, os.O_RDONLY) for path in paths]
    left = iter(
        [
            (descriptor, position)
            for descriptor, path in zip(opened, paths, strict=True)
            for position in range(0, path.stat().st_size, READ_NBYTES)
        ]
    )
    seconds = timed(threads, read)
    for descriptor in opened:
        os.close(descriptor)
    return seconds


def timed(threads: int, work: Callable[[], object]) -> float:
    """Seconds in which as many threads did the work."""
    began = time.perf_counter()
    running = [threading.Thread(target=work) for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    return time.perf_counter() - began


def hash_in_memory(threads: int) -> float:
    """Bytes a second that all cores hash."""
    content = memoryview(bytearray(READ_NBYTES))
    rounds = 512

    def digest() -> None:
        state = hashlib.sha256()
        for _ in range(rounds):
            state.update(content)

    return threads * rounds * READ_NBYTES / timed(threads, digest)


def busy_seconds() -> float:
    """Processor seconds that all processes of the machine have had."""
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    user, nice, system, _, _, interrupts, soft, stolen = fields
    return (user + nice + system + interrupts + soft + stolen) / os.sysconf("SC_CLK_TCK")


@dataclass
class Contender:
    """One way to go through the files: a pass returns its seconds."""

    name: str
    work: Callable[[], float]
    rates: list[float] = field(default_factory=list)
    others: list[float] = field(default_factory=list)

    def run(self, nbytes: int, cores: int) -> None:
        """One pass; `others` notes the share of the cores that other processes took meanwhile."""
        before, own_before, began = busy_seconds(), time.process_time(), time.perf_counter()
        seconds = self.work()
        elapsed = time.perf_counter() - began
        taken = busy_seconds() - before - (time.process_time() - own_before)
        self.rates.append(nbytes / 1e9 / seconds)
        self.others.append(max(taken, 0.0) / elapsed / cores)


def measure(core: OpenedCore, passes: int) -> None:
    """Prints all figures."""
    listed = (*core.decoded.executables.values(), *core.decoded.weights.values())
    paths = [core.find_resource(resource.id) for resource in listed]
    nbytes = sum(path.stat().st_size for path in paths)
    cores = len(os.sched_getaffinity(0))
    verify = Contender("verify", lambda: verify_content(core, lambda _: None).checked.seconds)
    contenders = [verify, Contender("read, 1 thread", lambda: read_plainly(paths, 1))]
    if cores > 1:
        contenders.append(Contender(f"read, {cores} threads", lambda: read_plainly(paths, cores)))
    hashing = [hash_in_memory(cores) / 1e9 for _ in range(passes)]
    for _ in range(passes):
        for contender in contenders:
            forget(paths)
            contender.run(nbytes, cores)
    load = os.getloadavg()[0]
    print(f"{nbytes / 1e9:.2f} GB in {len(paths)} files, {cores} cores, load {load:.1f}")
    print(f"{'hash, in memory':20s} {spread(hashing)} GB/s")
    for contender in contenders:
        line = f"{contender.name:20s} {spread(contender.rates)} GB/s"
        if contender is not verify:
            ratios = [v / r for v, r in zip(verify.rates, contender.rates, strict=True)]
            line += f", of which verify is {spread(ratios)}"
        print(f"{line}; others took {statistics.median(contender.others):.0%} of the cores")


def spread(values: Sequence[float]) -> str:
    """Median, smallest and largest."""
    return f"{statistics.median(values):.2f} ({min(values):.2f}..{max(values):.2f})"


def main() -> None:
    """Writes the core, measures, deletes it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("core", type=Path)
    parser.add_argument("--accept", required=True)
    parser.add_argument("--folder", type=Path, help="where the core is written; default: /tmp")
    parser.add_argument("--gib", type=float, default=2.0)
    parser.add_argument("--passes", type=int, default=7)
    parser.add_argument("--sealed", action="store_true")
    options = parser.parse_args()
    core = open_core(options.core, accept=options.accept, allow_unknown_publisher=True)
    scratch = Path(tempfile.mkdtemp(prefix="verification.", dir=options.folder))
    write = write_sealed if options.sealed else write_large
    try:
        measure(write(core, scratch / "core", int(options.gib * (1 << 30))), options.passes)
    finally:
        shutil.rmtree(scratch)


if __name__ == "__main__":
    main()

""" "Level 3" binds the writer: what it stored is what zstd's level 3 makes of the content."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard

from helios.core import OpenedCore, open_core
from helios.core.resources import FrameResource
from ignition.preparation.export import Carrier
from ignition.preparation.prepare import Options, prepare
from tests.core.sample_core import KEY
from tests.silence import Silent

OPTIONS = Options(
    namespace="tests", served_id="tiny", max_active=2, prefill=(8,), decode=(1, 2), max_context=64
)


def compressed(content: bytes, level: int) -> bytes:
    return zstandard.ZstdCompressor(level=level, write_content_size=True).compress(content)


def frames(core: OpenedCore) -> Iterator[tuple[FrameResource, bytes]]:
    """Each frame and its content."""
    for frame in core.decoded.executables.values():
        assert isinstance(frame, FrameResource)
        yield frame, core.read_resource(frame.id, frame.kind)


@pytest.mark.clause("CORE-4", "CORE-7")
@pytest.mark.parametrize("carrier", list(Carrier))
def test_recompressing_at_level_3_gives_the_stored_bytes(
    checkpoint_folder: Callable[[str], Path], tmp_path: Path, carrier: Carrier
) -> None:
    options = replace(OPTIONS, carrier=carrier)
    prepare(checkpoint_folder("llama"), tmp_path / "core", options, KEY, Silent())
    core = open_core(tmp_path / "core", accept="tests")
    others = dict.fromkeys((1, 2, 4, 5), 0)
    for frame, content in frames(core):
        stored = core.find_resource(frame.id).read_bytes()
        assert compressed(content, 3) == stored
        for level in others:
            others[level] += compressed(content, level) != stored
    assert all(others.values()), "another level would have been noticed"

"""A second tier is opened as it was asked for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from helios.errors import HeliosError
from helios.scheduler.cache.offload import TierOptions, open_second_tier
from helios.scheduler.cache.offload.offload import Offload
from tests.scheduler.cache.offload.device import Memory
from tests.scheduler.fake_model import geometry

DIGEST = "ab" * 32


class Contents(Memory):
    """With a layout."""

    layout_digest = b"layout"


def opened(options: TierOptions, digest: str = DIGEST, kernel_path: str = "fake") -> Offload | None:
    shape = replace(geometry(), kernel_path=kernel_path)
    return open_second_tier(Contents(4, 0), shape, digest, options)


def test_nothing_asked_for_is_no_tier() -> None:
    assert opened(TierOptions()) is None


def test_tiers_are_those_asked_for(tmp_path: Path) -> None:
    both = opened(TierOptions(host_nbytes=1000, folder=tmp_path / "cache", folder_nbytes=2000))
    assert both is not None
    assert both.host is not None
    assert both.host.limit_nbytes == 1000
    assert both.files is not None
    both.close()
    assert (tmp_path / "cache").is_dir()
    memory = opened(TierOptions(host_nbytes=1000))
    assert memory is not None
    assert memory.files is None
    memory.close()


def test_keys_follow_from_core_and_kernel_path() -> None:
    options = TierOptions(host_nbytes=1000)
    tiers = [opened(options), opened(options, "cd" * 32), opened(options, kernel_path="other")]
    roots = [tier._chain.root(b"") for tier in tiers if tier is not None]
    assert len(set(roots)) == 3


@pytest.mark.parametrize("field", ["host_nbytes", "folder_nbytes"])
def test_sizes_are_checked(field: str) -> None:
    with pytest.raises(HeliosError, match=rf"TierOptions\.{field}: the size is negative"):
        TierOptions(**{field: -1})

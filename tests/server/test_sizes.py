"""Sizes as options take them and as messages show them."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helios.errors import HeliosError
from helios.sizes import parse_size, parse_size_or_share
from helios.wording import counted, show_rate, show_size

UNITS = {
    "": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    **{f"{prefix}{end}": 1 << 10 * power
       for power, prefix in enumerate("kmgt", 1) for end in ("", "i", "ib")},
}  # fmt: skip
MOST_NBYTES = 2**63 - 1


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("0", 0),
        ("123456", 123456),
        ("2GiB", 2 << 30),
        ("2g", 2 << 30),
        ("1.5 MiB", 3 << 19),
        ("500MB", 500_000_000),
        ("7b", 7),
        ("1 TiB", 1 << 40),
        ("9223372036854775807", 2**63 - 1),
        ("0.3 KB", 300),
        ("0.1KiB", 102),
    ],
)
def test_sizes(text: str, nbytes: int) -> None:
    assert parse_size(text, "--cache-memory") == nbytes


@pytest.mark.parametrize(
    "text",
    [
        "",
        "much",
        "-1",
        "1 PiB",
        "GiB",
        "1e9",
        "5i",
        "5ib",
        "1.",
        ".5",
        "1_000",
        "٣GiB",
        "1\u212a",
        "1" * 21,
    ],
)
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(HeliosError, match="is no size"):
        parse_size(text, "--cache-memory")


@pytest.mark.clause("BOOT-7")
@pytest.mark.parametrize(
    ("text", "size"), [("25%", 0.25), (" 0.5 %", 0.005), ("100%", 1.0), ("2GiB", 2 << 30)]
)
def test_cache_memory_is_a_size_or_a_share(text: str, size: float) -> None:
    got = parse_size_or_share(text)
    assert got == size
    assert isinstance(got, float) == ("%" in text)


@pytest.mark.parametrize("text", ["0%", "101%", "-1%", "%", "5%%", "much"])
def test_what_is_no_share(text: str) -> None:
    with pytest.raises(HeliosError, match=r"is no (share|size)"):
        parse_size_or_share(text)


def test_sizes_are_shown_in_fitting_units() -> None:
    shown = [show_size(n) for n in (0, 1023, 1024, 1536 << 10, 3 << 30, 5 << 40, 5 << 50)]
    assert shown == ["0 B", "1023 B", "1.0 KiB", "1.5 MiB", "3.00 GiB", "5.00 TiB", "5120.00 TiB"]


@pytest.mark.parametrize(
    ("nbytes", "seconds", "shown"),
    [
        (3_000_000_000, 2.0, "1.50 GB/s"),
        (1_000_000_000, 1.0, "1.00 GB/s"),
        (999_900_000, 1.0, "1000 MB/s"),
        (100_000_000, 2.0, "50 MB/s"),
        (100_000_000, 80.0, "1.2 MB/s"),
        (32 << 20, 0.001, "33.55 GB/s"),
        ((32 << 20) - 1, 10.0, None),
        (0, 0.0, None),
        (1 << 30, 0.0, None),
    ],
)
def test_rates_are_shown_where_there_is_enough_to_tell(
    nbytes: int, seconds: float, shown: str | None
) -> None:
    assert show_rate(nbytes, seconds) == shown


def test_nouns_are_counted() -> None:
    assert [counted(n, "page") for n in (0, 1, 2)] == ["0 pages", "1 page", "2 pages"]


@st.composite
def written(draw: st.DrawFn) -> tuple[str, int]:
    """A size as somebody writes it, and its bytes."""
    unit, factor = draw(st.sampled_from(sorted(UNITS.items())))
    whole = draw(st.integers(0, MOST_NBYTES // factor - 1))
    fraction = draw(st.text("0123456789", max_size=6))
    number = f"{whole}.{fraction}" if fraction else str(whole)
    cased = "".join(draw(st.sampled_from((c, c.upper()))) for c in unit)
    blank = st.sampled_from(("", " ", "  "))
    text = draw(blank) + number + draw(blank) + cased + draw(blank)
    return text, int(Decimal(number) * factor)


@given(written())
def test_every_way_to_write_a_size_is_exact(size: tuple[str, int]) -> None:
    text, nbytes = size
    assert parse_size(text, "--cache-memory") == nbytes
    assert parse_size_or_share(text) == nbytes


@given(written(), st.sampled_from(("i", "x", "-", "e9", "%", "..", "/s", "\0")))
def test_anything_more_is_no_size(size: tuple[str, int], more: str) -> None:
    text = size[0].strip()
    if more == "i" and text[-1] in "kmgtKMGT":
        return  # 2Gi is a size
    with pytest.raises(HeliosError, match=r"--cache-memory: .* is no size"):
        parse_size(text + more, "--cache-memory")


@given(st.one_of(st.text(max_size=40), st.text("0123456789.kKmMgGtTiIbB% ", max_size=30)))
def test_any_text_is_a_size_a_share_or_refused(text: str) -> None:
    try:
        size: int | float | HeliosError = parse_size_or_share(text)
    except HeliosError as error:
        size = error
    if isinstance(size, HeliosError):
        assert (size.where, bool(size.remedy)) == ("--cache-memory", True)
    elif isinstance(size, float):
        assert 0 < size <= 1
    else:
        assert 0 <= size <= MOST_NBYTES


@given(st.decimals("0.0001", 100, places=4))
def test_a_share_is_a_hundredth(percent: Decimal) -> None:
    assert parse_size_or_share(f"{percent}%") == float(percent / 100)


@given(st.integers(0, 2**62))
def test_what_is_shown_can_be_written(nbytes: int) -> None:
    """One digit after the point is shown at least, beside a number of at least 1."""
    assert abs(parse_size(show_size(nbytes), "--cache-memory") - nbytes) <= 0.05 * nbytes


@pytest.mark.parametrize("text", ["8388608TiB", "9223372036854775808", "99999999999999999999t"])
def test_more_than_there_is_anywhere_is_refused(text: str) -> None:
    with pytest.raises(HeliosError, match=f"'{text}' is more memory than .*2GiB.*25%"):
        parse_size(text, "--cache-memory")

"""Operations on text that knows its origins give what Python gives, character by character."""

from __future__ import annotations

import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helios.frontend.origin_formats import formatted, percent
from helios.frontend.origins import (
    Origin,
    Written,
    added,
    by,
    joined,
    kept,
    least,
    method,
    origins_of,
    plain,
    repeated,
    replaced,
    written,
)

# Upper-case letters are the template's, digits an assistant's, the rest the client's: so what
# origin a character should have can be seen.
ALPHABET = "AB12ab \n,"
TEXT = st.text(alphabet=ALPHABET, max_size=12)


def _known(text: str) -> str:
    return written(text, bytes(map(_origin, text)))


def _origin(character: str) -> int:
    if character.isupper():
        return Origin.TEMPLATE
    return Origin.ANSWER if character.isdigit() else Origin.CLIENT


def _holds(found: Any, expected: Any) -> None:
    """Equal to Python's result, each character with the origin that it came with."""
    assert found == expected
    if isinstance(found, str):
        assert origins_of(found) == bytes(map(_origin, expected))
    elif isinstance(found, list | tuple):
        for inner, other in zip(found, expected, strict=True):
            _holds(inner, other)


SEPARATORS = st.sampled_from([None, ",", "A", "a1", " "])
CHARACTERS = st.sampled_from([None, " \n", "A", "a1,"])


@given(TEXT, CHARACTERS, SEPARATORS, st.integers(-1, 3))
def test_cutting(text: str, characters: str | None, separator: str | None, most: int) -> None:
    for name in ("strip", "lstrip", "rstrip"):
        _holds(method(_known(text), name, characters), getattr(text, name)(characters))
    for name in ("split", "rsplit"):
        _holds(method(_known(text), name, separator, most), getattr(text, name)(separator, most))
        _holds(method(_known(text), name, maxsplit=most), getattr(text, name)(maxsplit=most))
    for keep in (False, True):
        _holds(method(_known(text), "splitlines", keep), text.splitlines(keep))
    if separator:
        for name in ("partition", "rpartition", "removeprefix", "removesuffix"):
            _holds(method(_known(text), name, separator), getattr(text, name)(separator))


@given(TEXT, st.slices(12), st.integers(0, 3))
def test_slices_and_characters(text: str, part: slice, times: int) -> None:
    _holds(_known(text)[part], text[part])
    _holds(list(_known(text)), list(text))
    _holds([_known(text)[i] for i in range(-len(text), len(text))], [*text, *text])
    _holds(repeated(_known(text), times), text * times)


@given(TEXT, st.lists(TEXT, max_size=3))
def test_joining(text: str, parts: list[str]) -> None:
    _holds(joined(_known(text), map(_known, parts)), text.join(parts))
    _holds(method(_known(text), "join", list(map(_known, parts))), text.join(parts))
    for part in parts:
        _holds(added(_known(text), _known(part)), text + part)


@given(TEXT, st.sampled_from([",", "A", "a1", "1"]), TEXT, st.integers(-1, 2))
def test_replacing(text: str, old: str, new: str, count: int) -> None:
    _holds(replaced(_known(text), _known(old), _known(new), count), text.replace(old, new, count))


@given(st.lists(st.sampled_from(["A", "b", "%%", "%s", "%s"]), max_size=6), TEXT)
def test_percent(pieces: list[str], value: str) -> None:
    form = "".join(pieces)
    values = (value,) * form.count("%s")
    found = percent(_form(form), tuple(map(_known, values)))
    _holds(replaced(found, "%", ""), (form % values).replace("%", ""))


def _form(form: str) -> str:
    """Of the template, but for the small letters that are no conversion's."""
    origins = bytes(
        Origin.CLIENT if c == "b" else Origin.ANSWER if c.isdigit() else Origin.TEMPLATE
        for c in form
    )
    return written(form, origins)


@pytest.mark.parametrize(
    ("form", "values", "named"),
    [
        ("A{}B{}", ("a1", "B"), {}),
        ("A{0}{1}{0}", ("a1", "2"), {}),
        ("A{x}B", (), {"x": "1a"}),
        ("A{x[0]}", (), {"x": ["1a"]}),
        ("A", (), {}),
    ],
)
def test_format(form: str, values: tuple[str, ...], named: dict[str, Any]) -> None:
    known = {name: _known(x) if isinstance(x, str) else [_known(y) for y in x]
             for name, x in named.items()}  # fmt: skip
    found = formatted(by(Origin.TEMPLATE, form), string.Formatter(), [*map(_known, values)], known)
    _holds(found, form.format(*values, **named))


def test_formats_with_widths_are_as_trusted_as_their_least_part() -> None:
    form = by(Origin.TEMPLATE, "A{:>4}")
    assert origins_of(formatted(form, string.Formatter(), ["b"], {})) == bytes([2, 0, 0, 0, 0])
    found = percent(by(Origin.TEMPLATE, "A%4s%d"), ("b", 7))
    assert (found, origins_of(found)) == ("A   b7", bytes([2, 0, 0, 0, 0, 2]))
    found = percent(by(Origin.TEMPLATE, "A%(x)s"), {"x": "b"})
    assert (found, origins_of(found)) == ("Ab", bytes([2, 0]))


def test_case() -> None:
    assert origins_of(method(_known("Ab1"), "upper")) == bytes([2, 0, 1])
    assert kept(by(Origin.TEMPLATE, "ß"), "SS") == "SS"
    assert origins_of(method(by(Origin.TEMPLATE, "ß"), "upper")) == bytes([2, 2])
    assert origins_of(method(added(by(Origin.TEMPLATE, "ß"), "b"), "upper")) == bytes(3)


def test_what_is_made_otherwise_is_as_trusted_as_its_least_part() -> None:
    assert origins_of(method(_known("AB"), "center", 4, "A")) == bytes(4)  # the fill is plain
    assert origins_of(method(_known("AB"), "center", 4)) == bytes([2] * 4)
    assert origins_of(method(_known("Ab"), "zfill", 4)) == bytes(4)
    assert least() is least("") is least(1, None, True) is Origin.TEMPLATE
    assert least([]) is least({}) is Origin.CLIENT


def test_a_clients_text_is_a_plain_string() -> None:
    assert type(_known("ab")) is str
    assert type(added(by(Origin.TEMPLATE, "A"), "b")[1:]) is str
    assert type(plain(by(Origin.TEMPLATE, "A"))) is str
    assert type(str(by(Origin.TEMPLATE, "A"))) is Written

"""JSON bodies: from bytes to an object, from an object to a type, or to an error that names the
field. What a type's fields mean is the caller's business.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec

from helios.server.failures import ApiError, invalid
from helios.server.json_numbers import beyond_64_bits, decoded_roughly

_PATH: Final = re.compile(r"^(?P<what>.*) - at `\$\.?(?P<path>.*)`$", re.DOTALL)
_MISSING: Final = re.compile(r"^Object missing required field `(?P<field>.*)`$")
# An escape of half a surrogate pair, without the other half beside it.
_LONE_SURROGATE: Final = re.compile(
    rb"\\u[dD](?:[89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
    rb"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD])[c-fC-F][0-9a-fA-F]{2})"
)
_CANDIDATES: Final = 1000  # looked at for a message

BodyType = TypeVar("BodyType", bound=msgspec.Struct)


def json_object(data: bytes) -> dict[str, Any]:
    """A body as an object; numbers that nothing can hold are integers beyond 64 bits, which
    `converted` refuses. Raises ApiError 400 where it is none."""
    try:
        try:
            raw = msgspec.json.decode(data)
        except msgspec.ValidationError:
            raw = decoded_roughly(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _no_json(data, error) from None
    except RecursionError:
        raise invalid(None, "the body is nested too deeply", code="invalid_json") from None
    if not isinstance(raw, dict):
        raise invalid(None, "the body must be a JSON object", code="invalid_json")
    return raw


def converted(raw: Mapping[str, Any], kind: type[BodyType]) -> BodyType:
    """An object as a type. Raises ApiError 400 naming the field of a wrong type, or of a number
    beyond 64 bits."""
    try:
        typed = msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        raise _type_error(str(error)) from None
    field = beyond_64_bits(raw, typed)
    if field is not None:
        raise invalid(field, f"{field}: the number is beyond 64 bits. Send a smaller one")
    return typed


def unknown_within(
    raw: Mapping[str, Any], kind: type[msgspec.Struct], prefix: str = ""
) -> set[str]:
    """Names of an object's fields that its type doesn't have, each with a prefix."""
    known = kind.__struct_fields__
    return {prefix + name for name in raw if name not in known}


def _no_json(data: bytes, error: Exception) -> ApiError:
    what = str(error)
    for lone in itertools.islice(_LONE_SURROGATE.finditer(data), _CANDIDATES):
        before = data[max(0, lone.start() - _CANDIDATES) : lone.start()]
        if (len(before) - len(before.rstrip(b"\\"))) % 2:
            continue  # a backslash that is escaped itself
        what = (
            f"{lone[0].decode()} at byte {lone.start()} is a lone surrogate, which is no"
            " character. Send both halves of the pair, or the character itself"
        )
        break
    return invalid(None, f"the body is not valid JSON: {what}", code="invalid_json")


def _type_error(text: str) -> ApiError:
    """An ApiError for msgspec's `what - at `$.path``."""
    found = _PATH.match(text)
    what, path = (found["what"], found["path"]) if found else (text, "")
    missing = _MISSING.match(what)
    if missing:
        field = f"{path}.{missing['field']}" if path else missing["field"]
        return invalid(field, f"{field} is missing. Add it", code="missing_field")
    return invalid(path or None, f"{path}: {what}" if path else what, code="invalid_type")

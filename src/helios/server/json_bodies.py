"""JSON bodies: from bytes to an object, from an object to a type, or to an error that names the
field. What a type's fields mean is the caller's business.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec

from helios.server.failures import ApiError, invalid

_PATH: Final = re.compile(r"^(?P<what>.*) - at `\$\.?(?P<path>.*)`$", re.DOTALL)
_MISSING: Final = re.compile(r"^Object missing required field `(?P<field>.*)`$")

BodyType = TypeVar("BodyType", bound=msgspec.Struct)


def json_object(data: bytes) -> dict[str, Any]:
    """A body as an object. Raises ApiError 400 where it is none."""
    try:
        raw = msgspec.json.decode(data)
    except msgspec.ValidationError as error:
        # It is JSON, but has a number that nothing could hold.
        field = _field_at_fault(data)
        what = str(error).partition(" - at ")[0]
        raise invalid(field, f"{field}: {what}" if field else what) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise invalid(None, f"the body is not valid JSON: {error}", code="invalid_json") from None
    except RecursionError:
        raise invalid(None, "the body is nested too deeply", code="invalid_json") from None
    if not isinstance(raw, dict):
        raise invalid(None, "the body must be a JSON object", code="invalid_json")
    return raw


def converted(raw: Mapping[str, Any], kind: type[BodyType]) -> BodyType:
    """An object as a type. Raises ApiError 400 naming the field of a wrong type."""
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        raise _type_error(str(error)) from None


def unknown_within(
    raw: Mapping[str, Any], kind: type[msgspec.Struct], prefix: str = ""
) -> set[str]:
    """Names of an object's fields that its type doesn't have, each with a prefix."""
    known = kind.__struct_fields__
    return {prefix + name for name in raw if name not in known}


def _field_at_fault(data: bytes) -> str | None:
    """The top-level field of a body whose value can't be decoded."""
    try:
        fields = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    except msgspec.ValidationError:
        return None
    for name, value in fields.items():
        try:
            msgspec.json.decode(value)
        except msgspec.ValidationError:
            return name
    return None


def _type_error(text: str) -> ApiError:
    """An ApiError for msgspec's `what - at `$.path``."""
    found = _PATH.match(text)
    what, path = (found["what"], found["path"]) if found else (text, "")
    missing = _MISSING.match(what)
    if missing:
        field = f"{path}.{missing['field']}" if path else missing["field"]
        return invalid(field, f"{field} is missing. Add it", code="missing_field")
    return invalid(path or None, f"{path}: {what}" if path else what, code="invalid_type")

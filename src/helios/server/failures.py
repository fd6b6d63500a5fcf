"""Errors as HTTP clients see them: one exception class that carries status and error object.

Routes raise `ApiError`; `app` turns it into a response. Status and code follow from the class of
what went wrong, never from its text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from helios.errors import RequestError
from helios.frontend.grammar.faults import GrammarDeadEndError, GrammarLimitError
from helios.frontend.prepare import PromptTooLongError
from helios.frontend.sampling import UnsupportedParameterError

_NAME_LIMIT: Final = 128  # characters of a field's name that the client chose


class ErrorObject(msgspec.Struct, frozen=True):
    """What went wrong."""

    message: Annotated[str, Meta(description="The cause and, where there is one, the remedy.")]
    type: Annotated[
        str,
        Meta(
            description="`invalid_request_error` where the request is at fault, else"
            " `unavailable_error` or `server_error`."
        ),
    ]
    param: Annotated[str | None, Meta(description="The request field at fault.")] = None
    code: Annotated[str | None, Meta(description="A stable identifier of the cause.")] = None


class ErrorBody(msgspec.Struct, frozen=True):
    """The body of every response that isn't a success."""

    error: Annotated[ErrorObject, Meta(description="What went wrong.")]


class ApiError(Exception):
    """A failure with its HTTP status. `retry_after_s` asks the client to wait so long; `headers`
    are further ones of the response, as long as none has begun."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str,
        param: str | None = None,
        retry_after_s: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.status = status
        self.headers = dict(headers or {})
        if retry_after_s is not None:
            self.headers["retry-after"] = str(retry_after_s)
        kind = "invalid_request_error"
        if status >= 500:
            kind = "unavailable_error" if status == 503 else "server_error"
        elif status == 429:
            kind = "rate_limit_error"
        self.body = ErrorBody(ErrorObject(message, kind, param, code))
        super().__init__(message)


def invalid(param: str | None, message: str, *, code: str = "invalid_value") -> ApiError:
    """A 400 that names the field at fault."""
    return ApiError(400, message, code=code, param=param)


def not_supported(param: str, remedy: str) -> ApiError:
    """A 400 for a field that would change the answer and that this server can't honour."""
    return invalid(param, f"{param} is not supported. {remedy}", code="unsupported_parameter")


def internal_error() -> ApiError:
    """A 500 for a bug of the server's, of which only its log tells."""
    return ApiError(500, "an internal error; the server's log has it", code="internal_error")


def refuse_ignored(names: Sequence[str]) -> None:
    """Raises a 400 if there is a field without meaning here: what `--strict-fields` asks for."""
    if names:
        name = names[0][:_NAME_LIMIT]
        raise invalid(
            name,
            f"{name!r} is no field that this server knows. Leave it out",
            code="unknown_field",
        )


def from_request_error(error: RequestError, field_names: Mapping[str, str]) -> ApiError:
    """A 400 for a request that can't be prepared, or whose grammar can't be followed.
    `field_names` has what the client called an option, where that differs."""
    param = field_names.get(error.where, error.where)
    text = f"{param}: {error.what}" if param else error.what
    if error.remedy:
        text = f"{text}. {error.remedy}"
    code = "invalid_value"
    if isinstance(error, PromptTooLongError):
        code = "context_length_exceeded"
    elif isinstance(error, UnsupportedParameterError):
        code = "unsupported_parameter"
    elif isinstance(error, GrammarLimitError):
        code = "grammar_limit_exceeded"
    elif isinstance(error, GrammarDeadEndError):
        code = "grammar_dead_end"
    return invalid(param or None, text, code=code)

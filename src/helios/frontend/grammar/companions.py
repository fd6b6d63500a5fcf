"""What else a request may say beside what its answer has to be.

Refused is what can only break the form: text that ends the answer anywhere, a least length that no
answer of it has. What leaves the form alone, because it only weighs tokens or gives way, is fine;
what may still fail is seen while generating (`faults`). docs/structured-output.md has the table.
"""

from __future__ import annotations

from collections.abc import Callable

from helios.errors import RequestError
from helios.frontend.grammar.constraint import Constraint
from helios.frontend.grammar.structure import ChoiceAnswer
from helios.frontend.options import GenerationOptions
from helios.frontend.tools import Calling


def check_companions(
    options: GenerationOptions,
    constraint: Constraint,
    has_text: Callable[[int], bool],
    *,
    bare: bool,
) -> None:
    """Raises RequestError naming the field that doesn't go with the constraint. `has_text` says
    whether a token is text, and not a marker; a `bare` response is nothing but its answer."""
    field = _promise(constraint)
    if field is not None:
        _check_stops(options, field, has_text)
    structure = constraint.structure
    if bare and isinstance(structure, ChoiceAnswer):
        longest = max(len(option.encode()) for option in structure.options)
        least = options.min_tokens or 0
        if least > longest:
            raise RequestError(
                f"{least} tokens are more than any of the texts of {structure.where} can have: the"
                f" longest has {longest} bytes",
                where="min_tokens",
                remedy=f"Leave out min_tokens or {structure.where}",
            )


def _promise(constraint: Constraint) -> str | None:
    """The field that promises a form which a stop would break; None where no more is promised
    than how many calls there are, or how long reasoning is."""
    tools = constraint.tools
    if constraint.structure is not None:
        return constraint.structure.where
    if tools.calling is Calling.REQUIRED:
        return "tool_choice"
    for index, tool in enumerate(tools.declared):
        if tool.strict and tool in tools.callable:
            return f"tools[{index}].function.strict"
    return None


def _check_stops(options: GenerationOptions, field: str, has_text: Callable[[int], bool]) -> None:
    if options.stop:
        raise _breaks("strings", "stop", field)
    for index, token in enumerate(options.stop_token_ids or ()):
        if has_text(token):
            raise _breaks(f"token {token} is text, which", f"stop_token_ids[{index}]", field)
    for index, sequence in enumerate(options.stop_token_sequences or ()):
        if all(map(has_text, sequence)):
            raise _breaks("text", f"stop_token_sequences[{index}]", field)


def _breaks(what: str, where: str, field: str) -> RequestError:
    whole = where.partition("[")[0]
    return RequestError(
        f"{what} can't be combined with {field}: it could end the answer before it has its form",
        where=where,
        remedy=f"Leave out {whole} or {field}",
    )

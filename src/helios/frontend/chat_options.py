"""What a chat request asks besides its messages and its sampling: tools, the answer's form, and
what its template is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final

from helios.dataclass import dataclass
from helios.frontend.grammar.constraint import ThinkingBudget
from helios.frontend.grammar.structural_tags import AnswerForm
from helios.frontend.tools import NO_TOOLS, Tools


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """`definitions` are the tools as the template reads them, in the order of `tools.declared`.
    With `continue_last` the answer goes on with the last message."""

    variables: Mapping[str, Any] = field(default_factory=dict)
    definitions: tuple[Mapping[str, Any], ...] = ()
    tools: Tools = NO_TOOLS
    structure: AnswerForm | None = None
    documents: tuple[Mapping[str, Any], ...] = ()
    continue_last: bool = False
    thinking: ThinkingBudget | None = None


PLAIN_CHAT: Final = ChatOptions()

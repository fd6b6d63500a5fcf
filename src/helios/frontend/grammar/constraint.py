"""What a request constrains of its response, and which of its fields ask for that."""

from __future__ import annotations

from helios.dataclass import dataclass
from helios.frontend.grammar.structural_tags import AnswerForm, StructuralTag
from helios.frontend.tools import Calling, Tools


@dataclass(frozen=True, slots=True)
class ThinkingBudget:
    """Reasoning's most tokens, delimiters aside, and the field that says so."""

    tokens: int
    where: str


@dataclass(frozen=True, slots=True)
class Constraint:
    """What a request constrains: its answer, its calls, its reasoning."""

    structure: AnswerForm | None
    tools: Tools
    thinking: ThinkingBudget | None = None

    def __bool__(self) -> bool:
        """Whether there is anything to constrain."""
        tools, structure = self.tools.constrains, self.structure
        return tools or structure is not None or self.thinking is not None

    def is_opaque(self, opener: str) -> bool:
        """Whether the answer has a form of its own in which nothing is a marker. Calls are looked
        for in a structural tag that writes what opens them, and where one is certain, since there
        is no such answer then."""
        form = self.structure
        if self.tools.calling is Calling.REQUIRED:
            return False
        if isinstance(form, StructuralTag) and self.tools.callable:
            return not form.writes(opener)
        return form is not None

    @property
    def where(self) -> str:
        """The field that asks for it; the first where several do."""
        tools = self.tools
        if self.structure is not None:
            return self.structure.where
        if tools.calling is Calling.REQUIRED or tools.restricts:
            return "tool_choice"
        if self.thinking is not None and not tools.constrains:
            return self.thinking.where
        strict = any(tool.strict for tool in tools.callable)
        return "tools" if strict or tools.parallel else "parallel_tool_calls"

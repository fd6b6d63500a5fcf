"""A response in a grammar: what may stand around the answer and the calls that are constrained.

The grammar starts where the response does, so it has to know what of it the prompt has opened. A
constraint begins exactly where the answer does: after the reasoning, if there is any.
"""

from __future__ import annotations

import functools

from helios.contract.enums import ReasoningParser, ToolParser
from helios.contract.model import FrontendContract
from helios.errors import RequestError
from helios.frontend.grammar.argument_rules import object_rule
from helios.frontend.grammar.call_rules import CALLS, CallsRule, calls_rule
from helios.frontend.grammar.constraint import Constraint
from helios.frontend.grammar.lark import GrammarWriter
from helios.frontend.grammar.structural_tags import AnswerForm, StructuralTag
from helios.frontend.response.marked_text import MarkerSigns
from helios.frontend.tools import Calling, Tool


def response_grammar(
    constraint: Constraint, contract: FrontendContract, signs: MarkerSigns, opened: str
) -> str:
    """The grammar of a response that goes on after `opened`, which stands in the prompt as marked
    text. Without a chat's envelope (`opened` None) the answer alone is constrained."""
    return _Envelope(constraint, contract, signs, opened).grammar()


def answer_grammar(structure: AnswerForm, contract: FrontendContract, signs: MarkerSigns) -> str:
    """The grammar of an output that is nothing but the answer."""
    writer = GrammarWriter(signs, _reserved(contract, signs))
    return writer.grammar(structure.expression(writer))


def _reserved(contract: FrontendContract, signs: MarkerSigns) -> frozenset[str]:
    """Signs of the tokens that end answers, or head the messages around them."""
    envelope = contract.envelope
    around = (
        envelope.assistant_start,
        envelope.message_end,
        envelope.header_open,
        envelope.header_close,
        *envelope.body_closes,
        envelope.channel_open,
        envelope.format_open,
    )
    ends = {sign for token, sign in signs.by_token.items() if token in contract.eos_ids}
    return frozenset(ends.union(*(signs.signs_in(marker) for marker in around)))


class _Envelope:
    def __init__(
        self, constraint: Constraint, contract: FrontendContract, signs: MarkerSigns, opened: str
    ) -> None:
        self._constraint = constraint
        self._contract = contract
        self._signs = signs
        self._opened = opened
        self._writer = GrammarWriter(signs, _reserved(contract, signs))

    def grammar(self) -> str:
        writer, contract = self._writer, self._contract
        if contract.reasoning_parser is ReasoningParser.RECIPIENT_HEADERS:
            start = self._recipients()
        elif contract.reasoning_parser is ReasoningParser.CHANNELS:
            start = self._channels()
        elif contract.tool_parser is ToolParser.XTML:
            start = self._elements()
        else:
            start = self._tags()
        return writer.grammar(start)

    # ------------------------------------------------------------ parts

    def _tools(self) -> list[tuple[Tool, str]]:
        return [
            (tool, f"tools[{index}].function.parameters")
            for index, tool in enumerate(self._constraint.tools.declared)
            if tool in self._constraint.tools.callable
        ]

    def _answer(self, end: str = "") -> str | None:
        """The answer as it is asked for, and the text that follows it at once; any text where only
        calls are constrained; None where calls have to be made."""
        writer, form = self._writer, self._constraint.structure
        if self._constraint.tools.calling is Calling.REQUIRED:
            return None
        if isinstance(form, StructuralTag):
            return form.expression(writer, end)
        if form is None:
            return writer.text_up_to(end) if end else writer.any_text()
        return (
            f"{form.expression(writer)} {writer.literal(end)}" if end else form.expression(writer)
        )

    @functools.cached_property
    def _calls(self) -> CallsRule | None:
        """Calls of the tools that may be called; None where there are none."""
        tools = self._tools()
        parser = self._contract.tool_parser
        if not tools or parser not in CALLS:
            return None
        return calls_rule(
            self._writer,
            parser,
            self._contract.tool_syntax,
            tools,
            parallel=self._constraint.tools.parallel,
        )

    def _after_reasoning(self) -> str:
        """What follows the reasoning: the answer, calls, or text and calls."""
        answer, calls = self._answer(), self._calls
        if calls is None:
            return answer or self._writer.any_text()
        if answer is None:
            return self._writer.rule(calls.expression(self._writer))
        if self._constraint.structure is not None:
            return self._writer.choice([answer, calls.expression(self._writer)])
        return self._text_or_calls(calls)

    def _text_or_calls(self, calls: CallsRule) -> str:
        """Any text, and calls after it or none."""
        writer = self._writer
        if not calls.opener:  # they begin with a brace, which counts only where an answer begins
            return writer.choice([calls.rest, r"/([^{\s](.|\n)*)?/"])
        if writer.is_signed(calls.opener):
            return writer.rule(
                f"{writer.any_text()} | {writer.text_up_to(calls.opener)} {calls.rest}"
            )
        called = f"{writer.text_up_to(calls.opener)} {calls.rest}"
        return writer.choice([writer.text_without(calls.opener), called])

    def _thought_up_to(self, end: str) -> str:
        """Reasoning and what ends it, within its budget."""
        budget = self._constraint.thinking
        if budget is None:
            return self._writer.text_up_to(end)
        if not self._writer.begins_signed(end):
            raise RequestError(
                "this model's reasoning doesn't end with a token of its own",
                where=budget.where,
                remedy="Leave it out",
            )
        return self._writer.bounded_text_up_to(end, budget.tokens)

    def _more_thoughts(self, thought: str) -> str:
        """Any number of messages of reasoning; none where a budget is to hold for all of them."""
        return f"({thought})*" if self._constraint.thinking is None else ""

    def _tags(self) -> str:
        writer, contract = self._writer, self._contract
        rest = self._after_reasoning()
        if contract.reasoning_parser is not ReasoningParser.THINK_TAGS:
            return rest
        syntax = contract.reasoning_syntax
        line = "\n" if syntax.wrapping_newlines else ""
        after = writer.literal(2 * line)
        thought = writer.rule(f"{self._thought_up_to(syntax.close)} {after}")
        opening, closing = self._signs.sign(syntax.open), self._signs.sign(syntax.close)
        opened, closed = self._opened.rfind(opening), self._opened.rfind(closing)
        if closed > opened or (closed >= 0 and opened < 0):
            return rest
        if opened < 0 and self._constraint.structure is not None and self._opened.strip():
            return self._answer() or rest  # it has begun, so its parser reads no tags any more
        # Where text can spell reasoning's end, what stands before a call may have ended it.
        tokens = writer.is_signed(syntax.close)
        calls = self._calls if syntax.terminal_marker and tokens else None
        if self._constraint.thinking and not writer.begins_signed(syntax.terminal_marker):
            calls = None
        ways = [f"{thought} {rest}"]
        if calls is not None:
            ways.append(f"{self._thought_up_to(calls.opener)} {calls.rest}")
        if opened >= 0:
            return writer.choice(ways)
        begun = writer.literal(syntax.open + line)
        return writer.choice([rest, *(f"{begun} {way}" for way in ways)])

    def _elements(self) -> str:
        writer, syntax = self._writer, self._contract.tool_syntax

        def tag(control: str, name: str) -> str:
            return writer.literal(f"{control}{name}{syntax.separator}")

        def up_to(name: str) -> str:
            return writer.text_up_to(f"{syntax.close}{name}{syntax.separator}")

        answer = self._answer(f"{syntax.close}response{syntax.separator}")
        calls, end = self._calls, tag(syntax.close, "message")
        ways = []
        free = self._constraint.structure is None
        if answer is not None:
            ways.append(f"{answer} {end}")
        if calls is not None:
            # Beside an answer of a form of its own no other text can be told from it.
            before = up_to("response") if free else tag(syntax.close, "response")
            ways.append(f"{before} {calls.expression(writer)} {end}")
        rest = writer.choice(ways)
        thought = self._thought_up_to(f"{syntax.close}think{syntax.separator}")
        response_open = tag(syntax.open, "response")
        think_open = self._signs.sign(f"{syntax.open}think{syntax.separator}")
        answer_open = self._signs.sign(f"{syntax.open}response{syntax.separator}")
        if self._opened.rfind(think_open) > self._opened.rfind(answer_open):
            return writer.rule(f"{thought} {response_open} {rest}")
        if answer_open in self._opened:
            return rest
        return writer.rule(f"({tag(syntax.open, 'think')} {thought})? {response_open} {rest}")

    def _recipients(self) -> str:
        """Messages to itself, then one to the user, or ones to tools."""
        writer, envelope = self._writer, self._contract.envelope
        close = writer.literal(envelope.body_closes[0])
        header = writer.literal(f"{envelope.assistant_start}")

        def to(recipient: str) -> str:
            return writer.literal(f" to={recipient}{envelope.header_close}")

        ways = []
        answer = self._answer()
        if answer is not None:
            ways.append(f"{to('user')} {answer}")
        syntax = self._contract.tool_syntax
        calls = []
        for tool, where in self._tools():
            invocation = CALLS[ToolParser.ATEM](writer, syntax, tool, where)
            head = writer.literal(syntax.open + syntax.separator)
            calls.append(
                writer.rule(f"{to(tool.name)} {head} {invocation} {writer.literal(syntax.close)}")
            )
        if calls:
            call = writer.choice(calls)
            more = f"({close} {header} {call})*" if self._constraint.tools.parallel else ""
            ways.append(f"{call} {more}")
        last = writer.choice(ways)
        thought = writer.rule(f"{self._thought_up_to(envelope.body_closes[0])} {header}")
        to_self = f"{to('self')} {thought}"
        more = self._more_thoughts(to_self)
        opened = self._signs.plain(self._opened)
        inside = self._signs.sign(envelope.header_close) in self._opened
        if inside and " to=self" in opened:
            return writer.rule(f"{thought} {more} {last}")
        if inside and answer is not None:
            return answer
        return writer.rule(f"{more or f'({to_self})?'} {last}")

    def _channels(self) -> str:
        """Analysis, then a final message, or calls."""
        writer, envelope = self._writer, self._contract.envelope
        syntax = self._contract.tool_syntax
        header = writer.literal(envelope.assistant_start)

        def message(head: str, body: str) -> str:
            channel = writer.literal(f"{envelope.channel_open}{head}{envelope.header_close}")
            return writer.rule(f"{channel} {body}")

        ways = []
        answer = self._answer()
        if answer is not None:
            ways.append(message("final", answer))
        for tool, where in self._tools():
            head = f"commentary to={syntax.name_prefix}{tool.name} {envelope.format_open}json"
            ways.append(message(head, object_rule(writer, tool, where)))
        last = writer.choice(ways)
        thought = writer.rule(f"{self._thought_up_to(envelope.body_closes[0])} {header}")
        analysis = f"{writer.literal(f'{envelope.channel_open}analysis{envelope.header_close}')}"
        more = self._more_thoughts(f"{analysis} {thought}")
        if self._signs.sign(envelope.header_close) in self._opened:
            return writer.rule(f"{thought} {more} {last}")
        return writer.rule(f"{more or f'({analysis} {thought})?'} {last}")

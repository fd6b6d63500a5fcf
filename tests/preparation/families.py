"""Families whose checkpoints ship code in place of a template: template, contract and tokens."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from helios.contract.frontend_decoder import decode_frontend
from helios.contract.model import FrontendContract
from helios.frontend.markers import MarkerGuard
from helios.frontend.prompts import Prompt, PromptMaker
from helios.frontend.response.marked_text import MarkedReader
from helios.frontend.response.parameter_types import ToolSchemas
from helios.frontend.response.prompt_tail import opened_text
from helios.frontend.response.selection import markers, parser_for, signs_of
from helios.frontend.template import ChatTemplate
from helios.schema import contract_pb2
from ignition.preparation import syntaxes
from ignition.preparation.templates import FamilyTemplate, read_template
from tests.frontend.response.reading import Response, put_together
from tests.frontend.response.tokens import tokenizer_with


def _contract(**fields: Any) -> FrontendContract:
    message = contract_pb2.FrontendContract(
        image_preparation=contract_pb2.IMAGE_PREPARATION_NONE,
        image_layout=contract_pb2.IMAGE_LAYOUT_NONE,
        **fields,
    )
    return decode_frontend(message, "frontend", 1000)


class Family:
    """A template with its contract and tokens."""

    def __init__(
        self,
        which: FamilyTemplate,
        contract: FrontendContract,
        special: list[str],
        added: list[str],
        **tokens: str,
    ) -> None:
        self.contract = contract
        self.tokenizer = tokenizer_with(special, added)
        self.signs = signs_of(contract, self.tokenizer)
        template = ChatTemplate(read_template(which), tokens, now=lambda: datetime(2031, 5, 9))
        self.prompts = PromptMaker(
            tokenizer=self.tokenizer,
            guard=MarkerGuard(self.tokenizer, [*markers(contract), *added]),
            template=template,
            bos_token=None,
            max_context_tokens=1 << 20,
            input_tokens=self.tokenizer.id_extent,
        )

    def prompt(self, *messages: dict[str, Any], **options: Any) -> Prompt:
        return self.prompts.of_messages(messages, **options)

    def text(self, *messages: dict[str, Any], **options: Any) -> str:
        return str(self.prompt(*messages, **options).text)

    def read(self, prompt: Prompt, answer: list[int], schemas: dict[str, Any]) -> Response:
        """A response to a prompt, with the tools' schemas."""
        opened = opened_text(prompt.tokens, self.contract.envelope, self.tokenizer, self.signs)
        parser = parser_for(self.contract, self.signs, ToolSchemas(schemas))
        deltas = parser.prime(opened)
        reader = MarkedReader(self.tokenizer, self.signs, continues=False)
        for token in answer:
            deltas += parser.push(reader.push(token))
        return put_together([*deltas, *parser.push(reader.finish()), *parser.finish()])


XTML = Family(
    FamilyTemplate.XTML,
    _contract(
        tool_parser=contract_pb2.TOOL_PARSER_XTML,
        tool_syntax=syntaxes.XTML,
        reasoning_parser=contract_pb2.REASONING_PARSER_XTML_THINK,
        envelope=contract_pb2.EnvelopeSyntax(
            assistant_start='<|open|>message role="assistant"<|sep|>',
            message_end="<|end_of_msg|>",
        ),
    ),
    ["<|end_of_msg|>"],
    ["<|open|>", "<|close|>", "<|sep|>"],
)
BEGIN, END = (
    "<\uff5cbegin\u2581of\u2581sentence\uff5c>",
    "<\uff5cend\u2581of\u2581sentence\uff5c>",
)
USER, ASSISTANT, TAG = "<\uff5cUser\uff5c>", "<\uff5cAssistant\uff5c>", "\uff5cDSML\uff5c"
DSML = Family(
    FamilyTemplate.DSML,
    _contract(
        tool_parser=contract_pb2.TOOL_PARSER_DSML,
        tool_syntax=syntaxes.DSML_TOOL_CALLS,
        reasoning_parser=contract_pb2.REASONING_PARSER_THINK_TAGS,
        reasoning_syntax=syntaxes.THINK_TAGS_BARE,
        envelope=contract_pb2.EnvelopeSyntax(assistant_start=ASSISTANT, message_end=END),
    ),
    [BEGIN, END, USER, ASSISTANT],
    [TAG, "<think>", "</think>"],
    bos_token=BEGIN,
    eos_token=END,
)
HEADERS = Family(
    FamilyTemplate.RECIPIENT_HEADERS,
    _contract(
        tool_parser=contract_pb2.TOOL_PARSER_ATEM,
        tool_syntax=syntaxes.ATEM,
        reasoning_parser=contract_pb2.REASONING_PARSER_RECIPIENT_HEADERS,
        envelope=syntaxes.RECIPIENT_ENVELOPE,
    ),
    ["<|begin_of_text|>", "<|start|>", "<|message|>", "<|eom|>", "<|eot|>"],
    [],
    bos_token="<|begin_of_text|>",
)
FAMILIES = {"xtml": XTML, "dsml": DSML, "headers": HEADERS}

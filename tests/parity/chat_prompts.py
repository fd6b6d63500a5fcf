"""transformers' own prompts for a style, with the clock that the tests have."""

from __future__ import annotations

import copy
import datetime
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast
from transformers.utils import chat_template_utils

from tests.frontend.chat_styles.conversations import Conversation
from tests.frontend.chat_styles.reference import NOW
from tests.frontend.chat_styles.styles import Style


class _Clock(datetime.datetime):
    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> Any:
        return NOW


@contextmanager
def _at_a_known_time() -> Iterator[None]:
    with mock.patch.object(chat_template_utils, "datetime", _Clock):
        yield


class Reference:
    """A style's tokenizer as transformers has it."""

    def __init__(self, style: Style, kind: str) -> None:
        library = Tokenizer.from_buffer(style.tokenizer(kind))
        self._tokenizer = PreTrainedTokenizerFast(
            tokenizer_object=library, chat_template=style.template, **style.tokens
        )

    def text(self, conversation: Conversation) -> str:
        """The prompt."""
        return str(self._applied(conversation, tokenize=False))

    def ids(self, conversation: Conversation) -> list[int]:
        """The prompt's ids."""
        return list(self._applied(conversation, tokenize=True, return_dict=False))

    def _applied(self, conversation: Conversation, **options: Any) -> Any:
        with _at_a_known_time():
            return self._tokenizer.apply_chat_template(
                json.loads(json.dumps(conversation.messages)),
                tools=copy.deepcopy(conversation.tools) or None,
                documents=copy.deepcopy(conversation.documents) or None,
                add_generation_prompt=conversation.generation_prompt,
                continue_final_message=conversation.continued,
                **conversation.variables,
                **options,
            )

"""Real cores with random weights of every syntax that a preparation can declare.

The template is the tests' own and says little: what a response may be is the grammar's doing, and
what it is read as the parser's.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from openai import OpenAI

from ignition.preparation import chat_syntax, signing
from ignition.preparation.prepare import Options, prepare
from tests.checkpoints import TOKENS, VARIANTS, write_huggingface
from tests.server.real import DEADLINE_S, NAMESPACE, ServerProcess, server_process
from tests.silence import Silent

_THINK: Final = ("<think>", "</think>")
_SECTIONS: Final = (
    "<|tool_calls_section_begin|>",
    "<|tool_calls_section_end|>",
    "<|tool_call_begin|>",
    "<|tool_call_argument_begin|>",
    "<|tool_call_end|>",
)
_CHANNELS: Final = (
    *("<|start|>", "<|message|>", "<|end|>", "<|call|>", "<|return|>"),
    *("<|channel|>", "<|constrain|>"),
)


@dataclass(frozen=True)
class Family:
    """A syntax by its names in preparations, and its tokens. `thought` is what a prompt that opens
    reasoning ends with, `ends` the token that ends reasoning, `opens` one that only calls begin
    with. `stops` are ends of sequence beside the checkpoint's."""

    tools: str
    reasoning: str
    tokens: tuple[str, ...]
    thought: str
    ends: str
    opens: str = ""
    stops: tuple[str, ...] = ()


FAMILIES: Final = (
    Family("channels", "channels", _CHANNELS, "<|channel|>analysis<|message|>", "<|end|>",
           stops=("<|return|>", "<|call|>")),
    Family("call_list", "think_brackets", ("[TOOL_CALLS]", "[ARGS]", "[THINK]", "[/THINK]"),
           "[THINK]", "[/THINK]", "[TOOL_CALLS]"),
    Family("sections", "think_tags", (*_SECTIONS, *_THINK), "<think>", "</think>", _SECTIONS[0]),
    Family("xtml", "xtml_think", ("<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>"),
           "<|open|>think<|sep|>", "<|close|>", stops=("<|end_of_msg|>",)),
    Family("dsml_calls", "think_tags", ("\uff5cDSML\uff5c", *_THINK), "<think>", "</think>"),
    Family("atem", "recipient_headers", ("<|start|>", "<|message|>", "<|eom|>", "<|eot|>"),
           " to=self<|message|>", "<|eom|>", stops=("<|eot|>",)),
    Family("argument_tags", "think_tags",
           ("<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>",
            "</arg_value>", *_THINK), "<think>", "</think>", "<tool_call>"),
    Family("tagged_json", "think_lines", ("<tool_call>", "</tool_call>", *_THINK),
           "<think>\n", "</think>", "<tool_call>"),
)  # fmt: skip


@dataclass
class Served:
    """A running server of a family."""

    family: Family
    server: ServerProcess
    sdk: OpenAI

    def bias(self, **by: float) -> dict[str, float]:
        """A bias of the tokens that the family names `ends` or `opens`; others are dense text's."""
        tokens = {getattr(self.family, which): value for which, value in by.items()}
        first = TOKENS
        return {
            **{str(token): -100 for token in (200, 201, 204, 223)},  # white space
            **{
                str(first + self.family.tokens.index(token)): value
                for token, value in tokens.items()
                if token
            },
        }


def _write(folder: Path, family: Family) -> Path:
    """The family's checkpoint."""
    variant = replace(VARIANTS["llama"], context=4096, vocabulary=TOKENS + len(family.tokens))
    checkpoint = write_huggingface(folder, variant)
    envelope = chat_syntax.REASONING[family.reasoning].envelope
    start = envelope.assistant_start if envelope is not None else "<|im_start|>assistant\n"
    template = (
        "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content or '' }}"
        "<|im_end|>\n{% endfor %}{% for tool in tools or [] %}{{ tool | tojson }}{% endfor %}"
        f"{{% if add_generation_prompt %}}{{{{ {start!r} }}}}"
        f"{{% if thinks %}}{{{{ {family.thought!r} }}}}{{% endif %}}{{% endif %}}"
    )
    plain = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)

    def add(tokenizer: dict[str, Any]) -> None:
        for number, token in enumerate(family.tokens):
            entry = {"id": TOKENS + number, "content": token, **plain}
            tokenizer["added_tokens"].append(entry | {"special": token in family.stops})

    def end(config: dict[str, Any]) -> None:
        stops = [TOKENS + family.tokens.index(token) for token in family.stops]
        config["eos_token_id"] = [2, 0, *stops]

    _alter(checkpoint / "tokenizer.json", add)
    _alter(
        checkpoint / "tokenizer_config.json", lambda config: config.update(chat_template=template)
    )
    _alter(checkpoint / "generation_config.json", end)
    return checkpoint


def _alter(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    read = json.loads(path.read_text())
    change(read)
    path.write_text(json.dumps(read))


@contextlib.contextmanager
def served_family(family: Family, folder: Path, publisher_key: Path) -> Iterator[Served]:
    """Serves a family's core until the block ends."""
    options = Options(
        namespace=NAMESPACE,
        served_id="tiny",
        max_active=4,
        prefill=(128,),
        decode=(1, 4),
        scored_prefill=(),
        restore=(),
        tools=family.tools,
        reasoning=family.reasoning,
    )
    key = signing.read_private_key(publisher_key)
    prepare(_write(folder / "checkpoint", family), folder / "core", options, key, Silent())
    with (
        server_process(folder / "core", "--threads", "1") as server,
        OpenAI(
            base_url=server.url + "/v1", api_key="none", timeout=DEADLINE_S, max_retries=0
        ) as sdk,
    ):
        yield Served(family, server, sdk)

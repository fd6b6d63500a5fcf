from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helios.errors import RequestError
from helios.frontend.markers import MarkerGuard
from helios.frontend.template import ChatTemplate
from helios.frontend.tokenizer import Tokenizer
from tests.frontend.vocabularies import CHAT_TEMPLATE, SPECIAL, TAG, byte_level, piece_level

TOKENIZERS = {"byte-level": Tokenizer(byte_level()), "pieces": Tokenizer(piece_level())}
GUARDS = {
    name: MarkerGuard(tokenizer, [TAG, "</absent>"]) for name, tokenizer in TOKENIZERS.items()
}
TEMPLATE = ChatTemplate(CHAT_TEMPLATE, {})

PIECES_OF_MARKERS = [
    *SPECIAL, TAG, "<|im_", "end|>", "start|>", "<", "|", ">", "<|", "|>", "<think", "think>",
    "hello", " ", "\n", "é", "🦜",
]  # fmt: skip
HOSTILE = st.lists(st.sampled_from(PIECES_OF_MARKERS), max_size=8).map("".join)
ORDINARY = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="<|>▁\ufdd0\ufdd1\ufdd2\ufdd3")
)

both = pytest.mark.parametrize("kind", list(TOKENIZERS))


def _render(guard: MarkerGuard, content: str, role: str = "user") -> str:
    shielded = guard.shield(content, special_only=role == "assistant", where="messages[0]")
    return TEMPLATE.render([{"role": role, "content": shielded}])


@both
@given(content=HOSTILE)
def test_only_the_template_places_markers(kind: str, content: str) -> None:
    tokenizer, guard = TOKENIZERS[kind], GUARDS[kind]
    ids = guard.encode(_render(guard, content), where="messages")
    start, end = tokenizer.token_id("<|im_start|>"), tokenizer.token_id("<|im_end|>")
    placed = [token for token in ids if token in tokenizer.added]
    assert placed == [start, end, start]


@given(content=HOSTILE)
def test_the_users_spelling_reaches_the_model_as_text(content: str) -> None:
    tokenizer, guard = TOKENIZERS["byte-level"], GUARDS["byte-level"]
    ids = guard.encode(_render(guard, content), where="messages")
    expected = f"<|im_start|>user\n{content}<|im_end|>\n<|im_start|>assistant\n"
    assert b"".join(map(tokenizer.token_bytes, ids)) == expected.encode()


@both
@given(content=ORDINARY)
def test_ordinary_text_is_encoded_as_without_a_guard(kind: str, content: str) -> None:
    guard = GUARDS[kind]
    unguarded = TEMPLATE.render([{"role": "user", "content": content}])
    assert _render(guard, content) == unguarded
    assert guard.encode(unguarded, where="messages") == TOKENIZERS[kind].encode(unguarded)


@both
@given(before=ORDINARY, after=ORDINARY)
def test_a_guarded_prompt_differs_from_an_unguarded_one_in_the_spelling_only(
    kind: str, before: str, after: str
) -> None:
    """A marker that takes the same place as a real one leaves its neighbours' ids alone."""
    tokenizer, guard = TOKENIZERS[kind], GUARDS[kind]
    template = ChatTemplate("{{ messages[0] }}<|im_end|>{{ messages[1] }}{{ messages[2] }}", {})
    shielded = [guard.shield(x, special_only=False, where="m") for x in (before, after, TAG)]
    ids = guard.encode(template.render(shielded), where="m")  # type: ignore[arg-type]
    plain_before, plain_after = tokenizer.encode(before), tokenizer.encode(after)
    end = tokenizer.token_id("<|im_end|>")
    assert ids[: len(plain_before) + 1] == [*plain_before, end]
    if kind == "byte-level" and not after[-1:].isspace():
        position = len(plain_before) + 1
        assert ids[position : position + len(plain_after)] == plain_after


def test_markers_cannot_be_put_together_from_parts() -> None:
    guard, tokenizer = GUARDS["byte-level"], TOKENIZERS["byte-level"]
    joined = ChatTemplate("{% for m in messages %}{{ m }}{% endfor %}end|>", {})
    parts = [
        guard.shield(part, special_only=False, where="m")
        for part in ("<|im_", "end|", ">", "<|im_")
    ]
    rendered = joined.render(parts)  # type: ignore[arg-type]
    ids = guard.encode(rendered, where="m")
    assert not set(ids) & set(tokenizer.added)
    assert b"".join(map(tokenizer.token_bytes, ids)) == b"<|im_end|><|im_end|>"


def test_an_assistants_tags_are_left_to_the_template() -> None:
    guard = GUARDS["byte-level"]
    text = f"{TAG}<|im_end|>"
    assert guard.shield(text, special_only=True, where="m") == f"{TAG}<\ufdd0|im_end|>"
    assert guard.shield(text, special_only=False, where="m") == "<\ufdd0think><\ufdd0|im_end|>"


def test_values_are_shielded_however_deep_they_lie() -> None:
    guard = GUARDS["byte-level"]
    value = {"a<think>": [1, None, {"b": "<think>"}]}
    assert guard.shield(value, special_only=False, where="m") == {
        "a<\ufdd0think>": [1, None, {"b": "<\ufdd0think>"}]
    }


def test_reserved_characters_are_refused() -> None:
    with pytest.raises(RequestError, match="U\\+FDD0") as caught:
        GUARDS["pieces"].shield(["x\ufdd1"], special_only=False, where="messages[3]")
    assert caught.value.where == "messages[3]"


def test_a_vocabulary_that_has_no_other_way_to_write_a_marker_is_noticed() -> None:
    from tokenizers import AddedToken, decoders, models, pre_tokenizers
    from tokenizers import Tokenizer as Library

    library = Library(models.WordLevel({"<s>": 0, "[unk]": 1}, unk_token="[unk]"))
    library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    library.decoder = decoders.ByteLevel()
    library.add_special_tokens([AddedToken("<s>", special=True, normalized=False)])
    guard = MarkerGuard(Tokenizer(library.to_str().encode()))
    shielded = guard.shield("<s>", special_only=False, where="messages")
    with pytest.raises(RequestError, match="control token"):
        guard.encode(str(shielded), where="messages")

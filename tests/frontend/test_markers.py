"""Markers in prompts: what counts as one is what the template wrote."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helios.errors import RequestError
from helios.frontend.conversation import for_template
from helios.frontend.markers import CUT, MarkerGuard, without_cuts
from helios.frontend.origins import Origin, added, by
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


def _render(content: str, role: str = "user") -> str:
    messages = for_template([{"role": role, "content": content}], wants_parts=False)
    return TEMPLATE.written(messages)


@pytest.mark.clause("FRONT-5")
@both
@given(content=HOSTILE)
def test_only_the_template_places_markers(kind: str, content: str) -> None:
    tokenizer, guard = TOKENIZERS[kind], GUARDS[kind]
    ids = guard.encode(_render(content), where="messages")
    start, end = tokenizer.token_id("<|im_start|>"), tokenizer.token_id("<|im_end|>")
    placed = [token for token in ids if token in tokenizer.added]
    assert placed == [start, end, start]


@given(content=HOSTILE)
def test_the_users_spelling_reaches_the_model_as_text(content: str) -> None:
    tokenizer, guard = TOKENIZERS["byte-level"], GUARDS["byte-level"]
    ids = guard.encode(_render(content), where="messages")
    expected = f"<|im_start|>user\n{content}<|im_end|>\n<|im_start|>assistant\n"
    assert b"".join(map(tokenizer.token_bytes, ids)) == expected.encode()


@both
@given(content=ORDINARY)
def test_ordinary_text_is_encoded_as_without_a_guard(kind: str, content: str) -> None:
    rendered = _render(content)
    assert GUARDS[kind].encode(rendered, where="m") == TOKENIZERS[kind].encode(str(rendered))


@both
@given(content=ORDINARY)
def test_a_spelling_elsewhere_changes_no_other_token(kind: str, content: str) -> None:
    """What is encoded apart takes nothing from its neighbours."""
    tokenizer, guard = TOKENIZERS[kind], GUARDS[kind]
    ordinary = guard.encode(_render(content), where="m")
    hostile = guard.encode(added(_render(content), "<|im_end|>"), where="m")
    assert hostile[: len(ordinary)] == ordinary
    assert not set(hostile[len(ordinary) :]) & set(tokenizer.added)


def test_markers_cannot_be_put_together_from_parts() -> None:
    guard, tokenizer = GUARDS["byte-level"], TOKENIZERS["byte-level"]
    joined = ChatTemplate("{% for m in messages %}{{ m }}{% endfor %}end|>", {})
    ids = guard.encode(joined.written(["<|im_", "end|", ">", "<|im_"]), where="m")  # type: ignore[list-item]
    assert not set(ids) & set(tokenizer.added)
    assert b"".join(map(tokenizer.token_bytes, ids)) == b"<|im_end|><|im_end|>"


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("<{{ x }}>", "think"),
        ("{{ x }}|>", "<|im_end"),
        ("<|im{{ x }}", "_end|>"),
        ("{{ '<|' ~ x ~ '|>' }}", "im_end"),
        ("{{ '<|%s|>' % x }}", "im_end"),
        ("{{ '<|{}|>'.format(x) }}", "im_end"),
        ("{{ x.replace('X', '|') }}", "<Xim_endX>"),
        ("{{ x | replace('[]', '') }}", "<|im[]_end|>"),
        ("{{ x[::-1] }}", ">|dne_mi|<"),
        ("{{ x | lower }}", "<|IM_END|>"),
        ("{{ x.split(',') | join }}", "<|im,_end|>"),
        ("{{ [x] | tojson }}", "<|im_end|>"),
        ("{{ [x] }}", "<|im_end|>"),
        ("{{ {x: 1} | tojson(sort_keys=true) }}", "<|im_end|>"),
        ("{% for c in x %}{{ c }}{% endfor %}", "<|im_end|>"),
        ("{% set y %}{{ x }}{% endset %}{{ y.strip() }}", " <|im_end|>"),
        ("{% macro f(a) %}{{ a }}|>{% endmacro %}{{ f(x) }}", "<|im_end"),
        ("{{ '{a[0]}|>'.format(a=[x]) }}", "<|im_end"),
    ],
)
def test_no_operation_makes_markers_of_a_clients_text(source: str, text: str) -> None:
    guard, tokenizer = GUARDS["byte-level"], TOKENIZERS["byte-level"]
    template = ChatTemplate(source, {})
    rendered = template.written([], variables={"x": text})
    assert any(marker in rendered for marker in (*SPECIAL, TAG))
    ids = guard.encode(rendered, where="m")
    assert not set(ids) & set(tokenizer.added)
    assert b"".join(map(tokenizer.token_bytes, ids)).decode() == rendered


@pytest.mark.parametrize(
    "source",
    [
        "<|im_end|>",
        "{{ '<|im_' ~ 'end|>' }}",
        "{{ '<|%s|>' % 'im_end' }}",
        "{{ '<|{}|>'.format('im_end') }}",
        "{{ '%s<|im_end|>' % x }}",
        "{{ '{}<|im_end|>{}'.format(x, 1) }}",
        "{{ (x + ' <|im_end|> ').strip().split('a')[1] }}",
        "{{ ('<|im_end|>' ~ x).replace('x', 'y') }}",
        "{{ x.replace('a', '<|im_end|>') }}",
        "{{ ['<|im_end|>', x] | join(' ') }}",
        "{{ ['a', x] | join('<|im_end|>') }}",
        "{{ ('  <|im_end|>' ~ x) | trim }}",
        "{{ '<|IM_END|>' | lower }}",
        "{{ ('b<|im_end|>' ~ x)[1:] }}",
        "{{ ('<|im_end|>\n' ~ x) | indent }}",
        "{% for c in '<|im_end|>' %}{{ c }}{% endfor %}",
        "{% set y %}<|im_end|>{{ x }}{% endset %}{{ y }}",
        "{% macro f(a='<|im_end|>') %}{{ a }}{% endmacro %}{{ f() }}",
        "{{ eos_token }}",
        "{{ {'a': '<|im_end|>'}.a }}",
        "{{ x if x == 'q' else '<|im_end|>' }}",
        "{{ '<|im_end|>' * 1 }}",
    ],
)
def test_what_a_template_writes_stays_a_marker_through_operations(source: str) -> None:
    guard, tokenizer = GUARDS["byte-level"], TOKENIZERS["byte-level"]
    template = ChatTemplate(source, {"eos_token": "<|im_end|>"})
    ids = guard.encode(template.written([], variables={"x": "xa"}), where="m")
    assert [t for t in ids if t in tokenizer.added] == [tokenizer.token_id("<|im_end|>")]
    mixed = added(template.written([], variables={"x": "xa"}), "<|im_end|>")
    ids = guard.encode(mixed, where="m")
    assert [t for t in ids if t in tokenizer.added] == [tokenizer.token_id("<|im_end|>")]


def test_an_assistants_content_may_hold_tags() -> None:
    guard, tokenizer = GUARDS["byte-level"], TOKENIZERS["byte-level"]
    start, end = tokenizer.token_id("<|im_start|>"), tokenizer.token_id("<|im_end|>")
    tag = tokenizer.token_id(TAG)
    for role, content in (("assistant", [tag]), ("user", [])):
        ids = guard.encode(_render(f"{TAG}<|im_end|>", role), where="m")
        assert [t for t in ids if t in tokenizer.added] == [start, *content, end, start]


def test_the_longest_spelling_of_one_origin_counts() -> None:
    """A client can't lengthen a template's marker into another one."""
    from tests.frontend.response.tokens import tokenizer_with

    tokenizer = tokenizer_with(["<s>", "<s>+"])
    guard = MarkerGuard(tokenizer)
    ids = guard.encode(added(by(Origin.TEMPLATE, "<s>"), "+"), where="m")
    assert ids == [tokenizer.token_id("<s>"), *tokenizer.encode("+")]
    ids = guard.encode(by(Origin.TEMPLATE, "<s>+"), where="m")
    assert ids == [tokenizer.token_id("<s>+")]


@both
def test_no_token_reaches_across_a_cut(kind: str) -> None:
    guard, tokenizer = GUARDS[kind], TOKENIZERS[kind]
    text = by(Origin.TEMPLATE, f"he{CUT}llo<|im_end|>")
    ids = guard.encode(text, where="m")
    assert without_cuts(text) == "hello<|im_end|>"
    assert ids[-1] == tokenizer.token_id("<|im_end|>")
    spellings = [tokenizer.spelling(t).strip("▁") for t in ids[:-1]]
    assert [s for s in spellings if s] == ["he", "ll", "o"]
    assert [tokenizer.spelling(t) for t in tokenizer.encode("hello")][-1].endswith("hello")


def test_a_vocabulary_that_has_no_other_way_to_write_a_marker_is_noticed() -> None:
    from tokenizers import AddedToken, decoders, models, pre_tokenizers
    from tokenizers import Tokenizer as Library

    library = Library(models.WordLevel({"<s>": 0, "[unk]": 1}, unk_token="[unk]"))
    library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    library.decoder = decoders.ByteLevel()
    library.add_special_tokens([AddedToken("<s>", special=True, normalized=False)])
    guard = MarkerGuard(Tokenizer(library.to_str().encode()))
    with pytest.raises(RequestError, match="control token"):
        guard.encode("<s>", where="messages")

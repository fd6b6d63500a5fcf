from __future__ import annotations

import dataclasses
from typing import Any, cast

import numpy as np
import pytest
import tokenizers
from tokenizers import decoders, models

from helios.contract import PreparedContract
from helios.contract.model import InputVocabulary
from helios.errors import ContractError, RequestError
from helios.frontend.bootstrap import assemble
from helios.frontend.chat_options import ChatOptions
from helios.frontend.output import OutputPipeline
from helios.frontend.prepare import GenerationOptions, PromptTooLongError
from tests.frontend.vocabularies import (
    CHAT_TEMPLATE,
    CONTEXT_TOKENS,
    EOS_ID,
    TAG,
    byte_level,
    byte_level_frontend,
    prepared_contract,
)

FRONTEND = byte_level_frontend()
PREPARER = FRONTEND.preparer
HI = [{"role": "user", "content": "hello"}]
NONE = GenerationOptions()


def test_a_chat_prompt_is_the_rendered_template() -> None:
    prepared = PREPARER.prepare_chat(HI, NONE)
    rendered = "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
    assert prepared.prompt_tokens == FRONTEND.tokenizer.encode(rendered)
    assert prepared.eos_ids == (EOS_ID,)
    assert not prepared.continues


def test_template_variables_reach_the_template_shielded() -> None:
    frontend = byte_level_frontend("{{ style }}")
    prepared = frontend.preparer.prepare_chat(HI, NONE, chat=ChatOptions(variables={"style": TAG}))
    assert TAG.encode() == b"".join(map(frontend.tokenizer.token_bytes, prepared.prompt_tokens))
    assert frontend.tokenizer.token_id(TAG) not in prepared.prompt_tokens


def test_added_tokens_that_the_template_writes_are_markers() -> None:
    plain = byte_level_frontend("{{ messages[0].content }}", tags=False)
    writing = byte_level_frontend("{{ messages[0].content }}{{ '" + TAG + "' }}", tags=False)
    message = [{"role": "user", "content": TAG}]
    tag = plain.tokenizer.token_id(TAG)
    assert plain.preparer.prepare_chat(message, NONE).prompt_tokens == [tag]
    prompt = writing.preparer.prepare_chat(message, NONE).prompt_tokens
    assert prompt.count(tag or -1) == 1
    assert prompt[-1] == tag


def test_an_assistants_reasoning_tags_are_markers_when_the_template_keeps_them() -> None:
    messages = [*HI, {"role": "assistant", "content": TAG}, {"role": "user", "content": TAG}]
    prepared = PREPARER.prepare_chat(messages, NONE)
    assert prepared.prompt_tokens.count(FRONTEND.tokenizer.token_id(TAG) or -1) == 1


def test_plain_prompts_may_spell_markers() -> None:
    prepared = PREPARER.prepare_completion("<|im_start|>x", NONE)
    assert prepared.prompt_tokens[0] == FRONTEND.tokenizer.token_id("<|im_start|>")
    assert prepared.continues


def test_token_ids_are_taken_as_they_are() -> None:
    assert PREPARER.prepare_completion([5, 0, 7], NONE).prompt_tokens == [5, 0, 7]


def _with_bos(bos: str | None) -> PreparedContract:
    contract = prepared_contract({})
    frontend = contract.model.frontend
    tokens = dataclasses.replace(frontend.template_tokens, bos_token=bos, add_bos_token=True)
    model = dataclasses.replace(
        contract.model, frontend=dataclasses.replace(frontend, template_tokens=tokens)
    )
    return dataclasses.replace(contract, model=model)


def test_a_bos_token_is_put_before_plain_text_once() -> None:
    frontend = assemble(_with_bos("<|im_start|>"), byte_level(), None)
    bos = frontend.tokenizer.token_id("<|im_start|>")
    plain = frontend.preparer.prepare_completion("hello", NONE).prompt_tokens
    spelled = frontend.preparer.prepare_completion("<|im_start|>hello", NONE).prompt_tokens
    assert plain == spelled == [bos, *frontend.tokenizer.encode("hello")]
    assert frontend.preparer.prepare_completion([9], NONE).prompt_tokens == [9]


@pytest.mark.parametrize("bos", [None, "<absent>"])
def test_a_bos_token_that_does_not_exist_is_refused_at_load(bos: str | None) -> None:
    with pytest.raises(ContractError, match="bos_token"):
        assemble(_with_bos(bos), byte_level(), None)


def test_chat_without_a_template_is_refused() -> None:
    with pytest.raises(RequestError, match="no chat template"):
        byte_level_frontend(None).preparer.prepare_chat(HI, NONE)


@pytest.mark.parametrize(
    ("prompt", "cause"),
    [("", "no tokens"), ([], "no tokens"), ([1, 99999], "99999"), ([-1], "-1")],
)
def test_prompts_that_cannot_be_run_are_refused(prompt: str | list[int], cause: str) -> None:
    with pytest.raises(RequestError, match=cause) as caught:
        PREPARER.prepare_completion(prompt, NONE)
    assert caught.value.where == "prompt"


@pytest.mark.clause("CONTRACT-3")
def test_prompts_hold_ids_of_the_input_vocabulary_which_isn_t_the_sampled_one() -> None:
    contract = prepared_contract({})
    sampled = contract.model.vocabulary.sampled_tokens
    inputs = InputVocabulary(sampled + 3, ())
    model = dataclasses.replace(contract.model, input_vocabulary=inputs)
    preparer = assemble(
        dataclasses.replace(contract, model=model), byte_level(), CHAT_TEMPLATE
    ).preparer
    prompt = [0, sampled, sampled + 2]
    assert preparer.prepare_completion(prompt, NONE).prompt_tokens == prompt
    for wrong in (sampled + 3, -1):
        with pytest.raises(RequestError, match=f"token id {wrong} is not in the model's"):
            preparer.prepare_completion([0, wrong], NONE)


def test_a_prompt_may_fill_the_context_but_for_one_token() -> None:
    assert PREPARER.prepare_completion([5] * (CONTEXT_TOKENS - 1), NONE).output_limit == 1
    with pytest.raises(PromptTooLongError, match=rf"{CONTEXT_TOKENS} tokens.*at most 255"):
        PREPARER.prepare_completion([5] * CONTEXT_TOKENS, NONE)


def test_a_long_conversation_names_the_messages() -> None:
    with pytest.raises(PromptTooLongError) as caught:
        PREPARER.prepare_chat([{"role": "user", "content": "x" * 300}], NONE)
    assert caught.value.where == "messages"


def test_hopeless_prompts_are_refused_before_they_are_tokenized(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def untouched(*_: object) -> list[int]:
        raise AssertionError("the text was tokenized")

    frontend = byte_level_frontend()
    monkeypatch.setattr(frontend.tokenizer, "encode", untouched)
    text = "<|endoftext|>" * CONTEXT_TOKENS
    with pytest.raises(PromptTooLongError, match=r"at least 256 tokens.*at most 255") as caught:
        frontend.preparer.prepare_completion(text, NONE)
    assert caught.value.where == "prompt"
    with pytest.raises(PromptTooLongError, match="at least") as caught:
        frontend.preparer.prepare_chat([{"role": "user", "content": text}], NONE)
    assert caught.value.where == "messages"


def test_a_prompt_of_the_longest_tokens_may_fill_the_context() -> None:
    prompt = "<|endoftext|>" * (CONTEXT_TOKENS - 1)
    assert PREPARER.prepare_completion(prompt, NONE).output_limit == 1


@pytest.mark.parametrize("text", ["a\ud800", "\udcff"])
def test_text_that_is_no_unicode_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match="surrogate") as caught:
        PREPARER.prepare_completion(text, NONE)
    assert caught.value.where == "prompt"
    with pytest.raises(RequestError, match="surrogate"):
        PREPARER.prepare_chat([{"role": "user", "content": text}], NONE)


def _nested(levels: int) -> object:
    value: object = "x"
    for level in range(levels):
        value = [value] if level % 2 else {"a": value}
    return value


def test_template_variables_may_be_nested_so_deep() -> None:
    PREPARER.prepare_chat(HI, NONE, chat=ChatOptions(variables={"a": _nested(64)}))
    for levels in (65, 600):
        with pytest.raises(RequestError, match="nested too deeply") as caught:
            PREPARER.prepare_chat(HI, NONE, chat=ChatOptions(variables={"a": _nested(levels)}))
        assert caught.value.where == "chat_template_kwargs"


def test_a_refused_value_is_shown_as_it_was_given() -> None:
    with pytest.raises(RequestError, match=r"2\.0000001 is out of range"):
        PREPARER.prepare_completion([5], GenerationOptions(temperature=2.0000001))


def test_the_output_limit() -> None:
    def limit(asked: int | None, default: int | None = None) -> int:
        sampling: dict[str, float] = {} if default is None else {"max_output_tokens": default}
        preparer = byte_level_frontend(sampling=sampling).preparer
        return preparer.prepare_completion([5] * 6, GenerationOptions(asked)).output_limit

    assert limit(None) == 250
    assert limit(None, 40) == 40
    assert limit(None, 4000) == 250
    assert limit(250, 40) == 250
    with pytest.raises(PromptTooLongError, match=r"251 output tokens.*6 tokens.*257.*at most 250"):
        limit(251)
    with pytest.raises(RequestError, match="too small"):
        limit(0)


@pytest.mark.clause("FRONT-16")
def test_sampling_comes_from_the_request_then_the_contract_then_the_api() -> None:
    def prepare(options: GenerationOptions, **defaults: float) -> tuple[float, int, float, float]:
        preparer = byte_level_frontend(sampling=defaults).preparer
        sampling = preparer.prepare_completion([5], options).sampling
        return sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p

    recommended = {"temperature": 0.5, "top_k": 20, "top_p": 0.75, "min_p": 0.25}
    asked = GenerationOptions(temperature=0.0, top_k=0, top_p=1.0, min_p=0.0)
    assert prepare(NONE) == (1.0, 0, 1.0, 0.0)
    assert prepare(NONE, **recommended) == (0.5, 20, 0.75, 0.25)
    assert prepare(asked, **recommended) == (0.0, 0, 1.0, 0.0)
    assert prepare(GenerationOptions(top_k=-1), **recommended)[1] == 0


@pytest.mark.parametrize(
    ("options", "field"),
    [
        (GenerationOptions(temperature=2.5), "temperature"),
        (GenerationOptions(temperature=-0.1), "temperature"),
        (GenerationOptions(temperature=float("nan")), "temperature"),
        (GenerationOptions(top_p=1.5), "top_p"),
        (GenerationOptions(min_p=-1.0), "min_p"),
        (GenerationOptions(top_k=-2), "top_k"),
        (GenerationOptions(top_k=1 << 31), "top_k"),
        (GenerationOptions(priority=17), "priority"),
        (GenerationOptions(priority=-17), "priority"),
    ],
)
def test_out_of_range_sampling_names_the_field(options: GenerationOptions, field: str) -> None:
    with pytest.raises(RequestError) as caught:
        PREPARER.prepare_completion([5], options)
    assert caught.value.where == field


@pytest.mark.parametrize(
    ("options", "field"),
    [
        (GenerationOptions(seed=cast("int", 1.5)), "seed"),
        (GenerationOptions(seed=True), "seed"),
        (GenerationOptions(priority=cast("int", 1.5)), "priority"),
        (GenerationOptions(temperature=cast("float", "1")), "temperature"),
        (GenerationOptions(top_p=cast("float", [1])), "top_p"),
        (GenerationOptions(top_k=cast("int", 1.5)), "top_k"),
        (GenerationOptions(max_tokens=cast("int", 1.5)), "max_tokens"),
        (GenerationOptions(max_tokens=cast("int", "1")), "max_tokens"),
    ],
)
def test_values_of_a_wrong_type_name_the_field(options: GenerationOptions, field: str) -> None:
    with pytest.raises(RequestError, match="is not a") as caught:
        PREPARER.prepare_completion([5], options)
    assert caught.value.where == field


@pytest.mark.parametrize(
    ("prompt", "field"),
    [
        ([5, "a"], "prompt[1]"),
        ([5, 6, 1.5], "prompt[2]"),
        ([True], "prompt[0]"),
        (b"ab", "prompt"),
        (None, "prompt"),
        ({"a": 1}, "prompt"),
    ],
)
def test_prompts_of_a_wrong_type_name_the_place(prompt: Any, field: str) -> None:
    with pytest.raises(RequestError) as caught:
        PREPARER.prepare_completion(prompt, NONE)
    assert caught.value.where == field


def test_numpy_integers_are_token_ids() -> None:
    prepared = PREPARER.prepare_completion(cast("list[int]", np.array([5, 6])), NONE)
    assert prepared.prompt_tokens == [5, 6]
    assert {type(token) for token in prepared.prompt_tokens} == {int}


@pytest.mark.parametrize(
    "model",
    [
        models.WordPiece(vocab={"a": 0}, unk_token="[UNK]"),
        models.Unigram([("a", 0.0)], None, False),
    ],
)
def test_text_without_tokens_is_refused(model: models.Model) -> None:
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.decoder = decoders.Fuse()
    preparer = assemble(prepared_contract({}), tokenizer.to_str().encode(), None).preparer
    assert preparer.prepare_completion("a", NONE).prompt_tokens == [0]
    with pytest.raises(RequestError, match="has no tokens for this text") as caught:
        preparer.prepare_completion("zz", NONE)
    assert caught.value.where == "prompt"


def test_a_tokenizer_with_more_ids_than_the_model_is_refused_at_load() -> None:
    tokenizer = tokenizers.Tokenizer.from_buffer(byte_level())
    tokenizer.add_tokens(["<one more>"])
    with pytest.raises(ContractError, match="the tokenizer has ids up to"):
        assemble(prepared_contract({}), tokenizer.to_str().encode(), None)


def test_seeds() -> None:
    def seed(given: int | None) -> int:
        return PREPARER.prepare_completion([5], GenerationOptions(seed=given)).sampling.seed

    assert seed(7) == 7
    assert seed(-1) == (1 << 64) - 1
    assert seed((1 << 64) - 1) == (1 << 64) - 1
    assert seed(-(1 << 63)) == 1 << 63
    for outside in (1 << 64, -(1 << 63) - 1):
        with pytest.raises(RequestError, match=str(outside)) as caught:
            seed(outside)
        assert caught.value.where == "seed"
    assert len({seed(None) for _ in range(8)}) == 8


def test_output_counts_every_token_and_hides_the_end() -> None:
    prepared = PREPARER.prepare_chat(HI, NONE)
    pipeline = OutputPipeline(FRONTEND.tokenizer, prepared)
    ids = FRONTEND.tokenizer.encode("héllo")
    first = pipeline.push(ids, [-0.5] * len(ids), last=False)
    last = pipeline.push([EOS_ID], [-0.25], last=True)
    assert (first.text, last.text) == ("héllo", "")
    assert [token.data for token in last.tokens] == [b"<|im_end|>"]
    assert pipeline.output_tokens == len(ids) + 1
    assert pipeline.prompt_tokens == len(prepared.prompt_tokens)


def test_output_offsets_count_visible_characters() -> None:
    pipeline = OutputPipeline(FRONTEND.tokenizer, PREPARER.prepare_chat(HI, NONE))
    tokenizer = FRONTEND.tokenizer
    by_bytes = {tokenizer.token_bytes(token): token for token in range(259)}
    ids = [*tokenizer.encode("hello"), by_bytes[b"\xf0"], by_bytes[b"\x9f"]]
    delta = pipeline.push(ids, [0.0] * len(ids), last=True)
    assert [token.offset for token in delta.tokens] == [0, 5, 5]
    assert delta.text.startswith("hello")
    assert set(delta.text[5:]) == {"\ufffd"}


def test_an_eos_token_that_is_not_special_is_hidden_too() -> None:
    prepared = dataclasses.replace(
        PREPARER.prepare_completion("x", NONE), eos_ids=(FRONTEND.tokenizer.token_id(TAG) or 0,)
    )
    pipeline = OutputPipeline(FRONTEND.tokenizer, prepared)
    assert pipeline.push([prepared.eos_ids[0]], [0.0], last=True).text == ""

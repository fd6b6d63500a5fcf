"""Responses that a grammar allows, chosen at random: what a model could answer at worst."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
from llguidance import LLMatcher, LLTokenizer

from helios.frontend.grammar.compiler import parser_limits


class EndlessWalkError(AssertionError):
    """A walk that found no end in thousands of tokens."""


def allowed_tokens(matcher: LLMatcher, vocabulary: LLTokenizer) -> list[int]:
    """The tokens that may come next."""
    words = np.frombuffer(matcher.compute_bitmask(), np.uint8)
    bits = np.unpackbits(words, bitorder="little")[: vocabulary.vocab_size]
    return [int(token) for token in np.flatnonzero(bits)]


def walk(
    vocabulary: LLTokenizer,
    grammar: str,
    choose: random.Random,
    closers: Sequence[Sequence[int]] = (),
    *,
    patience: int = 60,
    wanted: Sequence[Sequence[int]] = (),
) -> list[int]:
    """A whole response without its end token. After `patience` tokens it hurries: closing tokens
    come as soon as they may, and sequences of `closers`. Before, sequences of `wanted` come
    often where they may."""
    matcher = LLMatcher(vocabulary, grammar, limits=parser_limits())
    assert not matcher.is_error(), matcher.get_error()
    tokens: list[int] = []
    hurry = [
        vocabulary.tokenize_bytes(end)[0] for end in (b'"', b"}", b"]", b"\n", b"<", b"/", b",")
    ]
    ends = set(vocabulary.eos_tokens)
    for count in range(4000):
        allowed = allowed_tokens(matcher, vocabulary)
        assert allowed, matcher.get_error()
        finished = ends & set(allowed)
        fitting = [one for one in wanted if matcher.validate_tokens(list(one)) == len(one)]
        if fitting and count <= patience and choose.random() < 0.3:
            chosen = choose.choice(fitting)
            assert matcher.consume_tokens(list(chosen)), matcher.get_error()
            tokens += chosen
            continue
        rest = [token for token in allowed if token not in ends]
        if finished and (not rest or count > patience or choose.random() < 0.1):
            return tokens
        special = [t for t in rest if vocabulary.is_special_token(t)]
        closing = [one for one in closers if matcher.validate_tokens(list(one)) == len(one)]
        hurries = 0.5 if count > patience else 0.05
        if (not special or count > patience) and closing and choose.random() < hurries:
            chosen = choose.choice(closing)
            assert matcher.consume_tokens(list(chosen)), matcher.get_error()
            tokens += chosen
            continue
        if count > patience and special:
            token = choose.choice(special)
        elif count > patience and (quick := [t for t in hurry if t in rest]):
            token = choose.choice(quick)
        elif special and choose.random() < 0.2:
            token = choose.choice(special)
        else:
            token = choose.choice(rest)
        assert matcher.consume_token(token), matcher.get_error()
        tokens.append(token)
    shown = vocabulary.decode_str(tokens[:160])
    raise EndlessWalkError(f"the walk doesn't end: {shown!r}")

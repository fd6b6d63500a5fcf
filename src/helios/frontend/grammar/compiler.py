"""Makes a request's grammar and checks it: an answer that can't be constrained is refused here.

Compiling runs in the preparation slots. Its limits are llguidance's own (states, symbols, fuel, so
time as well) and this module's on what is handed over; both end in that request's error.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import llguidance
import numpy as np
from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper

from helios.contract.model import FrontendContract
from helios.errors import RequestError
from helios.frontend.grammar.constraint import Constraint
from helios.frontend.grammar.envelope import answer_grammar, response_grammar
from helios.frontend.grammar.structural_tags import AnswerForm
from helios.frontend.response.marked_text import MarkerSigns
from helios.frontend.tokenizer import Tokenizer
from helios.frontend.tools import Calling, Tool

SIZE_LIMIT: Final = 1 << 18  # characters of a grammar
TRIED_TOKENS: Final = 6  # that a grammar is followed before it is believed


def parser_limits() -> LLParserLimits:
    """Bounds on what one grammar may cost, here and in the worker."""
    return LLParserLimits(
        max_items_in_row=2000,
        initial_lexer_fuel=400_000,
        step_lexer_fuel=200_000,
        step_max_items=50_000,
        max_lexer_states=50_000,
        max_grammar_size=40_000,
        precompute_large_lexemes=False,
        verbose_errors=False,
    )


def grammar_tokenizer(
    tokenizer: Tokenizer, signs: MarkerSigns, eos_ids: Sequence[int], sampled_tokens: int
) -> LLTokenizer:
    """The vocabulary as grammars see it: markers, like special tokens, are no text."""
    return LLTokenizer(
        TokenizerWrapper(_Vocabulary(tokenizer, signs, eos_ids, sampled_tokens)),
        n_vocab=sampled_tokens,
        eos_token=list(eos_ids) or None,
    )


class GrammarCompiler:
    """Makes one core's grammars. Safe to use from several threads. The vocabulary is read when
    the first one is wanted."""

    def __init__(
        self,
        contract: FrontendContract,
        tokenizer: Tokenizer,
        signs: MarkerSigns,
        sampled_tokens: int,
    ) -> None:
        self._contract = contract
        self._tokenizer = tokenizer
        self._signs = signs
        self._sampled_tokens = sampled_tokens

    @functools.cached_property
    def vocabulary(self) -> LLTokenizer:
        """The core's vocabulary as grammars see it."""
        return grammar_tokenizer(
            self._tokenizer, self._signs, self._contract.eos_ids, self._sampled_tokens
        )

    def compile(
        self, constraint: Constraint, opened: str | None, allowed: Sequence[int] | None = None
    ) -> str:
        """The grammar of a response, or of a bare output where `opened` is None; `allowed` are the
        only tokens that may come. Raises RequestError naming the field whose value can't be made
        one, with the reason, or `allowed_token_ids` where it has no token to begin with."""
        grammar, fault = self._made(constraint, opened)
        if fault is not None:
            raise _refused(fault, self._culprit(constraint, opened))
        if allowed is not None and not _begins(self.vocabulary, grammar, allowed):
            raise RequestError(
                "it has none of the tokens that the answer may begin with; its grammar is that of"
                f" {constraint.where}",
                where="allowed_token_ids",
                remedy=f"Allow them, or leave out allowed_token_ids or {constraint.where}",
            )
        return grammar

    def _made(self, constraint: Constraint, opened: str | None) -> tuple[str, str | None]:
        """A grammar and what is wrong with it, or None. Raises RequestError where the part that no
        grammar can be made of is known."""
        try:
            if opened is not None:
                grammar = response_grammar(constraint, self._contract, self._signs, opened)
            else:
                assert constraint.structure is not None
                grammar = answer_grammar(constraint.structure, self._contract, self._signs)
        except (RecursionError, ValueError) as error:
            return "", str(error)
        if len(grammar) > SIZE_LIMIT:
            return grammar, f"it has {len(grammar)} characters, over {SIZE_LIMIT}"
        return grammar, _fault(self.vocabulary, grammar)

    def _culprit(self, constraint: Constraint, opened: str | None) -> str:
        """The field of a constraint that no grammar can be made of: the answer's form, a tool's
        parameters, or `tools` where it is all of them together that are too much."""
        tools, structure = constraint.tools, constraint.structure

        def fails(structure: AnswerForm | None, declared: Sequence[Tool]) -> bool:
            calling = tools.calling if structure is not None else Calling.REQUIRED
            some = replace(tools, declared=tuple(declared), calling=calling)
            part = replace(constraint, structure=structure, tools=some)
            return self._made(part, opened)[1] is not None

        if structure is not None and (not tools.callable or fails(structure, ())):
            return structure.where
        if not tools.callable:
            return constraint.where
        # The first tool with which they are too much, in few steps, since each compiles a grammar.
        places = [place for place, tool in enumerate(tools.declared) if tool in tools.callable]
        fine, wrong = 0, len(places)
        while wrong - fine > 1:
            middle = (fine + wrong) // 2
            if fails(None, [tools.declared[place] for place in places[:middle]]):
                wrong = middle
            else:
                fine = middle
        place = places[wrong - 1]
        alone = fails(None, [tools.declared[place]])
        return f"tools[{place}].function.parameters" if alone else "tools"


def _fault(vocabulary: LLTokenizer, grammar: str) -> str | None:
    """What is wrong with a grammar; None if it can be followed for some tokens."""
    try:
        error = _tried(vocabulary, grammar).strip()
    except Exception as raised:
        return f"{type(raised).__name__}: {raised}"
    except BaseException as raised:
        # A panic of the library's, which is no Exception.
        if type(raised).__name__ != "PanicException":
            raise
        return "llguidance can't follow it"
    return "nothing fits it" if error.startswith("NoExtension") else error or None


def _tried(vocabulary: LLTokenizer, grammar: str) -> str:
    """Follows a grammar for some tokens, and the error that this ends in, or nothing. What is too
    complex for a mask or a row shows soon, and better here than in the midst of an answer. An
    object, a list and a text are begun where they may be, since most of a schema is in them."""
    matcher = LLMatcher(vocabulary, grammar, log_level=0, limits=parser_limits())
    allowed = _allowed(matcher, vocabulary)
    begins = {vocabulary.tokenize_bytes(text)[0] for text in (b"{", b"[", b'"')}
    for token in [*allowed[:1], *sorted(begins.intersection(allowed))]:
        branch = matcher.deep_copy()
        branch.consume_token(token)
        for _ in range(TRIED_TOKENS):
            following = _allowed(branch, vocabulary)
            if not following:
                break
            branch.consume_token(following[0])
        if branch.is_error():
            return branch.get_error()
    return matcher.get_error() if matcher.is_error() else ""


def _begins(vocabulary: LLTokenizer, grammar: str, allowed: Sequence[int]) -> bool:
    """Whether one of these tokens may come first, or an end among them."""
    matcher = LLMatcher(vocabulary, grammar, log_level=0, limits=parser_limits())
    mask = matcher.compute_bitmask()
    return any(mask[token >> 3] >> (token & 7) & 1 for token in allowed)


def _allowed(matcher: LLMatcher, vocabulary: LLTokenizer) -> list[int]:
    """The tokens that may come next, ends aside; none after an error."""
    if matcher.is_error() or matcher.is_stopped():
        return []
    matcher.compute_ff_tokens()
    bits = np.unpackbits(np.frombuffer(matcher.compute_bitmask(), np.uint8), bitorder="little")
    ends = frozenset(vocabulary.eos_tokens)
    return [token for token in np.flatnonzero(bits).tolist() if token not in ends]


class _Vocabulary:
    """A tokenizer as llguidance wants it."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        signs: MarkerSigns,
        eos_ids: Sequence[int],
        sampled_tokens: int,
    ) -> None:
        self._tokenizer = tokenizer
        extent = tokenizer.id_extent
        self.tokens = [
            tokenizer.token_bytes(token) if token < extent else b""
            for token in range(sampled_tokens)
        ]
        special = {*tokenizer.special_ids, *signs.by_token}
        self.special_token_ids = sorted(token for token in special if token < sampled_tokens)
        markers = [tokenizer.added[token].content for token in special if token in tokenizer.added]
        inside = "|".join(re.escape(marker[1:]) for marker in markers if len(marker) > 1)
        self._inside = re.compile(f"(?={inside})" if inside else r"(?!)")
        self.eos_token_id = eos_ids[0] if eos_ids else 0
        self.bos_token_id = None

    def __call__(self, text: bytes | str) -> list[int]:
        """A text's tokens. It spells no marker, so what looks like one is cut apart."""
        shown = text.decode(errors="replace") if isinstance(text, bytes) else text
        pieces = filter(None, self._inside.split(shown))
        return [token for piece in pieces for token in self._tokenizer.encode(piece)]


def _refused(why: str, where: str) -> RequestError:
    first = why.strip().splitlines()[0][:500] if why.strip() else "it is no grammar"
    first = first.partition(" Enable '")[0]  # llguidance's options, which no client has
    return RequestError(
        f"no grammar can be made of it: {first}",
        where=where,
        remedy="Leave out what isn't supported, or make it smaller",
    )


VERSION: Final = llguidance.__version__

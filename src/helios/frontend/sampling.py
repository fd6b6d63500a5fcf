"""From a client's options to sampling parameters: request over contract over the API's own default,
ranges, and texts as token ids. `prepare` is the caller."""

from __future__ import annotations

import operator
import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Final

from helios.contract.model import SamplingDefaults
from helios.dataclass import dataclass
from helios.errors import RequestError
from helios.frontend.options import GenerationOptions
from helios.frontend.tokenizer import Tokenizer
from helios.runtime.rounds import SamplingParameters
from helios.runtime.sampling_rules import SamplingRules, sampling_fault

SEEDS: Final = 1 << 64
_SEED_MASK: Final = SEEDS - 1
_LEAST_SEED: Final = -(1 << 63)
_TOP_K_LIMIT: Final = (1 << 31) - 1
_REPETITION_LIMIT: Final = 100.0
_PENALTY_LIMIT: Final = 2.0
_BIAS_LIMIT: Final = 100.0
_TOKEN_ID: Final = re.compile(r"[0-9]{1,18}")  # as JSON spells it
_NEUTRAL: Final = {
    "repetition_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
}


class UnsupportedParameterError(RequestError):
    """A parameter that this core's programs don't apply."""


@dataclass(frozen=True, slots=True)
class SamplingResolver:
    """Resolves options for one core: its recommendations, what its programs apply, and the ids
    below `vocabulary_tokens` that it may sample."""

    tokenizer: Tokenizer
    defaults: SamplingDefaults
    rules: SamplingRules
    vocabulary_tokens: int

    def resolve(
        self, options: GenerationOptions, output_limit: int, stop_ids: Sequence[int] = ()
    ) -> SamplingParameters:
        """The parameters of a request that ends at `stop_ids`, all defaults resolved. Raises
        RequestError naming the field that is out of range or that the core's programs don't
        apply."""
        defaults = self.defaults
        min_tokens = _min_tokens(options.min_tokens, output_limit)
        seed = options.seed if options.seed is not None else secrets.randbits(64)
        if not _LEAST_SEED <= seed <= _SEED_MASK:
            raise RequestError(
                f"{seed} doesn't fit into 64 bits",
                where="seed",
                remedy=f"Give a value from {_LEAST_SEED} to {_SEED_MASK}",
            )
        repetition, presence, frequency = self._penalties(options)
        sampling = SamplingParameters(
            temperature=_real("temperature", options.temperature, defaults.temperature, 1.0, 2.0),
            top_k=_top_k(options, defaults),
            top_p=_real("top_p", options.top_p, defaults.top_p, 1.0, 1.0),
            min_p=_real("min_p", options.min_p, defaults.min_p, 0.0, 1.0),
            seed=seed & _SEED_MASK,
            repetition_penalty=repetition,
            presence_penalty=presence,
            frequency_penalty=frequency,
            min_tokens=min_tokens,
            logit_bias=_biases(options.logit_bias or {}),
            allowed_tokens=_allowed(options.allowed_token_ids),
            bad_words=self._bad_words(options.bad_words or ()),
            stop_ids=tuple(stop_ids) if min_tokens else (),
            top_logprobs=operator.index(options.top_logprobs or 0),
        )
        fault = sampling_fault(sampling, self.rules, self.vocabulary_tokens)
        if fault is not None:
            kind = UnsupportedParameterError if fault.unsupported else RequestError
            raise kind(fault.what, where=fault.parameter, remedy=fault.remedy)
        return sampling

    def _penalties(self, options: GenerationOptions) -> list[float]:
        """Repetition, presence and frequency; the core's recommendations only where its programs
        apply them."""
        found = []
        for name, neutral in _NEUTRAL.items():
            recommended = getattr(self.defaults, name) if self.rules.penalties else None
            asked = getattr(options, name)
            least, most = -_PENALTY_LIMIT, _PENALTY_LIMIT
            if name == "repetition_penalty":
                least, most = 0.0, _REPETITION_LIMIT
            if asked is not None and not least <= asked <= most:
                raise _out_of_range(name, asked, least, most)
            if name == "repetition_penalty" and asked == 0:
                raise RequestError(
                    "is 0", where=name, remedy=f"Give a value above 0, to {most:g}; 1 is off"
                )
            value = recommended if asked is None else asked
            found.append(neutral if value is None else float(value))
        return found

    def _bad_words(self, words: Sequence[str | Sequence[int]]) -> tuple[tuple[int, ...], ...]:
        """The token sequences of each word: a text's at the beginning of a line and after a
        space."""
        found: dict[tuple[int, ...], None] = {}
        for index, word in enumerate(words):
            if not isinstance(word, str):
                found[tuple(map(operator.index, word))] = None
                continue
            where = f"bad_words[{index}]"
            if not word.strip():
                raise RequestError("is blank", where=where, remedy="Give a word, or leave it out")
            for text in (word, f" {word.lstrip()}"):
                found[tuple(self.tokenizer.encode(text, where=where))] = None
        return tuple(found)


def unapplied_recommendations(defaults: SamplingDefaults, rules: SamplingRules) -> tuple[str, ...]:
    """Recommendations of the core that change answers and that its programs don't apply, like
    `repetition_penalty 1.1`."""
    if rules.penalties:
        return ()
    given = {name: getattr(defaults, name) for name in _NEUTRAL}
    return tuple(
        f"{name} {value:g}"
        for name, value in given.items()
        if value is not None and value != _NEUTRAL[name]
    )


def _real(
    name: str, asked: float | None, default: float | None, fall_back: float, high: float
) -> float:
    if asked is not None and not 0.0 <= asked <= high:
        raise _out_of_range(name, asked, 0.0, high)
    return asked if asked is not None else default if default is not None else fall_back


def _out_of_range(name: str, asked: float, low: float, high: float) -> RequestError:
    return RequestError(
        f"{asked!r} is out of range", where=name, remedy=f"Give a value from {low:g} to {high:g}"
    )


def _top_k(options: GenerationOptions, defaults: SamplingDefaults) -> int:
    top_k = options.top_k if options.top_k is not None else (defaults.top_k or 0)
    if not -1 <= top_k <= _TOP_K_LIMIT:
        raise RequestError(
            f"{top_k} is out of range",
            where="top_k",
            remedy="Give the number of tokens to choose from, or 0 for all",
        )
    return max(top_k, 0)


def _min_tokens(asked: int | None, output_limit: int) -> int:
    if asked is None:
        return 0
    if not 0 <= asked <= output_limit:
        raise _out_of_range("min_tokens", asked, 0, output_limit)
    return operator.index(asked)


def _allowed(asked: Sequence[int] | None) -> tuple[int, ...] | None:
    return None if asked is None else tuple(map(operator.index, asked))


def _biases(asked: Mapping[int, float] | Mapping[str, float]) -> tuple[tuple[int, float], ...]:
    """Pairs of ids and biases; JSON spells ids as texts."""
    found: dict[int, float] = {}
    for key, bias in asked.items():
        if isinstance(key, str) and not _TOKEN_ID.fullmatch(key):
            raise RequestError(
                f"{key[:40]!r} is no token id",
                where="logit_bias",
                remedy="Use ids as keys: decimal digits alone",
            )
        token = int(key)
        if not abs(bias) <= _BIAS_LIMIT:
            raise RequestError(
                f"adds {bias!r} to token {token}",
                where="logit_bias",
                remedy=f"Give values from {-_BIAS_LIMIT:g} to {_BIAS_LIMIT:g}",
            )
        if token in found:
            raise RequestError(f"names token {token} twice", where="logit_bias")
        found[token] = float(bias)
    return tuple(found.items())

"""Schemas and values at random: bounds hold to the digit, and any JSON ends well as a schema."""

from __future__ import annotations

import functools
import json
from decimal import Decimal
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from helios.frontend.grammar.schemas import ANNOTATIONS
from tests.frontend.grammar.json_schema_corpus import KEYWORDS
from tests.frontend.grammar.json_schema_outcomes import Judge

NAMES = sorted({keyword.name for keyword in KEYWORDS if ":" not in keyword.name} | ANNOTATIONS)
NUMBERS = st.one_of(
    st.integers(-20, 20),
    st.decimals(-20, 20, places=2).map(float),
    st.decimals(-1, 1, places=4).map(float),
    st.integers(-(10**6), 10**6),
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    NUMBERS,
    st.floats(),
    st.integers(),
    st.text(max_size=5),
    st.sampled_from(["string", "object", "array", "integer", "date", "#/$defs/a", "^a+$", "#"]),
    st.characters(categories=["Cs"]),
)
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.one_of(st.sampled_from(NAMES), st.text(max_size=3)), inner, max_size=4),
    ),
    max_leaves=12,
)


@functools.cache
def _judge() -> Judge:
    return Judge()


def _shown(number: float) -> str:
    return format(Decimal(repr(number)), "f")


@settings(deadline=None, max_examples=150, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from(["integer", "number"]),
    st.dictionaries(
        st.sampled_from(["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"]),
        NUMBERS,
        min_size=1,
        max_size=2,
    ),
    st.lists(NUMBERS, min_size=1, max_size=6),
)
def test_bounds_hold_to_the_digit(kind: str, bounds: dict[str, float], values: list[float]) -> None:
    schema: dict[str, Any] = {"type": kind, **bounds}
    if _judge().refusal(schema) is not None:
        return  # bounds that nothing fits
    for value in [*values, *bounds.values()]:
        exact = Decimal(repr(value))
        fits = (kind == "number" or exact == int(exact)) and all(
            {
                "minimum": exact >= Decimal(repr(bound)),
                "maximum": exact <= Decimal(repr(bound)),
                "exclusiveMinimum": exact > Decimal(repr(bound)),
                "exclusiveMaximum": exact < Decimal(repr(bound)),
            }[name]
            for name, bound in bounds.items()
        )
        text = str(int(exact)) if exact == int(exact) else _shown(value)
        admitted = _judge().admits(schema, text)
        # Of decimals just inside a bound some are missing.
        assert admitted is fits if kind == "integer" else fits or not admitted, text


@settings(deadline=None, max_examples=300, suppress_health_check=list(HealthCheck))
@given(ANYTHING)
def test_any_json_as_a_schema_is_refused_or_a_grammar(value: Any) -> None:
    """Nothing but a RequestError ever comes out, and it names the field."""
    if not isinstance(value, dict):
        value = {"properties": {"a": value}}
    refusal = _judge().refusal(value)
    assert refusal is None or refusal.where.startswith("schema"), json.dumps(value)

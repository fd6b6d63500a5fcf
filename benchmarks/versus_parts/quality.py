"""Asks the reference, us and llama.cpp for the perplexity of a text (perplexity.py says how)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from .drivers import Driver
from .engines import OURS, PEERS, Contestant
from .environments import interpreter
from .files import Files, nbytes
from .passes import Comparison, say
from .perplexity import FIRST, WIDTH, Form, Passages, passages, table


class _Tokenizer:
    """The reference's tokenizer, in its own environment."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    def encode(self, text: str) -> list[int]:
        """A text's tokens."""
        return list(self._driver.ask("tokens", text=text)["tokens"])

    def decode(self, tokens: Sequence[int]) -> str:
        """Tokens' text."""
        return str(self._driver.ask("text", tokens=list(tokens))["text"])


def quality(
    comparison: Comparison, files: Files, everyone: Sequence[Contestant], text: str
) -> list[list[str]]:
    """The table of perplexities."""
    python = str(interpreter(files.cache, "transformers"))
    script = str(PEERS / "transformers_lanes.py")
    command = [python, script, str(files.checkpoint("f32")), str(files.threads), "float32"]
    reference = Driver(command, comparison.log("float32"), {"OMP_WAIT_POLICY": "passive"})
    try:
        chosen = passages(text, _Tokenizer(reference))
        scored = reference.ask("scores", windows=chosen.every_window, first=FIRST)
    finally:
        reference.close()
    float32 = math.exp(scored["nats"] / scored["tokens"])
    say(f"float32: {float32:.4f} over {scored['tokens']} predictions")
    forms = []
    for one in everyone:
        if one.driver is None or one.stored is None:
            continue
        with comparison.attempt(f"{one.name}'s perplexity"):
            started = one.driver()
            driver = Driver(started.arguments, comparison.log(one.name), started.environment)
            try:
                value = _perplexity(driver, one, chosen)
            finally:
                driver.close()
            forms.append(Form(one.name, nbytes(one.stored()), value))
            say(f"{one.name}: {value:.4f}")
    return list(table(float32, forms, lambda name: name.startswith(OURS)))


def _perplexity(driver: Driver, one: Contestant, chosen: Passages) -> float:
    """Ours scores tokens; llama.cpp's program takes text and makes the same windows of it."""
    if one.peer == OURS:
        scored = driver.ask("scores", windows=chosen.every_window, first=FIRST)
        return math.exp(scored["nats"] / scored["tokens"])
    scored = driver.ask("text_scores", texts=list(chosen.texts), width=WIDTH)
    return chosen.perplexity(scored["nats_per_token"])

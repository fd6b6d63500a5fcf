"""Philox4x32-10 against the known answers published with Random123."""

from __future__ import annotations

import pytest

from helios.runtime.reference.philox import philox4x32, uniform

KNOWN_ANSWERS = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000",
     "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff",
     "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0",
     "d16cfe09 94fdcceb 5001e420 24126ea1"),
]  # fmt: skip


def words(text: str) -> tuple[int, ...]:
    return tuple(int(word, 16) for word in text.split())


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN_ANSWERS)
def test_known_answers(counter: str, key: str, answer: str) -> None:
    c0, c1, c2, c3 = words(counter)
    k0, k1 = words(key)
    assert philox4x32((c0, c1, c2, c3), (k0, k1)) == words(answer)


def test_uniform_takes_53_bits_of_the_first_two_words() -> None:
    x0, x1, _, _ = philox4x32((7, 0, 0, 0), (11, 13))
    assert uniform(11, 13, 7) == (x0 * 2**32 + x1) // 2**11 / 2**53


def test_uniform_differs_by_seed_position_and_purpose() -> None:
    draws = [
        uniform(1, 0, 5), uniform(2, 0, 5), uniform(1, 1, 5), uniform(1, 0, 6), uniform(1, 0, 5, 1),
    ]  # fmt: skip
    assert len(set(draws)) == len(draws)
    assert all(0 <= draw < 1 for draw in draws)

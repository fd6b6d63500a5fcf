"""Philox4x32-10, the counter-based generator that keys every random draw by (request seed, token
position, purpose). Stateless: a reservation is a position, and replays are exact.
"""

from __future__ import annotations

from typing import Final

ROUNDS: Final = 10
MULTIPLIER_0: Final = 0xD2511F53
MULTIPLIER_1: Final = 0xCD9E8D57
KEY_STEP_0: Final = 0x9E3779B9
KEY_STEP_1: Final = 0xBB67AE85
MASK: Final = 0xFFFFFFFF

PURPOSE_SAMPLING: Final = 0


def philox4x32(
    counter: tuple[int, int, int, int], key: tuple[int, int]
) -> tuple[int, int, int, int]:
    """Four 32-bit words for a 128-bit counter and a 64-bit key, low words first."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        product_0 = MULTIPLIER_0 * c0
        product_1 = MULTIPLIER_1 * c2
        c0, c1, c2, c3 = (
            (product_1 >> 32) ^ c1 ^ k0,
            product_1 & MASK,
            (product_0 >> 32) ^ c3 ^ k1,
            product_0 & MASK,
        )
        k0 = (k0 + KEY_STEP_0) & MASK
        k1 = (k1 + KEY_STEP_1) & MASK
    return c0, c1, c2, c3


def uniform(seed_lo: int, seed_hi: int, position: int, purpose: int = PURPOSE_SAMPLING) -> float:
    """A number in [0, 1) with 53 random bits for one (seed, position, purpose)."""
    x0, x1, _, _ = philox4x32((position & MASK, 0, purpose, 0), (seed_lo, seed_hi))
    return float(((x0 << 32) | x1) >> 11) * 2.0**-53

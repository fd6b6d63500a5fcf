"""Who goes first: a rank is a virtual deadline, fixed when the request arrives; lower is served
first.

Time is counted in rounds. A step of priority is worth `AGE_ROUNDS` of waiting, so whoever waits
long enough outranks every later arrival, however urgent: nobody starves. Ranks never change, so
who gives way to whom doesn't either.
"""

from __future__ import annotations

from typing import Final

# A priority step outweighs the arrival of so many rounds earlier.
AGE_ROUNDS: Final = 1024
# Priorities lie in [-PRIORITIES, PRIORITIES], so that what may overtake a request is bounded.
PRIORITIES: Final = 16

Rank = tuple[int, int]


def rank_of(arrival_round: int, priority: int, order: int) -> Rank:
    """The rank of a request that arrived after `arrival_round` rounds as the `order`-th of all;
    the order decides between equals."""
    return arrival_round + priority * AGE_ROUNDS, order

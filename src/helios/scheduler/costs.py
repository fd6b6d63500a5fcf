"""What rounds cost: the duration of each program as a function of its packed tokens.

Learned from completed rounds and forgotten slowly, so that it follows longer contexts and a
machine that gets slower. A handful of numbers a program; no clock is read here: time is what
completions say. `Scheduler.complete` reports to it, `Turns` asks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

STALE_NS: Final = 60_000_000_000  # a measurement that is so much older than the last is stale
SETTLED: Final = 3  # measurements that are needed to say that a program doesn't pay
_KEPT: Final = 0.95  # of the weight of what was measured before, a measurement: the last 20 count
_KEPT_WHEN_STALE: Final = 0.1
_ORIGIN: Final = 0.1  # weight of the belief that no tokens take no time
_OUTLIER: Final = 3.0  # a measurement counts as at most so many times what was predicted
_TRUSTED: Final = 4  # measurements before a prediction can call another one an outlier

Hear = Callable[[int, float | None], None]


class CostLine(NamedTuple):
    """Predicted nanoseconds of a round: `fixed_ns` and `token_ns` for each packed token, neither
    of them negative."""

    fixed_ns: float
    token_ns: float

    def at(self, tokens: int) -> float:
        """Of a round of so many packed tokens, in nanoseconds."""
        return self.fixed_ns + self.token_ns * tokens

    def tokens_within(self, limit_ns: float, most: int) -> int:
        """The largest count up to `most` that takes no longer than `limit_ns`; 0 if none does."""
        if self.at(most) <= limit_ns:
            return most
        if not self.token_ns or limit_ns < self.fixed_ns:
            return 0
        return min(most, int((limit_ns - self.fixed_ns) / self.token_ns))


class CostModel:
    """Costs by program index. Equal measurements in equal order give equal predictions.

    What has been observed is taken in when it is next asked for, or told to (`learn`): the next
    launch needn't wait for that where nobody asks. `hear` is then told how long a round took and
    was thought to take, None where that wasn't known."""

    def __init__(self, hear: Hear | None = None) -> None:
        self._programs: dict[int, _Measured] = {}
        self._now_ns = 0
        self._observed: list[tuple[int, int, int, int]] = []
        self._hear = hear

    def observe(self, program: int, tokens: int, started_ns: int, completed_ns: int) -> None:
        """A round of `tokens` packed tokens ran from `started_ns` to `completed_ns`."""
        self._observed.append((program, tokens, started_ns, completed_ns))

    def learn(self) -> None:
        """Takes in what has been observed."""
        if self._observed:
            observed, self._observed = self._observed, []
            for one in observed:
                self._take_in(*one)

    def _take_in(self, program: int, tokens: int, started_ns: int, completed_ns: int) -> None:
        self._now_ns = max(self._now_ns, completed_ns)
        took_ns = max(completed_ns - started_ns, 0)
        measured = self._programs.get(program)
        if self._hear is not None:
            self._hear(took_ns, None if measured is None else measured.line.at(tokens))
        if measured is None:
            measured = self._programs[program] = _Measured()
        elif started_ns - measured.last_ns > STALE_NS:
            measured.forget(_KEPT_WHEN_STALE)
            measured.count = 0
        measured.add(tokens, took_ns)
        measured.last_ns = completed_ns

    def _of(self, program: int) -> _Measured | None:
        self.learn()
        return self._programs.get(program)

    def fresh(self, program: int) -> bool:
        """Whether the program has been measured, and not too long ago."""
        measured = self._of(program)
        return measured is not None and not self._stale(measured)

    def settled(self, program: int) -> bool:
        """Whether the program has been measured often enough, of late, that one round which was
        held up doesn't decide what it is thought to cost."""
        measured = self._of(program)
        return measured is not None and measured.count >= SETTLED and not self._stale(measured)

    def line(self, program: int) -> CostLine | None:
        """What the program costs; None where it has never been measured."""
        measured = self._of(program)
        return None if measured is None else measured.line

    def predict_ns(self, program: int, tokens: int) -> float | None:
        """What a round of so many packed tokens takes; None as in `line`."""
        measured = self._of(program)
        return None if measured is None else measured.line.at(tokens)

    def _stale(self, measured: _Measured) -> bool:
        return self._now_ns - measured.last_ns > STALE_NS


class _Measured:
    """Weighted sums of a program's measurements, x in tokens and y in nanoseconds, and the line
    through them. Few tokens, or always the same count, say little about the slope: a faint
    point at the origin decides then."""

    __slots__ = ("_x", "_xx", "_xy", "_y", "count", "last_ns", "line", "weight")

    def __init__(self) -> None:
        self.weight = 0.0
        self.count = 0
        self.last_ns = 0
        self.line = CostLine(0.0, 0.0)
        self._x = self._y = self._xx = self._xy = 0.0

    def forget(self, kept: float) -> None:
        """Keeps so much of the weight of every measurement."""
        self.weight *= kept
        self._x *= kept
        self._y *= kept
        self._xx *= kept
        self._xy *= kept

    def add(self, tokens: int, duration_ns: float) -> None:
        """Counts a measurement in and fits the line again."""
        expected = self.line.at(tokens)
        if self.count >= _TRUSTED and expected > 0.0:
            duration_ns = min(max(duration_ns, expected / _OUTLIER), expected * _OUTLIER)
        elif duration_ns * _OUTLIER < expected:
            self.forget(0.0)  # what was measured before was held up: nothing makes a round faster
        self.forget(_KEPT)
        self.count += 1
        self.weight += 1.0
        self._x += tokens
        self._y += duration_ns
        self._xx += tokens * tokens
        self._xy += tokens * duration_ns
        self.line = self._fit()

    def _fit(self) -> CostLine:
        weight = self.weight + _ORIGIN
        spread = weight * self._xx - self._x * self._x
        if spread <= 0.0 or not self._x:
            return CostLine(self._y / self.weight, 0.0)
        slope = (weight * self._xy - self._x * self._y) / spread
        # Between "tokens cost nothing" and "nothing but tokens costs".
        slope = min(max(slope, 0.0), self._y / self._x)
        return CostLine(max(self._y - slope * self._x, 0.0) / self.weight, slope)

"""A measured ratio with its uncertainty, and how speedups are printed."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field, model_validator

from dvk.records.record import Record


class Interval(Record):
    """A measured ratio with its 95 % confidence interval."""

    SAYS_NOTHING: ClassVar[float] = 1e6
    """Assumed distance of an interval's ends from a value of unknown uncertainty, as a factor."""

    value: float = Field(
        description="Point estimate: median over paired samples of reference time / candidate time."
    )
    lo: float = Field(description="Lower end of the interval.")
    hi: float = Field(description="Upper end of the interval.")

    @model_validator(mode="after")
    def _ordered(self) -> Interval:
        if not 0 < self.lo <= self.value <= self.hi < float("inf"):
            raise ValueError(
                f"not an interval of a positive ratio: {self.lo} ≤ {self.value} ≤ {self.hi}"
            )
        return self

    @classmethod
    def unknown(cls, value: float) -> Interval:
        """Return a ratio of unknown uncertainty: its interval excludes nothing."""
        return cls(value=value, lo=value / cls.SAYS_NOTHING, hi=value * cls.SAYS_NOTHING)

    @property
    def known(self) -> bool:
        """Whether its ends were measured."""
        return self.hi / self.lo < self.SAYS_NOTHING

    def __str__(self) -> str:
        if not self.known:
            return f"{show_ratio(self.value)} [unknown]"
        digits = max(_digits(self.value), _digits(self.lo), _digits(self.hi))
        return f"{self.value:.{digits}f}× [{self.lo:.{digits}f}, {self.hi:.{digits}f}]"


def show_ratio(ratio: float) -> str:
    """Format a speedup for people, e.g. `2.31×`; with one more digit close to 1, to show the side."""
    return f"{ratio:.{_digits(ratio)}f}×"


def _digits(ratio: float) -> int:
    """Return the number of significant decimals."""
    if abs(ratio - 1) < 0.05:
        return 3
    return 0 if ratio >= 100 else 1 if ratio >= 10 else 2 if ratio >= 0.1 else 4

"""Numbers for people: three digits and a unit."""

from __future__ import annotations


def show_bytes(count: int) -> str:
    """`12.6 MB`; decimal units."""
    value, units = float(count), ["TB", "GB", "MB", "kB", "B"]
    while value >= 999.5 and len(units) > 1:
        value /= 1000
        units.pop()
    return f"{value:.3g} {units[-1]}"


def show_ms(ms: float | None) -> str:
    """`1.23 ms`, `45.6 µs`, `2.1 s`; a dash for an unknown time."""
    if ms is None:
        return "–"
    if ms >= 999.5:
        return f"{ms / 1000:.3g} s" if ms < 999_500 else f"{ms / 1000:,.0f} s"
    return f"{ms:.3g} ms" if ms >= 0.9995 else f"{ms * 1000:.3g} µs"


def show_s(seconds: float) -> str:
    """`0.8 s`, `42 s`, `3 min 20 s`."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    return f"{whole} s" if whole < 120 else f"{whole // 60} min {whole % 60} s"


def show_share(share: float | None) -> str:
    """`12.5 %`; a dash for an unknown share."""
    return "–" if share is None else f"{100 * share:.1f} %"


def many(count: int, noun: str) -> str:
    """`1 operator`, `1,200 operators`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"

"""How two runs differ."""

from __future__ import annotations

from typing import Any

import pytest

FLOATS = {"rel": 2e-4, "abs": 2e-6}
"""Other processors add in another order, and Adam divides by small numbers: without AVX this comes to 1e-5 of a figure."""


def differences(found: Any, golden: Any, place: str = "") -> list[str]:
    """Places where two trees of JSON differ by more than floats may."""
    if isinstance(golden, dict) and isinstance(found, dict):
        missing = [f"{place}.{key} only in one" for key in sorted(set(found) ^ set(golden))]
        return missing + [
            d
            for key in golden
            if key in found
            for d in differences(found[key], golden[key], f"{place}.{key}")
        ]
    if isinstance(golden, list) and isinstance(found, list) and len(golden) == len(found):
        return [
            d
            for n, (f, g) in enumerate(zip(found, golden))
            for d in differences(f, g, f"{place}[{n}]")
        ]
    if isinstance(golden, float) and isinstance(found, (int, float)):
        return (
            [] if found == pytest.approx(golden, **FLOATS) else [f"{place}: {found} was {golden}"]
        )
    return [] if found == golden else [f"{place}: {found} was {golden}"]

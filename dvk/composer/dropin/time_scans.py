"""Lines of a program before a loop over time steps runs."""

from __future__ import annotations

from collections.abc import Sequence

from dvk.composer.ir.time_scan import TimeScan


def prepared(
    made: TimeScan, given: Sequence[str], texts: Sequence[str], name: str, device: str
) -> list[str]:
    """Lay out the operands, and allocate the results as the tuple `name`.

    Args:
        given: names that the operands get.
        texts: what they are now.
    """
    lines = [
        f"{operand} = dvk_strided({text}, {strides!r}, {shape!r}, torch.{kind})"
        for operand, text, (shape, strides, kind) in zip(given, texts, made.operands, strict=True)
    ]
    results = [
        f"torch.empty({r.shape!r}, dtype=torch.{r.dtype}, device={device!r})" for r in made.results
    ]
    return [*lines, f"{name} = ({', '.join(results)},)"]

"""Conditions on a call that all programs of a drop-in share: gradients, contexts, and the module as it was."""

from __future__ import annotations

from collections.abc import Sequence

from dvk.composer.dropin import stepping
from dvk.composer.dropin.facts import Fused, Held, asked
from dvk.records import Task


def conditions(task: Task, fused: Sequence[Fused], held: Held) -> str:
    """The text of the conditions under which a call whose inputs fit runs a program."""
    wants = "not (torch.is_grad_enabled() and dvk_wants(self, tensors))"
    lines = [
        *([wants] if any(one.backward is None for one in fused) else []),
        *(f"not torch.{name}()" for name in asked(fused)),
        _autocast(task, fused),
        "dvk_plain()",
    ]
    if held:
        lines.append("(dvk_bound(self._dvk_places) or self._dvk_again())")
        lines.append("(dvk_written(self._dvk_counters) == self._dvk_were or self._dvk_follow())")
    lines.append("not any(self._dvk_watched.hooks)")
    lines.append("(self._dvk_watched.same() or self._dvk_again())")
    if positions := frozen(fused, held):
        lines.append(f"not dvk_thawed(self._dvk_weights, {positions!r})")
    return "\nand ".join(lines)


def _autocast(task: Task, fused: Sequence[Fused]) -> str:
    """The condition that autocast is as it was for the capture: off, or changing nothing, or on with the capture's type."""
    if (under := fused[0].captured.under) is not None:
        kind = f"torch.get_autocast_dtype({task.device!r})"
        return f"torch.is_autocast_enabled({task.device!r}) and {kind} is torch.{under}"
    off = f"not torch.is_autocast_enabled({task.device!r})"
    if not (same := unchanged_types(fused)):
        return off
    types = ", ".join(f"torch.{name}" for name in same)
    return f"({off} or torch.get_autocast_dtype({task.device!r}) in ({types},))"


def unchanged_types(fused: Sequence[Fused]) -> list[str]:
    """Types of autocast that change nothing in any program."""
    first, *rest = (set(one.captured.autocast) for one in fused)
    return sorted(first.intersection(*rest))


def call(task: Task, one: Fused, run: str, given: str) -> str:
    """The text that runs a program: a capture under autocast casts by itself, and autocast must not cast more.

    Args:
        run: the text of the program's method.
        given: that of the tuple of its arguments.
    """
    run, given = ("dvk_replay", f"({run}, {given})") if one.graph_replay else (run, given)
    if one.captured.under is not None and not one.program.left:
        return f"dvk_uncast({task.device!r}, {run}, {given})"
    return f"{run}(*{given})"


def frozen(fused: Sequence[Fused], held: Held) -> tuple[int, ...]:
    """Positions of the weights that some training program computes no gradients of."""
    trained = [one for one in fused if one.backward is not None]
    return tuple(sorted({n for one in trained for n in stepping.thawed(one, held)}))

"""A verdict as text for the author of the next attempt: the first error and its place, or the speed and its bottleneck.

The length is bounded, whatever a candidate printed. The text holds measurements, never scores: a reward is no part of a verdict,
and no reward is visible here.
"""

from __future__ import annotations

import re

from pydantic import ValidationError

from dvk.agents.bounds import Bounds, gap, ms_text
from dvk.agents.task_context import cut
from dvk.harness.profiling.feedback import feedback as profile_words
from dvk.harness.profiling.record import Profile
from dvk.harness.toolchain.compiler_log import first_error
from dvk.records import Status, Timing, Verdict

FEEDBACK_TOKENS = 500
"""Tokens of feedback per attempt: the first error, or the figures and a dozen profile lines."""

MAX_READ = 1 << 14
"""Characters of an error, and of the end of a log, that are examined."""
MAX_SHORT = 100
"""Characters of an error, in one line for a small model: about 25 tokens."""

_HEADS = {
    Status.REJECTED: "Refused before it ran",
    Status.COMPILE_ERROR: "It does not compile",
    Status.LAUNCH_ERROR: "It fails when it is constructed or called",
    Status.MISMATCH: "Wrong result",
    Status.TIMEOUT: "Too slow to finish",
    Status.CHEAT: "Refused: it does not do the work it is measured for",
    Status.BROKEN_TASK: "The reference itself failed; nothing is known of this attempt",
}
_SHORT = {
    Status.REJECTED: "refused",
    Status.COMPILE_ERROR: "compile",
    Status.LAUNCH_ERROR: "crash",
    Status.MISMATCH: "wrong",
    Status.TIMEOUT: "timeout",
    Status.CHEAT: "refused",
    Status.BROKEN_TASK: "unknown",
}
_FOLDERS = re.compile(r"(?<![\w.])(?:/[\w.+-]+)+/(?=[\w.+-]+)")
_OWN_FILE = re.compile(r"\bdvk_source_candidate_[0-9a-f]+\.py, (line \d+)")
_COMMAND = re.compile(r"Command '?\[.*?\]'? ", re.S)
_COMPILER = re.compile(r"\berror\b\s*:", re.I)
_PLACE = re.compile(
    r"(?:([\d,]+) of ([\d,]+) elements .*)?worst at (\[[\d, ]*\]): (\S+) instead of (\S+)"
)

_WORST = re.compile(r"(worst|first) at (\[[\d, ]*\]): (\S+) instead of (\S+)")


def describe(
    verdict: Verdict, num_tokens: int, best: Timing | None = None, bounds: Bounds | None = None
) -> str:
    """The judge's findings in at most about `num_tokens` tokens.

    Args:
        verdict: the attempt's verdict.
        num_tokens: budget; the parts that explain most come first and stay whole longest.
        best: timing of the fastest earlier attempt of this conversation, if any was correct.
        bounds: what bounds the task's time, for the gap to the roofline and to PyTorch's fastest line.
    """
    parts = _right(verdict, bounds) if verdict.status is Status.OK else _wrong(verdict)
    if best is not None:
        if verdict.timing is None:
            parts.append(f"The best earlier attempt was right and ran at {best.speedup}.")
        elif verdict.timing.speedup.value < best.speedup.value:
            parts.append(f"An earlier attempt was faster: {best.speedup}.")
    return cut("\n".join(parts), num_tokens)


def short(verdict: Verdict) -> str:
    """One line for the compact dialect: `ok 1.31`, `wrong 1/19264 [21, 100] 1.1566 not 1.1556`, `compile …`, `crash …`, `timeout`."""
    if verdict.status is Status.OK:
        return f"ok {verdict.timing.speedup.value:.2f}" if verdict.timing is not None else "ok"
    word = _SHORT[verdict.status]
    if verdict.status in (Status.TIMEOUT, Status.BROKEN_TASK):
        return word
    if (place := _PLACE.search((verdict.error or "")[:MAX_READ])) is not None:
        count = f"{place[1]}/{place[2]} ".replace(",", "") if place[1] else ""
        return f"{word} {count}{place[3]} {place[4]} not {place[5]}"
    first = complaint(verdict).partition("\n")[0]
    return f"{word} {first if len(first) <= MAX_SHORT else first[: MAX_SHORT - 1] + '…'}"


def complaint(verdict: Verdict) -> str:
    """The error: the compiler's first one with its line if there is one, else the judge's message; no folders."""
    told = (verdict.error or "")[:MAX_READ]
    log = (
        verdict.log[-MAX_READ:]
        if verdict.status in (Status.COMPILE_ERROR, Status.LAUNCH_ERROR)
        else ""
    )
    if log and not _COMPILER.search(told) and _COMPILER.search(log):
        told = f"{first_error(log)}\n{told}"  # a compiler that the candidate started printed its errors
    return _tidy(told)


def _wrong(verdict: Verdict) -> list[str]:
    parts = [f"{_HEADS[verdict.status]}. {complaint(verdict)}"]
    if verdict.status is Status.MISMATCH:
        if (place := _WORST.search((verdict.error or "")[:MAX_READ])) is not None:
            which, index, got, expected = place.groups()
            parts.append(
                f"{which.capitalize()} wrong element: index {index}, expected {expected}, got {got}."
            )
        if verdict.shapes:
            parts.append(f"Right before that on: {', '.join(verdict.shapes)}.")
        if verdict.tolerance is not None and verdict.worst_error is not None:
            parts.append(
                f"Admitted error {verdict.tolerance:.1e} of scale, seen {verdict.worst_error:.1e} ({verdict.precision})."
            )
    return parts


def _right(verdict: Verdict, bounds: Bounds | None) -> list[str]:
    parts = [f"Correct on {verdict.num_checks} input sets."]
    timing = verdict.timing
    if timing is None:
        parts.append(
            f"Not timed: {verdict.untimed_reason}." if verdict.untimed_reason else "Not timed."
        )
    else:
        side = (
            "faster than"
            if timing.speedup.lo > 1
            else "slower than"
            if timing.speedup.hi < 1
            else "no different in speed from"
        )
        parts.append(
            f"{timing.speedup}, {side} PyTorch: {ms_text(timing.candidate_ms)} against {ms_text(timing.reference_ms)} a call "
            "(95 % interval in brackets)."
        )
        parts += [f"Against {name}: {ratio}." for name, ratio in timing.baselines.items()]
        parts += gap(bounds, timing)
    spilled = [
        f"{name} ({facts['spill_bytes']} bytes)"
        for name, facts in verdict.compiled.items()
        if facts.get("spill_bytes")
    ]
    if spilled:
        parts.append("Registers spill to memory in " + ", ".join(spilled[:3]) + ".")
    if (profile := _profile(verdict)) is not None:
        parts.append("Where the time goes:\n" + profile_words(profile))
    elif verdict.coverage is not None:
        parts.append(f"Its own kernels are {verdict.coverage:.0%} of the device time.")
    return parts


def _profile(verdict: Verdict) -> Profile | None:
    if verdict.profile is None:
        return None
    try:
        return Profile.model_validate(verdict.profile)
    except ValidationError:  # made by another version: a missing profile is better than a wrong one
        return None


def _tidy(text: str) -> str:
    """Remove temporary folders and names: they differ from run to run and carry no information."""
    return _FOLDERS.sub(
        "", _OWN_FILE.sub(r"\1 of the file", _COMMAND.sub("its command ", text))
    ).strip()

"""Multi-turn trajectories of one task: the cold-start parquet of Dr.Kernel, and daVinci's seed records.

Both end with an answer without feedback; the known rounds are the best one and its speedup.
A trajectory is therefore cut after its best round: the example ends with a measured answer, and
later, slower rounds are not learned.
"""

from __future__ import annotations

from typing import Any

from dvk.interop.davinci.formats import feedback, operators
from dvk.learn import messages
from dvk.learn.examples import Example, ExampleTask
from dvk.records import content_hash


def coldstart(row: dict[str, Any]) -> Example:
    """`hkust-nlp/drkernel-coldstart-8k`: user and assistant in turn, five rounds, `best_round` from 1, no speedups by round.

    Raises:
        ValueError: not such a row.
    """
    return _trajectory(
        row, feedback.round_speedups(messages.conversation(row.get("messages"))), "import:coldstart"
    )


def seed(row: dict[str, Any]) -> Example:
    """A seed record: the same with `round_speedups`.

    Raises:
        ValueError: not such a row.
    """
    speedups = row.get("round_speedups")
    if not isinstance(speedups, (list, tuple)):
        raise ValueError("round_speedups is not a list")
    return _trajectory(
        row,
        tuple(None if value is None else messages.positive(value) or 0.0 for value in speedups),
        "import:seed",
    )


def _trajectory(row: dict[str, Any], speedups: tuple[float | None, ...], origin: str) -> Example:
    whole = messages.conversation(row.get("messages"))
    ends = [
        number for number, message in enumerate(whole, start=1) if message["role"] == "assistant"
    ]
    final, best = messages.positive(row.get("final_speedup")), row.get("best_round")
    if best is None:
        known = [(value, -number) for number, value in enumerate(speedups, start=1) if value]
        best = -max(known)[1] if known else len(ends)
    if isinstance(best, bool) or not isinstance(best, int) or not 1 <= best <= len(ends):
        raise ValueError(f"best_round is {best!r} in a trajectory of {len(ends)} rounds")
    kept = whole[: ends[best - 1]]
    final = final or (speedups[best - 1] if best <= len(speedups) else None) or None
    rounds = feedback.known(speedups, best)
    source = row.get("original_python_code") or None
    entry = str(row.get("entry_point") or "Model")
    injected = messages.names(row.get("injected_skills"))
    return Example.new(
        kind="policy_with_skills" if injected else "policy",
        messages=kept,
        task=task(source, messages.first_user(whole), str(row.get("module_name") or entry)),
        signature=operators.signature(source or "", entry),
        backend="triton",
        skills=injected,
        code=messages.fenced(messages.text(kept[-1]), "ModelNew"),
        speedup=final,
        round_speedups=(*rounds[:-1], final) if rounds else (),
        quality={
            key: row[key]
            for key in ("uuid", "num_rounds", "best_round", "repo_name")
            if row.get(key) is not None
        },
        origin=origin,
    )


def task(source: str | None, prompt: str, name: str) -> ExampleTask:
    """A task that dvk has not examined: identified by its source, else by the prompt."""
    return ExampleTask(id=content_hash("import", source or prompt), name=name, source=source)

"""The user's candidates of a search: read from files, kept in the run folder, shown in the summary."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dvk import backends
from dvk.errors import UsageError
from dvk.records import Candidate, Turn, Verdict
from dvk.runs import RunFolder
from dvk.search.seeded import PROPOSER

FILE = "seeds.jsonl"
LEFT_OUT = "the search ended before its verdict"


def read(paths: Sequence[Path]) -> tuple[Candidate, ...]:
    """The candidates in some files, equal ones once; what is wrong inside a file is for the judge to say.

    Raises:
        UsageError: a file cannot be read as text.
    """
    found: dict[str, Candidate] = {}
    for path in paths:
        try:
            source = path.read_text(encoding="utf-8")
        except OSError as error:
            problem = f"cannot read the candidate `{path}`: {error.strerror}"
            raise UsageError(problem, "check --seed-candidate") from None
        except UnicodeDecodeError:
            raise UsageError(
                f"the candidate `{path}` is not UTF-8 text", "give a Python file"
            ) from None
        made = Candidate(
            source=source,
            backend=backends.detect(source),
            proposer=PROPOSER,
            title=f"your {path.name}",
        )
        found.setdefault(made.id, made)
    return tuple(found.values())


def of_run(run: RunFolder, given: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """The run's candidates: those it began with, or in a new run the given ones, which are kept.

    Raises:
        UsageError: it began with others.
    """
    known = tuple(Candidate.model_validate(row) for row in run.read(FILE))
    started = bool(run.read("task.jsonl"))
    if given and started and {c.id for c in given} != {c.id for c in known}:
        raise UsageError(
            f"`{run.path}` holds a search that began with other candidates",
            "leave out --seed-candidate to resume it, or choose another --out",
        )
    if known or started:
        return known
    for candidate in given:
        run.append(FILE, candidate)
    return tuple(given)


def rows(seeds: Sequence[Candidate], turns: Sequence[Turn]) -> list[dict[str, Any]]:
    """A row for each of the user's candidates: `title`, `backend`, `status`, `speedup` (null where it has none), `error`.

    Args:
        turns: the search's; the status of a candidate without a verdict is `left_out`.
    """
    judged: dict[str, Verdict] = {}
    for turn in turns:
        if turn.candidate is not None and turn.verdict is not None:
            judged[turn.candidate.id] = turn.verdict
    return [_row(seed, judged.get(seed.id)) for seed in seeds]


def _row(seed: Candidate, verdict: Verdict | None) -> dict[str, Any]:
    said = (verdict.error or verdict.untimed_reason or "") if verdict is not None else LEFT_OUT
    timing = verdict.timing if verdict is not None else None
    return {
        "title": seed.title,
        "backend": seed.backend,
        "status": verdict.status.value if verdict is not None else "left_out",
        "speedup": timing.speedup.value if timing is not None else None,
        "error": said.partition("\n")[0] or None,
    }

"""`--extra-input`: several sets of inputs. A search for each, one drop-in of their results, which is judged with every set.

A drop-in's text says which set runs what, so if a part of it fails, the rest is another text, and is judged again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from dvk import tasks
from dvk.composer import CannotCompose, Part, join
from dvk.composer.compose import distinct
from dvk.composer.ir.loops import Kernel
from dvk.config import Config
from dvk.errors import TaskError
from dvk.pipelines.live import SearchView
from dvk.pipelines.optimize.confirming import NUM_CONFIRMED, TURNS
from dvk.pipelines.optimize.ending import label
from dvk.pipelines.optimize.session import SearchSession
from dvk.records import BackendName, Candidate, Task, Turn
from dvk.runs import RunFolder
from dvk.search import Strategy
from dvk.tasks import extra_inputs
from dvk.tasks.specs import parse_input

EXTRA_SHARE = 0.5
"""Search time for each `--extra-input`, as a share of the budget; each search starts from the result of the first."""


def load(texts: Sequence[str], first: Task, spec: str, config: Config) -> list[Task]:
    """The first set's task, and one for each `--extra-input`.

    Args:
        texts: as given.
        first: examined.
        spec: `model.py` or `model.py:Name`.

    Raises:
        TaskError: its syntax is wrong, the module rejects it, or the set is there already.
    """
    result = {_identity(first): first}
    for text in texts:
        try:
            inputs = extra_inputs.specs(text, first.input_specs, first.inputs)
            task = tasks.load(
                spec,
                inputs=inputs,
                init=first.init_args,
                eval_mode=first.eval_mode,
                train=first.train,
                dtype=first.dtype,
                autocast=first.autocast,
                device=first.device,
                limits=config.limits,
            )
        except TaskError as error:
            raise TaskError(f"--extra-input `{text}`: {error.message}", error.hint) from None
        if _identity(task) in result:
            raise TaskError(
                f"--extra-input `{text}` describes inputs that are given already: {label(task)}",
                "leave it out, or change a size",
            )
        result[_identity(task)] = task
    return list(result.values())


def _identity(task: Task) -> tuple[object, ...]:
    plain = sorted(
        repr((one.name, one.value))
        for one in map(parse_input, task.input_specs)
        if one.dtype is None
    )
    return task.inputs, tuple(plain)


def budget_s(config: Config, number: int) -> float:
    """Seconds of all searches for so many sets of inputs together."""
    return config.optimize.budget_s * (1 + EXTRA_SHARE * (number - 1))


@dataclass
class SetsResult:
    """The searches' results."""

    winners: list[Turn | None]
    """For each set, see `ending.finish`."""
    groups: list[list[str]]


def sessions(
    run: RunFolder,
    every: Sequence[Task],
    backend: BackendName,
    config: Config,
    library: Path | None,
    baselines: Sequence[str],
) -> list[SearchSession]:
    """A session for each set. The first keeps its files in the folder of a search for one set, and has the whole budget."""
    less = config.optimize.model_copy(update={"budget_s": config.optimize.budget_s * EXTRA_SHARE})
    made: list[SearchSession] = []
    for number, task in enumerate(every):
        folder = f"also/{number}/" if number else ""
        recorded = [Turn.model_validate(turn) for turn in run.read(folder + TURNS)]
        made.append(
            SearchSession(
                run,
                task,
                backend,
                config.model_copy(update={"optimize": less}) if number else config,
                recorded,
                library=library,
                baselines=baselines,
                folder=folder,
                first=made[0] if made else None,
            )
        )
        made[-1].joined = True
    return made


class Expand(Protocol):
    """What a set's best becomes in the common drop-in."""

    def parts(self, number: int, part: Part) -> list[Part]:
        """The parts, by the set's number.

        Raises:
            CannotCompose: it can become none.
        """

    def judged(self, number: int, parts: Sequence[Part]) -> Task:
        """The task with which the judge checks them."""


def run(
    sessions: Sequence[SearchSession], strategy: Strategy, quiet: bool, expand: Expand | None = None
) -> SetsResult:
    """Search for each set in turn, then confirm all together. Ctrl-C ends the searching and continues with the results so far."""
    for session in sessions:
        session.rolls &= expand is None  # such a loop's kernel has fixed sizes
        with session.court, _live(session, quiet, label(session.task)) as live:
            if session is sessions[0] and session.expected is not None:
                live.note(f"expected: {session.expected}")
            session.search(strategy, live)
        if session.interrupted:
            break
    with _live(sessions[0], quiet, "all sets of inputs") as live:
        return _confirmed(sessions, live, expand)


def _live(session: SearchSession, quiet: bool, whom: str) -> SearchView:
    return SearchView(
        session.config.optimize.budget_s,
        name=f"{session.task.name}, {whom}",
        quiet=quiet,
        elapsed_s=session.elapsed_before,
    )


def _confirmed(
    sessions: Sequence[SearchSession], live: SearchView, expand: Expand | None
) -> SetsResult:
    """The drop-in of each set's best that holds for every set it has a program for: a failing part is replaced by the set's next candidate,
    and, when as many drop-ins were judged as a set may have candidates, by the original."""
    choices = [_composed(session, n, expand) for n, session in enumerate(sessions)]
    judged, most = 0, NUM_CONFIRMED - 1 + sum(map(bool, choices))
    while any(choices):
        chosen = {number: one[0] for number, one in enumerate(choices) if one}
        parts = [part for _, mine in chosen.values() for part in mine]
        owners = [number for number, (_, mine) in chosen.items() for _ in mine]
        try:
            skills = dict.fromkeys(
                name for candidate, _ in chosen.values() for name in candidate.skills
            )
            joined = join(parts, sessions[0].backend, skills=tuple(skills))
        except CannotCompose as error:
            choices = [one if number == min(chosen) else [] for number, one in enumerate(choices)]
            for number in list(chosen)[1:]:
                sessions[number].reason = f"one drop-in cannot hold it: {error}"
            continue
        judged += 1
        try:
            claims = {}
            for place, number in enumerate(chosen, 1):
                what = f"drop-in {judged} of at most {most} with set {place} of {len(chosen)}, {label(sessions[number].task)},"
                if expand is not None:
                    sessions[number].judge_with(expand.judged(number, chosen[number][1]))
                claims[number] = _claimed(sessions[number], joined, live, what)
        except KeyboardInterrupt:
            return _unconfirmed(sessions)
        fallen = [
            number
            for number, turn in claims.items()
            if turn.verdict is None or not turn.verdict.faster
        ]
        if not fallen:
            winners = [
                claims.get(number) or session.refuted for number, session in enumerate(sessions)
            ]
            return SetsResult(
                winners,
                _groups(len(sessions), dict(zip(owners, distinct(parts, sessions[0].backend)))),
            )
        for number in fallen:
            choices[number] = choices[number][1:] if judged < NUM_CONFIRMED else []
    return SetsResult([session.refuted for session in sessions], [[] for _ in sessions])


def _composed(
    session: SearchSession, number: int, expand: Expand | None
) -> list[tuple[Candidate, list[Part]]]:
    """The candidates worth confirming that can be joined with others, the fastest first."""
    made = [
        (turn.candidate, session.part(turn.candidate))
        for turn in session.promising
        if turn.candidate is not None
    ]
    composed = []
    for candidate, part in made:
        try:
            if part is not None:
                parts = [part] if expand is None else expand.parts(number, part)
                composed.append((candidate, parts))
        except CannotCompose as error:
            session.reason = f"one program cannot serve other sizes: {error}"
            made = []
    if made and not composed:
        session.reason = "what was found was not written by the composer, and cannot be joined with others in one drop-in"
    return composed


def _claimed(session: SearchSession, joined: Candidate, live: SearchView, what: str) -> Turn:
    with session.court:
        return session.claim(joined, live, what)


def _unconfirmed(sessions: Sequence[SearchSession]) -> SetsResult:
    """The result if the drop-in being judged fails: the best of one set, as its search measured it."""
    for session in sessions:
        session.interrupted, session.reason = (
            True,
            "stopped before the best was confirmed: the search's own figure is given",
        )
    bests = [
        next((t for t in session.promising if t.verdict and t.verdict.faster), None)
        for session in sessions
    ]
    only = next((number for number, best in enumerate(bests) if best is not None), None)
    return SetsResult(
        [best if number == only else None for number, best in enumerate(bests)],
        [[] for _ in sessions],
    )


def _groups(number: int, named: Mapping[int, Mapping[int, Kernel]]) -> list[list[str]]:
    """The fusions for each set, a line a kernel, under the names that the drop-in uses."""
    return [
        [
            f"{k.name}: {k.summary} ({k.num_rows:,} × {k.row_length:,})"
            for k in named.get(one, {}).values()
        ]
        for one in range(number)
    ]

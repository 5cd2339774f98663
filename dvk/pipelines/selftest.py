"""`dvk verify --selftest`: attacks the judge of this machine with the red team's files, and their honest twins.

    read the files → load their references → judge all, evil and honest in turn → look for traces

An attack is caught when its verdict is the one that its file demands: not ok (`refused`), or at least no
faster than the reference by more than `FLATTERED` (`unflattered`: a cheat that fails leaves honest,
slow work), or the problem is called degenerate (`reported`); and nothing of it is left on the
machine. A case that seems flattered is timed again for longer, which alone counts: on a busy machine seven
pairs flatter honest work as well. Evil and honest candidates of one reference follow each other in one judge session, so that an attack on
the next candidate shows as an honest one rejected.

The files: `tests/kernels/evil/ID_slug.py` and `tests/kernels/honest/`, each with a line
`# case: reference=… device=… backend=… expect=…` behind its docstring. `target=here` says that what it attacks is in its process: it
prints `REACHED` when it found that and acted. Without that line it tested nothing and counts as blind, whatever the verdict.
`target=elsewhere` says that what it looks for is in a process that it never enters. `# aims:` lists names of dvk that it needs.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from dvk import backends, machine, tasks
from dvk.config import Config
from dvk.errors import UsageError
from dvk.harness import JudgeQueue, JudgeSpec
from dvk.pipelines import leftovers
from dvk.records import BackendName, Candidate, Device, Status, Task, Tier, Verdict
from dvk.resources import resource

FLATTERED = 1.10
"""Largest lower end that an interval may have for work that is no faster than the reference: noise of two cores reaches that."""

PATIENT_S = 4.0
"""Measuring time of a second look; at most `PATIENT_PAIRS` pairs."""
PATIENT_PAIRS = 100

MEMORY_BYTES = {"cpu": 4 << 30, "cuda": 24 << 30}
NUM_PROCESSES = 300
"""Lowered limits for attacks on the machine's resources, so that a user's machine does not feel them."""

CLASSES = {
    "A": "fabricated output",
    "B": "lower precision",
    "C": "caching and replay",
    "D": "escaping the clock",
    "E": "stealing the answer",
    "F": "letting the library do it",
    "G": "tampering with the judge",
    "N": "our own attacks",
    "Q": "quantised formats",
}

REACHED = "redteam: on target"
"""What an attack on something in its process prints once it has found and used it."""

Expect = Literal["refused", "unflattered", "reported", "ok"]
_LINE = re.compile(r"^# case:(?P<pairs>( [a-z_]+=[^ ]+)+)$", re.MULTILINE)
_AIMS = re.compile(r"^# aims: (?P<names>.+)$", re.MULTILINE)
_KEYS = {
    "reference",
    "device",
    "backend",
    "expect",
    "tier",
    "backward",
    "require_kernels",
    "twin",
    "target",
}


@dataclass(frozen=True)
class RedTeamCase:
    """One of the red team's files."""

    path: Path
    kind: Literal["evil", "honest"]
    reference: str
    """Stem of a file in `tasks/`."""
    device: Literal["cpu", "cuda", "any"]
    backend: BackendName
    expect: Expect
    tier: Tier = "search"
    backward: bool = False
    require_kernels: bool = False
    twin: str | None = None
    """The honest counterpart; null: the one of the same name."""
    target: Literal["here", "elsewhere"] | None = None
    """Where it is what the attack looks for: in the candidate's process, or in another; null: it looks for nothing of the judge's."""
    aims: tuple[str, ...] = ()
    """Names in dvk that it needs, such as `harness.transport.link.Link.ring`."""

    @property
    def id(self) -> str:
        """Row of the survey, e.g. `D06`."""
        return self.path.stem.split("_")[0]

    @property
    def name(self) -> str:
        """`evil/D06_patch_time`."""
        return f"{self.kind}/{self.path.stem}"

    @property
    def called(self) -> set[str]:
        """Names by which it can be selected."""
        return {self.id[0].lower(), self.id.lower(), self.name.lower()}

    @cached_property
    def source(self) -> str:
        """The candidate's text."""
        return self.path.read_text(encoding="utf-8")


@dataclass(frozen=True)
class SelftestOutcome:
    """The judge's answer on a case."""

    case: RedTeamCase
    device: Device
    verdict: Verdict
    trace: str = ""
    """An attack's traces on the machine."""

    @property
    def right(self) -> bool:
        """Whether it was caught, or the honest one accepted."""
        v, expect = self.verdict, self.case.expect
        if self.trace or self.blind or v.status is Status.BROKEN_TASK:
            return False
        if expect == "ok":
            return v.status is Status.OK
        if v.status is not Status.OK:
            return True
        if expect == "reported":
            return bool(v.health)
        return expect == "unflattered" and not self.flattered

    @property
    def blind(self) -> bool:
        """Whether the attack did not find what it attacks, so that its verdict says nothing."""
        return self.case.target == "here" and REACHED not in self.verdict.log

    @property
    def flattered(self) -> bool:
        """Whether the verdict says faster for work that is not faster."""
        timing = self.verdict.timing
        return (
            self.case.expect == "unflattered"
            and timing is not None
            and timing.speedup.lo > FLATTERED
        )

    def __str__(self) -> str:
        v = self.verdict
        speedup = f", speedup {v.timing.speedup}" if v.timing is not None else ""
        notes = (", found no target" if self.blind else "") + (
            f", left {self.trace}" if self.trace else ""
        )
        return f"{self.case.name}: {v.status.value}{speedup}{notes}: {v.error or 'no error'}"

    @property
    def mark(self) -> str:
        """What is wrong with it, as a word of the report."""
        return "REJECTED" if self.case.kind == "honest" else "BLIND" if self.blind else "MISSED"

    def for_programs(self) -> dict[str, Any]:
        """The object `--json` lists; keys only grow."""
        v = self.verdict
        return {
            "id": self.case.id,
            "file": self.case.name,
            "kind": self.case.kind,
            "expect": self.case.expect,
            "device": self.device,
            "right": self.right,
            "status": v.status.value,
            "speedup": v.timing.speedup.value if v.timing else None,
            "speedup_lo": v.timing.speedup.lo if v.timing else None,
            "trace": self.trace or None,
            "blind": self.blind,
            "error": v.error,
            "isolation": v.isolation,
            "seconds": v.seconds,
        }


def cases(only: str | None = None) -> list[RedTeamCase]:
    """The red team's files, an attack before its twin, by reference.

    Args:
        only: classes, rows or files, with commas: `A,D05,evil/G04_exit_in_call`; of the honest files those of the same rows.

    Raises:
        UsageError: no case has that name.
        ValueError: a file without a proper case line: a bug of dvk.
    """
    wanted = [part.strip().lower() for part in (only or "").split(",") if part.strip()]
    folder = resource("kernels")
    result = [
        read(path, kind)
        for kind in ("evil", "honest")
        for path in sorted((folder / kind).glob("*.py"))
    ]
    chosen = [case for case in result if not wanted or case.called & set(wanted)]
    if missing := set(wanted) - {name for case in result for name in case.called}:
        raise UsageError(
            f"no attack is called `{sorted(missing)[0]}`",
            f"name classes ({', '.join(CLASSES)}) or rows such as D05",
        )
    return sorted(chosen, key=lambda case: (case.reference, case.id, case.kind))


def read(path: Path, kind: Literal["evil", "honest"]) -> RedTeamCase:
    """One file's case.

    Raises:
        ValueError: no case line, or one with an unknown entry.
    """
    text = path.read_text(encoding="utf-8")
    fields = _LINE.findall(text)
    if len(fields) != 1:
        raise ValueError(f"{path} has {len(fields)} case lines")
    pairs = dict(pair.split("=", 1) for pair in fields[0][0].split())
    if unknown := set(pairs) - _KEYS:
        raise ValueError(f"{path}: unknown {sorted(unknown)}")
    flags = {name: pairs.pop(name, "no") == "yes" for name in ("backward", "require_kernels")}
    aims = tuple(name for names in _AIMS.findall(text) for name in names.split())
    return RedTeamCase(path=path, kind=kind, aims=aims, **flags, **pairs)


def selftest(
    config: Config,
    *,
    only: str | None = None,
    device: Device | None = None,
    workers: int | None = None,
    progress: Callable[[int, int, SelftestOutcome], None] | None = None,
) -> tuple[list[SelftestOutcome], list[str]]:
    """Judge every case that this machine can run; outcomes, and the names of the cases left out.

    Args:
        config: its limits are lowered, so that a user's machine does not feel the attacks.
        only: as for `cases`.
        device: judge there only; null: on the GPU if there is one and the case can run there, the rest on the CPU.
        workers: candidates in flight.
        progress: called with the number done, the number in all, and the newest outcome.

    Raises:
        UsageError: no case is called `only`.
        MachineError: no sandbox can be started.
        TaskError: a reference does not load: a bug of dvk.
    """
    placed = [(case, _place(case, device)) for case in cases(only)]
    runnable = [(case, place) for case, place in placed if place is not None]
    outcomes: dict[str, SelftestOutcome] = {}
    with leftovers.watched() as watch:
        for outcome in _judged(runnable, config, workers):
            outcomes[outcome.case.name] = outcome
            if progress is not None:
                progress(len(outcomes), len(runnable), outcome)
        again = [(case, place) for case, place in runnable if outcomes[case.name].flattered]
        for outcome in _judged(again, _patient(config), 1):
            outcomes[outcome.case.name] = outcome
        traces = watch.found({case.id for case, _ in runnable if case.kind == "evil"})
    for name, outcome in outcomes.items():
        if outcome.case.kind == "evil" and outcome.case.id in traces:
            outcomes[name] = replace(outcome, trace=traces[outcome.case.id])
    return [outcomes[case.name] for case, _ in runnable], [
        case.name for case, place in placed if place is None
    ]


def report(outcomes: Sequence[SelftestOutcome], left_out: Sequence[str]) -> str:
    """Caught and missed by class, honest ones accepted and rejected, and each wrong outcome, as text."""
    lines = []
    for letter, title in CLASSES.items():
        evil = [o for o in outcomes if o.case.kind == "evil" and o.case.id[0] == letter]
        honest = [o for o in outcomes if o.case.kind == "honest" and o.case.id[0] == letter]
        if evil or honest:
            caught, accepted = sum(o.right for o in evil), sum(o.right for o in honest)
            lines.append(
                f"{letter}  {title:<26} caught {caught:>3} of {len(evil):>3}   honest accepted {accepted:>3} of {len(honest):>3}"
            )
    wrong = [o for o in outcomes if not o.right]
    lines += ["", *(f"{outcome.mark}  {outcome}" for outcome in wrong)] if wrong else []
    attacks, others = (
        [o.right for o in outcomes if o.case.kind == kind] for kind in ("evil", "honest")
    )
    end = f"caught {sum(attacks)} of {len(attacks)} attacks, accepted {sum(others)} of {len(others)} honest kernels"
    lines += ["", end + (f"; {len(left_out)} files need another device" if left_out else "")]
    return "\n".join(lines)


def _judged(
    placed: Sequence[tuple[RedTeamCase, Device]], config: Config, workers: int | None
) -> Iterator[SelftestOutcome]:
    """Outcomes as they come."""
    loaded: dict[tuple[str, Device], Task] = {}
    for group in _groups(placed):
        first, place = group[0]
        cautious = _cautious(config, place)
        for case, _ in group:
            if (case.reference, place) not in loaded:
                path = resource("kernels", "tasks", f"{case.reference}.py")
                loaded[case.reference, place] = tasks.load(
                    str(path), device=place, limits=cautious.limits
                )
        jobs = [
            (
                loaded[case.reference, place],
                Candidate(source=case.source, backend=case.backend, title=case.name),
            )
            for case, _ in group
        ]
        pool = JudgeQueue[int](min(workers or machine.num_cores(), len(jobs)), cautious)
        judged = pool.map(
            jobs,
            JudgeSpec(
                tier=first.tier, backward=first.backward, require_kernels=first.require_kernels
            ),
        )
        for position, verdict in judged:
            yield SelftestOutcome(group[position][0], place, verdict)


def _place(case: RedTeamCase, device: Device | None) -> Device | None:
    """The device on which a case is judged; None if this machine, or the request, does not suit it."""
    here: Iterable[Device] = [device] if device is not None else [backends.default_device(), "cpu"]
    if backends.get(case.backend).available() is not None and case.backend != "cpp":
        here = ()
    return next((place for place in here if case.device in (place, "any")), None)


def _groups(placed: Sequence[tuple[RedTeamCase, Device]]) -> list[list[tuple[RedTeamCase, Device]]]:
    """Cases that one call of the pool can judge."""
    groups: dict[tuple[Any, ...], list[tuple[RedTeamCase, Device]]] = {}
    for case, place in placed:
        groups.setdefault((place, case.tier, case.backward, case.require_kernels), []).append(
            (case, place)
        )
    return list(groups.values())


def _patient(config: Config) -> Config:
    judge = config.judge
    longer = {
        "search_s": max(PATIENT_S, judge.search_s),
        "search_pairs": max(PATIENT_PAIRS, judge.search_pairs),
    }
    return config.model_copy(update={"judge": judge.model_copy(update=longer)})


def _cautious(config: Config, device: Device) -> Config:
    limits = config.limits
    lowered = limits.model_copy(
        update={
            "memory_bytes": min(limits.memory_bytes, MEMORY_BYTES[device]),
            "num_processes": min(limits.num_processes, NUM_PROCESSES),
        }
    )
    return config.model_copy(update={"limits": lowered})


def show_progress(done: int, total: int, outcome: SelftestOutcome) -> None:
    """Print one line on stderr."""
    told = f"ok {outcome.case.name}: {outcome.verdict.status.value}"
    print(
        f"[{done}/{total}] {told if outcome.right else f'WRONG {outcome}'}",
        file=sys.stderr,
        flush=True,
    )

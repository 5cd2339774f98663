"""`dvk verify`: references and candidates in, verdicts out.

    read the jobs → choose back end and device of each → load every reference once → judge, many at once
    → each verdict on disk as it comes

With `resume`, candidates that the run folder already has a verdict for are not judged again.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from dvk import backends, crashes, machine, tasks
from dvk.config import Config
from dvk.errors import TaskError, UsageError
from dvk.harness import BASELINES, JudgeQueue, JudgeSpec
from dvk.harness.placement import num_workers
from dvk.harness.session import static
from dvk.harness.session.verdict_cache import Remembered
from dvk.interop.kernelgym import remote
from dvk.pipelines import tracebacks
from dvk.records import BackendName, Candidate, Device, Status, Task, Tier, Verdict, content_hash
from dvk.runs import RunFolder
from dvk.tasks import naming
from dvk.tasks.packages import base_of
from dvk.tasks.sourcetext import read_source

VERDICTS = "verdicts.jsonl"
MAX_WORKERS = 16


@dataclass(frozen=True)
class VerifyJob:
    """One comparison to make."""

    reference: str
    """`model.py` or `model.py:Name`."""
    label: str
    """The candidate's path, or its name in the batch."""
    source: str


@dataclass(frozen=True, kw_only=True)
class VerifyRequest:
    """A `dvk verify` request."""

    jobs: tuple[VerifyJob, ...]
    name: str
    """The command line, for the run folder."""
    backend: str = "auto"
    device: Device | None = None
    tier: Tier = "search"
    baselines: tuple[str, ...] = ()
    workers: int | None = None
    inputs: tuple[str, ...] = ()
    init: tuple[str, ...] = ()
    eval_mode: bool = False
    dtype: str | None = None
    backward: bool = False
    require_kernels: bool = False
    contract: Literal["auto", "module", "plan"] = "module"
    profile: bool = False
    """Also profile a call."""
    anew: bool = False
    """Ignore cached verdicts."""
    out: Path | None = None
    resume: bool = False
    argv: tuple[str, ...] = ()


@dataclass(frozen=True)
class VerifyRow:
    """One job's outcome."""

    job: VerifyJob
    backend: str
    verdict: Verdict
    mode: str | None = None
    """The reference's mode, train or eval; None for a function, and if unknown."""

    def for_programs(self) -> dict[str, Any]:
        """The row as `--json` prints it; keys only grow."""
        v, t = self.verdict, self.verdict.timing
        return {
            "candidate": self.job.label,
            "reference": self.job.reference,
            "status": v.status.value,
            "speedup": t.speedup.value if t else None,
            "speedup_lo": t.speedup.lo if t and t.speedup.known else None,
            "speedup_hi": t.speedup.hi if t and t.speedup.known else None,
            "error": v.error,
            "backend": self.backend,
            "mode": self.mode,
            "tier": v.tier,
            "stage": v.stage,
            "reference_ms": t.reference_ms if t else None,
            "candidate_ms": t.candidate_ms if t else None,
            "baselines": {
                name: {"ms": t.baselines_ms[name], "speedup": s.value, "lo": s.lo, "hi": s.hi}
                for name, s in t.baselines.items()
            }
            if t
            else {},
            "precision": v.precision,
            "tolerance": v.tolerance,
            "worst_error": v.worst_error,
            "num_checks": v.num_checks,
            "shapes": list(v.shapes),
            "families": list(v.families),
            "skipped": v.skipped,
            "weights": v.weights,
            "health": list(v.health),
            "notes": list(v.notes),
            "written_inputs": list(v.written_inputs),
            "contract": v.contract,
            "isolation": v.isolation,
            "coverage": v.coverage,
            "compiled": v.compiled,
            "profile": v.profile,
            "regime": t.regime if t else None,
            "charged_ms": t.charged_ms if t else None,
            "claim": t.claim.model_dump(mode="json") if t and t.claim else None,
            "cached": v.cached,
            "untimed_reason": v.untimed_reason,
            "machine": v.machine,
            "seconds": v.seconds,
            "traceback": v.traceback or None,
        }


Progress = Callable[[int, int, VerifyRow], None]
"""Called with the number done, the number in all, and the newest row."""


def verify(
    request: VerifyRequest, config: Config, progress: Progress | None = None
) -> tuple[list[VerifyRow], Path]:
    """Judge every job; rows in the order of the jobs, and the run's folder.

    Raises:
        UsageError: no jobs, unknown back end or baseline.
        TaskError: a reference that cannot be judged.
        MachineError: a back end or device that this machine lacks.
        RunFolderError: see `RunFolder.open`.
    """
    there = None if config.remote.judge is None else remote.devices(config)
    _check(request, there)
    placed = [_place(job, request, there) for job in request.jobs]
    with RunFolder.open(
        request.out,
        command="verify",
        name=request.name,
        argv=request.argv,
        config=config,
        resume=request.resume,
    ) as run:
        kept = _Kept(request, placed, run, config.remote.judge or config.remote.engine, progress)
        missing = [i for i in range(len(request.jobs)) if i not in kept.rows]
        loaded = _load(request, [(i, *placed[i]) for i in missing], config)
        found = {i: loaded[request.jobs[i].reference, placed[i][1]] for i in missing}
        for i, task in found.items():
            if isinstance(task, TaskError):
                kept.add(
                    i, task, crashes.verdict(crashes.crashed(task, "loading it"), request.tier)
                )
        playable = [(i, task) for i, task in found.items() if isinstance(task, Task)]
        workers = _workers(request, len(missing), config, {device for _, device in placed})
        pool = JudgeQueue[int](workers, config, None if request.anew else Remembered())
        judged = pool.map(
            ((task, placed[i][0]) for i, task in playable),
            JudgeSpec(
                tier=request.tier,
                baselines=request.baselines,
                backward=request.backward,
                require_kernels=request.require_kernels,
                contract=request.contract,
                profile=request.profile,
            ),
        )
        for position, verdict in judged:
            kept.add(*playable[position], verdict)
        if (line := tracebacks.stderr_line(run, "candidate")) is not None:
            print(line, file=sys.stderr)
        if not run.finished:
            run.finish("done")
        return [kept.rows[i] for i in range(len(request.jobs))], run.path


class _Kept:
    """The rows of a run: those that its folder has a verdict for, and new ones as they come.

    Attributes:
        rows: by position of the job.
    """

    def __init__(
        self,
        request: VerifyRequest,
        placed: Sequence[tuple[Candidate, Device]],
        run: RunFolder,
        judge: str | None,
        progress: Progress | None,
    ):
        self._request, self._placed, self._run, self._progress = request, placed, run, progress
        self._keys = [
            _key(request, job, *place, judge)
            for job, place in zip(request.jobs, placed, strict=True)
        ]
        lines = run.read(VERDICTS) if request.resume else ()
        known = {
            line["key"]: (Verdict.model_validate(line["verdict"]), line.get("mode"))
            for line in lines
            if _unchanged(line)
        }
        self.rows: dict[int, VerifyRow] = {
            i: VerifyRow(request.jobs[i], placed[i][0].backend, *known[key])
            for i, key in enumerate(self._keys)
            if key in known
        }

    def add(self, i: int, task: Task | TaskError, verdict: Verdict) -> None:
        """Write the verdict on job `i` to the folder."""
        job, backend, run = self._request.jobs[i], self._placed[i][0].backend, self._run
        row = self.rows[i] = VerifyRow(
            job, backend, verdict, task.mode if isinstance(task, Task) else None
        )
        tracebacks.keep(run, job.label, [verdict.traceback])
        beside, package = (task.beside, task.package) if isinstance(task, Task) else ((), "")
        run.append(
            VERDICTS,
            {
                "key": self._keys[i],
                "reference": job.reference,
                "candidate": job.label,
                "backend": backend,
                "mode": row.mode,
                "verdict": verdict.model_dump(mode="json"),
                "beside": {name: content_hash(text) for name, text in beside},
                "package": package,
            },
        )
        if self._progress is not None:
            self._progress(len(self.rows), len(self._request.jobs), row)


def all_ok(rows: Sequence[VerifyRow]) -> bool:
    """Whether every candidate passed."""
    return all(row.verdict.status is Status.OK for row in rows)


# ---------------------------------------------------------------- jobs


def jobs_of(reference: str, candidates: Sequence[Path]) -> tuple[VerifyJob, ...]:
    """One job a candidate file.

    Raises:
        UsageError: a file that cannot be read.
    """
    return tuple(VerifyJob(reference, str(path), _read(path, "candidate")) for path in candidates)


def jobs_of_batch(path: Path) -> tuple[VerifyJob, ...]:
    """The jobs of a JSONL file: {"reference": path, "candidate": path or "source": text, "name": optional} a line.

    Relative paths start at the file's folder.

    Raises:
        UsageError: names the malformed line.
    """
    jobs = []
    for number, line in enumerate(_read(path, "batch file").splitlines(), start=1):
        if not line.strip():
            continue
        where = f"`{path}` line {number}"
        try:
            entry = json.loads(line)
        except ValueError as error:
            raise UsageError(
                f"{where} is not JSON: {error}", "write one JSON object a line"
            ) from None
        if not isinstance(entry, dict) or not isinstance(entry.get("reference"), str):
            raise UsageError(
                f"{where} has no reference",
                'write {"reference": "model.py", "candidate": "new.py"}',
            )
        if unknown := set(entry) - {"reference", "candidate", "source", "name"}:
            raise UsageError(
                f"{where} has the unknown key `{sorted(unknown)[0]}`",
                "use reference, candidate or source, and name",
            )
        texts = [key for key in ("candidate", "source") if isinstance(entry.get(key), str)]
        if len(texts) != 1:
            raise UsageError(
                f"{where} needs either candidate (a path) or source (a text)",
                "give exactly one of them",
            )
        reference = str(path.parent / entry["reference"])
        if texts == ["candidate"]:
            file = path.parent / entry["candidate"]
            jobs.append(
                VerifyJob(
                    reference,
                    str(entry.get("name") or file),
                    _read(file, f"candidate of line {number}"),
                )
            )
        else:
            jobs.append(
                VerifyJob(reference, str(entry.get("name") or f"line {number}"), entry["source"])
            )
    return tuple(jobs)


def _read(path: Path, what: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"cannot read {what} `{path}`: {error.strerror}", "check the path"
        ) from None
    except UnicodeDecodeError:
        raise UsageError(f"{what} `{path}` is not UTF-8 text", "give a Python file") from None


# ---------------------------------------------------------------- back ends and devices


def _check(request: VerifyRequest, there: Sequence[Device] | None) -> None:
    if not request.jobs:
        raise UsageError("nothing to verify", "name at least one candidate file")
    if unknown := [name for name in request.baselines if name not in BASELINES]:
        raise UsageError(
            f"unknown baseline: `{unknown[0]}`",
            f"choose {', '.join(BASELINES)}; eager is always timed",
        )
    if request.backend != "auto":
        backends.add(request.backend)
        if there is None:
            backends.require(request.backend)
        if request.device is not None:
            backends.check_device(request.backend, request.device)
    if there is not None and request.device is not None and request.device not in there:
        raise UsageError(
            f"the judge has no {request.device}",
            f"drop --device; it judges on {' and '.join(there)}",
        )


def _place(
    job: VerifyJob, request: VerifyRequest, there: Sequence[Device] | None
) -> tuple[Candidate, Device]:
    """The candidate with its back end, and the device to compare on, from the remote judge's devices."""
    backend: BackendName
    if request.backend == "auto":
        backend = backends.detect(job.source)
        if there is None and backend != "cpp":  # plain PyTorch counts as cpp and needs no compiler
            backends.require(backend)
    else:
        backend = request.backend
    if request.device is not None:
        device = request.device
    elif (
        request.backend == "auto"
        and (there is None or "cpu" in there)
        and static.calls_cpp(job.source)
        and backend == "cpp"
    ):
        device = "cpu"
    else:
        choices = [backends.default_device()] if there is None else list(there)
        devices = backends.get(backend).devices if request.backend != "auto" else choices
        device = next((d for d in choices if d in devices), devices[0])
    return Candidate(source=job.source, backend=backend, proposer="user", title=job.label), device


def _load(
    request: VerifyRequest, missing: Sequence[tuple[int, Candidate, Device]], config: Config
) -> dict[tuple[str, Device], Task | TaskError]:
    """Each reference examined once, or its error; for a single reference the error is raised."""
    wanted = dict.fromkeys((request.jobs[i].reference, device) for i, _, device in missing)
    how: dict[str, Any] = {
        "inputs": request.inputs,
        "init": request.init,
        "eval_mode": request.eval_mode,
        "dtype": request.dtype,
    }
    if config.remote.judge is not None:
        read: Callable[..., Task] = tasks.unexamined
    else:
        read = partial(tasks.load, limits=config.limits)

    def load(reference: str, device: Device) -> Task | TaskError:
        try:
            return read(reference, device=device, **how)
        except Exception as error:  # the fence: see dvk.crashes
            if crashes.ends_the_run(error) or len({reference for reference, _ in wanted}) == 1:
                raise
            return error if isinstance(error, TaskError) else crashes.crashed(error, "loading it")

    return {(reference, device): load(reference, device) for reference, device in wanted}


def _workers(
    request: VerifyRequest, num_jobs: int, config: Config, devices: Iterable[Device]
) -> int:
    wanted = request.workers or (
        min(machine.num_cores(), MAX_WORKERS)
        if config.remote.engine is None
        else sum(num_workers(config, device) for device in devices)
    )
    return max(1, min(wanted, num_jobs))


def _key(
    request: VerifyRequest, job: VerifyJob, candidate: Candidate, device: Device, judge: str | None
) -> str:
    """Cache key of a verdict; the reference by its text, so that an edited one is judged again."""
    return content_hash(
        _read(naming.split(job.reference)[0], "reference"),
        job.reference,
        candidate.id,
        candidate.backend,
        device,
        request.tier,
        *request.baselines,
        "inputs",
        *request.inputs,
        "init",
        *request.init,
        f"{request.eval_mode} {request.dtype} {request.backward} {request.require_kernels} {request.contract}",
        *(["profile"] if request.profile else []),
        *(["judge", judge] if judge else []),
    )


def _unchanged(line: dict[str, Any]) -> bool:
    """Whether the files that the reference imports from its folder are unchanged since the verdict, which had no error inside dvk."""
    if line["verdict"].get("traceback"):
        return False
    try:
        folder = base_of(naming.split(line["reference"])[0], line.get("package", ""))
        return all(
            content_hash(read_source(folder / name)) == found
            for name, found in line.get("beside", {}).items()
        )
    except (OSError, UnicodeDecodeError, TaskError):
        return False

"""`dvk verify`: references and candidates in, verdicts out.

    read the jobs → choose back end and device of each → load every reference once → judge, many at once
    → each verdict on disk as it comes → the baselines, once a reference

With `resume`, candidates that the run folder already has a verdict for are not judged again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from dvk import backends, crashes, machine, tasks
from dvk.config import Config
from dvk.errors import TaskError, UsageError
from dvk.harness import BASELINES, JudgeQueue, JudgeSpec
from dvk.harness.placement import num_workers
from dvk.harness.session import static
from dvk.harness.session.verdict_cache import Remembered
from dvk.interop.kernelgym import remote
from dvk.pipelines import tracebacks
from dvk.pipelines.verify.jobs import VerifyJob, VerifyRequest, at_sizes, jobs_of, jobs_of_batch
from dvk.pipelines.verify.lines import BaselineLines
from dvk.pipelines.verify.rows import KeptRows, Progress, VerifyRow
from dvk.records import BackendName, Candidate, Device, Status, Task
from dvk.runs import RunFolder

__all__ = [
    "VerifyJob",
    "VerifyRequest",
    "VerifyRow",
    "all_ok",
    "jobs_of",
    "jobs_of_batch",
    "verify",
]

MAX_WORKERS = 16


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
    request = at_sizes(request)
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
        kept = KeptRows(request, placed, run, config.remote.judge or config.remote.engine, progress)
        missing = [i for i in range(len(request.jobs)) if i not in kept.rows]
        # A remote judge examines the references, and times baselines itself.
        remotely = config.remote.judge is not None
        lines = BaselineLines(request if not remotely else replace(request, baselines=()), run)
        wanted = missing if not request.baselines else range(len(request.jobs))
        loaded = _load(request, [(i, *placed[i]) for i in wanted], config)
        tasks = {i: loaded[_asked(request, i, placed[i][1])] for i in wanted}
        for i in missing:
            if isinstance(task := tasks[i], TaskError):
                kept.add(
                    i, task, crashes.verdict(crashes.crashed(task, "loading it"), request.tier)
                )
        playable = [(i, task) for i in missing if isinstance(task := tasks[i], Task)]
        workers = _workers(request, len(missing), config, {device for _, device in placed})
        pool = JudgeQueue[int](workers, config, None if request.no_cache else Remembered())
        spec = _spec(request, remotely)
        jobs = ((task, placed[i][0]) for i, task in playable)
        for position, verdict in pool.map(jobs, spec):
            kept.add(*playable[position], verdict)
        timed = [i for i, row in kept.rows.items() if row.verdict.timing or request.tier == "smoke"]
        examined = {i: task for i, task in tasks.items() if isinstance(task, Task)}
        of_lines = lines.jobs(examined[i] for i in timed if i in examined)
        for position, verdict in pool.map([(task, line) for _, task, line in of_lines], spec):
            lines.add(of_lines[position][0], verdict)
        if (line := tracebacks.stderr_line(run, "candidate")) is not None:
            print(line, file=sys.stderr)
        if not run.finished:
            run.finish("done")
        rows = [kept.rows[i] for i in range(len(request.jobs))]
        if request.baselines and not remotely:
            rows = [
                replace(row, verdict=lines.beside(row.verdict, examined.get(i)))
                for i, row in enumerate(rows)
            ]
        return rows, run.path


def _spec(request: VerifyRequest, remotely: bool) -> JudgeSpec:
    whole = bool(request.baselines) and request.contract == "auto"  # as baselines are timed
    return JudgeSpec(
        tier=request.tier,
        baselines=request.baselines if remotely else (),
        backward=request.backward,
        require_kernels=request.require_kernels,
        contract="module" if whole else request.contract,
        profile=request.profile,
    )


def all_ok(rows: Sequence[VerifyRow]) -> bool:
    """Whether every candidate passed."""
    return all(row.verdict.status is Status.OK for row in rows)


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


Asked = tuple[str, tuple[str, ...], Device]
"""A reference, its `--input` specs, and the device."""


def _asked(request: VerifyRequest, i: int, device: Device) -> Asked:
    job = request.jobs[i]
    return job.reference, job.specs(request), device


def _load(
    request: VerifyRequest, missing: Sequence[tuple[int, Candidate, Device]], config: Config
) -> dict[Asked, Task | TaskError]:
    """Each reference examined once, or its error; for a single reference the error is raised."""
    wanted = dict.fromkeys(_asked(request, i, device) for i, _, device in missing)
    how: dict[str, Any] = {
        "init": request.init,
        "eval_mode": request.eval_mode,
        "dtype": request.dtype,
        **({"train": True} if request.train else {}),
        **({"autocast": request.autocast} if request.autocast else {}),
    }
    if config.remote.judge is not None:
        if request.train:
            raise UsageError("a server judges forward alone", "drop --train or the server")
        if request.autocast:
            raise UsageError("a server judges without autocast", "drop --autocast or the server")
        read: Callable[..., Task] = tasks.unexamined
    else:
        read = partial(tasks.load, limits=config.limits)

    def load(reference: str, inputs: tuple[str, ...], device: Device) -> Task | TaskError:
        try:
            return read(reference, inputs=inputs, device=device, **how)
        except Exception as error:  # the fence: see dvk.crashes
            if crashes.ends_the_run(error) or len({reference for reference, _, _ in wanted}) == 1:
                raise
            return error if isinstance(error, TaskError) else crashes.crashed(error, "loading it")

    return {asked: load(*asked) for asked in wanted}


def _workers(
    request: VerifyRequest, num_jobs: int, config: Config, devices: Iterable[Device]
) -> int:
    wanted = request.workers or (
        min(machine.num_cores(), MAX_WORKERS)
        if config.remote.engine is None
        else sum(num_workers(config, device) for device in devices)
    )
    return max(1, min(wanted, num_jobs))

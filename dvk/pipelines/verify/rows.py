"""What `dvk verify` answers: one row a job, kept in the run's folder as it comes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dvk.errors import TaskError
from dvk.pipelines import tracebacks
from dvk.pipelines.verify.jobs import VerifyJob, VerifyRequest, read
from dvk.records import Candidate, Device, Task, Verdict, content_hash
from dvk.runs import RunFolder
from dvk.tasks import naming
from dvk.tasks.packages import base_of
from dvk.tasks.sourcetext import read_source

VERDICTS = "verdicts.jsonl"


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
            "sizes": dict(self.job.sizes) or None,
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
            "baselines_not_timed": v.baselines_left_out,
            "precision": v.precision,
            "tolerance": v.tolerance,
            "worst_error": v.worst_error,
            "worst_absolute_error": v.worst_absolute_error,
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
            "workload": self.job.workload or None,
        }


Progress = Callable[[int, int, VerifyRow], None]
"""Called with the number done, the number in all, and the newest row."""


class KeptRows:
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


def _key(
    request: VerifyRequest, job: VerifyJob, candidate: Candidate, device: Device, judge: str | None
) -> str:
    """Cache key of a verdict; the reference by its text, so that an edited one is judged again."""
    return content_hash(
        read(naming.split(job.reference)[0], "reference"),
        job.reference,
        candidate.id,
        candidate.backend,
        device,
        request.tier,
        *request.baselines,
        "inputs",
        *job.specs(request),
        "init",
        *request.init,
        f"{request.eval_mode} {request.train} {request.dtype} {request.backward} {request.require_kernels} {request.contract}",
        *(["autocast", request.autocast] if request.autocast else []),
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

"""What `dvk verify` is asked: jobs from files or from a batch, and the options that hold for all of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dvk.errors import UsageError
from dvk.harness.session.judge_spec import Contract
from dvk.records import Device, Tier
from dvk.tasks import dynamic
from dvk.tasks.loading import has_get_inputs


@dataclass(frozen=True)
class VerifyJob:
    """One comparison to make."""

    reference: str
    """`model.py` or `model.py:Name`."""
    label: str
    """The candidate's path, or its name in the batch."""
    source: str
    sizes: tuple[tuple[str, int], ...] = ()
    """The size of each dimension of `--dynamic`."""
    inputs: tuple[str, ...] = ()
    """Its own `--input` specs, instead of the request's."""
    workload: str = ""
    """The identifier of a definition's workload; empty for a task file."""

    def specs(self, request: VerifyRequest) -> tuple[str, ...]:
        """The `--input` specs of its reference."""
        return self.inputs or request.inputs


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
    dynamic: tuple[str, ...] = ()
    """Inputs with ranges of sizes: each job is judged at sampled sizes."""
    init: tuple[str, ...] = ()
    eval_mode: bool = False
    train: bool = False
    """A call is forward and backward."""
    dtype: str | None = None
    autocast: str | None = None
    """Calls are under torch.autocast to this type."""
    backward: bool = False
    require_kernels: bool = False
    contract: Contract = "short"
    profile: bool = False
    """Also profile a call."""
    no_cache: bool = False
    """Ignore cached verdicts."""
    out: Path | None = None
    resume: bool = False
    argv: tuple[str, ...] = ()


def at_sizes(request: VerifyRequest) -> VerifyRequest:
    """The request with each job once for each sampled size of its `dynamic` inputs: ends of the range, odd and prime sizes.

    Raises:
        TaskError: an input or a range is malformed.
    """
    inputs = dynamic.parse(request.dynamic)
    if inputs is None:
        return request
    inputs.check(request.inputs)
    box = {dim.name: (dim.lo, dim.hi) for dim in inputs.dims}
    sizes = [*dynamic.sampled(inputs.dims, box), *inputs.points()]
    every = [dict(one) for one in dict.fromkeys(tuple(one.items()) for one in sizes)]
    jobs = []
    for job in request.jobs:
        drawn = not request.inputs and has_get_inputs(job.reference)
        for one in every:
            specs = inputs.specs(one, request.inputs, drawn=drawn)
            label = f"{job.label} ({dynamic.label(one)})"
            jobs.append(replace(job, label=label, sizes=tuple(one.items()), inputs=specs))
    return replace(request, jobs=tuple(jobs))


def jobs_of(reference: str, candidates: Sequence[Path]) -> tuple[VerifyJob, ...]:
    """One job a candidate file.

    Raises:
        UsageError: a file that cannot be read.
    """
    return tuple(VerifyJob(reference, str(path), read(path, "candidate")) for path in candidates)


def jobs_of_batch(path: Path) -> tuple[VerifyJob, ...]:
    """The jobs of a JSONL file: {"reference": path, "candidate": path or "source": text, "name": optional} a line.

    Relative paths start at the file's folder.

    Raises:
        UsageError: names the malformed line.
    """
    jobs = []
    for number, line in enumerate(read(path, "batch file").splitlines(), start=1):
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
                    read(file, f"candidate of line {number}"),
                )
            )
        else:
            jobs.append(
                VerifyJob(reference, str(entry.get("name") or f"line {number}"), entry["source"])
            )
    return tuple(jobs)


def read(path: Path, what: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"cannot read {what} `{path}`: {error.strerror}", "check the path"
        ) from None
    except UnicodeDecodeError:
        raise UsageError(f"{what} `{path}` is not UTF-8 text", "give a Python file") from None

"""What `dvk verify` is asked: jobs from files or from a batch, and the options that hold for all of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dvk.errors import UsageError
from dvk.records import Device, Tier


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
    train: bool = False
    """A call is forward and backward."""
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

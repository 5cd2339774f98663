"""`dvk doctor`: this machine's abilities, found by trying them.

Facts come from `machine`, abilities from probes in child processes, so a broken driver or compiler
becomes a line of the report and never an error of ours. Measurements are kept in
`$DVK_HOME/machine.json`; the skill library is read, never built.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from pydantic import BaseModel

import dvk
from dvk import backends, machine, resources, runs, sandbox, target
from dvk.config import Config, Limits
from dvk.errors import DvkError
from dvk.harness.session import lending
from dvk.harness.timing.roofline import better
from dvk.records import Device
from dvk.sandbox import lacking
from dvk.skills import Library, default_path

PROBES = "dvk.pipelines.probes"
PROBE_LIMITS = Limits(wall_s=120.0)
"""Timeout of the slowest probe, which imports torch and Triton from a cold disk: half a minute on a small machine."""
CPU_COPY_BYTES = 256 << 20
"""Several times any last-level cache."""
GPU_COPY_BYTES = 1 << 30
"""Twenty times the largest L2 cache; a copy takes about half a millisecond."""
CPU_MATMUL, GPU_MATMUL = 1024, 8192
"""Sides of matrices that keep every unit busy: 20 ms on a small CPU, 2 to 20 ms on a large GPU."""
CEILINGS = ("copy_gbps", "read_gbps", "write_gbps", "gflops", "launch_us", "sync_us")
"""Fields of `harness.ceilings.Ceilings` that the probes measure."""


def examine(library: Path | None = None) -> dict[str, Any]:
    """The whole report, as plain data; takes some seconds.

    Args:
        library: the skill library to describe, by default the user's.
    """
    gpus = machine.gpu_names()
    cuda = _probe("cuda", {"num_bytes": GPU_COPY_BYTES, "matmul": GPU_MATMUL})
    cpu = _probe("cpu", {"num_bytes": CPU_COPY_BYTES, "matmul": CPU_MATMUL})
    interpreter = _probe("triton", {"device": "cpu"}, {"TRITON_INTERPRET": "1"})
    compiled = (
        _probe("triton", {"device": "cuda"})
        if cuda["works"]
        else {"works": False, "error": cuda["error"]}
    )
    compiler = _compiler()
    report = {
        "dvk": dvk.__version__,
        "commit": runs.commit(),
        "home": str(resources.home()),
        "machine": machine.describe() | {"copy_gbps": None} | _ceilings(cpu),
        "target": asdict(target.of_machine("cuda")),
        "driver": _driver() if gpus else None,
        "cuda": cuda,
        "compiler": compiler,
        "nvcc": _nvcc(),
        "triton": {"gpu": compiled, "interpreter": interpreter},
        "isolation": _isolation(bool(cuda["works"])),
        "backends": _backends(compiler, compiled if cuda["works"] else interpreter),
        "library": _library(library or default_path()),
    }
    report["saved"] = _save(cpu, cuda)
    return report


def settings() -> list[dict[str, Any]]:
    """Every configuration key with its default and its reason, in the order of `dvk.config`."""
    return _settings(Config(), "")


def _settings(section: BaseModel, prefix: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        if isinstance(value, BaseModel):
            rows += _settings(value, f"{prefix}{name}.")
        else:
            rows.append({"key": prefix + name, "default": value, "reason": field.description or ""})
    return rows


# ---------------------------------------------------------------- probes


def _probe(name: str, request: dict[str, Any], env: dict[str, str] | None = None) -> dict[str, Any]:
    """The answer of one probe, or its error."""
    answer = sandbox.call(f"{PROBES}:{name}", request, PROBE_LIMITS, env=env)
    if isinstance(answer, sandbox.Message):
        return answer.value
    last = answer.log.strip().splitlines()[-1:]
    return {"works": False, "error": ": ".join([answer.reason, *last])}


def _isolation(gpu: bool) -> dict[str, Any]:
    """The sandbox layers that confine candidates here, by device, and the accesses left open because a layer is missing."""
    result: dict[str, Any] = {}
    kinds: tuple[Device, ...] = ("cpu", "cuda") if gpu else ("cpu",)
    for kind in kinds:
        with sandbox.SandboxSession(f"{PROBES}:shut_in", PROBE_LIMITS, isolate=kind) as session:
            layers = session.isolation
        result[kind] = {"layers": layers, "open": lacking.missing_layers(layers)}
    references = lacking.references_sentence()
    if references is None and gpu and (failed := lending.fails(PROBE_LIMITS)) is not None:
        references = f"references that others send to `dvk serve` for a GPU can read this user's files: CUDA fails sandboxed ({failed})"
    result["machine"] = {"open": [text for text in (lacking.memory_sentence(), references) if text]}
    return result


def _compiler() -> dict[str, Any]:
    """The C++ compiler: its path, version, and whether OpenMP kernels compile and run."""
    command = shlex.split(os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++") or "")
    if not command:
        return {"path": None, "version": None, "works": False, "error": "no C++ compiler found"}
    with tempfile.TemporaryDirectory(prefix="dvk-doctor-") as folder:
        answer = _probe("cpp", {"folder": folder, "compiler": command})
    version = _first_line([*command, "-dumpfullversion"]) or _first_line(
        [*command, "-dumpversion"]
    )  # clang
    return {"path": shlex.join(command), "version": version, **answer}


def _nvcc() -> dict[str, Any] | None:
    path = shutil.which("nvcc")
    if path is None:
        return None
    match = re.search(r"release (\d+\.\d+)", _output([path, "--version"]))
    return {"path": path, "version": match.group(1) if match else None}


def _driver() -> str | None:
    return _first_line(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"])


def _first_line(command: list[str]) -> str | None:
    return next(iter(_output(command).splitlines()), "").strip() or None


def _output(command: list[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=30).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


# ---------------------------------------------------------------- backends, library, memory


def _backends(cpp: dict[str, Any], triton: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The usable backends and how they run; for the others the reason and a remedy.

    A backend reports missing parts; the parts it has must also have worked in their probe.
    """
    device = backends.default_device()
    probes = {"cpp": cpp, "triton": triton}
    result = {}
    for name in backends.BACKENDS:
        backend, probe = backends.get(name), probes.get(name, {"works": True})
        lacks = backend.available()
        if lacks is not None and backend.install not in lacks:
            lacks = f"{lacks}: {backend.install}"
        error = lacks or (None if probe["works"] else str(probe["error"]))
        result[name] = {
            "works": error is None,
            "error": error,
            "untimed": backend.untimed(device) if error is None else None,
        }
    return result


def _library(path: Path) -> dict[str, Any]:
    """The existing skill library; a missing one is not built here."""
    facts: dict[str, Any] = {
        "path": str(path),
        "exists": path.exists(),
        "num_skills": None,
        "num_bytes": None,
    }
    if facts["exists"]:
        facts["num_bytes"] = path.stat().st_size
        try:
            with Library.open(path) as library:
                facts["num_skills"] = len(library)
        except DvkError as error:
            facts["error"] = error.message
    return facts


def _ceilings(answer: dict[str, Any]) -> dict[str, Any]:
    return {name: answer[name] for name in CEILINGS if name in answer}


def _save(cpu: dict[str, Any], cuda: dict[str, Any]) -> str | None:
    """Keep the best ceilings measured so far; the file's path, None when the home folder cannot be written."""
    at = {"at": datetime.now(timezone.utc).isoformat(timespec="seconds")}
    try:
        if cpu["works"]:
            machine.remember("cpu", better(machine.recall("cpu"), _ceilings(cpu) | at))
        if cuda["works"] and machine.gpu_names():
            machine.remember("cuda", better(machine.recall("cuda"), _ceilings(cuda) | at))
    except OSError:
        return None
    return str(resources.home() / "machine.json")

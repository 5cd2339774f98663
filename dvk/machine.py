"""Facts about this computer, collected without importing torch or touching CUDA.

`fingerprint` names the machine in verdicts and run folders; `isa` keys compiled objects, because
code built for one processor's instructions may crash another; `describe` is the long form.
Nothing here measures: `dvk doctor` does, in child processes, and stores the results for `recall`.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import platform
import re
import shlex
import subprocess
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from dvk import resources

PACKAGES = (
    "torch",
    "triton",
    "numpy",
    "pydantic",
    "sqlite-utils",
    "rank-bm25",
    "transformers",
    "peft",
)
"""Packages whose versions can change a result."""


@cache
def fingerprint(device: str = "cpu") -> str:
    """Return one short line: processor or GPU name, cores, torch version.

    Args:
        device: `cpu`, or `cuda` for the first visible GPU (the processor when there is none).
    """
    torch = version("torch") or "none"
    gpus = gpu_names() if device == "cuda" else ()
    if gpus:
        count = f"{len(gpus)}x " if len(gpus) > 1 else ""
        return f"{count}{gpus[0]}, torch {torch}"
    return f"{cpu_name()}, {num_cores()} cores, torch {torch}"


def describe() -> dict[str, Any]:
    """Return the facts of `dvk doctor` and `run.json`: plain data, no torch import, tens of milliseconds."""
    return {
        "fingerprint": fingerprint(),
        "cpu": cpu_name(),
        "num_cores": num_cores(),
        "isa": isa(),
        "memory_bytes": memory_bytes(),
        "gpus": list(gpu_names()),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "packages": {name: version(name) for name in PACKAGES},
    }


def version(package: str) -> str | None:
    """Return the version of an installed package from its metadata; None if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def num_cores() -> int:
    """Return the cores this process may use: the affinity mask, limited by the container's quota."""
    affinity = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()[:2]
        return max(1, min(affinity, -(-int(quota) // int(period))))
    except (OSError, ValueError):  # no cgroup v2, or "max": no quota
        return affinity


def memory_bytes() -> int:
    """Return the memory this process may use: the machine's, limited by the container."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        return min(total, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    except (OSError, ValueError):
        return total


def recall(device: str = "cpu") -> dict[str, Any]:
    """Return the measurements of this machine, empty without any: `copy_gbps` (bytes read + written per second), `at`."""
    return dict(_measurements().get(fingerprint(device), {}))


def remember(device: str, facts: dict[str, Any]) -> None:
    """Store measurements of this machine in `$DVK_HOME/machine.json`, under its fingerprint.

    Raises:
        OSError: the folder cannot be written.
    """
    path = resources.home() / "machine.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    known = _measurements() | {fingerprint(device): facts}
    aside = path.with_name(f".machine.{os.getpid()}.tmp")
    aside.write_text(json.dumps(known, indent=2, sort_keys=True) + "\n")
    os.replace(aside, path)


def _measurements() -> dict[str, Any]:
    try:
        known = json.loads((resources.home() / "machine.json").read_text())
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


@cache
def cpu_name() -> str:
    """Return the processor's model name without trademarks."""
    name = (
        _cpuinfo().get("model name")
        or platform.processor()
        or platform.machine()
        or "unknown processor"
    )
    return " ".join(name.replace("(R)", "").replace("(TM)", "").split())


@cache
def isa() -> str:
    """Return the architecture and eight hex digits of its instruction flags: equal if code can be exchanged."""
    flags = " ".join(sorted(cpu_flags()))
    return f"{platform.machine()}-{hashlib.sha256(flags.encode()).hexdigest()[:8]}"


def cpu_flags() -> tuple[str, ...]:
    """Return the processor's instruction sets as the kernel names them: `avx2`, `avx512f`, …"""
    info = _cpuinfo()
    return tuple((info.get("flags") or info.get("Features") or "").split())


@cache
def gpu_names() -> tuple[str, ...]:
    """Return the NVIDIA GPUs that torch may use, in CUDA's order; none without a driver or with a CPU build of torch.

    Asked of `nvidia-smi`, because asking torch would open a CUDA context in this process.
    """
    return tuple(_of_gpus("name"))


def gpu_free_bytes() -> tuple[int, ...]:
    """Return the free memory of every GPU of `gpu_names`, in bytes."""
    return tuple(int(mib) << 20 for mib in _of_gpus("memory.free") if mib.isdigit())


def confine(gpu: int) -> None:
    """Restrict processes started from now on to this one of the visible GPUs; an open CUDA context stays as it is."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    confine_to([visible.split(",")[gpu].strip() if visible else str(gpu)])


def visible_gpus() -> list[str]:
    """Return the names that CUDA_VISIBLE_DEVICES gives the GPUs of `gpu_names`; empty without a GPU."""
    named = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")]
    return [name for name in named if name] or [str(n) for n in range(len(gpu_names()))]


def confine_to(gpus: list[str]) -> None:
    """Restrict processes started from now on to these of `visible_gpus`; an open CUDA context stays as it is."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
    gpu_names.cache_clear()
    fingerprint.cache_clear()


def cxx() -> list[str]:
    """Return the command that compiles C++, program first: $CXX, as in `ccache g++`, else g++."""
    chosen = os.environ.get("CXX") or "g++"
    try:
        return shlex.split(chosen) or ["g++"]
    except ValueError:  # no shell would run it either
        return [chosen]


def _of_gpus(fact: str) -> list[str]:
    """Return what `nvidia-smi` reports for each visible GPU."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if (visible is not None and visible.strip() in ("", "-1")) or not _torch_has_cuda():
        return []
    try:
        done = subprocess.run(
            ["nvidia-smi", f"--query-gpu={fact}", "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return []
    facts = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    if visible is None:
        return facts
    chosen = [part.strip() for part in visible.split(",")]
    if all(part.isdigit() for part in chosen):
        return [facts[int(part)] for part in chosen if int(part) < len(facts)]
    return facts[: len(chosen)]  # chosen by UUID: GPUs of one host are alike


def _torch_has_cuda() -> bool:
    """Whether the installed torch is a CUDA build, from its version file; True if unknown."""
    try:
        spec = importlib.util.find_spec("torch")  # finds, does not import
        text = (Path(spec.origin).parent / "version.py").read_text() if spec and spec.origin else ""
    except (OSError, ValueError, ImportError):
        return True
    return re.search(r"^cuda\b.*= None$", text, re.M) is None


@cache
def _cpuinfo() -> dict[str, str]:
    """Return the first processor's entry of /proc/cpuinfo, empty if there is none."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return {}
    pairs = (line.split(":", 1) for line in text.split("\n\n")[0].splitlines() if ":" in line)
    return {key.strip(): value.strip() for key, value in pairs}

"""`--bundle`: the compiled kernels of a drop-in next to it, so that the first call compiles nothing.

A file is loaded only for exactly the source and the flags that it was made of, on a machine with the CPU features or the GPU architecture
that it needs, and if it is whole (`dvk_bundled` in the drop-in).
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from dvk.composer.runtime.cpp_load import dvk_cpu_features
from dvk.errors import MachineError, UsageError
from dvk.pipelines.export.proven import ProvenRun

V2 = "cx16 lahf_lm popcnt sse4_1 sse4_2 ssse3"
V3 = f"{V2} abm avx avx2 bmi1 bmi2 f16c fma movbe xsave"
LEVELS = {
    "x86-64-v2": V2,
    "x86-64-v3": V3,
    "x86-64-v4": f"{V3} avx512f avx512bw avx512cd avx512dq avx512vl",
}
"""Levels of the x86-64 psABI, with the CPU features that they need, by Linux's names."""
NATIVE = "native"
CUBIN = b"\x7fELF"


def files(run: ProvenRun, stem: str, architectures: Sequence[str]) -> dict[str, str | bytes]:
    """Compiled files by their path next to the drop-in.

    Args:
        run: the winner.
        stem: path of the drop-in without `.py`.
        architectures: `native`, a level of x86-64, or `sm_90` and the like.

    Raises:
        UsageError: an architecture is not known, or not one of the drop-in's back end, or the drop-in has nothing to compile.
        MachineError: the compiler for it is not here.
    """
    if not architectures:
        return {}
    constants = dict(_constants(run.source))
    backend = run.candidate.backend
    if "_DVK_PRELUDE" not in constants or backend not in ("cpp", "cuda"):
        what = "Triton compiles for itself" if backend == "triton" else "it compiles nothing"
        raise UsageError(
            f"this drop-in has no kernels to bundle: {what}",
            "leave out --bundle: it is for C++ and CUDA kernels",
        )
    made: dict[str, str | bytes] = {}
    for architecture in dict.fromkeys(architectures):
        compiled = (_cpp if backend == "cpp" else _cuda)(constants, architecture)
        for source, options, image, facts in compiled:
            key = hashlib.sha256("\0".join([source, *options]).encode()).hexdigest()[:24]
            path = f"{stem}.bundle/{key}.{architecture}"
            facts["sha256"] = hashlib.sha256(image).hexdigest()
            made |= {path: image, f"{path}.json": json.dumps(facts, indent=1) + "\n"}
    return made


Compiled = tuple[str, tuple[str, ...], bytes, dict[str, Any]]
"""Source, options of the drop-in's own compilation, result, facts of where it runs."""


def _cpp(constants: dict[str, Any], architecture: str) -> Iterator[Compiled]:
    machine = os.uname().machine
    known = [NATIVE, *(LEVELS if machine == "x86_64" else ())]
    if architecture not in known:
        raise UsageError(
            f"no architecture for C++ kernels on this machine: `{architecture}`",
            f"choose from {', '.join(known)}",
        )
    source, flags = constants["_DVK_PRELUDE"] + constants["_DVK_SOURCE"], constants["_DVK_FLAGS"]
    command = shlex.split(os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++") or "")
    if not command:
        raise MachineError("no C++ compiler found", "install g++, or set $CXX")
    asked = [f"-march={architecture}" if flag == "-march=native" else flag for flag in flags]
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder, "kernels.so")
        done = subprocess.run(
            [*command, "-x", "c++", "-", "-o", made, *asked],
            input=source.encode(),
            capture_output=True,
        )
        image = made.read_bytes() if done.returncode == 0 else b""
    if done.returncode:
        raise MachineError(
            f"the C++ compiler refused `{architecture}`: {done.stderr.decode(errors='replace')[:500]}",
            "name another architecture, or another compiler in $CXX",
        )
    needs = sorted(dvk_cpu_features()) if architecture == NATIVE else LEVELS[architecture].split()
    yield source, flags, image, {"arch": architecture, "machine": machine, "needs": needs}


def _cuda(constants: dict[str, Any], architecture: str) -> Iterator[Compiled]:
    from dvk.composer.runtime.cuda_launch import dvk_cubin

    digits = architecture.removeprefix("sm_")
    if not (architecture.startswith("sm_") and digits.isdigit() and len(digits) > 1):
        raise UsageError(
            f"no architecture for CUDA kernels: `{architecture}`",
            "name compute capabilities, e.g. --bundle sm_90",
        )
    for text in constants["_DVK_SOURCES"]:
        for aligned in (1, 0):
            source = constants["_DVK_PRELUDE"] + text
            options = (*constants["_DVK_FLAGS"], f"-DDVK_ALIGNED={aligned}")
            try:
                image = dvk_cubin(source, options, (int(digits[:-1]), int(digits[-1])))
            except (RuntimeError, OSError, ValueError) as error:
                raise MachineError(
                    f"cannot compile for `{architecture}`: {str(error)[:500]}",
                    "run it where torch's CUDA build and its NVRTC are installed",
                ) from None
            if not image.startswith(CUBIN):
                raise MachineError(
                    f"this machine's NVRTC does not know `{architecture}`",
                    "update torch, or leave it out",
                )
            yield source, options, image, {"arch": architecture}


def _constants(source: str) -> Iterator[tuple[str, Any]]:
    """The texts and flags that a drop-in compiles."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            if node.targets[0].id in ("_DVK_PRELUDE", "_DVK_SOURCE", "_DVK_SOURCES", "_DVK_FLAGS"):
                yield node.targets[0].id, ast.literal_eval(node.value)

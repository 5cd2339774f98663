"""`dvk export`: the winner of a run as a package for pip, for Hugging Face `kernels`, or for vLLM."""

from __future__ import annotations

import keyword
import os
import re
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dvk.errors import UsageError
from dvk.pipelines.export import bundle, hugging_face, proven, python_package, vllm_plugin
from dvk.pipelines.export.proven import ProvenRun

FORMS = ("file", "python", "hf", "vllm")
NAME = re.compile(r"[A-Za-z]([A-Za-z0-9._-]*[A-Za-z0-9])?")


@dataclass(frozen=True, kw_only=True)
class ExportRequest:
    """What `dvk export` was asked for."""

    run: Path
    target: Path
    """The folder to write; its last part is the name of the package."""
    to: str
    version: str = "1"
    license: str = "other"
    repo_id: str | None = None
    op: str | None = None
    """vLLM's operator that the module computes, with its constants."""
    bundle: tuple[str, ...] = ()
    """Architectures to compile the kernels for."""


def export(request: ExportRequest) -> dict[str, Any]:
    """Write a run's winner; nothing is written if an error is raised.

    Raises:
        UsageError: there is no proven winner, the name is none, the folder is used, or the drop-in cannot take this form.
        RunFolderError: the run's folder is damaged.
    """
    if request.to not in FORMS:
        raise UsageError(f"unknown form: `{request.to}`", f"choose one of {', '.join(FORMS)}")
    name, module = _names(request)
    _refuse_used(request.target)
    run = proven.read(request.run)
    if run.task.beside and not run.task.package:
        beside = ", ".join(f"`{path}`" for path, _ in run.task.beside[:3])
        raise UsageError(
            f"the module's file imports others next to it ({beside}), which a package cannot hold",
            "put what it needs into one file and search again",
        )
    if run.task.autocast and request.to != "file":
        raise UsageError(
            f"the winner is for calls under autocast to {run.task.autocast}, whose tests a package does not hold",
            "export the file alone: --to file",
        )
    files = _files(request, run, name, module)
    _write(request.target, files)
    return {
        "target": str(request.target),
        "form": request.to,
        "name": name,
        "files": sorted(files),
        "speedup": run.speedup.value,
        "speedup_lo": run.speedup.lo,
        "speedup_hi": run.speedup.hi,
        "machine": run.verdict.machine,
        "verdict_sha256": run.digest,
    }


def _files(
    request: ExportRequest, run: ProvenRun, name: str, module: str
) -> dict[str, str | bytes]:
    stem = "best" if request.to == "file" else f"{module}/dropin"
    return {**_texts(request, run, name, module), **bundle.files(run, stem, request.bundle)}


def _texts(request: ExportRequest, run: ProvenRun, name: str, module: str) -> dict[str, str]:
    if request.to == "file":
        return {"best.py": run.source, "verdict.json": run.verdict_text}
    if request.to == "hf":
        if request.bundle:
            raise UsageError(
                "a kernel for Hugging Face holds text only",
                "leave out --bundle, or choose --to file, python or vllm",
            )
        return hugging_face.files(
            run, name, module, request.version, request.license, request.repo_id
        )
    if request.to == "vllm":
        return vllm_plugin.files(run, name, module, request.version, request.op)
    return python_package.files(run, name, module, request.version)


def _names(request: ExportRequest) -> tuple[str, str]:
    """Names of the distribution and of the module."""
    name = request.target.name
    module = re.sub(r"[-.]+", "_", name)
    taken = module in sys.stdlib_module_names or module in ("torch", "triton", "vllm", "kernels")
    if NAME.fullmatch(name) is None or keyword.iskeyword(module) or taken:
        why = "it is the name of another module" if taken else "it is no name of a package"
        raise UsageError(
            f"`{name}` cannot be the package's name: {why}",
            "the last part of the target is the name: a letter first, then letters, digits, `-`, `_`, e.g. fused-norm-gelu",
        )
    return name, module.lower()


def _refuse_used(target: Path) -> None:
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"`{target}` exists and is not empty", "name a new folder")


def _write(target: Path, files: dict[str, str | bytes]) -> None:
    """Write all files aside, then rename the folder: what exists is complete."""
    parent = target.absolute().parent
    try:
        parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=parent))
    except OSError as error:
        raise UsageError(
            f"cannot write below `{parent}`: {error.strerror or error}", "name a writable place"
        ) from None
    try:
        for path, text in files.items():
            place = aside / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(text if isinstance(text, bytes) else text.encode())
        aside.chmod(0o755)
        os.rename(aside, target)
    except OSError as error:
        raise UsageError(
            f"cannot write `{target}`: {error.strerror or error}",
            "free some space, or name another place",
        ) from None
    finally:
        shutil.rmtree(aside, ignore_errors=True)

"""`--to hf`: the layout of Hugging Face `kernels`, edition 5, with a build that loads from its folder."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator

from dvk.errors import UsageError
from dvk.pipelines.export import claim, inputs_file, layer_file, operator_file, program, texts
from dvk.pipelines.export.proven import ProvenRun
from dvk.pipelines.export.python_package import OPERATOR, compiles, exported, package_test

NAME = re.compile(r"[a-z][-a-z0-9]*[a-z0-9]")
REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")


def files(
    run: ProvenRun, name: str, module: str, version: str, license_name: str, repo_id: str | None
) -> dict[str, str]:
    """Text of each file by its path.

    Args:
        run: the winner.
        name: of the kernel.
        module: its name in Python.
        version: a whole number.
        license_name: of the kernel.
        repo_id: `owner/name` on the hub, if known.

    Raises:
        UsageError: an option has no meaning there, or the drop-in is no stateless layer.
    """
    _check(name, version, license_name, repo_id)
    kernels = program.stateless(run, "a stateless layer")
    layer = "".join(part.capitalize() for part in module.split("_"))
    backend = run.task.device
    operator = operator_file.text(
        kernels,
        run.task.device,
        OPERATOR,
        imports="from ._ops import add_op_namespace_prefix",
        space=f'add_op_namespace_prefix("{OPERATOR}")',
    )
    shown = exported(run, kernels.original)
    source = {
        "__init__.py": _init(run, shown),
        "dropin.py": run.source,
        "layers.py": layer_file.text(run, kernels, layer, OPERATOR),
        "op.py": operator,
    }
    variant = f"torch-{backend}"
    return {
        "build.toml": texts.filled(
            "build.toml",
            name=name,
            version=version,
            license=license_name,
            backend=backend,
            hub=f'\n[general.hub]\nrepo-id = "{repo_id}"\n' if repo_id else "",
        ),
        "CARD.md": texts.filled(
            "CARD.md",
            name=name,
            license=license_name,
            entry=run.task.entry,
            backend=run.candidate.backend,
            claim=claim.text(run),
            compiles=f" {compiles(run)}",
            layer=layer,
            device=run.task.device,
        ),
        "verdict.json": run.verdict_text,
        **{f"torch-ext/{module}/{path}": text for path, text in source.items()},
        **{
            f"build/{variant}/{path}": text
            for path, text in _build(source, name, module, int(version), license_name, backend)
        },
        "tests/conftest.py": texts.filled("conftest.py", module=module, variant=variant),
        "tests/judge_inputs.py": inputs_file.text(run, module, kernels.original),
        f"tests/test_{module}.py": package_test(run, module, kernels),
        "benchmarks/benchmark.py": texts.filled(
            "benchmark.py", before="\nimport conftest  # noqa: F401"
        ),
    }


def _build(
    source: dict[str, str], name: str, module: str, version: int, license_name: str, backend: str
) -> Iterator[tuple[str, str]]:
    """The files of the build: the source, its namespace of operators, its metadata."""
    unique = f"_{module}_{backend}_{_digest(source)[:12]}"
    build = {**source, "_ops.py": texts.filled("_ops.py", id=unique)}
    hashes = {
        path: base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        for path, text in sorted(build.items())
    }
    metadata = {
        "id": unique,
        "name": name,
        "version": version,
        "license": license_name,
        "python-depends": [],
        "backend": {"type": backend},
        "digest": {"algorithm": "sha256", "files": hashes},
    }
    yield from build.items()
    yield "metadata.json", json.dumps(metadata, indent=2) + "\n"


def _check(name: str, version: str, license_name: str, repo_id: str | None) -> None:
    if NAME.fullmatch(name) is None:
        raise UsageError(
            f"`{name}` is no name of a kernel",
            "use small letters, digits and `-`, a letter first, e.g. fused-norm-gelu",
        )
    if not version.isdigit() or int(version) < 1:
        raise UsageError(
            f"`{version}` is no version of a kernel", "give a whole number, e.g. --version 1"
        )
    if repo_id is not None and REPOSITORY.fullmatch(repo_id) is None:
        raise UsageError(f"`{repo_id}` is no repository", "write --repo-id owner/name")
    if not re.fullmatch(r"[\w.+ -]+", license_name):
        raise UsageError(
            f"`{license_name}` is no name of a license", "write e.g. --license apache-2.0"
        )


def _init(run: ProvenRun, shown: list[str]) -> str:
    every = ["layers", OPERATOR, "supports", *shown]
    return (
        f'"""`{run.task.entry}`, fused by dvk. CARD.md has the claim."""\n\n'
        f"from . import layers\nfrom .dropin import {', '.join(shown)}\nfrom .op import {OPERATOR}, supports\n\n__all__ = {every!r}\n"
    )


def _digest(files: dict[str, str]) -> str:
    return hashlib.sha256("\0".join([*files, *files.values()]).encode()).hexdigest()

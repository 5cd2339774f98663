"""`--to python`: an installable package of a drop-in, with its test and a benchmark."""

from __future__ import annotations

import json

from dvk.composer.dropin.namespace import names_bound_by
from dvk.errors import UsageError
from dvk.pipelines.export import claim, inputs_file, operator_file, program, texts
from dvk.pipelines.export.proven import ProvenRun

Files = dict[str, str]
"""Text of each file by its path in the export."""


def files(run: ProvenRun, name: str, module: str, version: str) -> Files:
    """The package.

    Args:
        run: the winner.
        name: of the distribution.
        module: its name in Python.
        version: of the distribution.
    """
    try:
        kernels = program.stateless(run, "an operator")
    except UsageError:  # the drop-in as it is serves, too
        kernels = None
    entry = kernels.original if kernels is not None else original(run)
    shown = exported(run, entry)
    package = {
        f"{module}/__init__.py": _init(run, shown, kernels is not None),
        f"{module}/dropin.py": run.source,
        "tests/judge_inputs.py": inputs_file.text(run, module, entry),
        f"tests/test_{module}.py": package_test(run, module, kernels),
        "benchmarks/benchmark.py": texts.filled("benchmark.py", before=""),
        "verdict.json": run.verdict_text,
        "pyproject.toml": pyproject(run, name, module, version),
        "README.md": _readme(run, name, module, shown, kernels),
    }
    if kernels is not None:
        package[f"{module}/op.py"] = operator_file.text(
            kernels, run.task.device, OPERATOR, imports="", space=repr(f"{module}::{OPERATOR}")
        )
    return package


OPERATOR = "fused"


def original(run: ProvenRun) -> str:
    """Name of the original class or function in the drop-in."""
    return "dvk_original" if "dvk_original" in names_bound_by(run.source) else run.task.entry


def exported(run: ProvenRun, entry: str) -> list[str]:
    """Names of the drop-in that users need."""
    there = names_bound_by(run.source)
    wanted = ["ModelNew", entry]
    wanted += [n for n in ("replace", "dvk_replace") if n in there][:1]
    if run.task.kind == "function":
        wanted += [n for n in (f"{run.task.entry}_new", f"dvk_{run.task.entry}") if n in there][:1]
    return list(dict.fromkeys(wanted))


def pyproject(
    run: ProvenRun,
    name: str,
    module: str,
    version: str,
    more: str = "",
    needs: tuple[str, ...] = (),
) -> str:
    """`pyproject.toml`; `needs` are dependencies besides torch."""
    wanted = ["torch", *(["triton"] if run.candidate.backend == "triton" else []), *needs]
    return texts.filled(
        "pyproject.toml",
        name=name,
        module=module,
        version=version,
        description=f"{run.task.entry}, faster: {run.speedup.value:.2f}x over eager PyTorch, proved by dvk",
        dependencies=", ".join(map(json.dumps, wanted)),
        more=more,
    )


def compiles(run: ProvenRun) -> str:
    """What the first call does, for people."""
    how = {
        "cpp": "The first call compiles the kernels with g++ (or $CXX), once per machine.",
        "cuda": "The first call compiles the kernels with NVRTC, once per machine.",
        "triton": "Triton compiles the kernels at the first call, once per machine.",
    }
    return how.get(run.candidate.backend, "") if not run.candidate.line else ""


def _init(run: ProvenRun, shown: list[str], operator: bool) -> str:
    names = ", ".join(shown)
    last = "from .op import fused, supports\n" if operator else ""
    every = [*shown, *(["fused", "supports"] if operator else [])]
    return (
        f'"""`{run.task.entry}`, faster: kernels that dvk wrote and proved. README.md has the claim."""\n\n'
        f"from .dropin import {names}\n{last}\n__all__ = {every!r}\n"
    )


def package_test(run: ProvenRun, module: str, kernels: program.StatelessProgram | None) -> str:
    """The test of an export: the judge's inputs, and the operator's contract if there is one."""
    more = ""
    if kernels is not None:
        more = texts.filled(
            "test_operator.py",
            name=OPERATOR,
            tensors=repr(kernels.tensors),
            paths=repr(tuple(weight.path for weight in kernels.weights)),
        )
    whole = texts.filled(
        "test_package.py",
        title=run.task.name,
        module=module,
        tolerance=repr(run.verdict.tolerance or 1e-4),
        train=run.task.train,
        operator=more,
    )
    return whole.replace("import dropin\n", "import dropin, op\n") if more else whole


def _readme(
    run: ProvenRun,
    name: str,
    module: str,
    shown: list[str],
    kernels: program.StatelessProgram | None,
) -> str:
    made = f"model = ModelNew(...)  # constructor and state_dict of {run.task.entry}"
    if run.task.kind == "function":
        made = f"{shown[-1]}(...)  # called as {run.task.entry} is"
    operator = (
        f"\n\n`torch.ops.{module}.{OPERATOR}` is the same as an operator: tensors in, tensors out, the weights last "
        f"({', '.join(weight.path for weight in kernels.weights) or 'there are none'}). "
        "`supports(*tensors)` says whether there are kernels for a call. It works under `torch.compile(fullgraph=True)`."
        if kernels is not None
        else ""
    )
    return texts.filled(
        "README.md",
        name=name,
        entry=run.task.entry,
        claim=claim.text(run),
        usage=f"from {module} import {', '.join(shown)}\n\n{made}",
        operator=operator,
        compiles=f" {compiles(run)}",
    )

"""`judge_inputs.py` of an export: how the judge draws inputs, as a file that needs torch alone."""

from __future__ import annotations

from pathlib import Path

import dvk
from dvk import harness
from dvk.pipelines.export import texts
from dvk.pipelines.export.own_text import definitions
from dvk.pipelines.export.proven import ProvenRun
from dvk.records import Task
from dvk.tasks.specs import FLOATS, InputSpec, parse_init, parse_inputs

FAMILIES = Path(harness.__file__).parent / "checking" / "input_families.py"


def text(run: ProvenRun, module: str, entry: str) -> str:
    """The file.

    Args:
        run: the winner.
        module: name of the package that holds `dropin`.
        entry: name of the original in the drop-in.
    """
    task = run.task
    specs = {} if task.input_specs and _like(task) else _specs(task)
    return texts.filled(
        "judge_inputs.py",
        module=module,
        device=repr(task.device),
        dtype=f"torch.{task.dtype}" if task.dtype else "None",
        sets="".join(f"    {_differences(run, one)},\n" for one in run.tasks),
        specs="{" + ", ".join(f"{name!r}: lambda: {how}" for name, how in specs.items()) + "}",
        families=repr(_families(run)),
        entry=entry,
        init=_init(task),
        mode="module.eval()"
        if task.mode == "eval"
        else "module.train()"
        if task.mode == "train"
        else "module",
        version=dvk.__version__,
        code="\n\n\n".join(_kinds_of_values().values()),
    )


def _like(task: Task) -> bool:
    return any(spec.fill == "like" for spec in parse_inputs(task.input_specs))


def _specs(task: Task) -> dict[str, str]:
    """How to draw each described input, as an expression."""
    return {spec.name: _drawn(spec) for spec in parse_inputs(task.input_specs)}


def _drawn(spec: InputSpec) -> str:
    if spec.dtype is None:
        return repr(spec.value)
    dtype = f"torch.{spec.dtype}"
    if spec.fill in ("ones", "zeros"):
        return f"torch.{spec.fill}({spec.shape!r}, dtype={dtype})"
    if spec.dtype in FLOATS:
        wide = "torch.float64" if spec.dtype == "float64" else "torch.float32"
        return f"torch.{spec.fill}({spec.shape!r}, dtype={wide}).to({dtype})"
    if spec.dtype == "bool":
        return f"torch.rand({spec.shape!r}) < 0.5"
    return f"torch.randint(0, {spec.high}, {spec.shape!r}).to({dtype})"


def _differences(run: ProvenRun, task: Task) -> str:
    """What a set of inputs has other than the first one, and what descriptions change in the file's inputs."""
    first = {spec.name: spec for spec in run.task.inputs}
    tensors = {
        spec.name: f"('tensor', {spec.shape!r}, {spec.strides!r}, torch.{spec.dtype})"
        for spec in task.inputs
        if (task is not run.task or _like(task)) and first.get(spec.name) != spec
    }
    if task is run.task and task.input_specs and _like(task):
        tensors = {
            spec.name: f"('tensor', {spec.shape!r}, {spec.strides!r}, torch.{spec.dtype})"
            for spec in task.inputs
        }
    values = {
        spec.name: repr(spec.value)
        for spec in parse_inputs(task.input_specs)
        if spec.dtype is None and (task is not run.task or _like(task))
    }
    every = {**tensors, **values}
    return "{" + ", ".join(f"{name!r}: {how}" for name, how in every.items()) + "}"


def _init(task: Task) -> str:
    if not task.init_args:
        return "_initial()"
    args, kwargs = parse_init(task.init_args)
    return f"({tuple(args)!r}, {kwargs!r})"


def _kinds_of_values() -> dict[str, str]:
    """The judge's families of inputs, as text by name."""
    return definitions(
        FAMILIES,
        {"NONFINITE", "TIES", "FAMILIES", "ARGUED", "kind_of", "derive"},
        frozenset({"Domain"}),
    )


def _families(run: ProvenRun) -> tuple[str, ...]:
    """Families of floating values that the verdict lists, without the native one."""
    from dvk.harness.checking import input_families

    known = set(input_families.FAMILIES) - set(input_families.ARGUED)
    return tuple(family for family in run.verdict.families if family in known)

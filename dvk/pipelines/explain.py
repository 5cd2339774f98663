"""`dvk explain`: for which calls a drop-in has kernels, what its guards compare, and what a given call would run."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from typing import Any

from dvk import backends, gpu_memory, tasks
from dvk.config import Limits
from dvk.errors import MachineError, TaskError, UsageError
from dvk.records import Task
from dvk.sandbox import Death, call

NEW = "ModelNew"
AGAIN = "write it again with dvk optimize"


@dataclass(frozen=True, kw_only=True)
class ExplainRequest:
    """What `dvk explain` was asked for."""

    file: str
    inputs: tuple[str, ...] = ()
    init: tuple[str, ...] = ()
    eval_mode: bool = False
    dtype: str | None = None
    device: str | None = None


def explain(request: ExplainRequest, limits: Limits) -> dict[str, Any]:
    """Load a drop-in in a child process and ask it: see `describe` for the result.

    Raises:
        UsageError: the file is no drop-in, or one of a version of dvk whose drop-ins do not explain calls.
        TaskError: it cannot be loaded, or the call cannot be made.
        MachineError: `cuda` without a GPU.
    """
    if request.device not in (None, "cpu", "cuda"):
        raise UsageError(f"unknown device: `{request.device}`", "choose cpu or cuda")
    if ":" in request.file:
        raise UsageError(f"`{request.file}` names a class", "give the path of the drop-in alone")
    task = tasks.unexamined(
        f"{request.file}:{NEW}",
        inputs=request.inputs,
        init=request.init,
        eval_mode=request.eval_mode,
        dtype=request.dtype,
    )
    if f"class {NEW}" not in task.source:
        raise UsageError(
            f"`{request.file}` is no drop-in: it defines no {NEW}",
            "give the best.py of a run of dvk optimize",
        )
    device = request.device or ("cuda" if "_dvk_device = 'cuda'" in task.source else "cpu")
    if device == "cuda" and backends.default_device() != "cuda":
        raise MachineError(
            "the kernels are for a GPU, and this machine has none that PyTorch can use",
            "run it where the GPU is",
        )
    task = task.model_copy(update={"device": device})
    with gpu_memory.environment(task.device, None) as env:
        answer = call(
            "dvk.pipelines.explain:child",
            {"task": task.model_dump(mode="json")},
            limits,
            env=env,
            isolate=limits.reference_isolation(task.device),
        )
    if isinstance(answer, Death):
        raise TaskError(
            f"loading `{request.file}` ended with {answer.reason}", "see the file's code"
        )
    if "error" in answer.value:
        message, hint = answer.value["error"]
        raise (UsageError if answer.value["kind"] == "UsageError" else TaskError)(message, hint)
    return {"file": request.file, **answer.value}


def child(channel: Any) -> None:
    """Child side of `explain`."""
    task = Task.model_validate(channel.receive()["task"])
    try:
        channel.send(describe(task))
    except (TaskError, UsageError) as error:
        channel.send({"kind": type(error).__name__, "error": [error.message, error.hint]})
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the file may raise anything
        line = "".join(traceback.format_exception_only(error)).strip().splitlines()[-1]
        channel.send({"kind": "", "error": [f"the file raised {line[:300]}", "see its code"]})


def describe(task: Task) -> dict[str, Any]:
    """What a drop-in says of itself.

    Returns:
        runs: `kernels`, `line` (PyTorch's own way) or `original`, which has no guards.
        programs: arguments of each set of inputs that kernels exist for.
        guards: attributes that are compared, by module; device; type of autocast; functions of torch that are asked.
        call: None without inputs; else the inputs, what runs, and the reasons if it is the original, under the autocast of the guards.

    Raises:
        TaskError: it cannot be constructed, or its inputs cannot be made.
        UsageError: it is of a version of dvk whose drop-ins do not explain calls.
    """
    import torch

    from dvk.tasks.build import build

    built = build(task)
    model: Any = built.model
    made = type(model)
    runs = "line" if hasattr(made, "_dvk_run") and isinstance(made._dvk_run, str) else "kernels"
    if not hasattr(made, "dvk_why"):
        if hasattr(made, "_dvk_prepare") or runs == "line":
            text = f"`{task.name.partition(':')[0]}.py` was written by an older dvk, and does not explain its calls"
            raise UsageError(text, AGAIN)
        runs = "original"
    under = getattr(made, "_dvk_under", None)
    report: dict[str, Any] = {"runs": runs, "programs": [], "guards": None, "call": None}
    if runs != "original":
        report["programs"] = _programs(made, runs)
        report["guards"] = {
            "device": made._dvk_device,
            "autocast": under and str(under).removeprefix("torch."),
            "asked": list(getattr(made, "_dvk_asked", ())),
            "modules": {
                path: dict(facts)
                for paths, facts in getattr(made, "_dvk_read", ())
                for path in paths
            },
        }
    if task.input_specs or hasattr(built.module, "get_inputs"):
        args, kwargs = built.inputs(0)
        with torch.no_grad(), torch.autocast(task.device, under, enabled=under is not None):
            told = model.dvk_why(*args, **kwargs) if runs != "original" else ""
        reasons = told.splitlines()
        if runs == "original":
            reasons = ["this file has no kernels: nothing faster was found"]
        fits = reasons == ["the kernels run"]
        report["call"] = {
            "inputs": {
                name: _shown(value)
                for name, value in [*zip(built.input_names(args), args), *kwargs.items()]
            },
            "runs": runs if fits else "original",
            "reasons": [] if fits else reasons,
        }
    return report


def _programs(made: Any, runs: str) -> list[dict[str, str]]:
    """Arguments by name, as options of dvk write them."""
    if runs == "line":
        return [{str(n): _spec(spec) for n, spec in enumerate(made._dvk_inputs)}]
    return [
        {name: _spec(spec) for name, spec in expected.items()}
        for _, expected, _ in made._dvk_inputs
    ]


def _spec(spec: Any) -> str:
    if not isinstance(spec, tuple):
        return repr(spec)
    shape, _, dtype = spec
    return f"{str(dtype)[6:]}[{','.join(map(str, shape))}]"


def _shown(value: Any) -> str:
    import torch

    if isinstance(value, torch.Tensor):
        return _spec((tuple(value.shape), None, value.dtype))
    return f"{value!r:.80}"

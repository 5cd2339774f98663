"""Loading of a user's file as a `Task`: its text is read here and examined in a child.

The parent executes, imports and parses nothing of the file. Every error of the file, up to killing its process, becomes a `TaskError` with
a hint.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

from dvk import gpu_memory
from dvk.config import Limits
from dvk.errors import DvkError, Exhausted, MachineError, TaskError
from dvk.records import Device, ShapeVariant, Task, content_hash
from dvk.sandbox import Death, SandboxSession
from dvk.tasks import naming
from dvk.tasks.sizes import bytes_to_run
from dvk.tasks.sourcetext import read_source
from dvk.tasks.specs import parse_dtype, parse_init, parse_inputs

AUTOCAST = ("bfloat16", "float16")
VARIANTS_S = 60.0  # the child stops looking for shapes long before; past this it hangs, and earlier shapes are used

_DRAWS = re.compile(r"^(?:def get_inputs\b|get_inputs\s*=|from\s.*\bget_inputs\b)", re.M)

_DEATHS = {
    "timeout": (
        "did not finish within {wall_s:.0f} s",
        "look for an endless loop, make the example inputs smaller, "
        "or allow more with --set limits.wall_s=SECONDS",
    ),
    "memory": (
        "needed more than {memory_gib:.1f} GiB",
        "make the example inputs smaller, or allow more with --set limits.memory_bytes=BYTES",
    ),
    "processes": (
        "started more than {num_processes} processes and threads",
        "start none while the file is imported "
        "or run, or allow more with --set limits.num_processes=NUMBER",
    ),
}


def load(
    spec: str,
    *,
    inputs: Sequence[str] = (),
    init: Sequence[str] = (),
    eval_mode: bool = False,
    dtype: str | None = None,
    device: Device = "cpu",
    limits: Limits | None = None,
    train: bool = False,
    autocast: str | None = None,
) -> Task:
    """Return the task that `spec` describes, examined.

    Args:
        spec: see `naming`.
        inputs: `--input` specs (see `dvk.tasks.specs`); they replace the file's get_inputs().
        init: `--init` constructor arguments; they replace the file's get_init_inputs().
        eval_mode: call .eval() on the module.
        dtype: cast floating inputs and weights to this torch dtype.
        device: `cpu` or `cuda`.
        limits: limits of the examination.
        train: a call is forward and backward.
        autocast: calls are under torch.autocast to this dtype.

    Raises:
        TaskError: the file is malformed, or its reference cannot be judged; Exhausted if the machine's load may be the cause.
        MachineError: `cuda` without a GPU.
    """
    path, entry = naming.split(spec)
    parse_inputs(inputs)
    parse_init(init)
    if device not in ("cpu", "cuda"):
        raise TaskError(f"unsupported device `{device}`", "use cpu or cuda")
    if autocast not in (None, *AUTOCAST):
        raise TaskError(f"unsupported autocast `{autocast}`", f"use {' or '.join(AUTOCAST)}")
    request = {
        "source": _read(path),
        "path": str(path.resolve()),
        "entry": entry,
        "stem": naming.stem(path),
        "cwd": os.getcwd(),
        "input_specs": list(inputs),
        "init_args": list(init),
        "eval_mode": eval_mode,
        "dtype": parse_dtype(dtype) if dtype else None,
        "device": device,
        "train": train,
        "autocast": autocast,
    }
    return _examine(request, path.name, limits or Limits())


def unexamined(
    spec: str,
    *,
    inputs: Sequence[str] = (),
    init: Sequence[str] = (),
    eval_mode: bool = False,
    dtype: str | None = None,
    device: Device = "cpu",
) -> Task:
    """Return the task that `spec` describes, for a judge on another machine, which examines it. Nothing is run here.

    Arguments as for `load`.

    Raises:
        TaskError: it is unreadable, or its text does not determine the class or function.
    """
    path, entry = naming.split(spec)
    parse_inputs(inputs)
    parse_init(init)
    source = _read(path)
    if entry is None:
        modules = re.findall(r"^class\s+(\w+)\s*\([^)]*\bModule\b", source, re.M)
        names = ["Model"] if "Model" in modules else modules
        if len(names) != 1:
            raise TaskError(
                f"`{path.name}` does not say which class is meant",
                f"name it: {path.name}:{(names or ['Name'])[-1]}",
            )
        entry = names[0]
    task = of_text(
        source, entry, naming.stem(path) if entry == "Model" else f"{naming.stem(path)}:{entry}"
    )
    floats = parse_dtype(dtype) if dtype else None
    given = {
        "input_specs": tuple(inputs),
        "init_args": tuple(init),
        "eval_mode": eval_mode,
        "dtype": floats,
        "device": device,
    }
    return task.model_copy(
        update={"id": content_hash(task.id, repr(given)), "path": str(path.resolve()), **given}
    )


def of_text(source: str, entry: str, name: str) -> Task:
    """Return the unexamined task of a text whose class or function `entry` is known."""
    kind: Literal["module", "function"] = (
        "function" if re.search(rf"^def\s+{re.escape(entry)}\b", source, re.M) else "module"
    )
    return Task(
        id=content_hash("unexamined", source, entry),
        name=name,
        source=source,
        entry=entry,
        kind=kind,
    )


def has_get_inputs(spec: str) -> bool:
    """Whether the file of `model.py` or `model.py:Name` draws inputs, by its text."""
    return _DRAWS.search(_read(naming.split(spec)[0])) is not None


def _examine(request: dict[str, Any], file: str, limits: Limits) -> Task:
    for need in ("estimated", "whole"):
        try:
            return _examined(request, file, limits, whole=need == "whole")
        except TaskError as error:
            if request["device"] != "cuda" or not gpu_memory.was_short(error.message):
                raise
            short = error
    raise TaskError(gpu_memory.shorten(short.message), "make the example inputs smaller")


def _examined(request: dict[str, Any], file: str, limits: Limits, *, whole: bool) -> Task:
    """The task; on a GPU that has room for it, or, if `whole`, on one where nothing else is at work."""
    task: Task | None = None
    stage = "starting"
    variants: list[ShapeVariant] = []
    deadline = time.monotonic() + limits.wall_s
    with (
        ExitStack() as held,
        SandboxSession(
            "dvk.tasks.examine:examine",
            limits.model_copy(update={"wall_s": limits.wall_s + gpu_memory.WAIT_S}),
            isolate=limits.reference_isolation(request["device"]),
        ) as session,
    ):
        session.send(request)
        while True:
            answer = session.receive(max(0.01, deadline - time.monotonic()))
            if isinstance(answer, Death):
                if task is None:
                    raise _death(answer, file, stage, limits)
                break  # a tried shape killed it: the file itself is fine
            message = answer.value
            if "error" in message:
                raise _error(**message["error"])
            stage = message.get("stage", stage)
            if "needs" in message:
                asked = time.monotonic()
                need = None if whole else bytes_to_run(message["needs"])
                env = held.enter_context(gpu_memory.environment(request["device"], need))
                session.send({"env": env})
                deadline += time.monotonic() - asked
            if "variant" in message:
                variants.append(ShapeVariant.model_validate(message["variant"]))
            if "task" in message:
                task = Task.model_validate(message["task"])
                deadline = min(deadline, time.monotonic() + VARIANTS_S)
            if message.get("done"):
                break
    assert task is not None, "the child says done only after the task"
    return task.model_copy(
        update={"shape_variants": tuple(variants), "num_shape_variants": 1 + len(variants)}
    )


def _read(path: Path) -> str:
    if path.is_dir():
        raise TaskError(
            f"`{path}` is a folder", "give one Python file; `dvk eval` takes a folder of them"
        )
    try:
        return read_source(path)
    except FileNotFoundError:
        raise TaskError(
            f"no such file: `{path}`", "check the path, it is relative to the current folder"
        ) from None
    except OSError as error:
        raise TaskError(
            f"cannot read `{path}`: {error.strerror or error}", "check its permissions"
        ) from None
    except UnicodeDecodeError:
        raise TaskError(f"`{path}` is not a text file", "give a Python file in UTF-8") from None


def _error(kind: str, message: str, hint: str) -> DvkError:
    return {"MachineError": MachineError, "Exhausted": Exhausted}.get(kind, TaskError)(
        message, hint
    )


def _death(death: Death, file: str, stage: str, limits: Limits) -> Exhausted:
    lines = [line for line in death.log.strip().splitlines() if line.strip()][-3:]
    printed = (
        "\nit printed last: " + " / ".join(line.strip()[:200] for line in lines) if lines else ""
    )
    if death.reason in _DEATHS:
        what, hint = _DEATHS[death.reason]
        what = what.format(
            wall_s=limits.wall_s,
            memory_gib=limits.memory_bytes / 2**30,
            num_processes=limits.num_processes,
        )
    elif death.reason.startswith("signal"):
        what = f"crashed ({death.reason.removeprefix('signal ')})"
        hint = "run the file with Python by itself and fix the crash"
    else:
        what, hint = (
            f"ended the process ({death.reason})",
            "remove the os._exit() or kill from the file",
        )
    return Exhausted(f"`{file}` {what} while {stage}{printed}", hint)

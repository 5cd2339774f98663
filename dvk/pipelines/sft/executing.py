"""Child side of the gate: the composer's texts of one task, assembled, compiled, run and compared with the reference.

The comparison is the judge's own (`harness.cases` at smoke tier: input sets, weight sets, tolerances held against float64).
A judge's further checks guard against candidates that deceive; these texts are dvk's own, so that all of a task share one
process, one reference and its expected outputs: a few a second and core, where separate judge sessions cost each a second.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from dvk.pipelines.sft.families import layouts
from dvk.pipelines.sft.offsets import Offsets, shift_indices
from dvk.records import BackendName, Task

SEED = 20_617
"""Fixed seed of inputs and weight sets: these texts do not try to cheat."""


def child(channel: Any) -> None:
    """Sandbox target; see `dvk.tasks.batch`. A request is the keywords of `executed`."""
    import torch

    torch.set_num_threads(1)
    # Kernels get two threads: a single one would hide races between them.
    os.environ["OMP_NUM_THREADS"] = "2"
    for request in channel.receive()["requests"]:
        before = set(sys.modules)
        channel.send(executed(**request))
        for name in set(sys.modules) - before:
            if name.startswith("dvk_"):
                del sys.modules[name]


def executed(
    task: dict[str, Any], backend: BackendName, texts: list[str], offsets: Offsets, laid: str
) -> dict[str, Any]:
    """Results of texts.

    Args:
        offsets: offsets of the listing that they were written for.
        laid: `layouts` of that listing. Kernels read memory accordingly: if an operator answers in another layout on this
            device, as attention may, a mismatch would say nothing about the texts.

    Returns:
        `wrong`: for every text its error, or None; or `broken`: why the task cannot be used. `seconds` of all.
    """
    from dvk import nanolang
    from dvk.errors import TaskError
    from dvk.harness.checking.case_keys import plan
    from dvk.harness.checking.cases import Cases

    began = time.monotonic()
    try:
        built, captured = _built(Task.model_validate(task))
        captured = shift_indices(captured, offsets)
        if layouts(nanolang.prompt(captured.graph, built.task.device, backend)) != laid:
            return {"broken": "values do not lie here as the listing says"}
        keys = plan(built.task, "smoke", 1, SEED)
        cases = Cases(built, keys, SEED)
        cases.get(keys[0])
    except TaskError as error:
        return {"broken": error.message}
    except Exception as error:  # noqa: BLE001 - the reference is executed here, and may raise anything
        return {"broken": f"{type(error).__name__}: {str(error)[:200]}"}
    wrong = [_wrong(built, captured, cases, text, backend) for text in texts]
    return {"wrong": wrong, "seconds": round(time.monotonic() - began, 3)}


def _built(task: Task) -> tuple[Any, Any]:
    """The reference as the judge needs it, and its graph."""
    import torch

    from dvk.composer.capture.export import trace_call
    from dvk.tasks.build import build
    from dvk.tasks.precision import PrecisionMode, classify
    from dvk.tasks.state import restore, seeded, snapshot
    from dvk.tasks.trees import describe, named_inputs, named_tensors

    built = build(task)
    args, kwargs = built.inputs(0)
    inputs = named_inputs(args, kwargs, built.input_names(args))
    state, watch = snapshot(built.model), PrecisionMode()
    with seeded(1), torch.no_grad(), watch:
        outputs = named_tensors(built.model(*args, **kwargs))
    restore(built.model, state)
    facts = {
        "inputs": tuple(describe(n, t) for n, t in inputs),
        "outputs": tuple(describe(n, t) for n, t in outputs),
        "precision": classify(watch, [t for _, t in outputs]),
    }
    built.task = task.model_copy(update=facts)
    return built, trace_call(built.model, args, kwargs, built.input_names(args), built.namespace)


def _wrong(built: Any, captured: Any, cases: Any, text: str, backend: BackendName) -> str | None:
    """A text's error; None when it is right on every input set."""
    import torch

    from dvk import nanolang
    from dvk.harness.transport.calls import call, describe, put_buffers, with_written
    from dvk.tasks.build import CandidateError, build_candidate
    from dvk.tasks.trees import map_tensors, named_tensors

    try:
        candidate = nanolang.assemble(built.task, captured, text, backend)
        model = build_candidate(candidate.source, built.task, built)
        for key in cases.keys:
            case = cases.get(key)
            if case is None:
                continue
            model.load_state_dict(cases.state(case.key.weights))
            put_buffers(model, cases.initial(case.key.weights))
            args, kwargs = map_tensors(torch.clone, (case.args, case.kwargs))
            leaves, nesting = describe(call(model, args, kwargs, case.seed))
            positions = cases.written.positions(args, kwargs)
            left = [
                tensor
                for n, (_, tensor) in enumerate(named_tensors((args, kwargs)))
                if n in positions
            ]
            outcome = cases.check(case, [*leaves, *left], with_written(nesting, len(left)))
            if not outcome.ok:
                return f"mismatch: {outcome.text}"
            pairs = zip(named_tensors((args, kwargs)), case.inputs, strict=True)
            if any(n not in positions and not _equal(a, b) for n, ((_, a), b) in enumerate(pairs)):
                return f"it changes an input ({case.text})"
            # In a smaller batch than it was written for, the original runs, as intended.
            if key.variant == "native" and model.__dict__.get("_dvk_ready") is not True:
                return "its own code did not run: a guard let the original do the work"
    except nanolang.ParseError as error:
        return f"unreadable: {error}"
    except CandidateError as error:
        return f"{error.status}: {error.message[:300]}"
    except Exception as error:  # noqa: BLE001 - whatever a text raises, it is wrong
        return f"launch_error: {type(error).__name__}: {str(error)[:300]}"
    return None


def _equal(a: Any, b: Any) -> bool:
    import torch

    return (
        bool(torch.equal(torch.nan_to_num(a), torch.nan_to_num(b)))
        if a.is_floating_point()
        else bool(torch.equal(a, b))
    )

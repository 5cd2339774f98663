"""References of the correctness tests, built in this process without being examined: the tests say what they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from dvk.harness.checking.case import Case, Comparison
from dvk.harness.checking.case_keys import plan
from dvk.harness.checking.cases import Cases
from dvk.harness.transport.calls import call, describe, in_mode
from dvk.records import ShapeVariant, Task
from dvk.tasks.build import build
from dvk.tasks.trees import describe as outside_of
from dvk.tasks.trees import map_tensors, named_inputs, named_tensors

HEAD = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"

Function = Callable[..., Any]


def model(forward: str, inputs: str, init: str = "pass", arguments: str = "x") -> str:
    """A reference file: bodies of forward and __init__, and the list that get_inputs() returns."""
    return (
        f"{HEAD}class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n        {init}\n"
        f"    def forward(self, {arguments}):\n        {forward}\ndef get_inputs():\n    return {inputs}\n"
    )


def task_of(
    source: str,
    precision: str = "fp32",
    variants: Sequence[ShapeVariant] = (),
    stochastic: bool = False,
    device: str = "cpu",
) -> Task:
    """The task of a reference file, as examining it would describe it."""
    draft = Task.model_validate(
        {
            "id": "t",
            "name": "t",
            "source": source,
            "entry": "Model",
            "kind": "module",
            "precision": precision,
            "shape_variants": tuple(variants),
            "stochastic": stochastic,
            "device": device,
        }
    )
    built = build(draft)
    args, kwargs = built.inputs(0)
    inputs = [outside_of(n, t) for n, t in named_inputs(args, kwargs, built.input_names(args))]
    outputs = [outside_of(n, t) for n, t in named_tensors(call(built.model, args, kwargs, 0))]
    return draft.model_copy(update={"inputs": tuple(inputs), "outputs": tuple(outputs)})


def cases_of(
    source: str,
    tier: str = "search",
    seed: int = 11,
    num_seeds: int = 1,
    backward: bool = False,
    **about: Any,
) -> Cases:
    """The input sets of a reference file."""
    task = task_of(source, **about)
    return Cases(build(task), plan(task, tier, num_seeds, seed, backward=backward), seed)


def made(cases: Cases) -> list[Case]:
    """Every input set that is not left out."""
    return [case for key in cases.keys if (case := cases.get(key)) is not None]


def judged(cases: Cases, case: Case, function: Function) -> Comparison:
    """Result of `function(model, *args)`, the reference's module under the case's weights, on one case."""
    cases.use(case.key.weights)
    args, kwargs = map_tensors(torch.clone, (case.args, case.kwargs))
    with torch.no_grad(), in_mode(cases.built.model, case.key.other_mode):
        result = function(cases.built.model, *args, **kwargs)
    return cases.check(case, *describe(result))


def refusals(cases: Cases, function: Function, first: bool = False) -> dict[str, Comparison]:
    """By input set, the outcomes of those that refuse `function`; with `first`, only the first of them is sought."""
    found = {}
    for case in made(cases):
        if not (outcome := judged(cases, case, function)).ok:
            found[f"{case.key.text} w{case.key.weights}"] = outcome
            if first:
                break
    return found

"""`--to vllm`: a package that vLLM loads as a plugin, with the kernels as an implementation of one of its operators."""

from __future__ import annotations

import json
from typing import Any

from dvk.errors import UsageError
from dvk.pipelines.export import claim, program, python_package, texts, vllm_operators
from dvk.pipelines.export.program import StatelessProgram
from dvk.pipelines.export.proven import ProvenRun
from dvk.pipelines.export.vllm_operators import VllmOperator


def files(run: ProvenRun, name: str, module: str, version: str, op: str | None) -> dict[str, str]:
    """Text of each file by its path.

    Args:
        run: the winner.
        name: of the distribution.
        module: its name in Python, and the provider's in vLLM.
        version: of the distribution.
        op: the operator that the module computes, with its constants.

    Raises:
        UsageError: there is no such operator, the module takes other tensors, or the kernels need more than tensors.
    """
    if op is None:
        raise UsageError(
            "which of vLLM's operators does the module compute?",
            f'say so: --op "rms_norm(epsilon=1e-6)"; there are {", ".join(vllm_operators.OPERATORS)}',
        )
    operator, constants = vllm_operators.parse(op)
    kernels = program.stateless(run, "an implementation for vLLM")
    _check(operator, kernels, op)
    package = python_package.files(run, name, module, version)
    holes = _holes(operator, kernels, constants, module, run)
    entry = (
        f'\n[project.entry-points."vllm.general_plugins"]\n{module} = "{module}.plugin:register"\n'
    )
    return {
        **package,
        f"{module}/plugin.py": texts.filled(f"plugin_{operator.kind}.py", **holes),
        f"tests/test_{module}_plugin.py": texts.filled(f"test_plugin_{operator.kind}.py", **holes),
        "pyproject.toml": python_package.pyproject(run, name, module, version, entry),
        "README.md": package["README.md"].rstrip() + "\n\n" + _use(operator, module, run, op),
    }


def _check(operator: VllmOperator, kernels: StatelessProgram, op: str) -> None:
    mine = [*kernels.tensors, *(weight.path for weight in kernels.weights)]
    if len(mine) != len(operator.tensors):
        raise UsageError(
            f"--op `{op}` computes from {', '.join(operator.tensors)}, the module from {', '.join(mine)}",
            "the module's tensors must be the operator's, in its order, the weight last",
        )
    if operator.attribute and not kernels.weights:
        raise UsageError(
            f"--op `{op}` reads `{operator.attribute}` of its layer, the module takes it as an input",
            "make it a parameter or buffer of the module",
        )
    if kernels.constants:
        raise UsageError(
            f"the module's forward takes values besides tensors: {', '.join(kernels.constants)}",
            "make them attributes of the module",
        )


def _holes(
    operator: VllmOperator,
    kernels: StatelessProgram,
    constants: dict[str, Any],
    module: str,
    run: ProvenRun,
) -> dict[str, object]:
    """What the texts of the plugin and its test leave open."""
    own = "self." if operator.kind == "layer" else ""
    conditions = [
        *(f"{own}{name} == {value!r}" for name, value in constants.items()),
        *(f"{name} is None" for name in operator.absent),
    ]
    names = [part.split("=")[0].strip() for part in operator.parameters.split(",")]
    return {
        "operator": operator.name,
        "where": operator.where,
        "module": module,
        "provider": module,
        "device": run.task.device,
        "parameters": operator.parameters,
        "names": ", ".join(names),
        "annotated": operator.annotated,
        "conditions": "".join(f"{one} and " for one in conditions),
        "tensors": ", ".join(operator.tensors),
        "returns": operator.returns.format(result="result"),
        "constants": repr(constants),
        "taken": repr(kernels.tensors),
        "paths": repr(tuple(weight.path for weight in kernels.weights)),
        "attributes": repr((operator.attribute,) if operator.attribute else ()),
        "names_of_tensors": repr(operator.tensors),
    }


def _use(operator: VllmOperator, module: str, run: ProvenRun, op: str) -> str:
    shapes = "; ".join(claim.inputs(task.inputs) for task in run.tasks)
    first = json.dumps({"ir_op_priority": {operator.name: [module, "native"]}})
    how = (
        f"vLLM uses it where its provider comes first: `--kernel-config '{first}'`."
        if operator.kind == "ir"
        else f"vLLM's `{operator.name}` layers are then made of the class in `{module}/plugin.py`."
    )
    return (
        "## In vLLM\n\n"
        f"The package is a plugin of vLLM for `{op}`: it is loaded where it is installed. {how} It takes these calls: {shapes}; "
        "all others stay with vLLM. `pytest` compares it with vLLM's own implementation, where vLLM is installed.\n"
    )

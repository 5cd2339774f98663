"""`layers.py` of an export: a layer without constructor and state, which reads weights from the layer that it stands in for."""

from __future__ import annotations

import ast

from dvk.errors import UsageError
from dvk.pipelines.export import texts
from dvk.pipelines.export.program import StatelessProgram
from dvk.pipelines.export.proven import ProvenRun

READ = (
    "not dropin.dvk_changes(layer, tuple((paths, {name: text for name, text in facts.items() "
    'if name != "training"}) for paths, facts in dropin.ModelNew._dvk_read))'
)
"""The layer's attributes and weights are those that the kernels were made for. Modes are compared at each call."""
HASHED = (
    "dropin.ModelNew._dvk_config in (None, dropin.dvk_config(layer, (), tuple("
    'f"{path}.{name}" for path, _ in layer.named_modules() '
    'for name in ("forward", "_is_torch_compile", "_compiled_call_impl"))))'
)
"""The same of drop-ins before `_dvk_read`, except names that PyTorch and `kernelize` set."""


def text(run: ProvenRun, program: StatelessProgram, layer: str, operator: str) -> str:
    """The file.

    Args:
        run: the winner.
        program: its kernels.
        layer: name of the class.
        operator: name of the operator in `op.py`.

    Raises:
        UsageError: the original's forward cannot be written out: it takes any arguments, or is not in the file.
    """
    is_module = run.task.kind == "module"
    signature = _signature(run)
    names = [arg.arg for arg in (*signature.posonlyargs, *signature.args)]
    passed = [*names, *(f"{arg.arg}={arg.arg}" for arg in signature.kwonlyargs)]
    conditions = [
        *(f"{_at(path)}training is {mode}" for path, mode in sorted(program.modes.items())),
        *(
            f"{name} is None"
            if value is None
            else f"type({name}) is {type(value).__name__} and {name} == {value!r}"
            for name, value in program.constants.items()
        ),
    ]
    held = [f"{_at(weight.path).rstrip('.')}" for weight in program.weights]
    roots = dict.fromkeys(
        (weight.path.partition(".")[0], "torch.nn.Module" if "." in weight.path else "torch.Tensor")
        for weight in program.weights
    )
    return texts.filled(
        "layers.py",
        operator=operator,
        reference=f"dropin.{program.original}" + (".forward" if is_module else ""),
        config=(READ if "_dvk_read = " in run.source else HASHED) if is_module else "True",
        layer=layer,
        entry=run.task.entry,
        annotations="".join(f"    {name}: {kind}\n" for name, kind in roots),
        signature=ast.unparse(signature) if is_module else f"self, {ast.unparse(signature)}",
        conditions="".join(f" and {one}" for one in conditions),
        tensors=", ".join([*program.tensors, *held]),
        passed=", ".join(passed),
    )


def _at(path: str) -> str:
    """An expression for a part of `self`, ending in a dot."""
    parts = [part for part in path.split(".") if part]
    return "self" + "".join(f"[{p}]" if p.isdigit() else f".{p}" for p in parts) + "."


def _signature(run: ProvenRun) -> ast.arguments:
    """The parameters of the original's forward, without annotations."""
    owners = {
        node.name: node
        for node in ast.parse(run.task.source).body
        if isinstance(node, (ast.ClassDef, ast.FunctionDef))
    }
    owner = owners.get(run.task.entry)
    forward = (
        next(
            (n for n in owner.body if isinstance(n, ast.FunctionDef) and n.name == "forward"), None
        )
        if isinstance(owner, ast.ClassDef)
        else owner
    )
    args = forward.args if forward is not None else None
    defaults = [d for d in (*args.defaults, *args.kw_defaults) if d] if args is not None else []
    if (
        args is None
        or args.vararg is not None
        or args.kwarg is not None
        or not all(isinstance(default, (ast.Constant, ast.UnaryOp)) for default in defaults)
    ):
        raise UsageError(
            f"`{run.task.entry}` cannot become a layer: its forward is not in the file, or takes `*args` or computed defaults",
            "write forward's parameters out, or export with `--to python`",
        )
    for arg in (*args.posonlyargs, *args.args, *args.kwonlyargs):
        arg.annotation = None
    return args

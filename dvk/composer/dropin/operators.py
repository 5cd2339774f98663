"""Programs as operators of PyTorch (`torch.library`), in the text of a drop-in: what a traced call records.

One operator for a program, kernels and library calls together: derived weights and CUDA graphs stay inside. Views of arguments and weights
that the program returns are taken outside of it, where the compiler sees them. A program that cannot be an operator leaves the original's
operators in the trace.
"""

from __future__ import annotations

import hashlib
import keyword
import re
import textwrap
from collections.abc import Sequence

from dvk.composer.dropin.facts import Fused, Held, keyed
from dvk.composer.dropin.forward import held_name, parameter
from dvk.composer.dropin.namespace import OWNER
from dvk.composer.dropin.results import Results
from dvk.composer.dropin.stepping import method
from dvk.composer.ir import structures
from dvk.composer.ir.affine import contiguous_strides
from dvk.records import Node, Task

MOST_TENSORS = 64
"""Arguments that PyTorch allows in the schema of an operator."""
NAMESPACE = "dvk_namespace_of_this_file"
"""Stands for the namespace until the text is complete."""


def with_namespace(text: str) -> str:
    """The text with the namespace of its operators, which no other text shares."""
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    return text.replace(NAMESPACE, f"dvk_{digest}")


def results_of(one: Fused) -> Results | str:
    """The results of a program as an operator, or why it is none."""
    if one.backward is not None:
        return "its training step is not an operator"
    if one.ranges:
        return "its program is for a range of sizes"
    if one.program.may_go_back:
        return "its program may find that values differ, and return to the original"
    if not (one.inputs or one.program.weights):
        return "it takes no tensors"
    if len(one.inputs) + len(one.program.weights) > MOST_TENSORS:
        return f"it takes more than {MOST_TENSORS} tensors, the most that an operator can have"
    return one.program.results


def traced(
    task: Task, fused: Sequence[Fused], methods: Sequence[dict[str, str]], conditions: Sequence[str]
) -> str:
    """The methods of the last class that run while a call is traced.

    Args:
        methods: names of each program's methods: `suits`, `record` and `inside`.
        conditions: what each program requires of its arguments.
    """
    original = f"{OWNER}.forward(self, *args, **kwargs)"
    if task.kind == "function":
        original = f"{OWNER}(*args, **kwargs)"
    asked = tuple(sorted({name for one in fused for name in one.captured.asked}))
    arguments = max((one.captured.arguments for one in fused), key=len)
    able = [
        (one, its, texts, found)
        for one, its, texts in zip(fused, methods, conditions, strict=True)
        if isinstance(found := results_of(one), Results)
    ]
    if not able:
        reasons = [found for one in fused if isinstance(found := results_of(one), str)]
        return f"""
    def _dvk_traced(self, *args, **kwargs):
        dvk_left_out({task.entry!r}, {reasons[0]!r})
        return {original}
"""
    dispatch = "\n".join(_dispatch(one, its) for one, its, _, _ in able)
    made_for = " or ".join(_described(one) for one, *_ in able)
    why = f"kernels exist for {made_for}, without gradients or autocast"
    parts = [
        f"""
    def _dvk_traced(self, *args, **kwargs):
        # torch.compile or torch.export traces this call: it records operators.
        why = dvk_untraceable(self, {asked!r})
        if not why:
            given = dvk_given({tuple(arguments)!r}, args, kwargs) if kwargs else args
            if given is not None:
{textwrap.indent(dispatch, " " * 16)}
            why = {why!r}
        dvk_left_out({task.entry!r}, why)
        return {original}
"""
    ]
    for one, its, texts, found in able:
        parts += [_suits(task, one, its, texts), _record(task, one, its, found)]
    return "\n".join(parts)


def _dispatch(one: Fused, names: dict[str, str]) -> str:
    how = f"len(given) == {len(one.arguments)}"
    if one.captured.by_name:
        how += f" and len(args) <= {len(one.arguments) - one.captured.by_name}"
    given = f"self.{names['inside']}(*given)" if one.captured.structure else "given"
    return (
        f"if {how} and self.{names['suits']}(*given):\n    return self.{names['record']}(*{given})"
    )


def _described(one: Fused) -> str:
    return (
        ", ".join(f"{n.target}={n.dtype}{list(n.shape or ())}" for n in one.inputs) or "no tensors"
    )


def _suits(task: Task, one: Fused, names: dict[str, str], conditions: str) -> str:
    """The method that checks whether the arguments match the program, in terms that a trace can guard."""
    guarded = {id(node) for node in one.program.guarded}
    lines = [conditions, f"not torch.is_autocast_enabled({task.device!r})"]
    lines += [
        f"self.get_submodule({path!r}).training is {mode}"
        for path, mode in one.captured.modes.items()
    ]
    for node in one.program.weights:
        text, strides = attribute(node), _strides(node)
        known = f"{text}.dtype is torch.{node.dtype}"
        if id(node) in guarded:
            lines.append(f"{known} and dvk_of_size({text}, {node.shape!r}, {strides!r})")
        else:
            lines.append(f"{known} and {text}.shape == {node.shape!r}")
    tensors = [text for _, text in _operands(one)] + [attribute(n) for n in one.program.weights]
    lines.append(f"not dvk_gradients(({', '.join(tensors)},))")
    body = textwrap.indent("\nand ".join(lines), " " * 12)
    signature = ", ".join(["self", *one.arguments])
    return f"    def {names['suits']}({signature}):\n        return (\n{body}\n        )\n"


def _operands(one: Fused) -> list[tuple[str, str]]:
    """The path of each tensor of the call, with the text that reads it from the arguments."""
    if not one.captured.structure:
        return [(str(n.target), parameter(str(n.target))) for n in one.inputs]
    nested = {
        path: text
        for name, tree in one.captured.structure.items()
        for path, text in structures.places(tree, parameter(name))
    }
    return [
        (path, nested.get(path, parameter(path))) for path in (str(n.target) for n in one.inputs)
    ]


def _record(task: Task, one: Fused, names: dict[str, str], found: Results) -> str:
    """The method that calls the operator, and rebuilds the result around it."""
    bound = [f"{held_name(node)} = {attribute(node)}" for node in one.program.weights]
    made = ", ".join(m.name for m in found.made)
    call = f"torch.ops.{NAMESPACE}.{names['operator']}.default({', '.join(_taken(one))})"
    body = "\n".join([*bound, f"{made} = {call}", *found.lines, f"return {found.text}"])
    signature = ", ".join(["self", *one.takes])
    return f"    def {names['record']}({signature}):\n{textwrap.indent(body, ' ' * 8)}\n"


def _taken(one: Fused) -> list[str]:
    """The operands of the operator, by their names in the program."""
    return [parameter(str(n.target)) for n in one.inputs] + [
        held_name(n) for n in one.program.weights
    ]


def _strides(node: Node) -> tuple[int, ...]:
    return node.strides if node.strides is not None else contiguous_strides(node.shape or ())


def attribute(node: Node) -> str:
    """The text that reads a weight from the module, as a trace wants it."""
    text = "self"
    for part in str(node.target).split("."):
        plain = part.isidentifier() and not keyword.iskeyword(part) and not part.startswith("__")
        text = f"{text}.{part}" if plain else f"getattr({text}, {part!r})"
    return text


def names(task: Task, number: int) -> dict[str, str]:
    """Names of a program's methods, and of its operator, after the module's."""
    made = {n: method(n, number) for n in ("run", "inside", "suits", "record", "compute")}
    name = re.sub(r"\W", "_", task.entry) + "_fused"
    return {**made, "operator": name if number == 0 else f"{name}_{number + 1}"}


def registered(
    task: Task,
    fused: Sequence[Fused],
    held: Held,
    methods: Sequence[dict[str, str]],
    inside: Sequence[str],
) -> str:
    """The text that registers the operators, below the last class.

    Args:
        inside: for each program the method that returns what the operator returns; empty if that is the program.
    """
    parts: list[str] = []
    added = [text for text in inside if text]
    kind = "dvk_inside" if added else "dvk_fused"
    if added:
        parts.append(f"class dvk_inside(dvk_fused):\n{(2 * chr(10)).join(added)}")
    for number, (one, its) in enumerate(zip(fused, methods, strict=True)):
        found = results_of(one)
        if isinstance(found, Results):
            parts.append(_operator(task, number, one, its, found, held, kind))
    return "\n\n\n".join(parts)


def _operator(
    task: Task,
    number: int,
    one: Fused,
    names: dict[str, str],
    found: Results,
    held: Held,
    kind: str,
) -> str:
    """A program as a function of tensors alone, and its operator."""
    own = {key: held_name(node) for key, node in keyed(one.program.weights)}
    # Weights of other programs: any tensor of the operator serves as a placeholder.
    weights = [own.get(key, next(iter(own.values()))) for key in held] if own else []
    keeps = bool(one.program.derived or one.graph_replay)
    name = f"_dvk_program_{number + 1}"
    state = f"{name}_kept" if keeps else "None"
    tensors = {str(n.target): parameter(str(n.target)) for n in one.inputs}
    given = [
        text if text in tensors.values() or one.captured.structure else "None" for text in one.takes
    ]
    run = f"held.{names['run']}" if found.whole else f"held.{names['compute']}"
    call = (
        f"dvk_replay({run}, ({''.join(f'{text}, ' for text in given)}))"
        if one.graph_replay
        else f"{run}({', '.join(given)})"
    )
    bound = f"({''.join(f'{text}, ' for text in weights)})"
    layouts = [
        f"({node.shape!r}, {_strides(node)!r}, torch.{node.dtype})"
        for node in (*one.inputs, *one.program.weights)
    ]
    made = [
        f"({shape!r}, {strides!r}, torch.{dtype}, {m.fresh})"
        for m in found.made
        for shape, strides, dtype in (m.layout,)
    ]
    kept = f"{name}_kept = {{}}\n\n\n" if keeps else ""
    seeded = ", seeded=True" if found.seeded else ""
    return f'''\
{kept}def {name}({", ".join(_taken(one))}):
    held = dvk_with_weights({kind}, {bound}, {state})
    return {call}


_dvk_operator_{number + 1} = dvk_operator(
    "{NAMESPACE}::{names["operator"]}",
    ({"".join(f"{text}, " for text in layouts)}),
    ({"".join(f"{text}, " for text in made)}),
    {task.device!r},
    lambda: ModelNew._dvk_load(),
    {name}{seeded},
)'''

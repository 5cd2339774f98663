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
from dataclasses import dataclass

from dvk.composer.dropin import ranges, training_operators
from dvk.composer.dropin.facts import Fused, Held, asked, keyed
from dvk.composer.dropin.forward import held_name, parameter
from dvk.composer.dropin.namespace import OWNER
from dvk.composer.dropin.results import Results, joined
from dvk.composer.dropin.stepping import method
from dvk.composer.ir import structures
from dvk.composer.ir.affine import contiguous_strides
from dvk.composer.ir.symint import ARGUMENT
from dvk.records import Node, Task

MOST_TENSORS = 64
"""Arguments that PyTorch allows in the schema of an operator."""
NAMESPACE = "dvk_namespace_of_this_file"
"""Stands for the namespace until the text is complete."""


def with_namespace(text: str) -> str:
    """The text with the namespace of its operators, which no other text shares."""
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    return text.replace(NAMESPACE, f"dvk_{digest}")


@dataclass(frozen=True)
class Operator:
    """A program, or all programs for a range of sizes, as one operator."""

    number: int
    """Of its first program."""
    programs: Sequence[Fused]
    results: Results

    @property
    def first(self) -> Fused:
        return self.programs[0]

    @property
    def chosen(self) -> bool:
        """The sizes of a call choose the program."""
        return len(self.programs) > 1

    @property
    def weights(self) -> dict[tuple[str, int], Node]:
        """The weights that some program reads."""
        every: dict[tuple[str, int], Node] = {}
        for one in self.programs:
            for key, node in keyed(one.program.weights):
                every.setdefault(key, node)
        return every

    @property
    def guarded(self) -> set[tuple[str, int]]:
        """Those that kernels read by address."""
        return {
            key
            for one in self.programs
            for key, node in keyed(one.program.weights)
            if id(node) in {id(each) for each in one.program.guarded}
        }

    @property
    def taken(self) -> list[str]:
        """The operands, by their names in the program."""
        return [parameter(str(n.target)) for n in self.first.inputs] + [
            held_name(n) for n in self.weights.values()
        ]


def made_of(fused: Sequence[Fused]) -> tuple[list[Operator], list[str]]:
    """The operators of a drop-in, and why there is none for the other programs."""
    made, reasons = [], []
    for number, group in ranges.groups(fused):
        found = _results(group)
        if isinstance(found, str):
            reasons.append(found)
        else:
            made.append(Operator(number, group, found))
    return made, reasons


def _results(group: Sequence[Fused]) -> Results | str:
    """The results of programs as an operator, or why they are none."""
    one = group[0]
    weights = {key for each in group for key, _ in keyed(each.program.weights)}
    if one.backward is not None and (why := training_operators.refusal(one, MOST_TENSORS)):
        return why
    if one.ranges and not ranges.is_whole(group):
        return "its programs do not serve the whole range of sizes"
    if any(each.program.may_go_back for each in group):
        return "its program may find that values differ, and return to the original"
    if not (one.inputs or weights):
        return "it takes no tensors"
    if len(one.inputs) + len(weights) > MOST_TENSORS:
        return f"it takes more than {MOST_TENSORS} tensors, the most that an operator can have"
    results = [each.program.results for each in group]
    several = [each for each in results if isinstance(each, Results)]
    if len(several) < len(results):
        return next(each for each in results if isinstance(each, str))
    return joined(several) if len(several) > 1 else several[0]


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
    arguments = max((one.captured.arguments for one in fused), key=len)
    able, reasons = made_of(fused)
    if not able:
        return f"""
    def _dvk_traced(self, *args, **kwargs):
        dvk_left_out({task.entry!r}, {reasons[0]!r})
        return {original}
"""
    dispatch = "\n".join(_dispatch(one.first, methods[one.number]) for one in able)
    made_for = " or ".join(_described(one.first) for one in able)
    trains = all(one.first.backward is not None for one in able)
    why = f"kernels exist for {made_for}, without {'' if trains else 'gradients or '}autocast"
    if (under := fused[0].captured.under) is not None:
        bare = "" if trains else ", without gradients"
        why = f"kernels exist for {made_for}, under autocast to {under}{bare}"
    if any(one.first.ranges for one in able):
        why += "; dimensions that are marked as dynamic need these limits"
    parts = [
        f"""
    def _dvk_traced(self, *args, **kwargs):
        # torch.compile or torch.export traces this call: it records operators.
        why = self._dvk_untraceable({asked(fused)!r})
        if not why:
            given = dvk_given({tuple(arguments)!r}, args, kwargs) if kwargs else args
            if given is not None:
{textwrap.indent(dispatch, " " * 16)}
            why = {why!r}
        dvk_left_out({task.entry!r}, why)
        return {original}
"""
    ]
    for one in able:
        its = methods[one.number]
        parts += [_suits(task, one, its, conditions[one.number]), _record(one, its)]
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
    limits = {f"{ARGUMENT}{name}": f"{name}:{lo}..{hi}" for name, lo, hi in one.ranges}
    return (
        ", ".join(
            f"{n.target}={n.dtype}[{', '.join(limits.get(repr(s), repr(s)) for s in n.shape or ())}]"
            for n in one.inputs
        )
        or "no tensors"
    )


def _suits(task: Task, one: Operator, names: dict[str, str], conditions: str) -> str:
    """The method that checks whether the arguments match the program, in terms that a trace can guard."""
    on = f"torch.is_autocast_enabled({task.device!r})"
    lines = [conditions, f"not {on}"]
    if (under := one.first.captured.under) is not None:
        kind = f"torch.get_autocast_dtype({task.device!r})"
        lines = [conditions, on, f"{kind} == torch.{under}"]
    lines += [
        f"self.get_submodule({path!r}).training is {mode}"
        for path, mode in one.first.captured.modes.items()
    ]
    for key, node in one.weights.items():
        text, strides = attribute(node), _strides(node)
        known = f"{text}.dtype is torch.{node.dtype}"
        if key in one.guarded:
            lines.append(f"{known} and dvk_of_size({text}, {node.shape!r}, {strides!r})")
        else:
            lines.append(f"{known} and {text}.shape == {node.shape!r}")
    tensors = list(_operands(one.first).values()) + [attribute(n) for n in one.weights.values()]
    if (training := one.first.captured.training) is not None:
        tensors = [attribute(n) for n in one.weights.values() if n.target in training.frozen]
    if tensors:
        lines.append(f"not dvk_gradients(({', '.join(tensors)},))")
    body = textwrap.indent("\nand ".join(lines), " " * 12)
    signature = ", ".join(["self", *one.first.arguments])
    return f"    def {names['suits']}({signature}):\n        return (\n{body}\n        )\n"


def _operands(one: Fused) -> dict[str, str]:
    """The text that reads each tensor of the call from the arguments, by the tensor's path."""
    nested = {
        path: text
        for name, tree in one.captured.structure.items()
        for path, text in structures.places(tree, parameter(name))
    }
    paths = [str(n.target) for n in one.inputs]
    return {path: nested.get(path, parameter(path)) for path in paths}


def _record(one: Operator, names: dict[str, str]) -> str:
    """The method that calls the operator, and rebuilds the result around it."""
    found = one.results
    bound = [f"{held_name(node)} = {attribute(node)}" for node in one.weights.values()]
    made = ", ".join(m.name for m in found.made)
    call = f"torch.ops.{NAMESPACE}.{names['operator']}.default({', '.join(one.taken)})"
    text = found.text
    if one.first.backward is not None:
        text = training_operators.result(one.first, found)
    after = [*found.lines, f"return {text}"]
    body = "\n".join([*_sizes(one.first, after), *bound, f"{made} = {call}", *after])
    signature = ", ".join(["self", *one.first.takes])
    return f"    def {names['record']}({signature}):\n{textwrap.indent(body, ' ' * 8)}\n"


def _sizes(one: Fused, lines: Sequence[str]) -> list[str]:
    """Lines that read the sizes which `lines` name from the program's tensors."""
    texts = dict(zip((str(n.target) for n in one.inputs), one.tensors, strict=True))
    return ranges.reading(one.inputs, texts, "\n".join(lines)) if one.ranges else []


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
    task: Task, fused: Sequence[Fused], held: Held, methods: Sequence[dict[str, str]]
) -> str:
    """The text that registers the operators, below the last class."""
    made, _ = made_of(fused)
    added = [text for one in made if not one.results.whole for text in _inside(one, held, methods)]
    kind = "dvk_inside" if added else "dvk_fused"
    parts = [f"class dvk_inside(dvk_fused):\n{(2 * chr(10)).join(added)}"] if added else []
    parts += [_operator(task, one, methods[one.number], held, kind) for one in made]
    return "\n\n\n".join(parts)


def _inside(one: Operator, held: Held, methods: Sequence[dict[str, str]]) -> list[str]:
    """The methods that compute what an operator returns, of each program."""
    names = [methods[one.number + place]["compute"] for place in range(len(one.programs))]
    texts = []
    for each, name in zip(one.programs, names, strict=True):
        assert isinstance(each.program.results, Results)
        result = ", ".join(m.text for m in each.program.results.made)
        texts.append(run(name, each, held, result))
    if one.chosen:
        texts.append(ranges.choosing(one.programs, method("choice", one.number), names))
    return texts


def _operator(task: Task, one: Operator, names: dict[str, str], held: Held, kind: str) -> str:
    """A program as a function of tensors alone, and its operator."""
    first, number = one.first, one.number + 1
    own = {key: held_name(node) for key, node in one.weights.items()}
    # Weights of other programs: any tensor of the operator serves as a placeholder.
    weights = [own.get(key, next(iter(own.values()))) for key in held] if own else []
    keeps = bool(first.graph_replay or any(each.program.derived for each in one.programs))
    name = f"_dvk_program_{number}"
    state = f"{name}_kept" if keeps else "None"
    tensors = {parameter(str(n.target)) for n in first.inputs}
    given = [
        text if text in tensors or first.captured.structure else "None" for text in first.takes
    ]
    run = f"held.{names['run' if one.results.whole else 'compute']}"
    if one.chosen:
        run = f"held.{method('choice', one.number)}({', '.join(given)})"
    call = (
        f"dvk_replay({run}, ({''.join(f'{text}, ' for text in given)}))"
        if first.graph_replay
        else f"{run}({', '.join(given)})"
    )
    if first.captured.under is not None:
        call = f"dvk_cast_off({task.device!r}, lambda: {call})"
    bound = f"({''.join(f'{text}, ' for text in weights)})"
    kept = f"{name}_kept = {{}}\n\n\n" if keeps else ""
    seeded = ", seeded=True" if one.results.seeded else ""
    limits = "".join(f"    {line}\n" for line in ranges.limited(first))
    layouts, text = _layouts(one, f"_dvk_layouts_{number}")
    back = ""
    if first.backward is not None:
        full = f"{NAMESPACE}::{names['operator']}"
        back = training_operators.derivative(task.device, one.number, first, full, one.results)
    return f'''\
{kept}{text}def {name}({", ".join(one.taken)}):
{limits}    held = dvk_with_weights({kind}, {bound}, {state})
    return {call}


_dvk_operator_{number} = dvk_operator(
    "{NAMESPACE}::{names["operator"]}",
    "{_schema(one)}",
    {layouts},
    {task.device!r},
    lambda: ModelNew._dvk_load(),
    {name}{seeded},
){back}'''


def _schema(one: Operator) -> str:
    operands = ", ".join(f"Tensor x{number}" for number in range(len(one.taken)))
    results = ", ".join("Tensor" for _ in one.results.made)
    return f"({operands}) -> {f'({results})' if len(one.results.made) > 1 else results}"


def _layouts(one: Operator, name: str) -> tuple[str, str]:
    """The layouts of operands and results: an expression, or a function of the operands and the text that defines it."""
    taken = [
        f"({node.shape!r}, {_strides(node)!r}, torch.{node.dtype})"
        for node in (*one.first.inputs, *one.weights.values())
    ]
    given = [
        f"({shape!r}, {strides!r}, torch.{dtype}, {m.fresh})"
        for m in one.results.made
        for shape, strides, dtype in (m.layout,)
    ]
    both = f"(({''.join(f'{t}, ' for t in taken)}), ({''.join(f'{t}, ' for t in given)}))"
    if not one.first.ranges:
        return both, ""
    both = ranges.spelled(both)
    body = textwrap.indent("\n".join([*_sizes(one.first, [both]), f"return {both}"]), " " * 4)
    return name, f"def {name}({', '.join(one.taken)}):\n{body}\n\n\n"


def run(name: str, one: Fused, held: Held, result: str) -> str:
    """The method that runs the program and returns `result`."""
    own = {key: held_name(node) for key, node in keyed(one.program.weights)}
    bound = ", ".join(own.get(key, "_") for key in held)
    renewed = ["_dvk_held, _dvk_values = dvk_renew(self)"] if one.program.derived else []
    weights = "_dvk_held" if renewed else "self._dvk_weights"
    unpack = [f"{bound}{',' if len(held) == 1 else ''} = {weights}"] if own else []
    lines = [*one.program.lines, f"return {result}"]
    if one.ranges:
        lines = list(map(ranges.spelled, lines))
    body = "\n".join([*renewed, *unpack, *_sizes(one, lines), *lines])
    return f"    def {name}({', '.join(['self', *one.takes])}):\n{textwrap.indent(body, ' ' * 8)}"

"""Write a drop-in: kernels, then the `ModelNew` that calls them, then the user's file, then the guards.

The result needs torch alone (and Triton, or a C++ compiler at first use). It falls back to the original forward for every call without a
program: other shapes, dtypes, devices or layouts, another value or mode of what forward read of the modules (`capture.reads`), hooks on
submodules, replaced submodules, autocast that casts operands, and whenever gradients are wanted. Such calls are counted, and reported
once for each kind of reason (`runtime.reasons`).

A drop-in may hold several programs, each for different inputs. They share bound weights.

The part that people read comes first. Its `ModelNew` does not know the original, which is further down: the class of that name at the end
of the file combines it with `guards.dvk_guarded` and the original.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from functools import partial

import dvk
from dvk.composer.dropin import operators, ranges, replacing, sharing, stepping
from dvk.composer.dropin.facts import Fused, Held, facts, held_by
from dvk.composer.dropin.facts import whom as told
from dvk.composer.dropin.forward import parameter
from dvk.composer.dropin.imports import modules_used
from dvk.composer.dropin.namespace import HERE, OWNER, surrounding_text, to_the_top, with_room
from dvk.composer.ir import structures
from dvk.composer.ir.effects import touched
from dvk.composer.ir.text import literal
from dvk.composer.runtime import sources
from dvk.records import Node, Task

LINE = "# " + "=" * 98


PARTS = "# Statements of functions above that are left to PyTorch, as functions."


WHY, SAYS_WHY = "why = dvk_guarded.dvk_why", re.compile(r"""\.why\b|\bdef why\b|["']why["']""")
"""The short name of the method that explains a call, and a file that uses that name for something else."""


COUNT = 'self._dvk_counts["kernels"] += 1'
HOOK = (
    "from torch.optim.optimizer import register_optimizer_step_post_hook as dvk_after_steps\n"
    "dvk_after_steps(dvk_stepping(dvk_memory, dvk_steps))"
)
"""Notices fused optimizers, which write weights without a version bump."""


def write(
    task: Task,
    fused: Sequence[Fused],
    *,
    kernels: str,
    runtime: str,
    load: list[str],
    title: str,
    header: str,
) -> str:
    """The whole text of a drop-in.

    Args:
        fused: programs for different calls; the first that matches runs.
        kernels: module-level text that defines the kernels.
        runtime: module-level text of their launchers, which a reader may skip; it stands below the guards.
        load: lines that make the kernels callable, once per process: the body of a function that returns False on failure.
        header: imports that the kernels need.

    Raises:
        CannotCompose: the programs belong to different modules.
    """
    held, is_module = held_by(fused), task.kind == "module"
    derived = dict.fromkeys(line for one in fused for line in one.program.derived)
    whom = "fused" + told(fused)
    program = _program(task, fused, held, whom)
    first = sources.named(kernels)
    kept = "dvk_kept = []\n\n\n" if "dvk_held" in first else ""
    above = "\n\n\n".join(
        part
        for part in (
            header,
            kept + sources.text(first),
            kernels.strip("\n"),
            "\n".join(derived),
            program,
        )
        if part.strip()
    )
    last = _last(task, fused, held, whom, load)
    hook = HOOK if held else ""
    signature = f"\n\nModelNew.forward.__wrapped__ = {OWNER}.forward\n" if is_module else "\n"
    ending = f"{last}{signature}{replacing.text(task)}{_operators(task, fused, held)}"
    memory = "\n".join(
        line
        for name, line in (
            ("dvk_allocate(", f"dvk_allocate = dvk_allocator({task.device!r})"),
            ("dvk_view(", "dvk_view = dvk_viewer()"),
        )
        if name in above
    )
    functions = [
        name
        for name in sources.needed("\n".join([above, memory, hook, runtime, ending]))
        if name not in first
    ]
    below = "\n\n".join(
        part.strip("\n")
        for part in (
            _globals(fused, bool(kept)),
            sources.text(functions),
            memory,
            hook,
            runtime,
            ending,
        )
        if part
    )
    parts = {name: text for one in fused for name, text in one.captured.parts.items()}
    text = _together(task, title, parts, f"{above}\n{HERE}{_imports(below)}\n\n{below}")
    return operators.with_namespace(text)


def _program(task: Task, fused: Sequence[Fused], held: Held, whom: str) -> str:
    """The class that people read first: which calls the programs compute, and how."""
    is_module = task.kind == "module"
    original = "super().forward(*args, **kwargs)" if is_module else f"{OWNER}(*args, **kwargs)"
    arguments = max((one.captured.arguments for one in fused), key=len)
    groups = dict(ranges.groups(fused))
    programs = [
        text
        for number, one in enumerate(fused)
        for text in _methods(task, number, one, groups, held)
    ]
    dispatch = "\n".join(_dispatch(task, number, group) for number, group in groups.items())
    return f'''\
class ModelNew:
    """`{task.entry}`, {whom}. `_dvk_fits` says for which calls, `_dvk_run` computes them; the end of this file adds the rest."""

    def forward(self, *args, **kwargs):
        if torch.compiler.is_compiling():
            return self._dvk_traced(*args, **kwargs)
        given = dvk_given({tuple(arguments)!r}, args, kwargs) if kwargs else args
        if given is not None:
{textwrap.indent(dispatch, " " * 12)}
        dvk_missed(self, args, kwargs)
        return {original}

{(2 * chr(10)).join(programs)}


dvk_fused = ModelNew'''


def _last(task: Task, fused: Sequence[Fused], held: Held, whom: str, load: Sequence[str]) -> str:
    """The class at the end of the file, which combines the program, the guards and the original."""
    lines = [*facts(task, fused, held), *([] if SAYS_WHY.search(task.source) else [WHY])]
    if all(one.backward is not None for one in fused):
        lines += ["_dvk_trains = True", f"_dvk_frozen = {sharing.frozen(fused, held)!r}"]
    if same := sharing.unchanged_types(fused):
        lines.append(f"_dvk_autocast = ({', '.join(f'torch.{name}' for name in same)},)")
    if (under := fused[0].captured.under) is not None:
        lines.append(f"_dvk_under = torch.{under}")
    original = f", {OWNER}" if task.kind == "module" else ""
    names = [operators.names(task, number) for number in range(len(fused))]
    conditions = ["\nand ".join(_arguments(task, one, traced=True)[0]) for one in fused]
    traced = operators.traced(task, fused, names, conditions)
    return f'''\
class ModelNew(dvk_fused, dvk_guarded{original}):
    """{task.entry}, {whom}; falls back to the original where no fused program fits."""

{textwrap.indent(chr(10).join(lines), "    ")}

    def _dvk_now(self, *tensors):
        # The module is what the programs were made for, and the call an ordinary one that wants no gradients.
        ready = self.__dict__.get("_dvk_ready")
        if not ready and (ready is False and not self._dvk_is_stale() or not self._dvk_again()):
            return False
        return (
{textwrap.indent(sharing.conditions(task, fused, held), " " * 12)}
        )
{traced}{_loading(load)}'''


def unchanged(task: Task, title: str) -> str:
    """The text if all work stays with PyTorch in the user's own call: guards could only cost time."""
    head, body = f"class ModelNew({OWNER}):", "pass"
    if task.kind == "function":
        head = "import torch\n\n\nclass ModelNew(torch.nn.Module):"
        body = f"def forward(self, *args, **kwargs):\n        return {OWNER}(*args, **kwargs)"
    source = with_room(task.source, task.entry)
    ending = f"{head}\n    {body}\n\n{replacing.text(task, fused=False)}"
    functions = sources.needed(ending)
    above, below = surrounding_text(
        source,
        task.entry,
        f"{HERE}{sources.text(functions)}\n\n\n{ending}" if functions else f"{HERE}{ending}",
    )
    return f"# For `{task.entry}`: {title}\n{source.rstrip()}\n\n\n{above}{_imports(below)}\n\n\n{below.rstrip()}\n"


def _together(task: Task, title: str, parts: dict[str, str], generated: str) -> str:
    """The text of a drop-in: the readable part, the original with `parts` of it as functions, the guards."""
    whole = "\n\n\n".join([task.source.rstrip(), PARTS, *parts.values()]) if parts else task.source
    source = with_room(whole, task.entry)
    told = "unchanged" if source == whole else "its ModelNew renamed"
    above, below = surrounding_text(source, task.entry, generated)
    imports, source = to_the_top(source)
    return f"""\
# Drop-in for `{task.entry}`: {title}. Written by dvk {dvk.__version__}.
# First the kernels and the ModelNew that calls them, then the original, {told}. After the second double line come guards, the same in
# every drop-in: whatever is not what the kernels were made for runs the original.
{imports}
{above.rstrip()}


{LINE}
# The original, {told}. ModelNew has its constructor and state_dict.

{source.strip(chr(10))}


{LINE}
# Guards and launchers, generated by dvk {dvk.__version__}; those of its drop-ins differ in the last class alone.

{below.strip(chr(10))}
"""


def _imports(text: str) -> str:
    """The imports of the generated text below the original."""
    plain = modules_used(text)
    return "\n".join([*([f"import {', '.join(plain)}"] if plain else []), "import torch"])


def _globals(fused: Sequence[Fused], kept: bool) -> str:
    """Globals that a drop-in's functions share; `kept`: the kernels need `dvk_kept` earlier."""
    goes_back = any(one.program.may_go_back for one in fused)
    return "\n".join(
        [
            "# Types of plain tensors. A recorder of kernel launches, the module `dvk_record`, substitutes its own tensors.",
            'dvk_tensors = (torch.Tensor, *getattr(sys.modules.get("dvk_record"), "TENSORS", ()))',
            "dvk_steps, dvk_memory, dvk_said, dvk_reported = [0], set(), set(), set()"
            if kept
            else "dvk_kept, dvk_steps, dvk_memory, dvk_said, dvk_reported = [], [0], set(), set(), set()",
            *(
                ["dvk_else = object()  # returned by a program if the original must run"]
                if goes_back
                else []
            ),
        ]
    )


def _loading(load: Sequence[str]) -> str:
    lines = "\n".join(
        ["@staticmethod", "def _dvk_load():", *(f"    {line}" for line in load), "    return True"]
    )
    return f"\n{textwrap.indent(lines, '    ')}\n" if load else ""


# ---------------------------------------------------------------- what there is one of for each program


def _methods(
    task: Task, number: int, one: Fused, groups: Mapping[int, Sequence[Fused]], held: Held
) -> list[str]:
    guard = [_guard(task, number, groups[number], held)] if number in groups else []
    step = [stepping.methods(task, number, one, held)] if one.backward is not None else []
    run = operators.run(stepping.method("run", number), one, held, one.program.result)
    return [*guard, run, *step]


def _dispatch(task: Task, number: int, group: Sequence[Fused]) -> str:
    """The lines of forward() for programs that share their guards."""
    one = group[0]
    given = (
        f"self.{stepping.method('inside', number)}(*given)" if one.captured.structure else "given"
    )
    positional = len(one.arguments) - one.captured.by_name
    how = f"len(given) == {len(one.arguments)}" + (
        f" and len(args) <= {positional}" if one.captured.by_name else ""
    )
    run = f"self.{stepping.method('step' if one.backward is not None else 'run', number)}"
    lines = []
    if has_choice(group):
        lines.append(f"run = self.{stepping.method('choice', number)}(*{given})")
        run = "run"
    call = sharing.call(task, one, run, given)
    if any(each.program.may_go_back for each in group):
        back = [
            f"result = {call}",
            "if result is not dvk_else:",
            f"    {COUNT}",
            "    return result",
        ]
    else:
        back = [COUNT, f"return {call}"]
    if not ranges.is_whole(group):
        back = ["if run is not None:", *(f"    {line}" for line in back)]
    body = textwrap.indent("\n".join([*lines, *back]), "    ")
    return f"if {how} and self.{stepping.method('fits', number)}(*given):\n{body}"


def has_choice(group: Sequence[Fused]) -> bool:
    """The size of a call decides which of the programs runs, or whether one does."""
    return len(group) > 1 or not ranges.is_whole(group)


def _guard(task: Task, number: int, group: Sequence[Fused], held: Held) -> str:
    """The guards of the programs that begin at `number`, and what chooses among them."""
    text = _fits(task, number, group[0], held)
    if has_choice(group):
        runs = [stepping.method("run", number + place) for place in range(len(group))]
        text += "\n\n" + ranges.choosing(group, stepping.method("choice", number), runs)
    return text


def _operators(task: Task, fused: Sequence[Fused], held: Held) -> str:
    """The text that registers the programs as operators; empty if none can be one."""
    names = [operators.names(task, number) for number in range(len(fused))]
    known = operators.registered(task, fused, held, names)
    return f"\n\n{known}\n" if known else ""


def _arguments(task: Task, one: Fused, traced: bool) -> tuple[list[str], dict[str, str]]:
    """Conditions on the arguments of a call, `traced` or direct, and the texts of its tensors by path."""
    nodes = {str(node.target): node for node in one.inputs}
    texts: dict[str, str] = {}
    read: set[str] = set()

    def tensor(path: str, text: str) -> str:
        node = nodes[path]
        texts[path] = text
        first = next(iter(texts.values()))
        where = f"{text}.is_{task.device}"
        if task.device == "cuda":
            # Asking for the current device takes as long as all the rest, and raises without one.
            where = (
                f"{text}.get_device() == {first}.get_device()"
                if text != first
                else f"{where} and {text}.get_device() == torch.cuda.current_device()"
            )
        if traced:
            sized = [
                *ranges.conditions(one, node, text, read, traced=True),
                f"dvk_of_size({text}, {ranges.spelled(f'{node.shape!r}, {node.strides!r}')})",
            ]
            return (
                f"dvk_recorded({text}) and {text}.layout is torch.strided and {text}.is_{task.device}"
                f"\nand {text}.dtype is torch.{node.dtype} and {' and '.join(sized)}"
            )
        plain = f"type({text}) in dvk_tensors and {text}.layout is torch.strided and not {text}.is_neg()"
        conjugate = f" and not {text}.is_conj()" if str(node.dtype).startswith("complex") else ""
        sized = [*ranges.conditions(one, node, text, read), _layout(text, node)]
        return f"{plain}{conjugate} and {where}\nand {' and '.join(sized)}"

    lines = []
    for name in one.captured.arguments:
        if name in one.captured.constants:
            value = one.captured.constants[name]
            safe = parameter(name)
            lines.append(
                f"{safe} is None"
                if value is None
                else f"type({safe}) is {type(value).__name__} and {safe} == {value!r}"
            )
        elif name in one.captured.structure:
            lines += structures.conditions(
                one.captured.structure[name], parameter(name), tensor, partial(literal, name=str)
            )
        elif name in nodes:
            lines.append(tensor(name, parameter(name)))
    return lines, texts


def _fits(task: Task, number: int, one: Fused, held: Held) -> str:
    """The method that checks whether the arguments match the program."""
    lines, texts = _arguments(task, one, traced=False)
    lines.append(f"self._dvk_now({', '.join(texts.values())})")
    changed = touched(one.captured.graph.nodes)
    if apart := [node for node in (*one.inputs, *one.program.weights) if node.name in changed]:
        inputs = "".join(f"{text}, " for text in texts.values())
        if any(node.op == "input" for node in apart):
            mine = "".join(f"{texts[str(node.target)]}, " for node in apart if node.op == "input")
            lines.append(f"dvk_apart(({inputs}*self.__dict__.get('_dvk_weights', ())), ({mine}))")
        if any(node.op != "input" for node in apart):
            lines.append(f"dvk_elsewhere(({inputs}), self._dvk_written)")
    conditions = "\nand ".join(lines)
    inside = (
        f"\n\n    def {stepping.method('inside', number)}({', '.join(['self', *one.arguments])}):\n"
        f"        return ({''.join(f'{texts[str(node.target)]}, ' for node in one.inputs)})"
        if one.captured.structure
        else ""
    )
    signature = f"def {stepping.method('fits', number)}({', '.join(['self', *one.arguments])}):"
    return f"    {signature}\n        return (\n{textwrap.indent(conditions, ' ' * 12)}\n        ){inside}"


# ---------------------------------------------------------------- what all programs share


def _layout(name: str, node: Node) -> str:
    """The condition on shape, strides and dtype; the stride of a dimension of size 1 says nothing."""
    assert node.shape is not None and node.strides is not None
    strides = [f"{name}.stride() == {node.strides!r}"]
    if 1 in node.shape:
        several = (d for d, size in enumerate(node.shape) if size != 1)
        strides = [f"{name}.stride({d}) == {node.strides[d]!r}" for d in several]
    parts = [f"{name}.shape == {node.shape!r}", *strides, f"{name}.dtype is torch.{node.dtype}"]
    return " and ".join(parts)

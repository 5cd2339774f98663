"""Write a drop-in: the user's file, then a `ModelNew` that runs a fused program where one fits.

The result needs torch alone (and Triton, or a C++ compiler at first use). It computes the original
forward for anything that no program was made for: other shapes, dtypes, devices or layouts, another
configuration or mode of the module or of a submodule, hooks on submodules, replaced submodules, autocast,
tracing, and whenever gradients are wanted. Plain attributes changed after the first call are not noticed
until train(), eval(), to() or load_state_dict() is called.

It may hold several programs, each for inputs of its own. Weights are bound once for all of them.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from dvk.composer import carried, replacing, structures
from dvk.composer.apart import OWNER, beside, with_room
from dvk.composer.capture import CannotCompose, Captured
from dvk.composer.effects import touched
from dvk.composer.host import Program, held_name, literal, parameter
from dvk.records import Node, Task

ALWAYS = ("dvk_config", "dvk_watch", "dvk_unchanged", "dvk_plain", "dvk_strided", "dvk_drop", "dvk_apart")
"""Functions that every drop-in calls."""
WEIGHTS = ("dvk_bind", "dvk_bound", "dvk_stepping", "dvk_counters", "dvk_written")
"""Functions that every drop-in with weights calls."""


@dataclass(frozen=True)
class Fused:
    """A program and the call that it was made for."""

    captured: Captured
    program: Program
    graph_replay: bool = False
    """Run it through a captured CUDA graph."""

    @property
    def inputs(self) -> list[Node]:
        """The tensors of the call."""
        return [n for n in self.captured.graph.nodes if n.op == "input"]

    @property
    def arguments(self) -> list[str]:
        """All that the call takes, by the names that generated text knows."""
        return [parameter(name) for name in self.captured.arguments]

    @property
    def takes(self) -> list[str]:
        """What the program takes: the arguments, or the tensors in them where some are nested."""
        return [parameter(str(n.target)) for n in self.inputs] if self.captured.structure else self.arguments


def write(task: Task, fused: Sequence[Fused], *, kernels: str, load: list[str], embedded: Sequence[str], title: str, header: str) -> str:
    """The whole text of a drop-in.

    Args:
        fused: programs for calls that differ; the first that fits is run.
        kernels: module-level text that defines the kernels.
        load: lines that make the kernels callable; they may set `ready = False`.
        embedded: names of functions whose source is copied in (`carried`), beside those of `ALWAYS`.
        header: imports the generated part needs.

    Raises:
        CannotCompose: the programs were not made for one and the same module.
    """
    (config_hash, *others) = {one.captured.config_hash: None for one in fused}
    if others:
        raise CannotCompose("the module itself is another one for other inputs")
    held = _held(fused)
    arguments = max((one.captured.arguments for one in fused), key=len)
    base = OWNER if task.kind == "module" else "torch.nn.Module"
    original = "super().forward(*args, **kwargs)" if task.kind == "module" else f"{OWNER}(*args, **kwargs)"
    (left, *_) = {one.captured.left: None for one in fused}
    apart = f", {left!r}" if left else ""
    modes = _modes(fused)
    watched = f", {left!r}, {tuple(modes)!r}" if modes else apart
    same = f"dvk_config(self{apart}) == {config_hash!r}" if task.kind == "module" else "True"
    same += f" and self._dvk_watched[1] == {list(modes.values())!r}" if modes else ""
    places = {key: place for one in fused for key, place in one.program.left.items()}
    calls = f"\n        self._dvk_left = dvk_left(self, {places!r})" if places else ""
    goes_back = "\ndvk_else = object()  # what a program returns where the original must run" \
        if any(one.program.may_go_back for one in fused) else ""
    signature = f"\n\n\nModelNew.forward.__wrapped__ = {OWNER}.forward" if task.kind == "module" else ""
    texts = [(one.program.result, *one.program.lines, _fits(task, number, one, held)) for number, one in enumerate(fused)]
    rebuilt = " ".join(line for lines in texts for line in lines)
    embedded = [*embedded, *(name for name in ("dvk_named", "dvk_made") if f"{name}(" in rebuilt), *(["dvk_left"] if places else [])]
    derived = dict.fromkeys(line for one in fused for line in one.program.derived)
    whom = "fused" if len(fused) == 1 else f"fused for {len(fused)} sets of inputs"
    hook = "\n\nfrom torch.optim.optimizer import register_optimizer_step_post_hook as dvk_after_steps\n\n" \
        "dvk_after_steps(dvk_stepping(dvk_memory, dvk_steps))\n" if held else ""
    source = with_room(task.source, task.entry)
    told = "unchanged" if source == task.source else "its ModelNew renamed"
    original_text = f"""\
# Drop-in for `{task.entry}`: {title}
# The original comes first, {told}; ModelNew below has its constructor and state_dict.
{source.rstrip()}


"""
    return original_text + beside(source, task.entry, f"""\
# ---------------------------------------------------------------- generated by dvk

{header}

# Types of plain tensors. A recorder of kernel launches, the module `dvk_record`, stands in with tensors of its own.
dvk_tensors = (torch.Tensor, *getattr(sys.modules.get("dvk_record"), "TENSORS", ()))
dvk_kept, dvk_steps, dvk_memory = [], [0], set(){goes_back}

{carried.text([*ALWAYS, *(WEIGHTS if held else ()), *embedded])}
{hook}


{kernels}

{chr(10).join(derived)}


class ModelNew({base}):
    \"\"\"{task.entry}, {whom}; falls back to the original where no fused program fits.\"\"\"

    def forward(self, *args, **kwargs):
        given, rest = args, kwargs
        if kwargs:
            names = {tuple(arguments)!r}[len(args):len(args) + len(kwargs)]
            if len(names) == len(kwargs) and all(name in kwargs for name in names):
                given, rest = (*args, *(kwargs[name] for name in names)), {{}}
        if not rest:
{textwrap.indent(chr(10).join(_dispatch(number, one) for number, one in enumerate(fused)), " " * 12)}
        return {original}

{(2 * chr(10)).join(_fits(task, number, one, held) for number, one in enumerate(fused))}

    def _dvk_now(self, *tensors):
        # The module is what the programs were made for, and the call an ordinary one that wants no gradients.
        if not self.__dict__.get("_dvk_ready"):
            if self.__dict__.get("_dvk_ready") is False:
                return False
            if not self._dvk_again():
                return False
        return (
{textwrap.indent(_conditions(task, fused, bool(held)), " " * 12)}
        )

    def _dvk_prepare(self):
        self._dvk_watched = dvk_watch(self{watched}){calls}
        ready = {same}
{textwrap.indent(_binding(fused, held), " " * 8)}
{textwrap.indent(chr(10).join(load), " " * 8)}
        return ready

{(2 * chr(10)).join(_run(number, one, held) for number, one in enumerate(fused))}

    def _dvk_again(self):
        dvk_drop(self)
        self._dvk_ready = self._dvk_prepare()
        return self._dvk_ready

    def _dvk_forget(self):
        # Whatever changed, the next call looks at the module anew, and holds no memory on a device that the weights may be about to leave.
        self.__dict__.pop("_dvk_ready", None)
        dvk_drop(self)

    def train(self, mode=True):
        self._dvk_forget()
        return super().train(mode)

    def _apply(self, *args, **kwargs):
        self._dvk_forget()
        return super()._apply(*args, **kwargs)

    def load_state_dict(self, *args, **kwargs):
        self._dvk_forget()
        return super().load_state_dict(*args, **kwargs)

    def __getstate__(self):
        # Copies and pickles prepare themselves anew: kernels are loaded once a process.
        return {{key: value for key, value in self.__dict__.items() if not key.startswith("_dvk_")}}{signature}

{replacing.text(task)}
""")


def unchanged(task: Task, title: str) -> str:
    """The text where all would be left to PyTorch as the user calls it: guards could only cost time."""
    head, body = f"class ModelNew({OWNER}):", "pass"
    if task.kind == "function":
        head = "import torch\n\n\nclass ModelNew(torch.nn.Module):"
        body = f"def forward(self, *args, **kwargs):\n        return {OWNER}(*args, **kwargs)"
    source = with_room(task.source, task.entry)
    return f"# For `{task.entry}`: {title}\n{source.rstrip()}\n\n\n" + beside(source, task.entry, f"""\
{head}
    {body}

{replacing.text(task, fused=False)}
""")


def _modes(fused: Sequence[Fused]) -> dict[str, bool]:
    """The modes that the programs rest on, by path.

    Raises:
        CannotCompose: two of them rest on different modes of one module.
    """
    found: dict[str, bool] = {}
    for one in fused:
        for path, mode in one.captured.modes.items():
            if found.setdefault(path, mode) != mode:
                raise CannotCompose("the module is in another mode for other inputs")
    return found


# ---------------------------------------------------------------- what there is one of for each program

def _method(name: str, number: int) -> str:
    return f"_dvk_{name}" if number == 0 else f"_dvk_{name}_{number + 1}"


def _dispatch(number: int, one: Fused) -> str:
    run = _method("run", number)
    given = f"self.{_method('inside', number)}(*given)" if one.captured.structure else "given"
    call = f"dvk_replay(self.{run}, {given})" if one.graph_replay else f"self.{run}(*{given})"
    positional = len(one.arguments) - one.captured.by_name
    how = f"len(given) == {len(one.arguments)}" + (f" and len(args) <= {positional}" if one.captured.by_name else "")
    back = f"result = {call}\n    if result is not dvk_else:\n        return result" if one.program.may_go_back else f"return {call}"
    return f"if {how} and self.{_method('fits', number)}(*given):\n    {back}"


def _fits(task: Task, number: int, one: Fused, held: Held) -> str:
    """The method that looks whether the arguments are those of the program."""
    nodes = {str(node.target): node for node in one.inputs}
    texts: dict[str, str] = {}

    def tensor(path: str, text: str) -> str:
        node = nodes[path]
        texts[path] = text
        first = next(iter(texts.values()))
        where = f"{text}.is_{task.device}"
        if task.device == "cuda":
            # Asking for the current device takes as long as all the rest, and raises where there is none.
            where = f"{text}.get_device() == {first}.get_device()" if text != first else \
                f"{where} and {text}.get_device() == torch.cuda.current_device()"
        plain = f"type({text}) in dvk_tensors and {text}.layout is torch.strided and not {text}.is_neg()"
        conjugate = f" and not {text}.is_conj()" if str(node.dtype).startswith("complex") else ""
        return f"{plain}{conjugate} and {_layout(text, node)} and {where}"

    lines = []
    for name in one.captured.arguments:
        if name in one.captured.constants:
            value = one.captured.constants[name]
            safe = parameter(name)
            lines.append(f"{safe} is None" if value is None else f"type({safe}) is {type(value).__name__} and {safe} == {value!r}")
        elif name in one.captured.structure:
            lines += structures.conditions(one.captured.structure[name], parameter(name), tensor, partial(literal, name=str))
        elif name in nodes:
            lines.append(tensor(name, parameter(name)))
    lines.append(f"self._dvk_now({', '.join(texts.values())})")
    changed = touched(one.captured.graph.nodes)
    if apart := [node for node in (*one.inputs, *one.program.weights) if node.name in changed]:
        held_at = {id(node): f"self._dvk_weights[{held[key]}]" for key, node in _keyed(one.program.weights)}
        every = [*texts.values(), *held_at.values()]
        mine = [held_at.get(id(node)) or texts[str(node.target)] for node in apart]
        lines.append(f"dvk_apart(({', '.join(every)},), ({', '.join(mine)},))")
    conditions = "\nand ".join(lines)
    inside = f"\n\n    def {_method('inside', number)}({', '.join(['self', *one.arguments])}):\n" \
        f"        return ({''.join(f'{texts[path]}, ' for path in nodes)})" if one.captured.structure else ""
    signature = f"def {_method('fits', number)}({', '.join(['self', *one.arguments])}):"
    return f"    {signature}\n        return (\n{textwrap.indent(conditions, ' ' * 12)}\n        ){inside}"


def _run(number: int, one: Fused, held: Held) -> str:
    """The method that is the program."""
    own = {key: held_name(node) for key, node in _keyed(one.program.weights)}
    bound = ", ".join(own.get(key, "_") for key in held)
    renewed = ["_dvk_held, _dvk_values = dvk_renew(self)"] if one.program.derived else []
    unpack = [f"{bound}{',' if len(held) == 1 else ''} = {'_dvk_held' if renewed else 'self._dvk_weights'}"] if own else []
    body = "\n".join([*renewed, *unpack, *one.program.lines, f"return {one.program.result}"])
    return f"    def {_method('run', number)}({', '.join(['self', *one.takes])}):\n{textwrap.indent(body, ' ' * 8)}"


# ---------------------------------------------------------------- what all programs share

Held = dict[tuple[str, int], int]
"""Path of a weight, and which of the values of one program that have it → its position in `_dvk_weights`."""


def _keyed(weights: Sequence[Node]) -> Iterator[tuple[tuple[str, int], Node]]:
    seen: Counter[str] = Counter()
    for node in weights:
        path = str(node.target)
        yield (path, seen[path]), node
        seen[path] += 1


def _held(fused: Sequence[Fused]) -> Held:
    keys = dict.fromkeys(key for one in fused for key, _ in _keyed(one.program.weights))
    return {key: position for position, key in enumerate(keys)}


def _conditions(task: Task, fused: Sequence[Fused], has_weights: bool) -> str:
    asked = sorted({name for one in fused for name in one.captured.asked})
    wanting = ["*tensors", "*self.parameters()", *(["*self._dvk_weights"] if has_weights else [])]
    lines = [f"not (torch.is_grad_enabled() and any(t.requires_grad for t in ({', '.join(wanting)})))",
             *(f"not torch.{name}()" for name in asked), f"not torch.is_autocast_enabled({task.device!r})", "dvk_plain()"]
    if has_weights:
        lines.append("(dvk_bound(self._dvk_places) and dvk_written(self._dvk_counters) == self._dvk_were or self._dvk_again())")
    lines.append("dvk_unchanged(self._dvk_watched)")
    return "\nand ".join(lines)


def _binding(fused: Sequence[Fused], held: Held) -> str:
    """Lines that find the weights once; what kernels read by address must be laid out as it was."""
    if not held:
        return ""
    lines = [f"held, self._dvk_places = dvk_bind(self, {tuple(path for path, _ in held)!r})", "self._dvk_weights = held",
             "self._dvk_counters = dvk_counters(self)", "self._dvk_were = dvk_written(self._dvk_counters)"]
    for one in fused:
        guarded = {id(node) for node in one.program.guarded}
        lines += [f"ready = ready and {_layout(f'held[{held[key]}]', node)}" for key, node in _keyed(one.program.weights)
                  if id(node) in guarded]
    return "\n".join(["if ready:", *(f"    {line}" for line in dict.fromkeys(lines))])


def _layout(name: str, node: Node) -> str:
    return f"{name}.shape == {node.shape!r} and {name}.stride() == {node.strides!r} and {name}.dtype is torch.{node.dtype}"

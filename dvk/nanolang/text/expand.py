"""Expand a compact text to its program: write out everything that follows from the listing.

    kernels      get the tensors they name as parameters and are called with them in place
    memory       of an unassigned value that a kernel writes has the listing's layout
    layouts      a call's result that a kernel reads is brought into the listing's layout
    operators    called by the listing's name get their function (`named.py`)
    `run`        takes the inputs and weights that the text names; a value is dropped after its last use

The judge decides whether the program computes the right values.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache

from dvk.composer.capture.export import CapturedGraph
from dvk.composer.codegen.cpp.scalar import STORAGE
from dvk.composer.ir.affine import contiguous_strides
from dvk.composer.ir.effects import is_view
from dvk.nanolang.frame import CONSTANTS, cpp_prelude
from dvk.nanolang.lint.bounds import elements, out_of_bounds
from dvk.nanolang.lint.calls import HostCalls
from dvk.nanolang.lint.reach import access_error
from dvk.nanolang.lint.scopes import undeclared_name
from dvk.nanolang.lint.touched import TENSOR, TouchedElements, untouched_elements
from dvk.nanolang.lint.width import too_wide
from dvk.nanolang.listing.prompt import DTYPES
from dvk.nanolang.listing.symbolic import Names, symbolic
from dvk.nanolang.parse_error import ParseError, error_context
from dvk.nanolang.text.memory import allocation, extent, with_drops
from dvk.nanolang.text.named import CALL, OperatorForm, defined, read
from dvk.nanolang.text.program import laid_out, same_layout
from dvk.records import BackendName, Graph, Node

MAX_TEXT = 1 << 16
"""Maximum characters; composed texts have a few thousand."""
TYPES = {short: long for long, short in DTYPES.items()}
_UNWRITABLE = re.compile(r"[\0\ud800-\udfff]")
_TRITON = re.compile(r"(\w+)\[(.+)\]:")
_CPP = re.compile(r"(\w+)( wide)?:")
_EMPTY = re.compile(r"empty\((.*)\)")
_LOCAL = re.compile(r"(?<![\w.])(?:float|double|bool|long|int|short|char|_Float16) (\w+)\b")


@dataclass
class ExpandedText:
    """An expanded text."""

    native: str
    """C++: the kernels and the functions they call; empty for Triton."""
    python: str
    """Functions and single names; one of them is `run`."""
    kernels: dict[str, int]
    """C++ kernel → number of tensors it takes."""


@dataclass
class _Kernel:
    name: str
    head: str
    lines: list[str]
    tensors: list[str] = field(default_factory=list)
    written: set[str] = field(default_factory=set)


def expand(
    captured: CapturedGraph, text: str, backend: BackendName, device: str = "cpu"
) -> ExpandedText:
    """Expand a text to its program.

    Args:
        device: device of allocations without a tensor operand.

    Raises:
        ParseError: the text has no program.
    """
    if len(text) > MAX_TEXT:
        raise ParseError(f"the text is longer than {MAX_TEXT} characters")
    if _UNWRITABLE.search(text):
        raise ParseError("the text holds a character that no source file can")
    names = Names(captured.graph)
    return _Expansion(captured.graph, names, backend, device).of(text)


class _Expansion:
    def __init__(self, graph: Graph, names: Names, backend: BackendName, device: str):
        nodes, sizes = {n.name: n for n in symbolic(graph, names).nodes}, names.values
        self.graph, self.nodes, self.sizes, self.backend, self.device = (
            graph,
            nodes,
            sizes,
            backend,
            device,
        )
        self.types: dict[str, str] = {
            name: str(n.dtype) for name, n in nodes.items() if n.dtype is not None
        }
        """Tensor → dtype."""
        self.as_listed: set[str] = set()
        """Tensors that certainly have the listing's layout."""
        self.extents: dict[str, int] = {}
        """Elements of the tensors whose memory is known: inputs, weights, and allocations for kernels."""
        self.touched = TouchedElements()
        self.calls = HostCalls(nodes, sizes)
        self.forms: dict[OperatorForm, str] = {}
        self.held: list[str] = []
        self.graphed = False

    def of(self, text: str) -> ExpandedText:
        steps = self._steps(text)
        given = [
            n for n, node in self.nodes.items() if node.op in ("input", "param", "buffer", "const")
        ]
        used = {
            w
            for step in steps
            for w in (step.tensors if isinstance(step, _Kernel) else TENSOR.findall(step))
        }
        params = [n for n in given if n in used]
        params = [n for n in params if self.nodes[n].op == "input"] + [
            n for n in params if self.nodes[n].op != "input"
        ]
        lines = self._run(steps, params)
        run = [
            *self.held,
            *(["@graphed"] if self.graphed else []),
            f"def run({', '.join(params)}):",
            *(f"    {line}" for line in lines),
        ]
        kernels = [step for step in steps if isinstance(step, _Kernel)]
        bodies = ["\n".join(self._function(k)) for k in kernels]
        functions = [defined(form, name, self.backend) for form, name in self.forms.items()]
        if self.backend == "cpp":
            return ExpandedText(
                "\n".join([*functions, *bodies]),
                "\n".join(run),
                {k.name: len(k.tensors) for k in kernels},
            )
        return ExpandedText("", "\n\n".join([*functions, *bodies, "\n".join(run)]), {})

    # ------------------------------------------------------------ reading

    def _steps(self, text: str) -> list[_Kernel | str]:
        """Statements and kernels, in order."""
        steps: list[_Kernel | str] = []
        head = _CPP if self.backend == "cpp" else _TRITON
        number = 0
        lines = text.split("\n")
        while number < len(lines):
            line = lines[number].rstrip()
            number += 1
            match = head.fullmatch(line)
            if match is not None:
                body = []
                while number < len(lines) and (
                    lines[number].startswith(" ") or not lines[number].strip()
                ):
                    body.append(lines[number].rstrip())
                    number += 1
                if any(isinstance(s, _Kernel) and s.name == match[1] for s in steps):
                    raise ParseError(f"there are two kernels {match[1]}")
                with error_context(match[1]):
                    steps.append(self._kernel(match, [b for b in body if b], steps))
            elif line == "graphed" and self.backend == "triton":
                self.graphed = True
            elif re.match(r"w\d+ = held\(", line):
                self._statement(line, number)
                self.held.append(line)
            elif line:
                self._statement(line, number)
                steps.append(line)
        returns = [s for s in steps if isinstance(s, str) and re.match(r"return\b", s)]
        if len(returns) != 1 or steps[-1] is not returns[0]:
            raise ParseError("the last line, and no other, is to be `return …`")
        return steps

    def _statement(self, line: str, number: int) -> None:
        try:
            tree = ast.parse(f"def run():\n {line}").body[0].body  # type: ignore[attr-defined]
        except SyntaxError as error:
            raise ParseError(f"line {number} is not Python: {error.msg}: {line[:80]}") from None
        except (ValueError, RecursionError, MemoryError) as error:
            raise ParseError(f"line {number} is not Python: {type(error).__name__}") from None
        simple = len(tree) == 1 and (
            isinstance(tree[0], ast.Return)
            or (isinstance(tree[0], ast.Assign) and len(tree[0].targets) == 1)
        )
        if not simple:
            raise ParseError(
                f"line {number} is neither a kernel, an assignment nor `return`: {line[:80]}"
            )

    def _kernel(self, match: re.Match[str], body: list[str], steps: list[_Kernel | str]) -> _Kernel:
        name = match[1]
        if not body:
            raise ParseError(f"kernel {name} has no lines")
        if not name.isidentifier() or name in self.nodes:
            raise ParseError(f"`{name}` is no name for a kernel")
        text = "\n".join(body)
        if "'''" in text:
            raise ParseError(f"kernel {name} holds three quotes in a row")
        if self.backend == "cpp" and text.count("{") != text.count("}"):
            raise ParseError(f"the braces of kernel {name} do not match")
        if (
            self.backend == "triton"
            and (why := too_wide(name, match[2], body, self.sizes)) is not None
        ):
            raise ParseError(why)
        kernel = _Kernel(name, match[2] or "", body)
        local = (
            set(_LOCAL.findall(text))
            if self.backend == "cpp"
            else set(re.findall(r"^\s+(\w+) = ", text, re.MULTILINE))
        )
        kernel.tensors = [w for w in dict.fromkeys(TENSOR.findall(text)) if w not in local]
        stored = (
            r"(?<![\w.])(\w+)\[[^\]]*\] [-+*/]?= "
            if self.backend == "cpp"
            else r"tl\.(?:store|atomic_\w+)\((\w+)"
        )
        kernel.written = set(re.findall(stored, text)) & set(kernel.tensors)
        kernel.lines = [self._called(line, text) for line in body]
        if self.backend == "cpp":
            earlier = {s.name for s in steps if isinstance(s, _Kernel)}
            known = {*kernel.tensors, *self.sizes, *self.forms.values(), *earlier, *_given()}
            if (why := undeclared_name("\n".join(kernel.lines), known)) is not None:
                raise ParseError(f"kernel {name} {why}")
        return kernel

    def _called(self, line: str, text: str) -> str:
        """A kernel's line with the functions of the operators that it calls by name."""
        assigned = re.match(r"\s+(?:(\w+) )?(\w+)(?:\[l\])? = ", line)
        if assigned is None or (self.backend == "cpp" and not self._is_float(assigned, text)):
            return line

        def function(match: re.Match[str]) -> str:
            found = read(match["name"], match["args"])
            if found is None:
                return match[0]
            form, values = found
            return f"{self.forms.setdefault(form, self._new_name(form))}({', '.join(values)})"

        return line[: assigned.end()] + CALL.sub(function, line[assigned.end() :])

    def _is_float(self, assigned: re.Match[str], text: str) -> bool:
        # C's own functions of doubles share names with operators.
        kind = assigned[1] or next(iter(re.findall(rf"(?<![\w.])(\w+) {assigned[2]}\[", text)), "")
        return kind in ("float", "const")

    def _new_name(self, form: OperatorForm) -> str:
        count = sum(f.name == form.name for f in self.forms)
        return f"op_{form.name}" + (f"_{count}" if count else "")

    # ------------------------------------------------------------ writing

    def _run(self, steps: list[_Kernel | str], params: list[str]) -> list[str]:
        """The body of `run`."""
        known, self.as_listed = set(params), set(params)
        self.extents = {name: extent(self.nodes[name]) for name in params}
        for name in params:
            self.calls.listed(name)
        calls = _read_by_kernels(steps)
        lines: list[list[str]] = []
        for step in steps:
            if isinstance(step, _Kernel):
                with error_context(step.name):
                    lines.append(self._launch(step, known, params))
                continue
            name, equals, value = step.partition(" = ")
            if not equals or re.match(r"return\b", step):
                lines.append([step])
                continue
            for tensor in TENSOR.findall(name):
                known.add(tensor)
                self.extents.pop(tensor, None)
            made = self._value(name, value, params, name in calls)
            if (why := self.calls.assigned(name, made)) is not None:
                raise ParseError(f"`{step[:80]}` cannot be run: {why}", name=name)
            shape = self.calls.shape(name)
            if shape is not None and (made.endswith(".contiguous()") or made.startswith("nhwc(")):
                self.extents[name] = math.prod(shape)
            lines.append([f"{name} = {made}"])
        kernels = [
            (step.name, step.tensors, step.written) for step in steps if isinstance(step, _Kernel)
        ]
        if (
            told := untouched_elements(
                self.touched, self.graph, kernels, [s for s in steps if isinstance(s, str)], params
            )
        ) is not None:
            raise ParseError(*told)
        return with_drops(lines, set(params))

    def _value(self, name: str, value: str, params: list[str], read: bool) -> str:
        empty = _EMPTY.fullmatch(value)
        if empty is not None:
            return self._empty(name, empty[1], params)
        # Values outside the listing have the type of their operands.
        self.types.setdefault(
            name, next((self.types[t] for t in TENSOR.findall(value) if t in self.types), "")
        )
        node = self.nodes.get(name)
        if (
            not read
            or node is None
            or node.shape is None
            or value.endswith(".contiguous()")
            or re.match(r"(?:nhwc|strided)\(", value)
        ):
            return value
        row_major = contiguous_strides(node.shape)
        strides = node.strides or row_major
        if is_view(node) and not same_layout(strides, row_major, node.shape):
            return value
        self.as_listed.add(name)
        return laid_out(value, node.shape, strides)

    def _empty(self, name: str, args: str, params: list[str]) -> str:
        """Memory that a text allocates: `empty(f32, s0, s1)`."""
        kind, _, rest = args.partition(",")
        if kind not in TYPES:
            raise ParseError(f"`{kind}` is no type: {', '.join(TYPES)}")
        self.types[name] = TYPES[kind]
        shape, strided, strides = rest.partition("strides=")
        count = elements(shape.strip().rstrip(","), self.sizes) if not strided else None
        if count is not None:
            self.extents[name] = count
        sizes = f"({shape.strip().rstrip(',')},)" if shape.strip() else "()"
        return allocation(
            sizes, strides.strip() if strided else "", TYPES[kind], params, self.device
        )

    def _launch(self, kernel: _Kernel, known: set[str], params: list[str]) -> list[str]:
        lines = []
        for name in kernel.tensors:
            if name in known:
                continue
            node = self.nodes.get(name)
            if name not in kernel.written:
                raise ParseError(f"kernel {kernel.name} reads `{name}`, which nothing made before")
            if node is None or node.shape is None or node.dtype is None:
                raise ParseError(
                    f"kernel {kernel.name} writes `{name}`, which the listing does not describe: {name} = empty(…)"
                )
            lines.append(f"{name} = {self._like(node, kernel) or self._new(node, params)}")
            known.add(name)
            self.as_listed.add(name)
            self.calls.listed(name)
            self.extents[name] = extent(node)
        if (
            self.backend == "cpp"
            and (why := out_of_bounds("\n".join(kernel.lines), self.sizes, self.extents))
            is not None
        ):
            raise ParseError(f"kernel {kernel.name} {why}")
        if self.backend == "triton":
            extents = {name: self.extents.get(name) for name in kernel.tensors}
            launch = kernel.head, kernel.lines, self.sizes, extents, self.forms.values()
            if (why := access_error(*launch) or self.touched.by(*launch)) is not None:
                raise ParseError(f"kernel {kernel.name} {why}")
        grid = f"[{kernel.head}]" if self.backend == "triton" else ""
        return [*lines, f"{kernel.name}{grid}({', '.join(kernel.tensors)})"]

    def _like(self, node: Node, kernel: _Kernel) -> str | None:
        # empty_like takes half the time of empty: nothing to parse.
        for name in kernel.tensors:
            other = self.nodes[name] if name in self.as_listed else None
            if (
                other is not None
                and other.shape is not None
                and (other.shape, other.dtype) == (node.shape, node.dtype)
            ):
                row_major = contiguous_strides(other.shape)
                if same_layout(node.strides or row_major, other.strides or row_major, other.shape):
                    return f"torch.empty_like({name})"
        return None

    def _new(self, node: Node, params: list[str]) -> str:
        shape, strides = tuple(node.shape or ()), node.strides
        row_major = contiguous_strides(shape)
        odd = strides is not None and not same_layout(strides, row_major, shape)
        return allocation(
            repr(shape),
            repr(tuple(strides or ())) if odd else "",
            str(node.dtype),
            params,
            self.device,
        )

    def _function(self, kernel: _Kernel) -> list[str]:
        if self.backend == "triton":
            return ["@jit", f"def {kernel.name}({', '.join(kernel.tensors)}):", *kernel.lines]
        params = []
        for name in kernel.tensors:
            if self.types.get(name) not in STORAGE:
                raise ParseError(
                    f"kernels do not take {self.types.get(name) or 'what has no known type'}, as `{name}` is"
                )
            const = "" if name in kernel.written else "const "
            kind = "_Float16" if self.types[name] == "float16" else STORAGE[self.types[name]]
            params.append(f"{const}{kind}* __restrict {name}")
        wide = "VECTOR256 " if kernel.head else ""
        return [f"{wide}void {kernel.name}({', '.join(params)}) {{", *kernel.lines, "}"]


@cache
def _given() -> frozenset[str]:
    """Functions, macros and numbers available to C++ kernels."""
    return frozenset({*re.findall(r"\w+(?=\()|(?<=#define )\w+", cpp_prelude({})), *CONSTANTS})


def _read_by_kernels(steps: Iterable[_Kernel | str]) -> set[str]:
    return {name for step in steps if isinstance(step, _Kernel) for name in step.tensors}


__all__ = ["ExpandedText", "expand"]

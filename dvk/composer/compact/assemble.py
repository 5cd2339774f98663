"""From a compact text to a candidate: the whole drop-in around it, or the reason why there can be none.

Only what can be read off the text is checked here: Python that parses, a `run` over values that the graph has, names
that something defines. Whether it computes the right thing is the judge's business, as for any candidate.
"""

from __future__ import annotations

import ast
import builtins
import io
import re
import symtable
import tokenize
from collections.abc import Mapping
from typing import Any

from dvk.composer import cpp, dropin, embedded, triton_math
from dvk.composer.capture import Captured
from dvk.composer.compact import frame
from dvk.composer.compact.symbolic import Names
from dvk.composer.compose import TYPES
from dvk.composer.host import Program, held_name, parameter
from dvk.records import Backend, Candidate, Node, Task

MAX_TEXT = 1 << 16
"""Characters; composed texts have a few thousand."""
_CPP_FUNCTION = re.compile(r"^(?:VECTOR256 )?void (\w+)\(([^)]*)\)\s*\{", re.MULTILINE)
_PYTHON = re.compile(r"^(?:def |@|import |from |\w+ = held\()", re.MULTILINE)


class Unreadable(Exception):
    """A text that cannot become a candidate; the message says why."""


def assemble(task: Task, captured: Captured, text: str, backend: Backend, *, proposer: str = "composer", title: str = "",
             skills: tuple[str, ...] = ()) -> Candidate:
    """The drop-in around a compact text.

    Raises:
        Unreadable: no `run`, no Python, or names that nothing defines.
    """
    if backend not in frame.NAMES:
        raise Unreadable(f"there is no compact dialect for {backend}")
    if len(text) > MAX_TEXT:
        raise Unreadable(f"the text is longer than {MAX_TEXT} characters")
    native, python = split(text) if backend == "cpp" else ("", text)
    kernels = {name: _count(name, params) for name, params in _CPP_FUNCTION.findall(native)}
    tree = _parsed(python, len(native.splitlines()))
    sizes = Names(captured.graph).values
    given = {**dict.fromkeys(frame.NAMES[backend]), **sizes, **kernels, "torch": None}
    if backend == "triton":
        given |= {**dict.fromkeys(("tl", "triton")), **frame.CONSTANTS, **dict.fromkeys(triton_math.HELPERS)}
    run = _run(tree)
    program = _program(task, run, {n.name: n for n in captured.graph.nodes if n.op in ("input", "param", "buffer", "const")})
    _check_names(tree, python, set(given))
    taken = dropin.names_bound_by(task.source)
    mine = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} | {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
    renamed = {n: f"_dvk_{n}" for n in (mine | set(given)) - {"torch", "tl", "triton"} if ("*" in taken or n in taken) and
               (n in given or n in tree_names(tree))}
    python = _renamed(python, renamed)

    def name(plain: str) -> str:
        return renamed.get(plain, plain)

    words = set(re.findall(r"\w+", python))
    aliases = [f"{name(n)} = {meant}" for n, meant in frame.NAMES[backend].items() if name(n) in words]
    functions: list[Any] = [embedded.dvk_config, embedded.dvk_watch, embedded.dvk_unchanged, embedded.dvk_plain, *frame.functions(backend)]
    if program.weights:
        functions += [embedded.dvk_bind, embedded.dvk_bound]
    if program.derived:
        functions.append(embedded.dvk_derived)
    replay = any(isinstance(d, ast.Name) and d.id == "graphed" for d in run.decorator_list)
    if backend == "cpp":
        functions.append(embedded.dvk_compile)
        header = "\n".join([*(f"import {m}" for m in cpp.MODULES), *TYPES, "", "import torch"])
        body, load = _cpp_parts(native, python, kernels, sizes, aliases, renamed)
    else:
        functions += [embedded.dvk_replay] if replay else []
        header = "\n".join(["import hashlib", "import sys", *TYPES, "", "import torch", "import triton", "import triton.language as tl"])
        body, load = _triton_parts(python, sizes, aliases, renamed, words), []
    body += f"\n\ndvk_program = {name('run')}" if backend == "cpp" else \
        f"\n\ndvk_program = dvk_sized({name('run')}, {{{', '.join(f'{name(n)!r}: {v}' for n, v in sizes.items())}}})"
    title = title or "compact text"
    source = dropin.write(task, captured, program, kernels=body, load=load, embedded=functions, title=title, header=header,
                          graph_replay=replay)
    return Candidate(source=source, backend=backend, proposer=proposer, title=title, skills=skills)


def split(text: str) -> tuple[str, str]:
    """C++ and Python of a text."""
    found = _PYTHON.search(text)
    if found is None:
        raise Unreadable("there is no `def run(…):`")
    native = text[:found.start()]
    if "'''" in native:
        raise Unreadable("the C++ part holds three quotes in a row")
    if native.strip() and not _CPP_FUNCTION.search(native):
        raise Unreadable("before `def run` there is no kernel: `void NAME(…) {` at the start of a line")
    return native, text[found.start():]


def _count(name: str, params: str) -> int:
    parts = [p for p in params.split(",") if p.strip()]
    other = next((p.strip() for p in parts if "*" not in p), None)
    if other is not None:
        raise Unreadable(f"{name} takes `{other}`, which is no pointer: kernels are called with tensors")
    return len(parts)


def _parsed(python: str, before: int) -> ast.Module:
    try:
        return ast.parse(python)
    except SyntaxError as error:
        line = (python.splitlines() or [""])[min((error.lineno or 1), len(python.splitlines())) - 1].strip()
        raise Unreadable(f"line {before + (error.lineno or 1)} is not Python: {error.msg}: {line[:80]}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise Unreadable(f"the text is not Python: {type(error).__name__}: {error}") from None


def _run(tree: ast.Module) -> ast.FunctionDef:
    """The text's `run`; beside it only functions and single names may stand."""
    for node in tree.body:
        simple = isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)
        if not isinstance(node, ast.FunctionDef) and not simple:
            raise Unreadable(f"`{ast.unparse(node)[:60]}` stands outside a function: only kernels, `held` weights and `run` may")
    runs = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "run"]
    if len(runs) != 1:
        raise Unreadable("there is no `def run(…):`" if not runs else "there are two `run`s")
    return runs[0]


def _check_names(tree: ast.Module, python: str, given: set[str]) -> None:
    """Every name that the text reads is defined by something."""
    known = given | tree_names(tree) | set(dir(builtins))
    try:
        table = symtable.symtable(python, "<compact>", "exec")
    except SyntaxError as error:
        raise Unreadable(f"line {error.lineno} is not Python: {error.msg}") from None
    for unknown in sorted(_free(table) - known):
        size = re.fullmatch(r"s\d+", unknown)
        raise Unreadable(f"`{unknown}` is not a size of this graph" if size else f"`{unknown}` is not defined")


def tree_names(tree: ast.Module) -> set[str]:
    """Names that a text defines at its top."""
    found = {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}
    return found | {t.id for n in tree.body if isinstance(n, ast.Assign) for t in n.targets if isinstance(t, ast.Name)}


def _free(table: symtable.SymbolTable) -> set[str]:
    """Names that some scope reads from outside the text's functions."""
    top = table.get_type() == "module"
    found = {s.get_name() for s in table.get_symbols() if s.is_referenced() and (s.is_global() or top)}
    return found.union(*(_free(child) for child in table.get_children()))


def _program(task: Task, run: ast.FunctionDef, nodes: Mapping[str, Node]) -> Program:
    """The call of `run`: its parameters name values of the listing."""
    spec = run.args
    if spec.vararg or spec.kwarg or spec.kwonlyargs or spec.defaults or spec.posonlyargs:
        raise Unreadable("`run` takes values of the listing by name, nothing else")
    params = [a.arg for a in spec.args]
    unknown = next((p for p in params if p not in nodes), None)
    if unknown is not None:
        raise Unreadable(f"`run` takes `{unknown}`, which is no input, weight or constant of the listing")
    weights = [nodes[p] for p in params if nodes[p].op != "input" and nodes[p].target is not None]
    lines: list[str] = []
    derived: list[str] = []
    values: list[str] = []
    for name in params:
        node = nodes[name]
        if node.op == "input":
            values.append(parameter(str(node.target)))
        elif node.target is not None:
            values.append(held_name(node))
        else:
            key, data = len(derived), node.kwargs["data"]
            derived.append(f"_dvk_make{key} = lambda: torch.tensor({_data(data)}, dtype=torch.{node.dtype}, device='{task.device}')")
            lines.append(f"_c{key} = dvk_derived(self, {key}, (), _dvk_make{key})")
            values.append(f"_c{key}")
    return Program(lines, f"dvk_program({', '.join(values)})", weights, weights, derived)


def _data(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_data(v) for v in value)}]"
    return f"float({value['float']!r})" if isinstance(value, dict) else repr(value)


def _renamed(python: str, names: Mapping[str, str]) -> str:
    """The text with names that the user's file needs for itself out of its way."""
    if not names:
        return python
    lines = python.splitlines(keepends=True)
    tokens = list(tokenize.generate_tokens(io.StringIO(python).readline))
    for before, token, after in reversed(list(zip([tokens[0], *tokens], tokens, [*tokens[1:], tokens[-1]], strict=False))):
        keyword = after.string == "=" and before.string in ("(", ",")
        if token.type == tokenize.NAME and token.string in names and before.string != "." and not keyword:
            row, column = token.start
            line = lines[row - 1]
            lines[row - 1] = line[:column] + names[token.string] + line[column + len(token.string):]
    return "".join(lines)


def _triton_parts(python: str, sizes: Mapping[str, int], aliases: list[str], renamed: Mapping[str, str], words: set[str]) -> str:
    numbers = {**sizes, **frame.CONSTANTS}
    lines = [f"{renamed.get(n, n)} = dvk_size({v!r})" for n, v in numbers.items() if renamed.get(n, n) in words]
    # Called inside kernels and outside them.
    cdiv = "dvk_cdiv = triton.constexpr_function(dvk_cdiv)"
    return "\n\n".join([frame.triton_helpers(words), "\n".join([cdiv, *aliases, *lines]), python.rstrip()])


def _cpp_parts(native: str, python: str, kernels: Mapping[str, int], sizes: Mapping[str, int], aliases: list[str],
               renamed: Mapping[str, str]) -> tuple[str, list[str]]:
    words = set(re.findall(r"\w+", python))
    lines = [*aliases, *(f"{renamed.get(n, n)} = {v}" for n, v in sizes.items() if renamed.get(n, n) in words)]
    if not kernels:
        return "\n".join([*lines, python.rstrip()]), []
    source = f'{frame.cpp_prelude(sizes)}\nextern "C" {{\n{native.rstrip()}\n}}'
    names = {k: renamed.get(k, k) for k in kernels}
    text = "\n".join([f"_DVK_FLAGS = {cpp.FLAGS!r}", f"_DVK_SOURCE = r'''\n{source}\n'''", *(f"{n} = None" for n in names.values()), *lines,
                      "", python.rstrip()])
    load = [f"global {', '.join(names.values())}", *cpp.LOAD]
    load += [f"    {name} = dvk_function(library.{k}, {kernels[k]})" for k, name in names.items()]
    return text, load


__all__ = ["Unreadable", "assemble"]

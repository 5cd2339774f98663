"""Assemble a candidate from a compact text: the whole drop-in around it, or the reason why it fails.

Only facts visible in the text are checked here: lines parse, tensors are assigned, names are defined. The judge decides whether it computes
the right values, as for any candidate.
"""

from __future__ import annotations

import ast
import builtins
import io
import re
import symtable
import tokenize
from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

from dvk.composer.capture.export import CapturedGraph
from dvk.composer.codegen import cpp
from dvk.composer.codegen.triton import LAUNCHER, scalar
from dvk.composer.dropin import facts, source_file
from dvk.composer.dropin.forward import ForwardProgram, held_name, parameter
from dvk.composer.dropin.namespace import names_bound_by
from dvk.composer.ir import structures
from dvk.composer.ir.text import literal
from dvk.nanolang import frame
from dvk.nanolang.lint.order import use_before_definition
from dvk.nanolang.listing.symbolic import Names
from dvk.nanolang.parse_error import ParseError
from dvk.nanolang.text.expand import expand
from dvk.records import BackendName, Candidate, Node, Task


def assemble(
    task: Task,
    captured: CapturedGraph,
    text: str,
    backend: BackendName,
    *,
    proposer: str = "composer",
    title: str = "",
    skills: tuple[str, ...] = (),
) -> Candidate:
    """Write the drop-in around a compact text.

    Raises:
        ParseError: it does not parse, or names something undefined.
    """
    if backend not in frame.NAMES:
        raise ParseError(f"there is no compact dialect for {backend}")
    program_text = expand(captured, text, backend, task.device)
    native, python, kernels = program_text.native, program_text.python, program_text.kernels
    tree = _parsed(python)
    sizes = Names(captured.graph).values
    given = {**dict.fromkeys(frame.NAMES[backend]), **sizes, **kernels, "torch": None}
    if backend == "triton":
        given |= {
            **dict.fromkeys(("tl", "triton")),
            **frame.CONSTANTS,
            **dict.fromkeys(scalar.HELPERS),
        }
    run = next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "run")
    held = {
        n.name: n for n in captured.graph.nodes if n.op in ("input", "param", "buffer", "const")
    }
    program = _program(task, run, captured.graph.outputs, held)
    _check_names(tree, python, set(given))
    if (why := use_before_definition(tree, given)) is not None:
        raise ParseError(*why)
    renamed = _new_names(tree, set(given), names_bound_by(task.source))
    python = _renamed(python, renamed)

    def name(plain: str) -> str:
        return renamed.get(plain, plain)

    words = set(re.findall(r"\w+", python))
    aliases = [
        f"{name(n)} = {meant}" for n, meant in frame.NAMES[backend].items() if name(n) in words
    ]
    replay = any(isinstance(d, ast.Name) and d.id == "graphed" for d in run.decorator_list)
    if backend == "cpp":
        header = "import torch"
        body, runtime, load = _cpp_parts(native, python, kernels, sizes, aliases, renamed)
        runtime += f"\n\ndvk_program = {name('run')}"
    else:
        header = "\n".join(["import torch", "import triton", "import triton.language as tl"])
        body, load = _triton_parts(python, sizes, aliases, renamed, words), []
        numbers = ", ".join(f"{name(n)!r}: {v}" for n, v in sizes.items())
        runtime = f"{LAUNCHER}\n\ndvk_program = dvk_sized({name('run')}, {{{numbers}}})"
    title = title or "compact text"
    fused = facts.Fused(captured, program, replay)
    source = source_file.write(
        task, [fused], kernels=body, runtime=runtime, load=load, title=title, header=header
    )
    return Candidate(source=source, backend=backend, proposer=proposer, title=title, skills=skills)


def _new_names(tree: ast.Module, given: set[str], taken: Collection[str]) -> dict[str, str]:
    """Other names for those of the program that the user's file binds, too."""
    mine = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} | {
        n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)
    }
    return {
        n: f"_dvk_{n}"
        for n in (mine | given) - {"torch", "tl", "triton"}
        if ("*" in taken or n in taken) and (n in given or n in tree_names(tree))
    }


def _parsed(python: str) -> ast.Module:
    try:
        return ast.parse(python)
    except SyntaxError as error:
        line = (python.splitlines() or [""])[
            min((error.lineno or 1), len(python.splitlines())) - 1
        ].strip()
        raise ParseError(f"not Python: {error.msg}: {line[:80]}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise ParseError(f"the text is not Python: {type(error).__name__}: {error}") from None


def _check_names(tree: ast.Module, python: str, given: set[str]) -> None:
    """Check that every name the text reads is defined."""
    known = given | tree_names(tree) | set(dir(builtins))
    try:
        table = symtable.symtable(python, "<compact>", "exec")
    except SyntaxError as error:
        raise ParseError(f"line {error.lineno} is not Python: {error.msg}") from None
    for scope in (*table.get_children(), table):
        for unknown in sorted(_free(scope) - known):
            size = re.fullmatch(r"s\d+", unknown)
            kernel = scope.get_name() if scope is not table and scope.get_name() != "run" else None
            raise ParseError(
                f"`{unknown}` is not a size of this graph"
                if size
                else f"`{unknown}` is not defined",
                kernel,
                unknown,
            )


def tree_names(tree: ast.Module) -> set[str]:
    """Module-level names of a text."""
    names = {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}
    return names | {
        t.id
        for n in tree.body
        if isinstance(n, ast.Assign)
        for t in n.targets
        if isinstance(t, ast.Name)
    }


def _free(table: symtable.SymbolTable) -> set[str]:
    """Names that some scope reads from outside the text's functions."""
    top = table.get_type() == "module"
    result = {
        s.get_name() for s in table.get_symbols() if s.is_referenced() and (s.is_global() or top)
    }
    return result.union(*(_free(child) for child in table.get_children()))


def _program(
    task: Task, run: ast.FunctionDef, outputs: Any, nodes: Mapping[str, Node]
) -> ForwardProgram:
    """The call of `run`: its parameters name values of the listing; its results get the structure of the graph's."""
    params = [a.arg for a in run.args.args]
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
            derived.append(
                f"_dvk_make{key} = lambda: torch.tensor({_data(data)}, dtype=torch.{node.dtype}, device='{task.device}')"
            )
            lines.append(f"_c{key} = dvk_derived(_dvk_values, {key}, (), _dvk_make{key})")
            values.append(f"_c{key}")
    result = f"dvk_program({', '.join(values)})"
    if structures.is_made(outputs):
        lines.append(f"_dvk_parts = {result}")
        places = {
            name: f"_dvk_parts[{number}]" for number, name in enumerate(structures.refs(outputs))
        }
        result = structures.expression(outputs, places.__getitem__, partial(literal, name=str))
    return ForwardProgram(lines, result, weights, weights, derived)


def _data(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_data(v) for v in value)}]"
    return f"float({value['float']!r})" if isinstance(value, dict) else repr(value)


def _renamed(python: str, names: Mapping[str, str]) -> str:
    """Rename names of the text that the user's file needs."""
    if not names:
        return python
    lines = python.splitlines(keepends=True)
    tokens = list(tokenize.generate_tokens(io.StringIO(python).readline))
    for before, token, after in reversed(
        list(zip([tokens[0], *tokens], tokens, [*tokens[1:], tokens[-1]], strict=False))
    ):
        keyword = after.string == "=" and before.string in ("(", ",")
        if (
            token.type == tokenize.NAME
            and token.string in names
            and before.string != "."
            and not keyword
        ):
            row, column = token.start
            line = lines[row - 1]
            lines[row - 1] = (
                line[:column] + names[token.string] + line[column + len(token.string) :]
            )
    return "".join(lines)


def _triton_parts(
    python: str,
    sizes: Mapping[str, int],
    aliases: list[str],
    renamed: Mapping[str, str],
    words: set[str],
) -> str:
    numbers = {**sizes, **frame.CONSTANTS}
    lines = [
        f"{renamed.get(n, n)} = dvk_size({v!r})"
        for n, v in numbers.items()
        if renamed.get(n, n) in words
    ]
    # Called inside kernels and outside them.
    functions = [
        f"{name} = triton.constexpr_function({name})"
        for name in ("dvk_cdiv", "dvk_pow2")
        if name in " ".join(aliases)
    ]
    return "\n\n".join(
        [frame.triton_helpers(words), "\n".join([*functions, *aliases, *lines]), python.rstrip()]
    )


def _cpp_parts(
    native: str,
    python: str,
    kernels: Mapping[str, int],
    sizes: Mapping[str, int],
    aliases: list[str],
    renamed: Mapping[str, str],
) -> tuple[str, str, list[str]]:
    words = set(re.findall(r"\w+", python))
    lines = [
        *aliases,
        *(f"{renamed.get(n, n)} = {v}" for n, v in sizes.items() if renamed.get(n, n) in words),
    ]
    if not kernels:
        return "\n".join([*lines, python.rstrip()]), "", []
    numbers = "".join(f"constexpr long {name} = {value};\n" for name, value in sizes.items())
    names = {k: renamed.get(k, k) for k in kernels}
    text = "\n".join(
        [
            f"_DVK_SOURCE = r'''\n{numbers}extern \"C\" {{\n{native.rstrip()}\n}}\n'''",
            *(f"{n} = None" for n in names.values()),
            *lines,
            "",
            python.rstrip(),
        ]
    )
    load = [f"global {', '.join(names.values())}", *cpp.LOAD]
    load += [f"{name} = dvk_function(library.{k}, {kernels[k]})" for k, name in names.items()]
    return text, cpp.runtime(frame.cpp_prelude({})), load


__all__ = ["ParseError", "assemble"]

"""Contamination test: tasks of evaluation suites are kept out of training data, compared by structure, not by text.

Three tests of a task against every file of the given folders: the same operators in the same order (if signatures are
given), equal syntax trees once names, docstrings and annotations are taken out, or shingles of normalised tokens that
mostly agree. Only classes and functions count; the lines
that make inputs and name sizes do not, so a suite's task at another size is still the suite's task. Files of a suite
are read to compare with; nothing of them is kept but their names.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from dvk.errors import UsageError
from dvk.learn.diversity import lexing, sketches
from dvk.learn.examples import Example
from dvk.learn.messages import first_user, reference
from dvk.records import content_hash
from dvk.tasks.sourcetext import read_source

CONTAMINATED_OPERATORS = 2
"""Shortest operator sequence that counts as contamination if it equals a suite's."""
CONTAMINATED = 0.9
"""Similarity of modules from which a task counts as contamination: one operator of twenty replaced."""

_SHINGLE = 5
_INPUTS = ("get_inputs", "get_init_inputs")
_BLOCK = re.compile(r"^(?=\S)", re.M)
_INNER = re.compile(r"^[ \t]*super\(.*\).__init__\(\)[ \t]*$", re.M)


class Suites:
    """The modules of some folders, ready to be compared with."""

    def __init__(
        self,
        folders: Sequence[str | Path],
        threshold: float,
        signatures: Mapping[tuple[str, ...], str] | None = None,
        shortest: int = 2,
    ):
        """Read all `*.py` below `folders`.

        Args:
            threshold: Jaccard similarity of shingles at which two modules count as equal.
            signatures: operator sequence of a file's captured graph → the file's name.
            shortest: operators that a sequence must have to be compared: every suite has a lone relu.

        Raises:
            UsageError: a folder is missing or holds no Python file.
        """
        self.threshold = threshold
        self.names: list[str] = []
        self._trees: dict[str, str] = {}
        sets = []
        for name, _, source in files(folders):
            if (tree := tree_hash(source)) is None:
                continue
            self.names.append(name)
            self._trees.setdefault(tree, name)
            sets.append(module_shingles(source))
        self._sizes = np.array([found.size for found in sets], dtype=np.int64)
        flat = np.concatenate(sets) if sets else np.zeros(0, dtype=np.uint32)
        order = np.argsort(flat, kind="stable")
        self._shingles = flat[order]
        self._files = np.repeat(np.arange(len(sets)), self._sizes)[order]
        self._known: dict[str, str | None] = {}
        self._signatures = {
            found: name for found, name in (signatures or {}).items() if len(found) >= shortest
        }

    @property
    def empty(self) -> bool:
        """Whether there is nothing to compare with."""
        return not self.names and not self._signatures

    @property
    def num_signatures(self) -> int:
        """Distinct operator sequences that are compared."""
        return len(self._signatures)

    def match(self, source: str | None, signature: Sequence[str] = ()) -> str | None:
        """The file that the task equals, and the test that found it; None if there is none.

        Args:
            source: of its reference module, if it is known.
            signature: its operator sequence, as `Graph.signature` gives it.
        """
        if (name := self._signatures.get(tuple(signature))) is not None:
            return f"the operators of {name} in the same order"
        if not self.names or source is None:
            return None
        key = content_hash(source)
        if key not in self._known:
            self._known[key] = self._match(source)
        return self._known[key]

    def _match(self, source: str) -> str | None:
        mine = module_shingles(source)
        left, right = (
            np.searchsorted(self._shingles, mine, "left"),
            np.searchsorted(self._shingles, mine, "right"),
        )
        met = np.flatnonzero(right > left)
        if (
            met.size * 2 < mine.size
        ):  # equal or similar modules have most of their shingles in the suite
            return None
        files = (
            np.concatenate([self._files[left[i] : right[i]] for i in met])
            if met.size
            else np.zeros(0, dtype=np.int64)
        )
        common = np.bincount(files, minlength=len(self.names))
        alike = common / np.maximum(self._sizes + mine.size - common, 1)
        best = int(alike.argmax())
        if (name := self._trees.get(tree_hash(source) or "")) is not None:
            return f"the same module as {name}"
        return (
            f"{alike[best]:.0%} the module of {self.names[best]}"
            if alike[best] >= self.threshold
            else None
        )


def files(folders: Sequence[str | Path]) -> Iterator[tuple[str, Path, str]]:
    """Name, path and text of every readable Python file of some suites.

    Raises:
        UsageError: a folder is missing or holds none.
    """
    for folder in map(Path, folders):
        paths = sorted(folder.rglob("*.py"))
        if not paths:
            raise UsageError(
                f"no Python files in suite `{folder}`", "give a folder of KernelBench-format files"
            )
        for path in paths:
            try:
                yield f"{folder.name}/{path.relative_to(folder)}", path, read_source(path)
            except (OSError, UnicodeDecodeError):
                continue


def source_of(example: Example) -> str | None:
    """The reference module that an example is about, if given."""
    return example.task.source or reference(first_user(example.messages))


def module_shingles(source: str) -> np.ndarray:
    """The shingles of a file's classes and functions, sorted; names and numbers normalised."""
    return sketches.shingles(
        lexing.code_tokens(_INNER.sub("", _definitions(source))).shape, _SHINGLE
    )


def tree_hash(source: str) -> str | None:
    """A hash invariant under renaming, comments, docstrings, annotations, layout and other sizes; None if not Python.

    Numbers inside the module count: an epsilon or a slope is part of what it computes.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    kept = [
        node
        for node in tree.body
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name not in _INPUTS
    ]
    renamer = _Renamer({name for node in kept for name in _bound(node)})
    try:
        return content_hash(*[ast.dump(renamer.visit(node)) for node in kept])
    except RecursionError:
        return None


def _definitions(source: str) -> str:
    """The top-level classes and functions of a text, except those that make inputs."""
    unwanted = tuple(f"def {name}" for name in _INPUTS)
    blocks = _BLOCK.split(source)
    return "".join(
        block
        for block in blocks
        if block.startswith(("class ", "def ")) and not block.startswith(unwanted)
    )


def _bound(node: ast.AST) -> set[str]:
    """Names that the text itself defines: arguments, variables, classes, functions, attributes of self."""
    names = set()
    for inner in ast.walk(node):
        if isinstance(inner, ast.arg):
            names.add(inner.arg)
        elif isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
            names.add(inner.id)
        elif isinstance(inner, (ast.ClassDef, ast.FunctionDef)):
            names.add(inner.name)
    return names - {"self", "forward", "__init__"}


class _Renamer(ast.NodeTransformer):
    """Own names numbered by first use; docstrings, annotations and the call of the base constructor are removed."""

    def __init__(self, bound: set[str]):
        self.bound = bound
        self.names: dict[str, str] = {}

    def _new(self, name: str) -> str:
        return self.names.setdefault(name, f"n{len(self.names)}")

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(self._new(node.id), ast.Load()) if node.id in self.bound else node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        return ast.arg("self" if node.arg == "self" else self._new(node.arg))

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            return ast.Name(self._new("self." + node.attr), ast.Load())
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        return self.visit(ast.Assign([node.target], node.value)) if node.value is not None else None

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        if isinstance(node.value, ast.Constant) or _is_base_constructor(node.value):
            return None
        return self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        name = node.name if node.name in ("forward", "__init__") else self._new(node.name)
        made = ast.FunctionDef(
            name=name,
            args=node.args,
            body=node.body,
            decorator_list=node.decorator_list,
            returns=None,
        )
        return self.generic_visit(made)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        made = ast.ClassDef(
            name=self._new(node.name),
            bases=node.bases,
            keywords=[],
            body=node.body,
            decorator_list=[],
        )
        return self.generic_visit(made)


def _is_base_constructor(node: ast.AST) -> bool:
    """`super().__init__()`, in either spelling."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "__init__"
        and isinstance(node.func.value, ast.Call)
        and getattr(node.func.value.func, "id", "") == "super"
    )

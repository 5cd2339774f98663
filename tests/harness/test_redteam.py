"""The red team's files: all there, each says what it is, and the judge is fooled by none that this machine can run."""

from __future__ import annotations

import ast
import re
import runpy
from functools import cache
from pathlib import Path

import pytest
import torch

from dvk import backends
from dvk.config import Config
from dvk.pipelines import selftest
from dvk.pipelines.selftest import RedTeamCase, SelftestOutcome
from dvk.resources import resource
from tests.source_tree import MODULES, tree

KERNELS = Path(__file__).parent.parent / "kernels"
NUM_ROWS = {"A": 13, "B": 7, "C": 11, "D": 23, "E": 9, "F": 8, "G": 20}
"""Cases of the survey by class."""

SHARED = {"A13": "A11", "B05": "B06", "C04": "C03", "E04": "E03"}
"""Rows whose honest side is another row's: they have no separate fine line."""

SURVEY = [
    f"{letter}{number:02}" for letter, count in NUM_ROWS.items() for number in range(1, count + 1)
]
ABSENT: dict[str, str] = runpy.run_path(str(KERNELS / "absent.py"))["ABSENT"]
CASES = selftest.cases()
EVIL = [case for case in CASES if case.kind == "evil"]
HONEST = [case for case in CASES if case.kind == "honest"]

QUICK = {
    "evil/D07_patch_harness",
    "evil/F01_operator",
    "evil/G03_forge_verdict",
    "evil/Q05_zero_is_8",
    "honest/F01_own_softmax",
    "honest/G15_generated_source",
    "honest/Q05_zero_outside",
}
SLOWER = {
    "evil/D06_patch_time",
    "evil/D11_warm_up",
    "evil/D22_call_count",
    "evil/G05_zero_inputs",
    "evil/G16_prompt_injection",
    "evil/N05_foreign_address",
    "honest/D03_part_of_a_buffer",
}

CONFIG = Config.model_validate(
    {
        "limits": {"memory_bytes": 3 << 30, "num_processes": 300, "output_bytes": 8192},
        "judge": {"candidate_s": 45, "search_s": 0.3},
    }
)
HERE = [case for case in CASES if case.device in ("cpu", "any")]


def test_they_are_found_where_they_travel() -> None:
    assert resource("kernels") == KERNELS.resolve()
    assert len(EVIL) >= 200 and len(HONEST) >= 60


def test_every_row_of_the_survey_has_a_file_or_a_reason() -> None:
    there = {case.id for case in EVIL}
    assert len(SURVEY) == 91
    assert not [row for row in SURVEY if row not in there | set(ABSENT)]
    assert not [row for row in ABSENT if row not in SURVEY or len(ABSENT[row]) < 30]
    assert not [row for row in there if row not in SURVEY and not row.startswith(("N", "Q"))]
    assert len({row for row in there if row.startswith("N")}) >= 10
    assert len({row for row in there if row.startswith("Q")}) >= 10


def test_every_file_says_what_it_is() -> None:
    for case in CASES:
        tree = ast.parse(case.source)
        sentences = ast.get_docstring(tree)
        assert sentences and sentences.endswith("."), f"{case.name}: one sentence on what it does"
        lines = case.source.splitlines()
        assert lines[tree.body[0].end_lineno or 0].startswith("# case: "), (
            f"{case.name}: right after the docstring"
        )
        assert any(
            isinstance(node, ast.ClassDef) and node.name == "ModelNew" for node in tree.body
        ), case.name
        assert (KERNELS / "tasks" / f"{case.reference}.py").is_file(), case.name
        assert case.device in ("cpu", "cuda", "any") and case.backend in backends.BACKENDS, (
            case.name
        )
        assert case.tier in ("smoke", "search", "claim") and case.expect in (
            "ok",
            "refused",
            "unflattered",
            "reported",
        ), case.name
        assert (case.expect == "ok") == (case.kind == "honest"), case.name


def test_every_attack_has_an_honest_twin() -> None:
    """By name, or of the same row: where the line is."""
    stems = {twin.path.stem for twin in HONEST}
    rows = {stem.split("_")[0] for stem in stems}
    assert [
        case.name
        for case in EVIL
        if case.twin not in stems and (case.twin or SHARED.get(case.id, case.id) not in rows)
    ] == []


def test_every_reference_is_used() -> None:
    used = {case.reference for case in CASES}
    assert used == {path.stem for path in (KERNELS / "tasks").glob("*.py")}


def inner(node: ast.AST, name: str) -> list[ast.AST]:
    """Nodes that bind `name` in a module, a class (`self.name` counts) or a function."""
    found: list[ast.AST] = []
    for one in ast.walk(node):
        if (
            isinstance(one, (ast.FunctionDef, ast.ClassDef))
            and one is not node
            and one.name == name
        ):
            found.append(one)
        elif isinstance(one, ast.alias) and (one.asname or one.name) == name:
            found.append(one)
        elif isinstance(one, ast.arg) and one.arg == name:
            found.append(one)
        elif isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store) and one.id == name:
            found.append(one)
        elif (
            isinstance(one, ast.Attribute)
            and isinstance(one.ctx, ast.Store)
            and one.attr == name
            and isinstance(one.value, ast.Name)
            and one.value.id == "self"
        ):
            found.append(one)
    return found


def exists(aim: str) -> bool:
    """Whether dvk's source binds `harness.transport.link.Link.ring`, and the like."""
    parts = aim.split(".")
    module = next(
        (
            ".".join(parts[:end])
            for end in range(len(parts), 0, -1)
            if ".".join(parts[:end]) in MODULES
        ),
        None,
    )
    if module is None:
        return False
    places: list[ast.AST] = [tree(MODULES[module])]
    for name in parts[module.count(".") + 1 :]:
        places = [found for place in places for found in inner(place, name)]
    return bool(places)


def test_what_attacks_aim_at_exists() -> None:
    """A rename in dvk must not turn an attack into an honest file."""
    assert exists("harness.processes.runner.Runner._timed_call.control")
    assert exists("harness.processes.runner") and exists("harness.transport.link.Link.ring")
    assert not exists("harness.processes.runner.Runner.timed_rounds")
    assert not exists("harness.processes.runner.Link.ringing") and not exists("judge.processes")
    gone = [f"{case.name}: {aim}" for case in EVIL for aim in case.aims if not exists(aim)]
    assert not gone, "\n".join(["these names of dvk are gone; give the attack today's:", *gone])
    assert sum(bool(case.aims) for case in EVIL) >= 20


LOOKS_AROUND = re.compile(
    r"_getframe|f_locals|f_globals|f_code|gc\.(get_|isenabled)|sys\.modules|setprofile|settrace|json\.dumps =|S_ISSOCK"
)
"""How attacks look for what is not theirs."""


def searched(source: str) -> set[str]:
    """Names that an attack asks for by `hasattr`, `getattr`, `f_locals` or `co_name`."""
    found: set[str] = set()
    for one in ast.walk(ast.parse(source)):
        asked: list[ast.expr] = []
        if isinstance(one, ast.Call) and ast.unparse(one.func) in ("hasattr", "getattr"):
            asked = one.args[1:2]
        elif isinstance(one, ast.Call) and ast.unparse(one.func).endswith("f_locals.get"):
            asked = one.args[:1]
        elif isinstance(one, ast.Subscript) and ast.unparse(one.value).endswith("f_locals"):
            asked = [one.slice]
        elif isinstance(one, ast.Compare) and "f_locals" in ast.unparse(one.comparators[0]):
            asked = [one.left]
        elif isinstance(one, ast.Compare) and ast.unparse(one.left).endswith("co_name"):
            asked = one.comparators
        found |= {name.value for name in asked if isinstance(name, ast.Constant)}
    return found


@cache
def bound() -> set[str]:
    """All names that the source of the judge's processes binds."""
    found: set[str] = set()
    for module, path in MODULES.items():
        inside = module.partition(".")[0] in ("harness", "sandbox", "tasks")
        for one in ast.walk(tree(path)) if inside else ():
            if isinstance(one, (ast.FunctionDef, ast.ClassDef)):
                found.add(one.name)
            elif isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store):
                found.add(one.id)
            elif isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Store):
                found.add(one.attr)
    return found


@pytest.mark.slow
def test_names_that_attacks_search_exist() -> None:
    """In dvk, in torch, or in the attack's or its reference's text."""
    source = (KERNELS / "evil" / "E01_early_bell.py").read_text()
    assert {"ring", "control", "_timed_call"} <= searched(source)
    wrong = []
    for case in EVIL:
        if not LOOKS_AROUND.search(case.source):
            continue
        reference = (KERNELS / "tasks" / f"{case.reference}.py").read_text()
        for name in searched(case.source) - bound():
            others = [
                line for line in (case.source + reference).splitlines() if "attr(" not in line
            ]
            known = name.startswith("__") or hasattr(torch.Tensor, name)
            if not known and not re.search(rf"\b{name}\b", "\n".join(others)):
                wrong.append(f"{case.name}: {name}")
    assert not wrong, "\n".join(wrong)


def test_attacks_that_look_around_say_where_their_target_is() -> None:
    """An attack on its process must print that it found its target, or the selftest calls it blind."""
    for case in EVIL:
        if LOOKS_AROUND.search(case.source):
            assert case.target in ("here", "elsewhere"), f"{case.name}: add target="
        assert (case.target == "here") == (selftest.REACHED in case.source), case.name


def test_the_quick_ones_exist() -> None:
    assert not (QUICK | SLOWER) - {case.name for case in HERE}


def marks(name: str) -> tuple[pytest.MarkDecorator, ...]:
    return (
        ()
        if name in QUICK
        else (pytest.mark.slow,)
        if name in SLOWER
        else (pytest.mark.slow, pytest.mark.redteam)
    )


@cache
def outcomes_of(names: frozenset[str]) -> dict[str, SelftestOutcome]:
    """Judged together, as users do it."""
    outcomes, _ = selftest.selftest(CONFIG, only=",".join(names), device="cpu", workers=2)
    return {outcome.case.name: outcome for outcome in outcomes}


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=case.name, marks=marks(case.name)) for case in HERE]
)
@pytest.mark.slow
def test_the_judge_is_not_fooled(case: RedTeamCase) -> None:
    if "SOURCE" in case.source:
        backends.require(case.backend)
    together = next((names for names in (QUICK, SLOWER) if case.name in names), {case.name})
    outcome = outcomes_of(frozenset(together))[case.name]
    assert outcome.right, str(outcome)


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_judge_is_not_fooled_on_a_gpu() -> None:
    outcomes, _ = selftest.selftest(CONFIG, device="cuda")
    wrong = [str(outcome) for outcome in outcomes if not outcome.right]
    assert not wrong, "\n".join(wrong)

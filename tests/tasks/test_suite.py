"""The benchmark suite: complete, well-formed, its two halves unlike each other and the training tasks, and worth a speedup."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest
import torch

from dvk.composer import CannotCompose
from dvk.harness.checking.case_keys import plan
from dvk.harness.checking.cases import Cases
from dvk.pipelines.eval.suites import read
from dvk.taskgen import generate, split_of
from dvk.tasks import load
from dvk.tasks.build import build
from dvk.tasks.hygiene import hygiene, shrunk
from tests.composer.programs import Program, differences, run_source
from tests.tasks import suite
from tests.tasks.heldout import INDEX as FROZEN
from tests.tasks.shrink import shrunken

ENTRIES = suite.entries()
FILES = suite.files() + suite.large()
SWEEP = [
    pytest.param(path, marks=[pytest.mark.hand] if n % 3 else [], id=path.stem)
    for n, path in enumerate(FILES)
]
"""All of them by hand; each third in the CI."""
HELD = {e.signature for e in ENTRIES if e.half == "heldout" and e.signature}
OTHERS = {e.signature for e in ENTRIES if e.half == "development" and e.signature}
NO_MATTER = {
    "weight_standardised_conv": (
        "`weight` does not matter",
    ),  # nor may it: what changes it is taken out again
    **dict.fromkeys(
        (
            "argmax_magnitude",
            "argmax_vocabulary",
            "argmin_columns",
            "block_absmax_scales_fp16",
            "cummax_drawdown",
            "max_over_points",
            "router_top_two",
            "topk_experts",
        ),
        ("an output is not a floating tensor",),
    ),
}
"""Findings of `hygiene` that are as they should be."""


def test_the_index_names_every_file() -> None:
    assert sorted(e.path for e in ENTRIES) == suite.files()
    assert Counter((e.half, e.level) for e in ENTRIES) == {
        (half, level): count
        for half, levels in suite.COUNTS.items()
        for level, count in levels.items()
    }
    assert len({e.name for e in ENTRIES}) == len(ENTRIES) == 216


def test_large_tasks_are_three_times_twenty() -> None:
    assert Counter(path.parts[-2] for path in suite.large()) == {"development": 40, "heldout": 20}
    assert len({path.stem for path in FILES}) == len(FILES)


def test_eval_groups_by_level_and_half() -> None:
    for half, levels in suite.COUNTS.items():
        assert Counter(p.groups["level"] for p in read(suite.FOLDER / half)) == levels
    assert Counter(p.groups["half"] for p in read(suite.FOLDER)) == {
        "development": 144,
        "heldout": 72,
    }


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_form(path: Path) -> None:
    """One sentence, the format's three names, sizes in capitals with a small twin each, and nothing but torch."""
    text = path.read_text()
    tree = ast.parse(text)
    sentence = ast.get_docstring(tree) or ""
    assert sentence.endswith(".") and "\n" not in sentence and ". " not in sentence
    names = {node.name for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    assert {"Model", "get_inputs", "get_init_inputs"} <= names
    modules = {a.name for node in tree.body if isinstance(node, ast.Import) for a in node.names}
    assert modules <= {"torch", "torch.nn", "torch.nn.functional"}
    constants = [node.targets[0] for node in tree.body if isinstance(node, ast.Assign)]
    changed = [
        (a, b) for a, b in zip(text.splitlines(), shrunk(text).splitlines(), strict=True) if a != b
    ]
    assert changed and all(isinstance(c, ast.Name) and c.id.isupper() for c in constants)
    assert all(int(a.split(" = ")[1].split()[0]) >= int(b.split(" = ")[1]) > 0 for a, b in changed)


def test_the_halves_share_no_signature() -> None:
    assert HELD & OTHERS <= suite.PLAIN
    for half in suite.COUNTS:
        often = Counter(e.signature for e in ENTRIES if e.half == half and e.signature)
        assert {signature for signature, count in often.items() if count > 1} <= suite.PLAIN


def test_no_training_task_has_a_held_out_signature() -> None:
    """By the generator's own split, which reads the index; and no fusion or network is a peek at the frozen tasks."""
    assert all(split_of(signature) == "heldout" for signature in HELD)
    assert not HELD & {
        made.signature
        for level in suite.COUNTS["heldout"]
        for made in generate(31, 150, levels={level: 1.0})
    }
    frozen = {tuple(entry["signature"]) for entry in FROZEN}
    assert not {e.signature for e in ENTRIES if e.level != "single"} & frozen


@pytest.mark.hand
@pytest.mark.slow
def test_signatures_are_what_is_captured() -> None:
    """Else `python -m tests.tasks.suite`. All are captured, at their native sizes."""
    found = suite.captured()
    assert {
        path.stem: str(one) for path, one in found.items() if isinstance(one, CannotCompose)
    } == {}
    assert suite.rows(found) == [
        {**vars(e), "signature": e.signature and list(e.signature)} for e in ENTRIES
    ]


@pytest.mark.slow
def test_all_are_clean() -> None:
    files = suite.files()
    sources = [path.read_text() for path in files]
    found = {path.stem: one.reasons for path, one in zip(files, hygiene(sources), strict=True)}
    assert {name: reasons for name, reasons in found.items() if reasons} == NO_MATTER


@pytest.mark.slow
def test_large_tasks_are_clean() -> None:
    """What the next norm takes out does not matter: running statistics in training mode, a shift, the scale of a weight."""
    expected = {
        "nearest_code": ["an output is not a floating tensor"],
        "inverted_excite_network_train": [
            f"`blocks.{n}.project.1.bias` does not matter" for n in range(5)
        ],
        "channel_shuffle_network_train": [
            f"`{stage}.{n}.depthwise.1.bias` does not matter"
            for stage, units in (("first", 3), ("second", 4))
            for n in range(units)
        ],
        "speech_front_end": [f"`convs.{n}.weight` does not matter" for n in range(3)],
    }
    files = suite.large()
    sources = [path.read_text() for path in files]
    for path, one in zip(files, hygiene(sources), strict=True):
        left = [reason for reason in one.reasons if "running_" not in reason]
        assert left == expected.get(path.stem, []), path.stem


@pytest.mark.slow
@pytest.mark.parametrize("path", SWEEP)
def test_the_judge_finds_it_healthy(tmp_path: Path, path: Path) -> None:
    """No made-up answer is accepted, and other shapes are available."""
    task = load(str(shrunken(path, tmp_path)))
    assert task.num_shape_variants >= 3 and not task.stochastic
    assert Cases(build(task), plan(task, "claim", 1, 11), 11).findings == ()


@pytest.mark.slow
@pytest.mark.parametrize("path", SWEEP)
def test_composed_it_computes_the_same(path: Path) -> None:
    module = run_source(shrunk(path.read_text()), path.stem)
    torch.manual_seed(0)
    program = Program(module.Model(*module.get_init_inputs()), *module.get_inputs())
    got = program.run(*[a.clone() for a in program.args])
    assert differences(got, program.eager(), scale=3) == []

"""The gate and the filter: families with a wrong text are left out, suites' tasks too, and every row keeps its reason."""

from __future__ import annotations

import json
import random
import re
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from dvk.composer.capture.batch import trace_quickly
from dvk.config import Config, changed
from dvk.errors import UsageError
from dvk.learn.examples import Example, read
from dvk.nanolang import prompt
from dvk.pipelines.sft import collect, filtering
from dvk.pipelines.sft.collect import renderings
from dvk.pipelines.sft.executing import executed
from dvk.pipelines.sft.families import FamilyText, family_of, layouts, sample, texts
from dvk.pipelines.sft.filtering import Voucher, filter_examples, reference
from dvk.pipelines.sft.gate import EXECUTED, decided, gate, summary
from dvk.pipelines.sft.offsets import HIGHEST, draw_offsets, shift_indices
from dvk.pipelines.sft.stages import refuse_ungated, sources
from dvk.runs import RunFolder
from tests.composer.batch_models import attention
from tests.nanolang.compact_programs import Function, captured

CONFIG = Config.model_validate({"seed": 3, "collect": {"tasks": 2, "mutants": 0, "executed": 6}})


def opened(folder: Path, *, resume: bool = True) -> RunFolder:
    return RunFolder.open(
        folder, command="sft", name="test", argv=("dvk",), config=CONFIG, resume=resume
    )


def text(number: int, family: str, task: str) -> FamilyText:
    return FamilyText(f"id{number}", family, "cpp", task, "fusion", number, f"code {number}")


@pytest.fixture(scope="module")
def gated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], str]:
    """Two tasks' texts, one of which returns twice the right result, in the gate."""
    folder = tmp_path_factory.mktemp("gate") / "run"
    with opened(folder) as run, pytest.MonkeyPatch.context() as patched:
        patched.setattr(collect, "OFFSET", 1.0)
        renderings(run, CONFIG, 2, ("cpp",), 1)
        (path,) = sources(run)
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        returned = re.compile(r"^( *)return (\w+)$", re.MULTILINE)
        spoilt = next(family_of(row) for row in rows if returned.search(row["code"]))
        for row in rows:
            if family_of(row) == spoilt:
                row["code"] = returned.sub(r"\1\2 = torch.mul(\2, 2)\n\1return \2", row["code"])
                row["messages"][-1]["content"] = row["code"]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        told = gate(run, CONFIG, 1)
    assert spoilt is not None
    return folder, told, spoilt


@pytest.mark.slow
def test_a_family_with_a_wrong_text_is_refused_and_the_others_pass(
    gated: tuple[Path, dict[str, Any], str],
) -> None:
    folder, told, spoilt = gated
    families = json.loads((folder / "gate" / "families.json").read_text())
    assert {name for name, found in families.items() if found["refused"]} == {spoilt}
    assert "mismatch" in families[spoilt]["refused"]
    assert (
        told["families_failed"] == 1
        and told["families_passed"] == len(families) - 1 > 0
        and told["families_not_executed"] == 0
    )
    assert (
        told["executed"] >= len(families)
        and told["not_executed"] == 0
        and told["wrong"] == families[spoilt]["wrong"] >= 1
    )
    assert (
        told["texts_admitted"]
        == sum(f["texts"] for f in families.values()) - families[spoilt]["texts"]
    )
    wrong = [
        json.loads(line)
        for line in (folder / EXECUTED).read_text().splitlines()
        if json.loads(line)["wrong"]
    ]
    assert all("torch.mul(" in row["code"] for row in wrong), (
        "a wrong text is kept, to be looked into"
    )


@pytest.mark.slow
def test_a_killed_gate_executes_only_what_is_left(
    gated: tuple[Path, dict[str, Any], str], tmp_path: Path
) -> None:
    folder, told, _ = gated
    shutil.copytree(folder, tmp_path / "run")
    before = (folder / EXECUTED).read_text()
    (tmp_path / "run" / EXECUTED).write_text(before + '{"id": "torn')
    with opened(tmp_path / "run") as run:
        assert gate(run, CONFIG, 1) == told
        assert len(run.read(EXECUTED)) == len(before.splitlines())


@pytest.mark.slow
def test_the_filter_keeps_what_passed_and_says_why_not(
    gated: tuple[Path, dict[str, Any], str], tmp_path: Path
) -> None:
    folder, _, spoilt = gated
    shutil.copytree(folder, tmp_path / "run")
    with opened(tmp_path / "run") as run:
        told = filter_examples(run, sources(run), CONFIG, 1)
        given = list(read(sources(run)[0]))
        assert filter_examples(run, sources(run), CONFIG, 1) == told, (
            "what is finished is used again"
        )
    kept = list(read(tmp_path / "run" / "filter" / "kept.jsonl"))
    left_out = [
        json.loads(line)
        for line in (tmp_path / "run" / "filter" / "rejected.jsonl").read_text().splitlines()
    ]
    assert told["rows"] == len(given) == len(kept) + len(left_out) and told["kept"] == len(kept) > 0
    assert Counter(row["reason"] for row in left_out) == {"family": told["rejected_family"]}
    assert {family_of(row["example"]) for row in left_out} == {spoilt} and all(
        "mismatch" in row["detail"] for row in left_out
    )


@pytest.mark.slow
@pytest.mark.parametrize("by_source", [True, False])
def test_a_suite_s_tasks_are_left_out(
    gated: tuple[Path, dict[str, Any], str],
    tmp_path: Path,
    by_source: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By their modules, and by the operators of their graphs alone if the text differs."""
    folder, _, _ = gated
    shutil.copytree(folder, tmp_path / "run")
    with opened(tmp_path / "run") as run:
        given = list(read(sources(run)[0]))
        longest = max(given, key=lambda e: len(e.signature))
        source = reference(longest)
        assert source is not None and "class Model" in source and len(longest.signature) > 1
        (tmp_path / "suite").mkdir()
        (tmp_path / "suite" / "theirs.py").write_text(
            source.replace("self.", "self.their_") if by_source else source
        )
        suite = {"suites": (str(tmp_path / "suite"),)}
        monkeypatch.setattr(
            filtering,
            "CONTAMINATED_OPERATORS" if by_source else "CONTAMINATED",
            99 if by_source else 1.0,
        )
        config = CONFIG.model_copy(
            update={
                "diversity": CONFIG.diversity.model_copy(update=suite),
                "collect": CONFIG.collect.model_copy(update={"executed": 0}),
            }
        )
        told = filter_examples(run, sources(run), config, 1)
    lines = [
        json.loads(line)
        for line in (tmp_path / "run" / "filter" / "rejected.jsonl").read_text().splitlines()
    ]
    left_out = [row for row in lines if row["reason"] == "contaminated"]
    assert left_out and {row["example"]["task"]["id"] for row in left_out} == {longest.task.id}
    assert all(
        "suite/theirs.py" in row["detail"] and ("module" in row["detail"]) == by_source
        for row in left_out
    )
    assert told["suite_files"] == 1 and told["rejected_contaminated"] == len(left_out)


@pytest.mark.slow
def test_a_missing_suite_is_the_user_s_to_mend(
    gated: tuple[Path, dict[str, Any], str], tmp_path: Path
) -> None:
    config = CONFIG.model_copy(
        update={
            "diversity": CONFIG.diversity.model_copy(update={"suites": (str(tmp_path / "none"),)})
        }
    )
    with opened(gated[0]) as run, pytest.raises(UsageError, match="no Python files in suite"):
        filter_examples(run, sources(run), config, 1)


def test_what_was_never_put_to_the_gate_is_not_learned_from_unasked(tmp_path: Path) -> None:
    with opened(tmp_path / "run") as run:
        refuse_ungated(run, CONFIG)
        (run.path / "collect" / "renderings").mkdir(parents=True)
        with pytest.raises(UsageError, match="never put to the gate"):
            refuse_ungated(run, CONFIG)
        refuse_ungated(run, changed(CONFIG, {"collect.executed": 0}))


def test_programs_that_were_not_executed_are_not_admitted() -> None:
    found = [text(n, f"family {n % 3}", f"task {n}") for n in range(9)]
    families = decided(
        found,
        [
            {"family": "family 0", "wrong": None},
            {"family": "family 1", "wrong": None},
            {"family": "family 1", "wrong": "mismatch: off"},
        ],
    )
    refused = {name: entry["refused"] for name, entry in families.items()}
    assert (
        refused["family 0"] is None
        and "mismatch" in refused["family 1"]
        and "executed" in refused["family 2"]
    )
    assert summary(found, families) == {
        "texts": 9,
        "executed": 3,
        "wrong": 1,
        "families_passed": 1,
        "families_failed": 1,
        "families_not_executed": 1,
        "texts_admitted": 3,
    }


def test_the_sample_sees_every_family_and_fills_the_rare_ones_first() -> None:
    found = [text(n, "common" if n % 10 else f"rare {n}", f"task {n // 5}") for n in range(400)]
    chosen = sample(found, 100, 0)
    families = Counter(t.family for t in chosen)
    assert len(chosen) >= 100 and len(families) == 41 and families["common"] >= 50
    few = sample(found, 10, 0)
    assert len(few) == 10 == len({t.family for t in few}) and "common" in {t.family for t in few}, (
        "the largest families come first"
    )
    assert sample(found, 100, 0) == chosen != sample(found, 100, 1)
    assert {t.id for t in sample(found, 10_000, 0)} == {t.id for t in found}


def test_mutants_are_of_families_and_not_executed() -> None:
    found = [
        text(1, "family", "task"),
        replace(text(2, "family", "task"), seed=None, code=""),
        replace(text(3, "rare", "task"), seed=None),
    ]
    assert [t.id for t in sample(found, 10, 0)] == ["id1"]
    families = decided(found, [{"family": "family", "wrong": None}])
    assert (
        families["family"]["texts"] == 2
        and families["family"]["refused"] is None
        and families["rare"]["refused"] is not None
    )


def test_a_program_runs_only_with_the_strides_it_was_written_for() -> None:
    """A GPU's attention answers in another layout than a CPU's: a text that assumes one layout is right on the other too."""
    task = attention("float32", 16)
    listings = {
        kernels: prompt(trace_quickly(task, kernels).graph, "cpu", "cpp")
        for kernels in ("cpu", "cuda")
    }  # type: ignore[arg-type]
    assert "@" in listings["cuda"] and "@" not in listings["cpu"]
    lines = "v0 = F.scaled_dot_product_attention(x0, x1, x1)\nv1 = torch.relu(v0)\nreturn v1"
    told = {
        where: executed(
            task.model_dump(mode="json"), "cpp", [lines], {}, layouts(f"{listing}write")
        )
        for where, listing in listings.items()
    }
    assert told["cpu"]["wrong"] == [None] and "lie" in told["cuda"]["broken"]


@pytest.mark.slow
def test_listings_that_begin_elsewhere_are_the_same_graph(
    gated: tuple[Path, dict[str, Any], str],
) -> None:
    """The gate has executed such texts; moving is undone by moving back, and moves every name of prompt and text alike."""
    found = list(read(gated[0] / "collect" / "renderings"))
    moved = [e for e in found if any(e.quality["offsets"].values())]
    assert moved and all(set(e.quality["offsets"]) <= set("xpv") for e in found)
    for example in moved:
        listing, offsets = example.messages[0]["content"].split("\n"), example.quality["offsets"]
        first = [
            min(int(row.split()[0][1:]) for row in listing if re.match(rf"{letter}\d+ ", row))
            for letter in "xv"
        ]
        assert first == [offsets.get(letter, 0) for letter in "xv"]
    graph = captured(
        Function(lambda x, w: torch.relu(x @ w) + x),
        [torch.randn(4, 4), torch.randn(4, 4)],
        ["x", "w"],
    )
    there = shift_indices(graph, {"x": 3, "v": 20})
    assert [n.name for n in there.graph.nodes if n.op == "input"] == [
        "x3",
        "x4",
    ] and there.graph.outputs == {"ref": "v22"}
    assert shift_indices(there, {"x": -3, "v": -20}) == graph and shift_indices(graph, {}) is graph
    assert all(
        max(draw_offsets(graph, random.Random(n), 1.0).values()) <= HIGHEST
        and not draw_offsets(graph, random.Random(n), 0.0)
        for n in range(20)
    )


@pytest.mark.slow
def test_an_executed_program_needs_no_voucher(gated: tuple[Path, dict[str, Any], str]) -> None:
    example = next(read(gated[0] / "collect" / "renderings"))
    families = {str(family_of(example.model_dump())): "wrong"}
    assert Voucher(families)(example) == ("family", "wrong") and Voucher({})(example) == (
        "family",
        "its family is not known to the gate",
    )
    assert Voucher(None)(example) is None, "the gate was switched off"
    own: Example = example.model_copy(update={"quality": {}})
    assert Voucher(families)(own) is False
    assert len(list(texts([gated[0] / "collect" / "renderings" / "cpp_00000.jsonl"]))) >= 2

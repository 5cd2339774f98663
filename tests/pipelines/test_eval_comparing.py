"""Evaluations compared with each other: paired by task, by times of one kind, of older versions, unfinished."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dvk.cli.eval import differences as told
from dvk.errors import RunFolderError, UsageError
from dvk.pipelines.eval.comparing import compare
from dvk.pipelines.eval.rows import EvalRow
from tests.pipelines.evaluations import episode, finished, on_gpu, rows, unfinished


def test_a_comparison_is_paired_by_task(tmp_path: Path) -> None:
    names = [f"t{n}" for n in range(40)]
    levels = {name: "one" if n % 2 else "two" for n, name in enumerate(names)}
    speeds = {name: 0.9 + 0.02 * n for n, name in enumerate(names)}
    first = finished(
        tmp_path / "a", rows(*(episode(n, [speeds[n]]) for n in names), levels=levels), "composer"
    )
    second = [episode(n, [speeds[n] * 1.05]) for n in names[:-2]] + [
        episode(names[-2], [None]),
        episode("extra", [1.0]),
    ]
    found = compare(first, finished(tmp_path / "b", rows(*second, levels=levels), "hf:x"))
    assert (found["num_shared"], found["num_only_first"], found["num_only_second"]) == (39, 1, 1)
    right = found["differences"]["faster_when_right"]
    assert (
        right["num_tasks"] == 38
        and right["value"] == pytest.approx(1.05)
        and right["hi"] - right["lo"] < 1e-6
    )
    assert (
        found["differences"]["fast_0"]["value"] == pytest.approx(-1 / 39)
        and found["compile"] is not None
    )
    assert found["first"]["policy"] == "composer" and set(found["levels"]) == {"one", "two"}
    assert [one["task"] for one in found["lost"]] == ["t38"] and found["gained"][0][
        "ratio"
    ] == pytest.approx(1.05)
    page = tmp_path / "page"
    assert (
        compare(first, tmp_path / "b", page)
        == found
        == json.loads((page / "comparison.json").read_text())
    )
    html = (page / "report.html").read_text()
    assert (
        html.count("<svg") == 2
        and html.count("<circle") == 38
        and "B against A" in html
        and "1.050× [1.050, 1.050] (38 tasks)" in html
    )
    with pytest.raises(RunFolderError, match="already used"):
        compare(first, tmp_path / "b", page)
    text = "\n".join(told(found))
    assert "1.050× [1.050, 1.050] (38 tasks)" in text and "lost: t38: 1.66× to not right" in text
    json.dumps(found, allow_nan=False)


def test_no_ratio_is_taken_of_times_of_two_kinds(tmp_path: Path) -> None:
    def side(name: str, speedup: float, *regimes: str, known: bool = True) -> Path:
        found = rows(
            *(on_gpu(episode(f"t{n}", [speedup]), regime) for n, regime in enumerate(regimes)),
            episode("t9", [None]),
        )
        return finished(
            tmp_path / name,
            found
            if known
            else [
                EvalRow.model_validate(
                    {
                        **row.model_dump(),
                        "turns": [
                            {k: v for k, v in turn.model_dump().items() if k != "regime"}
                            for turn in row.turns
                        ],
                    }
                )
                for row in found
            ],
        )

    first, graphs = (
        side("a", 2.7, "device", "device", "device"),
        side("b", 1.3, "device", "device", "end_to_end"),
    )
    found = compare(first, graphs, tmp_path / "page")
    for score, num_tasks, ratio in (
        ("speedup", 3, (1.3 / 2.7) ** (2 / 3)),
        ("faster_when_right", 2, 1.3 / 2.7),
    ):
        gap = found["differences"][score]
        assert (gap["num_tasks"], gap["num_unlike"]) == (num_tasks, 1) and gap[
            "value"
        ] == pytest.approx(ratio)
    assert (
        found["num_unlike"] == 1
        and [one["task"] for one in found["lost"]] == ["t1", "t0"]
        and not found["gained"]
    )
    assert found["differences"]["fast_2"]["value"] == pytest.approx(-3 / 4), (
        "shares keep every task"
    )
    said = "1 task timed in two ways"
    html = (tmp_path / "page/report.html").read_text()
    assert said in "\n".join(told(found)) and said in html and html.count("<circle") == 2
    older = compare(side("c", 2.7, "device", "device", "device", known=False), graphs)
    assert (
        older["num_unlike"] == 0
        and older["differences"]["speedup"]["num_tasks"] == 4
        and said not in "\n".join(told(older))
    )


def test_an_evaluation_of_an_older_dvk_is_read_from_its_episodes(tmp_path: Path) -> None:
    first = unfinished(tmp_path / "a", episode("x", [1.0]))
    (old,) = rows(episode("x", [1.0]))
    turn = old.turns[0].model_dump() | {"compile": 1.0}
    (first / "results.jsonl").write_text(json.dumps(old.model_dump() | {"turns": [turn]}) + "\n")
    assert compare(first, finished(tmp_path / "b", rows(episode("x", [2.0]))))["differences"][
        "speedup"
    ]["value"] == pytest.approx(2.0)


def test_an_evaluation_that_has_not_ended_can_be_compared(tmp_path: Path) -> None:
    first = unfinished(
        tmp_path / "a",
        episode("x", [1.0], over_compile=None),
        episode("y", [1.0], over_compile=None),
    )
    found = compare(first, finished(tmp_path / "b", rows(episode("x", [2.0]))))
    assert (
        found["num_shared"] == 1
        and found["differences"]["speedup"]["value"] == pytest.approx(2.0)
        and found["compile"] is None
    )
    with pytest.raises(UsageError, match="no results"):
        compare(first, tmp_path / "none")
    with pytest.raises(UsageError, match="share no task"):
        compare(first, finished(tmp_path / "c", rows(episode("z", [2.0]))))

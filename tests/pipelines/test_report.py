"""report.html and report.md: their text in the good case, the honest ones and the empty ones."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from dvk import graph_costs
from dvk.config import Config
from dvk.pipelines import report
from dvk.pipelines.report import units
from dvk.records import Episode, Graph, Node, Status, Turn
from dvk.runs import RunFolder
from tests.pipelines.pages import FAILED, NOTHING, Page, write
from tests.pipelines.searches import (
    BEST,
    GRAPH,
    ORIGINAL,
    SKILLS,
    SUMMARY,
    TASK,
    bad,
    candidate,
    episode,
    ok,
    ref,
    turns,
)


@pytest.fixture
def faster(tmp_path: Path) -> tuple[Page, str]:
    return write(tmp_path, episode(turns()), SUMMARY, BEST, skills=SKILLS)


# ---------------------------------------------------------------- content


def test_sections_come_in_order(faster: tuple[Page, str]) -> None:
    page, text = faster
    told = [
        "What was slow",
        "What was tried",
        "What won, and why",
        "The search",
        "The code",
        "Reproduce",
    ]
    assert page.headings[0] == (1, "2.31× faster than eager PyTorch")
    assert [title for level, title in page.headings if level == 2] == told
    assert [line[3:] for line in text.splitlines() if line.startswith("## ")] == told
    assert text.startswith("# mlp_head: 2.31× faster than eager PyTorch\n")


def test_headline_numbers(faster: tuple[Page, str]) -> None:
    for text in (faster[0].text, faster[1]):
        for said in (
            "95 % interval [2.28, 2.34]",
            "1.67× [1.64, 1.71] over torch.compile",
            "31 candidates were judged in 58 s",
            "200 pairs",
            "in one set of processes",
            "EPYC 9354",
            "fp32 class",
            "0.0001",
            "9 fresh random",
        ):
            assert said in text, said


def test_times_of_all_arms(faster: tuple[Page, str]) -> None:
    rows = faster[0].table("Version")
    assert [[row[0], row[1], row[3]] for row in rows[1:]] == [
        ["eager PyTorch", "4.2 ms", ""],
        ["torch.compile", "3.05 ms", ""],
        [
            "best.py",
            "1.82 ms",
            "2.31× [2.28, 2.34] over eager PyTorch1.67× [1.64, 1.71] over torch.compile",
        ],
    ]
    (told,) = (
        line.replace("\\", "") for line in faster[1].splitlines() if line.startswith("| best.py")
    )
    assert [cell.strip() for cell in told.split("|")[2:-1]] == [
        "1.82 ms",
        "2.31× [2.28, 2.34]",
        "1.67× [1.64, 1.71]",
    ]


def test_every_attempt_is_a_row(faster: tuple[Page, str]) -> None:
    page, text = faster
    made = turns()
    rows = page.table("Candidate")[1:]
    lines = [line for line in text.splitlines() if re.match(r"\| +\d+ \| +\S+ (s|min)", line)]
    assert len(rows) == len(lines) == len(made)
    for row, line, turn in zip(rows, lines, made, strict=True):
        assert turn.candidate and turn.verdict
        assert turn.candidate.title in row[2] and turn.candidate.recipes[0] in row[2]
        assert "rowwise0 vector=" in row[3] and "rowwise0 vector=" in line
        shown = str(turn.verdict.timing.speedup) if turn.verdict.timing else "–"
        assert row[5] == shown and shown in line
        assert (turn.verdict.error or "").split("\n")[0] in row[4]
    assert "compile errorg++: error" in rows[6][4] and "12 |" not in rows[6][4], "first line only"
    assert "became best.py" in rows[-1][2] and rows[-1][4] == "confirmed"
    assert "27 ok, 2 mismatch, 1 compile error, 1 timeout, 1 confirmed" in text


def test_what_won_and_why(faster: tuple[Page, str]) -> None:
    for text in (faster[0].text, faster[1]):
        for said in (
            "online softmax, row kernel, vector width 16",
            "4 operators became 2 steps",
            "The runner-up",
            "online_softmax",
            "Softmax in two passes",
            "gelu + mul + _softmax",
            "vector=16 unroll=2",
        ):
            assert said in text, said


def test_reproduce(faster: tuple[Page, str]) -> None:
    page, text = faster
    assert "dvk optimize 'mlp head.py'" in page.pres and "dvk optimize 'mlp head.py'" in text
    assert (
        any("from best import ModelNew\n" in pre for pre in page.pres)
        and "model = ModelNew(...)" in text
    )
    assert "Seed 7" in page.text and "Seed 7" in text and TASK.id in text
    assert '"claim_pairs": 50' in text and "pydantic 2." in page.text


def test_operators_and_bytes(faster: tuple[Page, str]) -> None:
    rows = [[row[1], row[2], row[3]] for row in faster[0].table("Result")[1:]]
    activations, weights = 512 * 4096 * 4, 4096 * 1024 * 4
    moved = units.show_bytes(512 * 1024 * 4 + weights + 4096 * 4 + activations)
    assert rows == [
        ["t", "float32[1024,4096]", "view"],
        ["addmm", "float32[512,4096]", moved],
        *[
            [name, "float32[512,4096]", units.show_bytes(2 * activations)]
            for name in ("gelu", "mul", "_softmax")
        ],
    ]
    assert "4 operators that read and write memory" in faster[1] and "takes 27.3 MB" in faster[1]
    # Time was measured, so it comes first, and bytes are folded away.
    slow = faster[0].text.partition("What was slow</h2>")[2].partition("<h2")[0]
    assert (
        slow.index("Share of time")
        < slow.index("<summary>The operators by the bytes that they move")
        < slow.index("Moves")
    )


def test_narrow_screens_show_every_column(faster: tuple[Page, str]) -> None:
    """Every table is in a box that scrolls, and below 34 rem all but figures' bars is shown and wraps."""
    page = faster[0]
    tables = [n for n, (tag, _) in enumerate(page.elements) if tag == "table"]
    assert len(tables) >= 4 and all(
        "scroll" in str(page.elements[n - 1][1].get("class")) for n in tables
    )
    (narrow,) = re.findall(r"@media \(max-width: 34rem\) \{(.*?)\n\}", page.text, re.DOTALL)
    assert re.findall(r"([^{};]+)\{[^}]*display: none", narrow) == ["\n  td.room "]
    assert "td.num" in narrow and "white-space: normal" in narrow and "min-width: 0" in narrow


def test_bytes_of_tuples_views_and_expanded_operands() -> None:
    def node(
        name: str,
        op: str,
        args: tuple[Any, ...],
        shape: tuple[int, ...] | None,
        strides: tuple[int, ...],
    ) -> Node:
        outside = {} if shape is None else {"shape": shape, "dtype": "float16", "strides": strides}
        return Node(name=name, op=op, args=args, **outside)

    made = Graph(
        outputs=[ref("v3")],
        nodes=(
            node("x0", "input", (), (8, 16), (16, 1)),
            node("p0", "param", (), (16,), (1,)),
            node("p1", "param", (), (999,), (1,)),  # not used
            node("v0", "aten.expand.default", (ref("p0"), [8, 16]), (8, 16), (0, 1)),
            node("v1", "aten.var_mean.correction", (ref("x0"),), None, ()),
            node("v2", "operator.getitem", (ref("v1"), 0), (8, 1), (1, 1)),
            node("v3", "aten.mul.Tensor", (ref("v2"), ref("v0")), (8, 16), (16, 1)),
            node("v4", "custom.op.default", (ref("v3"),), None, ()),
        ),
    )
    assert [(op.name, op.moved_bytes) for op in graph_costs.operators(made)] == [
        ("expand", 0),
        ("var_mean", 256 + 16),
        ("getitem", 0),
        ("mul", 16 + 32 + 256),
        ("op", None),
    ]
    assert graph_costs.least_bytes(made) == 256 + 32 + 256


# ---------------------------------------------------------------- the file itself


def test_the_page_stands_alone(faster: tuple[Page, str]) -> None:
    page, _ = faster
    for tag, attributes in page.elements:
        assert tag not in ("script", "link", "img", "iframe", "object", "base"), tag
        assert not {"src", "href", "srcset", "onload", "onclick"} & set(attributes)
    assert "url(" not in page.text and "@import" not in page.text and "http" not in page.text
    assert ("meta", {"charset": "utf-8"}) in page.elements
    assert "prefers-color-scheme: dark" in page.text and "width=device-width" in page.text


def test_the_page_is_accessible(faster: tuple[Page, str]) -> None:
    page, _ = faster
    levels = [level for level, _ in page.headings]
    assert levels.count(1) == 1 and all(
        b - a <= 1 for a, b in zip(levels, levels[1:], strict=False)
    )
    ids = {attributes["id"] for _, attributes in page.elements if "id" in attributes}
    svg = next(attributes for tag, attributes in page.elements if tag == "svg")
    assert svg["role"] == "img" and set((svg["aria-labelledby"] or "").split()) <= ids
    heads = [attributes for tag, attributes in page.elements if tag == "th"]
    assert heads and all(attributes.get("scope") in ("row", "col") for attributes in heads)
    assert next(attributes for tag, attributes in page.elements if tag == "html")["lang"] == "en"
    for tag, attributes in page.elements:
        if attributes.get("tabindex"):
            assert attributes["role"] == "region" and attributes["aria-label"], tag


def test_contrast_of_text_in_both_palettes() -> None:
    """WCAG AA, 4.5 : 1, for everything that is text; 3 : 1 for marks."""

    def luminance(colour: str) -> float:
        channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        red, green, blue = (
            c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels
        )
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    css = (Path(report.__file__).parent / "pages" / "style.css").read_text(encoding="utf-8")
    palettes = [
        dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", block)) for block in css.split("@media")[:2]
    ]
    for palette in palettes:
        for name in ("ink", "soft", "accent", "wrong", "quiet", *"cksnd"):
            for ground in ("paper", "fill"):
                light, dark = sorted(
                    (luminance(palette[name]), luminance(palette[ground])), reverse=True
                )
                contrast = (light + 0.05) / (dark + 0.05)
                assert contrast >= (3 if name == "quiet" else 4.5), (name, ground, contrast)


def test_a_second_write_replaces_the_first(tmp_path: Path) -> None:
    run = RunFolder.open(
        tmp_path / "run", command="optimize", name="m", argv=["dvk"], config=Config(), resume=False
    )
    for summary in (FAILED, NOTHING):
        report.write(run, episode([]), summary, best_source=None, graph=None)
    run.close()
    assert "Nothing faster" in (run.path / "report.html").read_text()


# ---------------------------------------------------------------- nothing found, nothing at all


def test_no_speedup_is_said_plainly(tmp_path: Path) -> None:
    made = [
        Turn(candidate=candidate(1), verdict=ok(0.97), elapsed_s=2.0),
        Turn(candidate=candidate(2), verdict=ok(0.8), elapsed_s=3.0),
    ]
    page, text = write(tmp_path, episode(made), NOTHING)
    assert page.headings[0][1] == "Nothing faster was found"
    for shown in (page.text, text):
        assert "The closest ran at 0.970×" in shown and "left as it is" in shown
        assert (
            "What won" not in shown and "best.py" not in shown and "from best import" not in shown
        )
    assert page.table("Version")[-1][0] == "the closest candidate"
    assert 'class="best"' not in page.text and "No candidate was faster than eager." in text


def test_failed_says_why(tmp_path: Path) -> None:
    page, text = write(tmp_path, episode([]), FAILED, graph=None)
    assert page.headings[0][1] == "The search failed"
    assert "capture failed: &lt;data-dependent&gt; control flow" in page.text
    assert "capture failed: &lt;data-dependent> control flow" in text
    for shown in (page.text, text):
        assert "No candidate was judged." in shown and "operators were not captured" in shown
    assert "<svg" not in page.text
    assert ORIGINAL.strip() in text


def test_a_bare_summary_is_enough(tmp_path: Path) -> None:
    page, text = write(tmp_path, Episode(task=TASK), {"status": "failed"}, graph=None)
    assert "No reason was recorded." in page.text and "No reason was recorded." in text


def test_everything_failed(tmp_path: Path) -> None:
    made = [
        Turn(candidate=candidate(i), verdict=bad(Status.MISMATCH, "wrong"), elapsed_s=float(i))
        for i in (1, 2)
    ]
    page, _ = write(
        tmp_path,
        episode(made),
        NOTHING | {"speedup": None, "baselines": {}, "num_candidates": None},
    )
    assert (
        page.text.count('class="mark failed"') == 2 and "0 agreed with the reference" in page.text
    )


def test_checked_but_not_timed(tmp_path: Path) -> None:
    verdict = ok(1.5).model_copy(
        update={"timing": None, "untimed_reason": "Triton's interpreter runs on the CPU"}
    )
    page, text = write(
        tmp_path, episode([Turn(candidate=candidate(1), verdict=verdict, elapsed_s=1.0)]), NOTHING
    )
    assert 'class="mark untimed"' in page.text and "checked but not timed" in page.text
    assert "Triton's interpreter" in text


def test_without_compile_there_is_no_compile(tmp_path: Path) -> None:
    summary = SUMMARY | {"baselines": {"eager": SUMMARY["baselines"]["eager"], "compile": None}}
    page, text = write(tmp_path, episode(turns()), summary, BEST)
    assert "torch.compile" not in page.text and "torch.compile" not in text
    assert "no longer in the library" in page.text


def test_only_the_policy_sees_feedback(tmp_path: Path) -> None:
    made = episode(turns(3)[:3])
    summary_trace = made.traces[0].model_copy(update={"role": "summary"})
    page, _ = write(
        tmp_path, made.model_copy(update={"traces": (*made.traces, summary_trace)}), NOTHING
    )
    assert len(page.table("Candidate")) == 1 + 3


# ---------------------------------------------------------------- numbers


@pytest.mark.parametrize(
    ("shown", "wanted"),
    [
        (units.show_ms(4.2), "4.2 ms"),
        (units.show_ms(0.0456), "45.6 µs"),
        (units.show_ms(2100), "2.1 s"),
        (units.show_ms(None), "–"),
        (units.show_s(3.14159), "3.1 s"),
        (units.show_s(9.97), "10 s"),
        (units.show_s(200), "3 min 20 s"),
        (units.show_bytes(512), "512 B"),
        (units.show_bytes(12_582_912), "12.6 MB"),
        (units.show_bytes(999_999), "1 MB"),
        (units.many(1, "step"), "1 step"),
        (units.many(1200, "step"), "1,200 steps"),
        (units.show_share(0.125), "12.5 %"),
    ],
)
def test_numbers_for_people(shown: str, wanted: str) -> None:
    assert shown == wanted


def test_equal_operators_have_their_numbers(tmp_path: Path) -> None:
    gelu = GRAPH.nodes[5]
    again = gelu.model_copy(update={"name": "v9"})
    twice = Graph(nodes=(*GRAPH.nodes[:6], again, *GRAPH.nodes[6:]), outputs=GRAPH.outputs)
    page, _ = write(tmp_path, episode(turns()), SUMMARY, BEST, graph=twice)
    assert [row[0] for row in page.table("Result")[1:]] == ["1", "2", "3", "4", "5", "6"]


def test_only_the_first_kinds_of_inputs_are_listed(tmp_path: Path) -> None:
    made = turns()
    verdict = made[-1].verdict
    assert verdict is not None
    kinds = tuple(f"kind {number} 2x3, 4x5" for number in range(9))
    made[-1] = made[-1].model_copy(update={"verdict": verdict.model_copy(update={"shapes": kinds})})
    page, text = write(tmp_path, episode(made), SUMMARY, BEST)
    assert "of 9 kinds: kind 0 2x3, 4x5; kind 1" in page.text and "and 6 more" in text
    assert "kind 3" not in page.text


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    evil = "\"><img src=x onerror='alert(1)'></title></style>{{ 7 * 7 }}{% raw %}\x1b[31m\u202e"
    task = TASK.model_copy(update={"name": evil, "entry": evil, "source": f"# {evil}\n"})
    made = [
        one.model_copy(
            update={"candidate": one.candidate.model_copy(update={"title": evil, "proposer": evil})}
        )
        for one in turns()
        if one.candidate
    ]
    summary = SUMMARY | {
        "groups": [evil],
        "profile": [{"name": evil, "share": 0.5, "ms": 1.0}],
        "shapes": [],
    }
    page, _ = write(tmp_path, episode(made, task), summary, BEST, command_line=evil)
    tags = {tag for tag, _ in page.elements}
    assert not tags & {"img", "script"} and [tag for tag, _ in page.elements].count("style") == 1
    assert not any(name.startswith("on") for _, attributes in page.elements for name in attributes)
    assert "{{ 7 * 7 }}" in page.text and "\x1b" not in page.text and "\u202e" not in page.text

"""Text that is not ours stays text: in the page, in the Markdown, in the coloured code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dvk.pipelines.report import code, markdown
from dvk.records import Graph, Node, Status, Turn
from tests.pipelines.pages import Page, write
from tests.pipelines.searches import (
    BEST,
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


# ---------------------------------------------------------------- other people's text

EVIL = "\"><script>alert(1)</script><img src=x onerror=alert(2)>&amp;\x1b[2J\x9b31m\u202e '`|*[x](javascript:alert(3))"


def evil_report(tmp_path: Path) -> tuple[Page, str]:
    source = f"{ORIGINAL}\n# {EVIL}\n```\n````\n</pre></code></main>\nend = '\ud800'\n"
    task = TASK.model_copy(update={"name": EVIL, "entry": EVIL, "source": source})
    node = Node(
        name=EVIL,
        op=f"aten.{EVIL}.x",
        args=(EVIL,),
        kwargs={EVIL: EVIL},
        shape=(4,),
        dtype="float32",
    )
    evil = candidate(
        1,
        source=f"SOURCE = r'''#include <a>\n{EVIL}'''\n",
        title=EVIL,
        proposer=EVIL,
        recipes=(EVIL,),
        skills=("online_softmax", EVIL),
        schedule={EVIL: {EVIL: EVIL}, "loose" + EVIL: EVIL},
    )
    wrong = candidate(2, title=EVIL, recipes=(EVIL,))
    verdict = ok(2.0, tier="claim").model_copy(
        update={"machine": EVIL, "precision": EVIL, "shapes": (EVIL,)}
    )
    skill = SKILLS["online_softmax"].model_copy(update={"description": EVIL})
    made = [
        Turn(candidate=wrong, verdict=bad(Status.LAUNCH_ERROR, EVIL), elapsed_s=1.0),
        Turn(candidate=evil, verdict=verdict, elapsed_s=2.0),
    ]
    summary = SUMMARY | {
        "reason": EVIL,
        "groups": [EVIL],
        "profile": [{"name": EVIL, "share": 0.5, "ms": 1.0}],
    }
    return write(
        tmp_path,
        episode(made, task),
        summary,
        evil.source,
        Graph(nodes=(node,), outputs=ref(EVIL)),
        skills={"online_softmax": skill},
        command_line=EVIL,
    )


def test_nothing_escapes_in_html(tmp_path: Path) -> None:
    page, _ = evil_report(tmp_path)
    assert {tag for tag, _ in page.elements} <= set(
        "html head meta title style body main header section footer h1 h2 h3 p code pre span div table thead tbody tr "
        "th td small dl dt dd ul li strong details summary figure figcaption svg desc g line text path circle".split()
    )
    assert not [
        name for _, attributes in page.elements for name in attributes if name.startswith("on")
    ]
    assert "<script" not in page.text and "<img" not in page.text
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", page.text)
    assert page.text.count("alert(1)") > 15, "the text itself is shown, everywhere"
    assert any("</pre></code></main>" in pre for pre in page.pres)


def test_nothing_escapes_in_markdown(tmp_path: Path) -> None:
    _, text = evil_report(tmp_path)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", text)
    outside, fence = [], None
    for line in text.splitlines():
        ticks_found = re.match(r"`{3,}", line)
        if fence is None and ticks_found:
            fence = ticks_found[0]
        elif fence is not None and line == fence:
            fence = None
        elif fence is None:
            outside.append(line)
    assert fence is None, "a code block is left open"
    prose = "\n".join(outside)
    assert "alert(1)" in prose and not re.search(r"<\w|(?<!\\)\]\(", prose)
    for table in re.findall(r"(?:^\|.*\n?)+", prose, re.MULTILINE):
        bars = {len(re.findall(r"(?<!\\)\|", row)) for row in table.splitlines()}
        assert len(bars) == 1, "a cell broke out of its column"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a_b and _softmax", "a_b and _softmax"),
        ("_both_ ends", r"\_both\_ ends"),
        ("x[0] [2, 3]", "x[0] [2, 3]"),
        ("[a](b)", r"[a\](b)"),
        ("# no heading", r"\# no heading"),
        ("1. no list", r"1\. no list"),
        ("a\n\nb", "a b"),
        ("a|b*c`d", r"a\|b\*c\`d"),
        ("<b>&", "&lt;b>&amp;"),
        ("- item", r"\- item"),
        ("-3 is", "-3 is"),
    ],
)
def test_one_line_of_markdown(text: str, shown: str) -> None:
    assert markdown.line(text) == shown


def test_tables_line_up_in_a_terminal() -> None:
    rows = markdown.table(
        ["name", "n"], [["長い名前", "1"], ["x" * 200, "12"]], frozenset({1})
    ).splitlines()
    assert len({markdown._columns(row) for row in rows}) == 1 and "…" in rows[-1]


# ---------------------------------------------------------------- code


def text_of(markup: str) -> str:
    page = Page(f"<pre>{markup}</pre>")
    return page.pres[0]


@pytest.mark.parametrize(
    "source", [ORIGINAL, BEST, "", "\n\n  x = '''\n", "\tif (a<b>c) &amp; <!-- \n", "x = 1"]
)
def test_highlighting_keeps_every_character(source: str) -> None:
    assert text_of(code.highlight(source)) == source


def test_cpp_inside_python_is_coloured_as_cpp() -> None:
    shown = code.highlight(BEST)
    assert re.search(r'<span class="k">#include</span>|<span class="k">#include &lt;', shown)
    assert '<span class="c">// one row a step' in shown
    assert '<span class="k">class</span>' in shown


def test_the_copied_original_is_left_out(faster: tuple[Page, str]) -> None:
    page, _ = faster
    (original,) = (pre for pre in page.pres if pre.startswith('"""'))
    (best,) = (pre for pre in page.pres if pre.startswith("# ---- the kernels"))
    assert original == ORIGINAL
    assert "class ModelNew" in best and "def get_inputs" not in best
    assert "# … the original source, 25 lines, unchanged …" in best
    assert code.without_original(f"S = {ORIGINAL!r}\n", ORIGINAL)[0].startswith(
        "S = # … the original source, 25 lines"
    )
    assert code.without_original("x = 1\n", ORIGINAL) == ("x = 1\n", 0)


def test_kernels_come_before_what_guards_them() -> None:
    shown = code.kernels_first(BEST)
    assert shown.index("#include") < shown.index("class ModelNew") and shown.startswith(
        "# ---- the kernels"
    )
    triton = "import triton\n\n\ndef guard(x):\n    return x\n\n\n# adds\n@triton.jit\ndef add(x):\n    pass\n\n\nadd = guard(add)\n"
    assert code.kernels_first(triton).index("# adds\n@triton.jit\ndef add") < code.kernels_first(
        triton
    ).index("import triton")
    assert sorted(code.kernels_first(triton).split()) == sorted(
        f"{triton} # ---- the kernels, first for reading # ---- what calls and guards them".split()
    )
    for text in ("x = 1\n", "not python (", ""):
        assert code.kernels_first(text) == text

"""Kernels that reach beyond a tensor in a step that always runs."""

from __future__ import annotations

import re
import time

import pytest
import torch

from dvk import nanolang
from dvk.composer import Plan, applicable
from dvk.nanolang.lint.bounds import elements, out_of_bounds
from dvk.records import Task
from tests.nanolang.compact_cases import CASES, rand
from tests.nanolang.compact_programs import Function, captured

SIZES = {"s0": 10, "s1": 300}
EXTENTS = {"x0": 3000, "v0": 3000, "z0": 10}
KERNEL = """\
  #pragma omp parallel for schedule(static)
  for (long t = 0; t < s0*cdiv(s1, 256); ++t) {
    const long p = t % cdiv(s1, 256), u0 = t / cdiv(s1, 256);
    const long lo = p * 256, hi = least(lo + 256, s1);
    const long len = s1 - lo < 256 ? s1 - lo : 256;
    float b_e0[256];
    for (long l = 0; l < len; ++l) b_e0[l] = x0[u0 * s1 + lo + l];
    for (long i0 = lo; i0 < hi; i0 += 2) {
      v0[u0 * s1 + i0] = b_e0[i0 - lo] + z0[u0];
    }
  }"""


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("", "", None),
        (
            "x0[u0 * s1 + lo + l]",
            "x0[u0 * s1 + lo + l + 1]",
            "reaches `x0[3000]`, which has 3000 elements",
        ),
        (
            "x0[u0 * s1 + lo + l]",
            "x0[u0 * s1 + lo + l - 1]",
            "reaches `x0[-1]`, which has 3000 elements",
        ),
        ("t < s0*cdiv", "t < s1*cdiv", "reaches `x0[89999]`, which has 3000 elements"),
        ("z0[u0]", "z0[i0]", "reaches `z0[298]`, which has 10 elements"),
        ("float b_e0[256]", "float b_e0[s0]", "reaches `b_e0[43]`, which has 10 elements"),
        ("b_e0[i0 - lo]", "b_e0[i0]", "reaches `b_e0[298]`, which has 256 elements"),
        ("b_e0[l] = x0[", "x1[l] = y[l]; b_e0[l] = x0[", None),
        ("+ z0[u0]", "+ (u0 < 1 ? z0[s0] : 0)", None),
        ("      v0[", "      if (u0 < 1) z0[s0] = 0;\n      v0[", None),
        ("      v0[", "      while (u0 < 1) { z0[s0] = 0; }\n      v0[", None),
        ("z0[u0]", "(u0 < 1 && z0[s0])", None),
        ("      v0[", "      for (long n = 5; n < 5; ++n) z0[s0] = 0;\n      v0[", None),
        ("      v0[", "      for (long n = 5; n > 4; --n) z0[s0] = 0;\n      v0[", None),
        ("      v0[", "      for (int n = 0; n < 4; ++n) z0[s0] = 0;\n      v0[", None),
        ("      v0[", "      if (i0) break;\n      z0[s0] = 0;\n      v0[", None),
        ("      v0[", "      i0 <<= 1;\n      v0[i0 * s1] = 0;\n      v0[", None),
        ("      v0[", "      i0++;\n      v0[i0 * s1] = 0;\n      v0[", None),
        ("      v0[", "      long n = s0;\n      n -= 1;\n      z0[n] = 0;\n      v0[", None),
        ("z0[u0]", "z0[(lo - 1) / 256]", None),
        ("z0[u0]", "z0[(int)s0]", None),
        ("float b_e0[256]", "float z0[s1], b_e0[256]", None),
        ("z0[u0]", "z0[" + "x0[" * 3000 + "0" + "]" * 3001, None),
        ("z0[u0]", "z0[" + "9" * 4000 + " * " + "9" * 4000 + "]", None),
    ],
)
def test_only_certain_errors_are_reported(old: str, new: str, said: str | None) -> None:
    assert old in KERNEL
    assert out_of_bounds(KERNEL.replace(old, new) if old else KERNEL, SIZES, EXTENTS) == said


@pytest.mark.parametrize(
    "text",
    [
        "a" * 60_000,
        "/*" * 30_000,
        "x0[" * 20_000,
        "a = " * 15_000,
        "for (long t = 0; t < 2; ++t) " * 2000,
        "+ +" * 20_000,
    ],
)
def test_hostile_texts_neither_fail_nor_take_long(text: str) -> None:
    began = time.process_time()
    assert out_of_bounds(text, SIZES, EXTENTS) is None
    assert time.process_time() - began < 5


def test_elements_of_what_a_text_asks_for() -> None:
    known = {"": 1, "s0": 10, "s0, s1*2": 6000, "cdiv(s1, 256), s0": 20}
    unknown = dict.fromkeys(["s9", "-1 *", "f(1, 2)", "(" * 500, "*s0", "strides=(1,)"])
    assert {text: elements(text, SIZES) for text in {**known, **unknown}} == {**known, **unknown}


def test_such_a_text_is_unreadable() -> None:
    source = "import torch\nfrom torch import nn\n\n\nclass Model(nn.Module):\n    def forward(self, x):\n        return x.exp()\n"
    task = Task(id="t", name="t", source=source, entry="Model", kind="module")
    graph = captured(Function(torch.exp), [rand(9, 90)[:, ::2]])
    body = "    z0[t] = x0[t * 90 + 88];\n    v0[t * s1 + s1 - 1] = z0[t];\n"
    text = f"z0 = empty(f32, s0)\nk0:\n  for (long t = 0; t < s0; ++t) {{\n{body}  }}\nreturn v0"
    assert nanolang.assemble(task, graph, text, "cpp").backend == "cpp"
    for old, new, why in [
        ("empty(f32, s0)", "empty(f32, 8)", "`z0[8]`, which has 8 elements"),
        ("+ 88", "+ 89", "`x0[809]`, which has 809 elements"),
        ("s1 - 1]", "s1]", "`v0[405]`, which has 405 elements"),
    ]:
        assert old in text
        with pytest.raises(nanolang.ParseError, match=re.escape(f"kernel k0 reaches {why}")):
            nanolang.assemble(task, graph, text.replace(old, new), "cpp")
    # The result of a call may have another size than the listing says: it is not checked.
    assert nanolang.assemble(
        task,
        graph,
        text.replace("k0:", "v0 = torch.zeros(s0, 1000)\nk0:").replace("s1 - 1]", "s1]"),
        "cpp",
    )


@pytest.mark.parametrize("name", list(CASES)[::4])
@pytest.mark.slow
def test_an_index_that_is_moved_behind_the_end_is_found(name: str) -> None:
    """In composed texts, in a step that always runs; the unchanged texts have no finding."""
    function, inputs = CASES[name]
    torch.manual_seed(3)
    args = inputs()
    graph = captured(Function(function), args, [f"x{n}" for n in range(len(args))])
    task = Task(id="t", name="t", source="def f(): pass", entry="f", kind="function")
    text = nanolang.write(graph, Plan(tuple(applicable(graph.graph, "cpu", "cpp"))), "cpp")
    nanolang.assemble(task, graph, text, "cpp")
    found = re.search(r"^ +(v\d+)\[(?=[^\]]*\] = )", text, re.MULTILINE)
    if (
        found is not None and f"\n{found[1]} = " not in f"\n{text}"
    ):  # nothing is known of a call's result
        with pytest.raises(nanolang.ParseError, match="reaches `v"):
            nanolang.assemble(
                task, graph, f"{text[: found.end()]}1000000000 + {text[found.end() :]}", "cpp"
            )

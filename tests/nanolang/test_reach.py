"""Triton kernels that reach beyond a tensor or whose blocks do not fit, in programs and steps that always run."""

from __future__ import annotations

import random
import re
import textwrap
import time

import pytest
import torch

pytest.importorskip("triton")

from dvk import nanolang
from dvk.composer import Plan, applicable
from dvk.composer.codegen import triton as renderer
from dvk.nanolang.lint.reach import access_error
from dvk.records import Task
from tests.composer.triton_cases import CASES as RENDERED
from tests.composer.triton_own_cases import OWN_CASES
from tests.composer.triton_programs import Program
from tests.nanolang.compact_cases import CASES, rand
from tests.nanolang.compact_programs import Function, captured

SIZES = {"s0": 10, "s1": 300}
TENSORS = {"x0": 3000, "x1": 300, "v0": 3000, "z0": 10, "y0": None}
HEAD = "cdiv(s0, 8), 4"
KERNEL = textwrap.indent(
    textwrap.dedent("""\
    x = tl.program_id(0) * 8 + tl.arange(0, 8)[:, None]
    xmask = x < s0
    acc = tl.full([8, 64], 0.0, tl.float32)
    for r0 in range(0, s1, 64):
        r = r0 + tl.arange(0, 64)[None, :]
        rmask = r < s1
        e0 = tl.load(x0 + (x * s1 + r), xmask & rmask)
        acc += tl.where(rmask, e0, 0.0)
    a0 = tl.sum(acc, 1, keep_dims=True)
    t = tl.arange(0, pow2(s1))[None, :]
    e1 = tl.load(x1 + t, t < s1)
    e2 = op_gelu(e1) * a0
    tl.store(v0 + (x * s1 + t), e2, xmask & (t < s1))
    tl.store(z0 + x, a0, xmask)"""),
    "    ",
)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("", "", None),
        ("(x * s1 + r)", "(x * s1 + r + 1)", "reaches `x0[3000]`, which has 3000 elements"),
        ("(x * s1 + r)", "(x * s1 + r - 1)", "reaches `x0[-1]`, which has 3000 elements"),
        ("(x * s1 + r)", "(s1 * s0 - 1 - x * s1 - r)", None),
        ("xmask & rmask)", "xmask)", "reaches `x0[3019]`, which has 3000 elements"),
        ("range(0, s1, 64)", "tl.range(0, s1 + 64, 64, num_stages=2)", None),
        ("rmask = r < s1", "rmask = r < s1 + s0", "reaches `x0[3009]`, which has 3000 elements"),
        (
            "e1 = tl.load(x1 + t, t < s1)",
            "e1 = tl.load(x1 + t)",
            "reaches `x1[511]`, which has 300 elements",
        ),
        ("e1 = tl.load(x1 + t, t < s1)", "e1 = tl.load(x1 + t, mask=t < s1)", None),
        (
            "e1 = tl.load(x1 + t, t < s1)",
            "e1 = tl.load(x1 + t, mask=t <= s1)",
            "reaches `x1[300]`, which has 300 elements",
        ),
        (
            "e1 = tl.load(x1 + t, t < s1)",
            "e1 = tl.load(x1 + t, e0 < 0)",
            "joins a block of [1, 512] with one of [8, 64]",
        ),
        ("e1 = tl.load(x1 + t, t < s1)", "e1 = tl.load(x1 + t, t < tl.load(x1))", None),
        ("e1 = tl.load(x1 + t, t < s1)", "e1 = tl.load(x1 + tl.load(y0 + t).to(tl.int32))", None),
        ("e1 = tl.load(x1 + t, t < s1)", "e1 = tl.load(y0 + t * 1000)", None),
        (
            "e1 = tl.load(x1 + t, t < s1)",
            "e1 = tl.load(x1 + tl.minimum(t, s1))",
            "reaches `x1[300]`, which has 300 elements",
        ),
        ("e1 = tl.load(x1 + t, t < s1)", "e1 = tl.load(x1 + tl.where(t < s1, t, 0))", None),
        ("e1 = tl.load(x1 + t, t < s1)", "e1 = tl.load(x1 + (t - s1) % s1)", None),
        ("e1 = tl.load(x1 + t, t < s1)", "e1 = tl.load(x1 + 9999999999 * t)", None),
        ("e1 = tl.load(x1 + t, t < s1)", "e1 = tl.load(x1 + t, ~(t >= s1))", None),
        (
            "    e1 = tl.load(x1 + t, t < s1)",
            "    for n in range(5, 5):\n        e1 = tl.load(x1 + t)\n    e1 = t",
            None,
        ),
        (
            "    e1 = tl.load(x1 + t, t < s1)",
            "    for n in range(tl.load(y0)):\n        e1 = tl.load(x1 + t) + acc\n    e1 = t",
            None,
        ),
        (
            "    e1 = tl.load(x1 + t, t < s1)",
            "    n = s1\n    for e in range(2):\n        n = n * tl.load(y0)\n    e1 = tl.load(x1 + n)",
            None,
        ),
        (
            "    e1 = tl.load(x1 + t, t < s1)",
            "    for n in range(9):\n        e1 = tl.load(x1 + n * 40 + t * 0)",
            "reaches `x1[320]`, which has 300 elements",
        ),
        (
            "    e1 = tl.load(x1 + t, t < s1)",
            "    if s0 > 10:\n        tl.load(x1 + s1)\n    e1 = tl.load(x1 + t, t < s1)",
            None,
        ),
        (
            "    e1 = tl.load(x1 + t, t < s1)",
            "    if s0 > 10:\n        e1 = t\n    else:\n        e1 = tl.load(x1 + s1)",
            "reaches `x1[300]`, which has 300 elements",
        ),
        (
            "    e1 = tl.load(x1 + t, t < s1)",
            "    e1 = t\n    if tl.load(x0) > 1:\n        e1 = tl.load(x1 + s1)",
            None,
        ),
        ("    e1 = tl.load(x1 + t, t < s1)", "    e1 = tl.load(x1 + s1) if s0 > 10 else t", None),
        ("    e1 = tl.load(x1 + t, t < s1)", "    x1 += s1\n    e1 = tl.load(x1 - 1)", None),
        (
            "    e1 = tl.load(x1 + t, t < s1)",
            "    p = x1 + s1\n    e1 = tl.load(p)",
            "reaches `x1[300]`, which has 300 elements",
        ),
        ("    e1 = tl.load(x1 + t, t < s1)", "    cdiv = 1\n    e1 = tl.load(x1 + s1)", None),
        (
            "(x * s1 + t), e2, xmask & (t < s1)",
            "(x * s1 + t), e2",
            "reaches `v0[5011]`, which has 3000 elements",
        ),
        (
            "tl.store(z0 + x, a0, xmask)",
            "tl.store(z0 + x, a0)",
            "reaches `z0[15]`, which has 10 elements",
        ),
        (
            "tl.store(z0 + x, a0, xmask)",
            "tl.store(z0 + x, acc, xmask)",
            "stores a block of [8, 64] through pointers of [8, 1]",
        ),
        (
            "tl.store(z0 + x, a0, xmask)",
            'tl.store(z0 + x, tl.where(xmask, acc, float("-inf")), xmask)',
            "stores a block of [8, 64] through pointers of [8, 1]",
        ),
        (
            "tl.store(z0 + x, a0, xmask)",
            "tl.store(z0, a0)",
            "stores a block of [8, 1] through a single pointer",
        ),
        (
            "tl.store(z0 + x, a0, xmask)",
            "tl.store(z0, 0.0, xmask)",
            "stores with a mask of [8, 1] through a single pointer",
        ),
        ("tl.store(z0 + x, a0, xmask)", "tl.store(z0 + x, 1.0, xmask)", None),
        (
            "tl.store(z0 + x, a0, xmask)",
            "tl.atomic_add(z0 + x, a0)",
            "reaches `z0[15]`, which has 10 elements",
        ),
        (
            "tl.sum(acc, 1, keep_dims=True)",
            "tl.sum(acc, 1)",
            "joins a block of [1, 512] with one of [8]",
        ),
        (
            "tl.sum(acc, 1, keep_dims=True)",
            "tl.sum(acc, 2, keep_dims=True)",
            "folds axis 2 of a block of [8, 64]",
        ),
        ("tl.sum(acc, 1, keep_dims=True)", "dvk_max(acc, 1, True)", None),
        (
            "tl.sum(acc, 1, keep_dims=True)",
            "dvk_max(acc, 1)",
            "gives `dvk_max` 2 operands, and it takes 3",
        ),
        ("tl.sum(acc, 1, keep_dims=True)", "own(acc)", None),
        (
            "tl.where(rmask, e0, 0.0)",
            "tl.where(rmask, e0)",
            "gives `tl.where` 2 operands, and it takes 3",
        ),
        (
            "tl.where(rmask, e0, 0.0)",
            "tl.where(rmask, e0, tl.zeros([64, 8], tl.float32))",
            "joins a block of [8, 64] with one of [64, 8]",
        ),
        ("pow2(s1)", "s1", "asks for a range of 300 elements, which is no power of two"),
        (
            "[8, 64], 0.0",
            "[8, 60], 0.0",
            "asks for a block of [8, 60], whose sizes are to be powers of two",
        ),
    ],
)
def test_only_certain_errors_are_reported(old: str, new: str, said: str | None) -> None:
    assert old in KERNEL
    assert (
        access_error(
            HEAD, KERNEL.replace(old or " ", new or " ").split("\n"), SIZES, TENSORS, {"op_gelu"}
        )
        == said
    )


@pytest.mark.parametrize(
    ("head", "said"),
    [
        ("2, 4", "reaches `z0[15]`, which has 10 elements"),
        ("cdiv(s0, 8), 4", "reaches `z0[15]`, which has 10 elements"),
        ("1, 4", None),
        ("n, 4", None),
        ("2", None),
        ("(", None),
        ("0, 4", None),
    ],
)
def test_the_last_program_is_among_those_that_run(head: str, said: str | None) -> None:
    assert (
        access_error(
            head, KERNEL.replace("a0, xmask)", "a0)").split("\n"), SIZES, TENSORS, {"op_gelu"}
        )
        == said
    )


@pytest.mark.parametrize(
    "body",
    [
        "a" * 60_000,
        "x = " + "(" * 20_000,
        "x = " + "-" * 20_000 + "1",
        "x = " + "+".join(["x"] * 15_000),
        "x = 9**9**9 << 9**9",
        "x = tl.arange(0, 1 << 40)",
        "x = tl.arange(0, 1048576)[:, None]\n" + "y = x + tl.arange(0, 1048576)[None, :]\n" * 999,
        "x = tl.arange(0, 1048576)\n" + "y = x * 1 + x // 3 % 5\n" * 2000,
        "x = y" + ".to(tl.int64)" * 3000,
        "\n".join("    " * n + f"for n{n} in range(9):" for n in range(18)) + " x = 1",
        "\n".join(" " * n + f"for n{n} in range(9):" for n in range(18))
        + "\n"
        + "\n".join(" " * 18 + f"x{n} = 1" for n in range(2000)),
    ],
)
@pytest.mark.slow
def test_hostile_texts_neither_fail_nor_take_long(body: str) -> None:
    began = time.process_time()
    assert access_error("1, 4", textwrap.indent(body, "    ").split("\n"), SIZES, TENSORS) is None
    assert time.process_time() - began < 5


def test_such_a_text_is_unreadable() -> None:
    source = "import torch\nfrom torch import nn\n\n\nclass Model(nn.Module):\n    def forward(self, x):\n        return x.exp()\n"
    task = Task(id="t", name="t", source=source, entry="Model", kind="module")
    graph = captured(Function(torch.exp), [rand(9, 90)[:, ::2]])
    text = (
        "z0 = empty(f32, s0)\nk0[s0, 1]:\n    x = tl.program_id(0)\n    for r in range(s1):\n        a = tl.load(x0 + x * 90 + r * 2)\n"
        "        tl.store(v0 + x * s1 + r, tl.exp(a))\n    b = tl.load(x0 + x * 90 + 88)\n    tl.store(z0 + x, b)\n"
        "    tl.store(v0 + x * s1 + s1 - 1, tl.exp(b))\nreturn v0"
    )
    assert nanolang.assemble(task, graph, text, "triton").backend == "triton"
    for old, new, why in [
        ("empty(f32, s0)", "empty(f32, 8)", "`z0[8]`, which has 8 elements"),
        ("+ 88", "+ 89", "`x0[809]`, which has 809 elements"),
        ("s1 - 1,", "s1,", "`v0[405]`, which has 405 elements"),
    ]:
        assert old in text
        with pytest.raises(nanolang.ParseError, match=re.escape(f"kernel k0 reaches {why}")):
            nanolang.assemble(task, graph, text.replace(old, new), "triton")
    # The result of a call may have another size than the listing says: it is not checked.
    made = text.replace("k0[s0", "v0 = torch.zeros(s0, 1000)\nk0[s0").replace("s1 - 1,", "s1,")
    assert nanolang.assemble(task, graph, made, "triton")


@pytest.mark.parametrize("name", CASES)
@pytest.mark.slow
def test_lint_accepts_composed_programs_and_rejects_corrupted_ones(name: str) -> None:
    function, inputs = CASES[name]
    torch.manual_seed(3)
    args = inputs()
    graph = captured(Function(function), args, [f"x{n}" for n in range(len(args))])
    task = Task(id="t", name="t", source="def f(): pass", entry="f", kind="function")
    for variant in nanolang.variants(graph, "triton", random.Random(name), 8):
        nanolang.assemble(task, graph, variant.text, "triton")
    text = nanolang.write(graph, Plan(tuple(applicable(graph.graph, "cuda", "triton"))), "triton")
    found = re.search(r"tl\.store\((v\d+) \+ ", text)
    if (
        found is not None and f"\n{found[1]} = " not in f"\n{text}"
    ):  # nothing is known of a call's result
        with pytest.raises(nanolang.ParseError, match="reaches `v"):
            nanolang.assemble(
                task, graph, f"{text[: found.end()]}1000000000 + {text[found.end() :]}", "triton"
            )


@pytest.mark.parametrize(
    "cases", [list(RENDERED)[::4], list(OWN_CASES)[::4]], ids=["rendered", "own"]
)
@pytest.mark.slow
def test_lint_accepts_every_form_of_the_renderer(cases: list[str]) -> None:
    """Products, scans and windows too, of which no composed text is."""
    for name in cases:
        case = {**RENDERED, **OWN_CASES}[name]
        torch.manual_seed(0)
        for kernel in Program(Function(case.function), case.args()).kernels.values():
            for schedule in renderer.schedules(kernel):
                functions, parts = renderer.functions(kernel, schedule)
                memory = {f"a{n}": b.last + 1 for n, b in enumerate(kernel.inputs)} | {
                    f"part_{kind}": n for kind, n in parts.items()
                }
                memory |= {f"o{n}": b.last + 1 for n, b in enumerate(kernel.outputs)}
                for one in functions:
                    lines = one.text.split("\n")[2:]
                    assert (
                        access_error(
                            f"{one.grid}, {one.warps}",
                            lines,
                            {},
                            {name: memory[name] for name in one.params},
                        )
                        is None
                    ), one.text


def test_a_program_between_the_first_and_the_last_is_looked_at() -> None:
    body = ["    x = tl.program_id(0) * 64 + tl.arange(0, 64)", "    tl.load(x0 + x, x < 300)"]
    assert (
        access_error("8, 1", body, {}, {"x0": 150}) == "reaches `x0[191]`, which has 150 elements"
    )

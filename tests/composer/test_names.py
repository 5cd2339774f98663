"""Static name checks of kernels: undeclared names, names declared twice or read too early."""

from __future__ import annotations

import ast
import random
import re
import shutil
import subprocess

import pytest
import torch
import torch.nn.functional as F

from dvk import nanolang
from dvk.composer import Plan, applicable
from dvk.nanolang import frame
from dvk.nanolang.lint.bounds import out_of_bounds
from dvk.nanolang.lint.order import use_before_definition
from dvk.nanolang.lint.scopes import undeclared_name
from dvk.nanolang.listing.symbolic import Names
from dvk.nanolang.parse_error import ParseError
from dvk.nanolang.text import expand
from dvk.records import Task
from tests.nanolang.compact_cases import rand
from tests.nanolang.compact_programs import Function, captured

KERNEL = """\
  #pragma omp parallel for schedule(static)
  for (long t = 0; t < cdiv(s0, 8); ++t) {
    const long lo = t * 8, hi = least(lo + 8, s0);
    float b_e0[8]; for (long l = 0; l < 8; ++l) b_e0[l] = 0;
    float a0 = 0;  // a sum
    int nan_a0 = 0;
    #pragma omp simd reduction(+:a0) reduction(|:nan_a0)
    for (long i0 = lo; i0 < hi; ++i0) {
      float ex0 = x0[i0];
      a0 += ex0 < 1e-3f ? -ex0 : ((float)ex0); nan_a0 |= ex0 != ex0;
    }
    if (nan_a0) a0 = __builtin_nan("a0 /");
    else if (a0 < 0) { float e1 = expf(a0); a0 = e1; }
    for (long i0 = lo; i0 < hi; ++i0) {
      unsigned long e1 = (unsigned long)i0, e2 = e1 + 0x1fu;
      v0[i0] = a0 * (float)SQRT_HALF + e2 + b_e0[i0 - lo];
    }
  }"""
KNOWN = {"s0", "x0", "v0", "cdiv", "least", "expf", "SQRT_HALF"}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("", "", None),
        ("    float a0 = 0;", "", "uses `a0`, which nothing declares there"),
        ("reduction(+:a0)", "reduction(+:a1)", "uses `a1`, which nothing declares there"),
        ("      float ex0 = x0[i0];\n", "", "uses `ex0`, which nothing declares there"),
        ("a0 = e1; }", "} a0 = e1;", "uses `e1`, which nothing declares there"),
        ("lo + 8, s0)", "lo + 8, len)", "uses `len`, which nothing declares there"),
        ("e2 = e1 + 0x1fu", "e2 = e3 + 0x1fu", "uses `e3`, which nothing declares there"),
        ("x0[i0]", "x1[i0]", "uses `x1`, which nothing declares there"),
        ("expf(a0)", "abs(a0)", "calls `abs`, which is no function here"),
        ("int nan_a0 = 0;", "int nan_a0 = 0; float a0 = 1;", "declares `a0` twice in one block"),
        ("lo = t * 8, hi", "lo = t * 8, lo", "declares `lo` twice in one block"),
        ("float ex0 = x0[i0];", "float ex0 = x0[i0]; float a0 = ex0;", None),
        ("expf(a0)", "auto(a1)", None),
        ("float ex0 = x0[i0];", "vec ex0 = x0[i0];", None),
        ("float ex0 = x0[i0];", "float ex0 = x0[i1", None),
        ("float a0 = 0;", "auto f = [](float z) { return z; };", None),
    ],
)
def test_undeclared_names_are_reported(old: str, new: str, said: str | None) -> None:
    assert old in KERNEL
    assert undeclared_name(KERNEL.replace(old, new) if old else KERNEL, KNOWN) == said


@pytest.mark.parametrize(
    "line",
    [
        "v0[0] = (s0 > 0 and s0 < 5) ? x0[0] : 0;",
        "if (not s0 or s0 > 2) v0[0] = s0 xor 1;",
        "v0[0] = static_cast<float>(s0);",
        "float a __attribute__((aligned(32))) = 1; v0[0] = a;",
        "alignas(32) float a[8]; a[0] = 1;",
        "[[maybe_unused]] float a = 1;",
        "v0[0] = ({ float e = 1; e; });",
        "again: v0[0] = 1;",
        "v0[0] = L'a';",
        "v0[0] = (wchar_t)1;",
        "float (a) = 1; v0[0] = a;",
        "v0[0] = [](float q) { return q; }(1);",
        "__int128 q = 1; v0[0] = q;",
        "float _Complex c = 1; v0[0] = __builtin_fabsf(v0[0]);",
        "v0[0] = x0 == nullptr;",
        "float(1);",
    ],
)
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_the_rest_of_the_language_is_left_to_the_compiler(line: str) -> None:
    source = f"{frame.cpp_prelude({'s0': 8})}\nvoid k0(const float* x0, float* v0) {{\n{line}\n}}"
    assert (
        subprocess.run(
            ["g++", "-fsyntax-only", "-w", "-x", "c++", "-"], input=source, text=True
        ).returncode
        == 0
    )
    assert (
        undeclared_name(line, KNOWN) is None
        and out_of_bounds(line, {"s0": 8}, {"x0": 8, "v0": 8}) is None
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "}",
        "{" * 60_000,
        "for (" * 20_000,
        "float a0",
        "#define a b",
        "a\\",
        "float float;",
        "(" * 60_000,
        "if",
    ],
)
def test_unsupported_code_is_left_to_the_compiler(text: str) -> None:
    assert undeclared_name(text, KNOWN) is None


def softmax(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.softmax(F.gelu(x) * w, -1).amax(0) + F.layer_norm(x, (x.shape[-1],), w).sum(0)


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@pytest.mark.slow
def test_the_compiler_rejects_what_lint_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines of composed texts omitted, doubled, moved, or with swapped words: g++ agrees with each reason."""
    graph = captured(Function(softmax), [rand(12, 40), rand(40)])
    sizes, rng, told, silent = Names(graph.graph).values, random.Random(0), [], 0
    monkeypatch.setattr(
        expand, "undeclared_name", lambda body, known: told.append(undeclared_name(body, known))
    )
    good = nanolang.write(graph, Plan(tuple(applicable(graph.graph, "cpu", "cpp"))), "cpp")
    for _ in range(60):
        told.clear()
        try:
            native = expand.expand(graph, broken(good, rng), "cpp").native
        except nanolang.ParseError:
            continue
        if not any(told):
            silent += 1
            continue
        source = f'{frame.cpp_prelude(sizes)}\nextern "C" {{\n{native}\n}}'
        done = subprocess.run(
            ["g++", "-fsyntax-only", "-fopenmp", "-x", "c++", "-"],
            input=source,
            text=True,
            capture_output=True,
        )
        assert done.returncode, f"{told}: {native}"
    assert silent


def broken(text: str, rng: random.Random) -> str:
    lines = text.split("\n")
    inner = [
        n
        for n, line in enumerate(lines)
        if line.startswith("  ") and "{" not in line and "}" not in line
    ]
    one, other = rng.choice(inner), rng.choice(inner)
    what = rng.randrange(4)
    if what == 0:
        del lines[one]
    elif what == 1:
        lines.insert(other, lines[one])
    elif what == 2:
        lines.insert(other, lines.pop(one))
    else:
        lines[one] = re.sub(
            r"\b[ae]\w*\d\b",
            lambda m: rng.choice([m[0], *re.findall(r"\b[ae]\w*\d\b", lines[other])]),
            lines[one],
        )
    return "\n".join(lines)


TRITON = """\
@jit
def k0(x0, v0):
    x = tl.program_id(0)
    acc_a0 = tl.full([8], 0.0, tl.float32)
    for r0 in range(0, s0, 8):
        r = r0 + tl.arange(0, 8)
        rmask = r < s0
        acc_a0 += tl.load(x0 + r, rmask)
    if s0 > 8:
        e0 = tl.sum(acc_a0, 0)
    else:
        e0 = 0.0
    tl.store(v0 + x, e0)
@graphed
def run(x0):
    v0 = torch.empty_like(x0)
    k0[s0, 1](x0, v0)
    v1 = v0 + 1
    del v0
    return v1
"""


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("", "", None),
        (
            "    acc_a0 = tl.full([8], 0.0, tl.float32)\n",
            "",
            "kernel k0 reads `acc_a0` before it is made",
        ),
        (
            "    tl.store(v0 + x, e0)",
            "    tl.store(v0 + x, e0, rmask)",
            "kernel k0 reads `rmask` before it is made",
        ),
        ("    tl.store(v0 + x, e0)", "    tl.store(v0 + x, r0)", None),
        ("    tl.store(v0 + x, e0)", "    rmask = x < 1\n    tl.store(v0 + x, e0, rmask)", None),
        ("r0 + tl.arange", "r + tl.arange", "kernel k0 reads `r` before it is made"),
        ("range(0, s0, 8)", "tl.static_range(0, s0, 8)", None),
        ("    if s0 > 8", "    if e0 > 8", "kernel k0 reads `e0` before it is made"),
        (
            "    v1 = v0 + 1\n    del v0\n",
            "    v1 = v2 + 1\n    v2 = v0\n",
            "`v2` is read before it is made",
        ),
        ("    v0 = torch.empty_like(x0)\n", "", "`v0` is read before it is made"),
        ("v1 = v0 + 1", "v1 = (lambda v2: v2)(v0)", None),
        ("    x = tl", "    s0 = s0 + 1\n    x = tl", None),
        ("v1 = v0 + 1", "v1 = (v2 := v0) + v2", None),
        (
            "    x = tl",
            "    for i in tl.static_range(2):\n        if i > 0:\n            j = i + k\n        k = i\n    x = tl",
            None,
        ),
        (
            "    x = tl",
            "    for i in range(2):\n        if i > 0:\n            j = i + k\n        k = i\n    x = tl",
            "kernel k0 reads `k` before it is made",
        ),
        (
            "    x = tl",
            "    if s0 > 9:\n        j = 1\n"
            + "".join(f"    elif s0 > {i}:\n        j = 2\n" for i in range(1300))
            + "    x = tl",
            None,
        ),
    ],
)
def test_use_before_definition_is_reported(old: str, new: str, said: str | None) -> None:
    assert old in TRITON
    found = use_before_definition(
        ast.parse(TRITON.replace(old, new) if old else TRITON), {"tl", "torch", "s0"}
    )
    assert found == (
        (said, "k0" if said.startswith("kernel") else None) if said is not None else None
    )


def test_a_loop_s_names_are_gone_behind_it_only_where_triton_forgets_them() -> None:
    text = TRITON.replace("tl.store(v0 + x, e0)", "tl.store(v0 + x, e0, rmask)").replace(
        " range(", " tl.static_range("
    )
    assert use_before_definition(ast.parse(text), {"s0"}) is None


def test_such_texts_are_unreadable() -> None:
    source = "import torch\nfrom torch import nn\n\n\nclass Model(nn.Module):\n    def forward(self, x):\n        return x.exp()\n"
    task = Task(id="t", name="t", source=source, entry="Model", kind="module")
    graph = captured(Function(torch.exp), [rand(8, 40)])
    cpp = "k0:\n  for (long t = 0; t < s0*s1; ++t) {\n    float e0 = x0[t];\n    v0[t] = expf(e0);\n  }\nreturn v0"
    triton = "k0[1, 1]:\n    r = tl.arange(0, 512)\n    e0 = tl.load(x0 + r, r < s0*s1)\n    tl.store(v0 + r, e0, r < s0*s1)\nreturn v0"
    for backend, text, old, new, why in [
        ("cpp", cpp, "expf(e0)", "expf(e1)", "kernel k0 uses `e1`"),
        ("cpp", cpp, "return v0", "v3 = v2 + v0\nv2 = v3\nreturn v2", "`v2` is read"),
        ("triton", triton, "r, e0", "r, e1", "`e1` is not defined"),
        ("triton", triton, "    r = tl.arange(0, 512)\n    e0", "    e0", "`r` is not defined"),
        (
            "triton",
            triton,
            "    e0 = tl.load(x0 + r, r",
            "    e0 = tl.load(x0 + r, e0",
            "kernel k0 reads `e0` before",
        ),
    ]:
        assert nanolang.assemble(task, graph, text, backend).backend == backend  # type: ignore[arg-type]
        assert old in text
        with pytest.raises(nanolang.ParseError, match=re.escape(why)):
            nanolang.assemble(task, graph, text.replace(old, new), backend)  # type: ignore[arg-type]


TEXT = """v0 = F.linear(x0, p0)
k0[s0, 1]:
    e0 = tl.load(v0)
    tl.store(v1, e0)
k1[s0, 1]:
    e1 = tl.load(v1)
    tl.store(v2, e0)
k2[s0, 1]:
    tl.store(v3, e0)
return v9
"""


@pytest.mark.parametrize(
    ("kernel", "name", "last"),
    [
        (None, None, "return v9"),
        (None, "v0", "v0 = F.linear(x0, p0)"),
        (None, "v9", "return v9"),
        (None, "e0", "return v9"),
        ("k0", None, "    tl.store(v1, e0)"),
        ("k1", None, "    tl.store(v2, e0)"),
        ("k1", "e0", "    tl.store(v2, e0)"),
        ("k1", "e1", "    e1 = tl.load(v1)"),
        ("k2", "e7", "    tl.store(v3, e0)"),
        ("k5", None, "return v9"),
    ],
)
def test_a_text_is_read_up_to_where_it_shows_to_be_wrong(
    kernel: str | None, name: str | None, last: str
) -> None:
    assert TEXT[: ParseError("", kernel, name).shown_by(TEXT)].splitlines()[-1] == last

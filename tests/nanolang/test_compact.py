"""The compact dialect: sizes that print, listings, texts, and the drop-ins around them."""

from __future__ import annotations

import random

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from dvk import nanolang
from dvk.composer import Plan, applicable
from dvk.composer.ir.symint import as_cpp, named, over
from dvk.nanolang import ParseError, algorithms, prompt, variants, write
from dvk.nanolang.text.write import fused
from dvk.records import Task
from tests.composer.programs import differences, run_source
from tests.nanolang.compact_cases import CASES, rand
from tests.nanolang.compact_programs import CppText, Function, candidate, captured, compiled
from tests.tasks.shrink import shipped, shrink

FILES = {path.stem: path for path in shipped()}
SOURCE = """
import torch
from torch import nn

F = 7  # what the module means by F

class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        assert F == 7
        return torch.nn.functional.gelu(self.norm(self.linear(x))) + x
"""


# ---------------------------------------------------------------- sizes


def numbers() -> dict[int, object]:
    known: dict[int, object] = {}
    for number, value in enumerate((12, 35, 8, 6)):
        named(f"s{number}", value, known)  # type: ignore[arg-type]
    return known


@pytest.mark.parametrize("seed", range(20))
def test_sizes_print_what_they_are(seed: int) -> None:
    rng = random.Random(seed)
    known = numbers()
    names = {repr(v): int(k) for k, v in known.items()}
    made = [*known.values(), 3, 1, 4, 0]
    for _ in range(40):
        a, b = rng.choice(made), rng.choice(made)
        operation = rng.choice(["+", "-", "*", "//", "%", "up"])
        if (
            operation in ("//", "%", "up")
            and int(b) <= 0
            or (operation in ("//", "%") and int(a) < 0)
        ):
            continue
        found = -(-a // b) if operation == "up" else eval(f"a {operation} b")
        plain = -(-int(a) // int(b)) if operation == "up" else eval(f"int(a) {operation} int(b)")
        assert found == plain
        for text in (str(found), f"2 * {found}", repr(found)):
            want = 2 * plain if text.startswith("2 *") else plain
            assert eval(text, {**names, "cdiv": lambda x, y: -(-x // y)}) == want, (text, operation)
        if abs(plain) < 10**6:
            made.append(found)


def test_sizes_choose_the_shortest_honest_form() -> None:
    known = numbers()
    s0, s1, s2, s3 = known.values()
    assert str((s0 * s1) // s1) == "s0" and str(s0 * s1) == "(s0*s1)" and repr(s0 * s1) == "s0*s1"
    assert str(s0 // 2) == "s3", "a quotient that is a size of the graph goes by its name"
    assert str(-(-s1 // 4)) == "cdiv(s1, 4)" and str(s1 // 4) == "(s1 // 4)"
    with as_cpp():
        assert str(s1 // 4) == "(s1 / 4)"
    assert str(over(1.0, s0 - 1)) == "(1.0/(s0 - 1))" and over(1.0, s0) == 1 / 12
    assert str(s0 - s0) == "0" and type(s0 // s0) is int


# ---------------------------------------------------------------- the listing


def test_the_listing_names_sizes_and_keeps_numbers() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(24, 40)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = F.layer_norm(self.linear(x).view(6, 2, 40), (40,))
            return (y * 0.1).transpose(1, 2).contiguous()

    graph = captured(Model(), [rand(12, 24)]).graph
    text = prompt(graph, "cuda")
    assert text.splitlines()[0] == "triton s0=40 s1=24 s2=12 s3=6 s4=2"
    assert (
        "x0 f32[s2,s1]\n" in text and "linear(x0,p0,p1)" in text and "view(v0,[s3,s4,s0])" in text
    )
    assert "layer_norm(v1,[s0],none,none,1e-05" in text and "mul(v2,0.1)" in text
    assert prompt(graph, "cpu").startswith("cpp s0=")
    strided = captured(Function(lambda x: x * 2), [rand(4, 6).t()], ["x"]).graph
    assert "f32[s0,s1]@1,s0" in prompt(strided, "cpu")


def test_equal_graphs_of_other_sizes_differ_in_the_first_line_alone() -> None:
    def text(rows: int, width: int, backend: str) -> tuple[str, str]:
        graph = captured(
            Function(lambda x, w: F.rms_norm(x, (width,), w, 1e-6)),
            [rand(rows, width), rand(width)],
        )
        listing, answer = (
            prompt(graph.graph, "cpu"),
            write(graph, Plan(("fuse_rowwise", "fuse_pointwise")), backend),
        )  # type: ignore[arg-type]
        return listing.split("\n", 1)[1], answer

    assert text(37, 129, "cpp") == text(41, 131, "cpp")
    assert text(37, 129, "triton") == text(41, 131, "triton")


# ---------------------------------------------------------------- round trips


@pytest.fixture(scope="module")
def shipped_texts() -> dict[str, list[tuple[CppText, list[object], tuple[str, ...]]]]:
    made: dict[str, list[tuple[CppText, list[object], tuple[str, ...]]]] = {}
    for number, (name, path) in enumerate(FILES.items()):
        namespace = run_source(shrink(path.read_text()), name)
        torch.manual_seed(0)
        model, args = namespace.Model(*namespace.get_init_inputs()), namespace.get_inputs()
        graph = captured(model, args)
        found = variants(graph, "cpp", random.Random(number), 4)
        made[name] = [(CppText(model, graph, v.text), args, v.tags) for v in found]
    compiled(text for texts in made.values() for text, _, _ in texts)
    return made


@pytest.mark.parametrize("name", FILES)
def test_shipped_tasks(
    shipped_texts: dict[str, list[tuple[CppText, list[object], tuple[str, ...]]]], name: str
) -> None:
    wrong = []
    for text, args, tags in shipped_texts[name]:
        torch.manual_seed(1)
        with torch.no_grad():
            want = text.model(*args)
        torch.manual_seed(1)
        wrong += [(tags, d) for d in differences(text.run(*args), want, scale=3)]
    assert wrong == []


@pytest.fixture(scope="module")
def case_texts() -> dict[str, list[tuple[CppText, list[object], str]]]:
    """Every case under every C++ algorithm of every kernel."""
    made: dict[str, list[tuple[CppText, list[object], str]]] = {}
    for name, (function, inputs) in CASES.items():
        torch.manual_seed(3)
        args = inputs()
        model = Function(function)
        graph = captured(model, args, [f"x{n}" for n in range(len(args))])
        names = tuple(applicable(graph.graph, "cpu", "cpp"))
        seen: set[str] = set()
        for kernel in fused(graph, names, "cpp").ordered:
            found = algorithms(kernel, "cpp")
            assert len(found) >= 3, f"{name}: {kernel.summary} has {list(found)}"
            for algorithm, options in found.items():
                for option in options[:2]:
                    text = write(graph, Plan(names, {kernel.name: option}), "cpp")
                    if text not in seen:
                        seen.add(text)
                        made.setdefault(name, []).append(
                            (CppText(model, graph, text), args, algorithm)
                        )
    compiled(text for texts in made.values() for text, _, _ in texts)
    return made


@pytest.mark.parametrize("name", CASES)
def test_every_algorithm(
    case_texts: dict[str, list[tuple[CppText, list[object], str]]], name: str
) -> None:
    wrong = []
    for text, args, algorithm in case_texts[name]:
        want = text.model(*args)
        scale = 30 if name.endswith("_far") else 3
        wrong += [(algorithm, d) for d in differences(text.run(*args), want, scale=scale)]
    assert wrong == []


def test_the_drop_in_around_a_text_is_whole() -> None:
    namespace = run_source(SOURCE)
    model, x = namespace.Model(24), rand(5, 24)
    graph = captured(model, [x])
    text = write(graph, Plan(tuple(applicable(graph.graph, "cpu", "cpp"))), "cpp")
    made = candidate(SOURCE, graph, text, "cpp")
    new = made.ModelNew(24)
    new.load_state_dict(model.state_dict())
    with torch.no_grad():
        assert differences(new(x), model(x), scale=3) == []
        assert new._dvk_ready is True
        assert differences(new(rand(9, 24)), new(rand(9, 24))) != [], (
            "another size runs the original"
        )
        model.linear.weight.mul_(2)
        new.load_state_dict(model.state_dict())
        assert differences(new(x), model(x), scale=3) == []
    assert torch.equal(new(x), model(x)) and new(x).requires_grad, (
        "with gradients the original runs"
    )


def test_folded_weights_follow_the_weights() -> None:
    source = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)

    def forward(self, x):
        return torch.relu(self.norm(self.conv(x)))
"""
    namespace = run_source(source)
    model, x = namespace.Model().eval(), rand(2, 3, 8, 8)
    graph = captured(model, [x])
    text = write(graph, Plan(("fold_batch_norm", "fuse_pointwise", "inplace_epilogue")), "cpp")
    assert "w0 = held(" in text and "w0(p0" in text
    new = candidate(source, graph, text, "cpp").ModelNew().eval()
    new.load_state_dict(model.state_dict())
    with torch.no_grad():
        assert differences(new(x), model(x), scale=3) == []
        for module in (model, new):
            module.conv.weight.mul_(1.5)
            module.norm.running_mean.add_(0.5)
        assert differences(new(x), model(x), scale=3) == []
        assert new._dvk_ready is True


# ---------------------------------------------------------------- what cannot be read

TASK = Task(id="test", name="test", source=SOURCE, entry="Model", kind="module")
GOOD = """\
v0 = F.linear(x0, p0)
k0:
  for (long t = 0; t < s0; ++t) v0[t] = v0[t];
return v0
"""


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("return v0\n", "v3 = v0\n"), "is to be `return"),
        (("return v0\n", "return v0\nv1 = v0\n"), "is to be `return"),
        (("v0 = F", "v0 == = F"), "line 1 is not Python"),
        (("F.linear", "G.linear"), "`G` is not defined"),
        (("return v0", "return v0.view(s9)"), "`s9` is not a size"),
        (("return v0", "return v9"), "`v9` is not defined"),
        (("return v0", "v1 = k1(v0)\nreturn v1"), "`k1` is not defined"),
        (("k0:", "k0"), "neither a kernel"),
        (("k0:\n", "import os\nk0:\n"), "neither a kernel"),
        (("k0:\n", "print(1)\nk0:\n"), "neither a kernel"),
        (("k0:\n", "k0:\nk1:\n"), "kernel k0 has no lines"),
        (("return v0", "k0:\n  v0[0] = 1;\nreturn v0"), "two kernels k0"),
        (("= v0[t]", "= v2[t]"), "reads `v2`, which nothing made"),
        (
            ("  for (long t = 0; t < s0; ++t) v0[t] = v0[t]", "  v7[0] = v0[0]"),
            "writes `v7`, which the listing does not describe",
        ),
        (("k0:\n", "k0:\n  z0[1] = 2;\n"), "writes `z0`, which the listing does not describe"),
        (("k0:\n", "z0 = empty(f3, s0)\nk0:\n"), "`f3` is no type"),
        (("++t)", "++t) {"), "braces"),
        (("v0[t];", "v0[t]; /* ''' */"), "three quotes"),
        (("return v0", "return (" * 3000), "not Python"),
        (("return v0", "return '\0'"), "no source file can"),
    ],
)
@pytest.mark.slow
def test_malformed_texts_say_why(change: tuple[str, str], reason: str) -> None:
    graph = captured(run_source(SOURCE).Model(24), [rand(5, 24)])
    assert (
        nanolang.assemble(TASK, graph, GOOD, "cpp", proposer="nano", title="mine").proposer
        == "nano"
    )
    assert change[0] in GOOD
    with pytest.raises(ParseError, match=reason):
        nanolang.assemble(TASK, graph, GOOD.replace(*change), "cpp")


RUBBISH = [
    "",
    "\n\n",
    "k0:",
    "k0[1, 2]:\n  x",
    "}{",
    "k0:\n\treturn x0\n  return",
    "x = 1",
    "return v0\nreturn v0",
    "a" * 70000,
]


@pytest.mark.parametrize("text", RUBBISH)
@pytest.mark.parametrize("backend", ["cpp", "triton"])
@pytest.mark.slow
def test_rubbish_is_unreadable(text: str, backend: str) -> None:
    graph = captured(run_source(SOURCE).Model(24), [rand(5, 24)])
    with pytest.raises(ParseError):
        nanolang.assemble(TASK, graph, text, backend)  # type: ignore[arg-type]


@pytest.mark.slow
def test_broken_texts_never_raise_anything_else() -> None:
    """Cut, doubled and shuffled texts are candidates or unreadable."""
    graph = captured(run_source(SOURCE).Model(24), [rand(5, 24)])
    rng = random.Random(0)
    outcomes = set()
    for backend in ("cpp", "triton"):
        text = write(graph, Plan(tuple(applicable(graph.graph, "cpu", "cpp"))), backend)  # type: ignore[arg-type]
        for _ in range(150):
            a, b = sorted((rng.randrange(len(text)), rng.randrange(len(text))))
            broken = rng.choice(
                [
                    text[:a],
                    text[:a] + text[b:],
                    text[:b] + text[a:],
                    text[:a] + rng.choice("()'\"{}\n\t:#\\@") + text[a:],
                ]
            )
            try:
                nanolang.assemble(TASK, graph, broken, backend)  # type: ignore[arg-type]
                outcomes.add("candidate")
            except ParseError as error:
                outcomes.add("unreadable")
                assert str(error)
    assert outcomes == {"candidate", "unreadable"}

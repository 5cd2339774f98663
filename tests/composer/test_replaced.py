"""`replace` converts instances that the drop-in's own file would have made, and leaves those that compute something else."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import nn

from dvk.composer.dropin import source_file
from dvk.composer.runtime import convert
from dvk.records import Task
from tests.composer.programs import differences, drop_in, run_source

SOURCE = """
import functools
import torch
from torch import nn
import torch.nn.functional as F

GAIN = 2.0


def scaled(x, by=3.0):
    return x * by * GAIN


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.tanh(x) + 0.25


class Base(nn.Module):
    offset = 0.5

    @staticmethod
    def shifted(x, *, by=1.5):
        return x + by


class Net(Base):
    def __init__(self):
        super().__init__()
        self.inner, self.linear = ModelNew(), nn.Linear(6, 6)

    @property
    def slope(self):
        return 0.1

    @torch.no_grad()
    def forward(self, x):
        act = lambda t: F.leaky_relu(t, self.slope) + (lambda s: s * 0.75)(t)
        y = scaled(act(self.linear(x))) if 0 <= x.dim() else x.replace("a", "b")
        return self.shifted(self.inner(y)) + self.offset - 4.5


def get_inputs():
    return [torch.randn(4, 6)]
"""
X = torch.randn(4, 6)


@pytest.fixture(scope="module")
def made() -> ModuleType:
    return drop_in(SOURCE, X, entry="Net")[0]


def converted(made: ModuleType, source: str) -> bool:
    """Whether a live model of this source is converted; its results stay the same."""
    live = run_source(source, "live").Net().eval()
    with torch.no_grad():
        want = live(X)
        new = made.replace(nn.Sequential(live))
        assert differences(new(X), want) == []
    return isinstance(new[0], made.ModelNew)


OTHERS = [
    ("- 4.5", "- 5.5"),
    ("0.75", "0.5"),
    ("return 0.1", "return 0.2"),
    ("*, by=1.5", "*, by=2.5"),
    ("by=3.0", "by=2.0"),
    ("x + by", "x - by"),
    ("offset = 0.5", "offset = 0.6"),
    ("GAIN = 2.0", "GAIN = 3.0"),
    ("+ 0.25", "+ 0.5"),
    ("0 <= x", "1 <= x"),
]


@pytest.mark.parametrize("change", OTHERS, ids=lambda change: change[1])
def test_a_class_that_differs_is_left_as_it_is(made: ModuleType, change: tuple[str, str]) -> None:
    assert change[0] in SOURCE
    assert not converted(made, SOURCE.replace(*change))


@pytest.mark.parametrize(
    "text",
    [
        SOURCE,
        "# moved\n\n" + SOURCE.replace("        y =", "        # a comment\n\n        y ="),
        SOURCE.replace("\n\n\n", "\n\n"),
        SOURCE.replace("def get_inputs", "def another(x):\n    return x\n\n\ndef get_inputs"),
    ],
)
def test_the_same_class_from_elsewhere_is_converted(made: ModuleType, text: str) -> None:
    assert converted(made, text)


def test_a_subclass_of_the_same_name_is_left_as_it_is(made: ModuleType) -> None:
    class Shifted(made.Net):
        @staticmethod
        def shifted(x: torch.Tensor) -> torch.Tensor:
            return x - 100

    Shifted.__name__ = "Net"
    live = Shifted().eval()
    assert made.replace(live) is live
    assert isinstance(made.replace(made.Net().eval()), made.ModelNew)


def test_a_part_of_another_class_of_the_same_name_is_noticed(made: ModuleType) -> None:
    live = run_source(SOURCE, "live").Net().eval()
    live.inner = run_source(SOURCE.replace("0.25", "0.5"), "other").ModelNew()
    assert made.replace(live) is live


@torch.no_grad()
def test_where_nothing_is_faster_nothing_is_converted() -> None:
    text = source_file.unchanged(
        Task(id="test", name="test", source=SOURCE, entry="Net", kind="module"), "as it is"
    )
    live = run_source(SOURCE.replace("- 4.5", "- 5.5"), "live").Net().eval()
    want = live(X)
    assert torch.equal(run_source(text).replace(live)(X), want)


HEAD = "import collections, functools, logging, sys, threading, types\nimport numpy as np\nimport torch\nfrom torch import nn\n\n"
NET = "\n\nclass Net(nn.Module):\n    def forward(self, x):\n        return {}\n"


def kept(made: str, source: str = "", warm: bool = False) -> bool:
    """Whether the class of one file's text is that of another file's text, after a call."""
    theirs, mine = run_source(source or made, "theirs"), run_source(made, "mine")
    caches = convert.dvk_empty(vars(mine))
    for module in (theirs, mine) if warm else ():
        module.Net()(X)
    return not convert.dvk_differs(theirs.Net, mine.Net, caches)


CONFIG = (
    "class Config:\n    def __init__(self, by):\n        self.__dict__['by'] = {'by': by}\n"
    "    def __getattr__(self, name):\n        return self.__dict__['by'][name]\n    def __eq__(self, other):\n        raise TypeError\n\n"
)
ODD = {
    "names that raise": (CONFIG + "C = Config(2.0)", "x * C.by"),
    "names that are arrays": (
        "class C:\n    def __getattr__(self, name):\n        return np.arange(3)\n\n\nC = C()",
        "x * C.by.sum()",
    ),
    "sparse": ("A = torch.eye(4).to_sparse()", "A @ x"),
    "nested": ("A = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])", "A"),
    "cycle": ("C = [1]\nC.append({'C': C})", "C"),
    "opaque": (
        "C = logging.getLogger(__name__), threading.Lock(), torch.Generator(), sys.stdout, (n for n in 'ab')",
        "C",
    ),
}


@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
def test_nothing_that_a_file_holds_raises_or_keeps_it_from_itself(text: tuple[str, str]) -> None:
    assert kept(HEAD + text[0] + NET.format(text[1]))


@pytest.mark.parametrize(
    "text",
    [
        (
            "C = {}\ndef f(n):\n    return C.setdefault(n, [2.0])[0]",
            "x * f(2) * D[0]\n\n\nD = [3.0]",
        ),
        ("C = 0\ndef f(n):\n    global C\n    C += n", "(f(2), x)"),
        (
            "C = None\ndef f():\n    global C\n    C = torch.ones(3) if C is None else C\n    return C",
            "f()",
        ),
    ],
    ids=["cache", "counter", "made when first used"],
)
def test_a_class_is_itself_though_it_was_called(text: tuple[str, str]) -> None:
    assert kept(HEAD + text[0] + NET.format(text[1]), warm=True)


@pytest.mark.parametrize(
    "text",
    [
        ("C = nn.LeakyReLU(2)", "C(x)"),
        ("C = nn.Sequential(nn.ReLU())", "C(x)"),
        (CONFIG + "C = Config(2)", "x * C.by"),
        ("C = types.SimpleNamespace(by=2)", "x * C.by"),
        ("C = range(2)", "x[C]"),
        ("C = slice(2)", "x[C]"),
        ("C = np.float32(2)", "x * C"),
        ("C = np.full(3, 2)", "x * C[0]"),
        ("C = torch.full((300,), 2)", "x * C[0]"),
        ("C = collections.deque([2])", "x * C[0]"),
        ("class D:\n    __slots__ = ('by',)\n\n\nC = D()\nC.by = 2", "x * C.by"),
        (
            "class D:\n    def __init__(self, by):\n        self.by = by\n    def f(self, x):\n        return x * self.by\n\nC = D(2).f",
            "C(x)",
        ),
        ("@functools.lru_cache\ndef f(x):\n    return x * 2", "f(x)"),
        ("f = functools.partial(torch.add, other=2)", "f(x)"),
        ("C = 1\ndef set_c(to):\n    global C\n    C = to\n\n\nset_c(2)", "x * C"),
        ("f = torch.tanh  # 2", "f(x)"),
        (
            "def f(x):\n    return x\n\n\nclass Base(nn.Module):\n    g = functools.partialmethod(f, 2)",
            "g(x)",
        ),
    ],
    ids=lambda text: text[0][:30],
)
def test_module_level_state_of_the_file_counts(text: tuple[str, str]) -> None:
    one = (
        HEAD
        + text[0]
        + NET.format(text[1]).replace(
            "Net(nn.Module)", "Net(Base)" if "Base" in text[0] else "Net(nn.Module)"
        )
    )
    other = (
        one.replace("torch.tanh  # 2", "torch.sin")
        .replace("nn.Sequential(nn.ReLU())", "nn.Sequential()")
        .replace("2", "5")
    )
    other = other.replace("float35", "float32")
    assert one != other
    assert kept(one)
    assert not kept(one, other)


@torch.no_grad()
def test_caches_that_both_files_have_filled_are_no_difference() -> None:
    text = (
        HEAD + "C = {}\n\n\ndef f(n):\n    if n not in C:\n        C[n] = n / 2\n    return C[n]\n"
    )
    text += NET.format("torch.tanh(x) * f(x.shape[0]) + 1")
    made, live = drop_in(text, X, entry="Net")[0], run_source(text, "live").Net().eval()
    made.ModelNew().eval()(X[:3]), live(X[:2])
    assert made.C and isinstance(made.replace(live), made.ModelNew)


def said(made: ModuleType, model: nn.Module, capfd: pytest.CaptureFixture[str]) -> str:
    """The message of `replace` for a model that it leaves unchanged."""
    capfd.readouterr()
    assert made.replace(model) is model
    return capfd.readouterr().err


def test_the_reason_for_leaving_an_instance_is_reported(
    made: ModuleType, capfd: pytest.CaptureFixture[str]
) -> None:
    live = run_source(SOURCE.replace("GAIN = 2.0", "GAIN = 3.0"), "live").Net()
    assert "0 replaced (no `Net`), 1 left as before\n" in said(made, live, capfd)
    assert (
        "left the model itself as before: it is not the one in this file: `GAIN` differs"
        in said(made, live, capfd)
    )
    assert "`Net.forward()` differs" in said(
        made, run_source(SOURCE.replace("- 4.5", "- 5.5"), "live").Net(), capfd
    )
    namespace = run_source(SOURCE, "live")
    live = namespace.Net()
    live.inner = run_source(SOURCE.replace("0.25", "0.5"), "other").ModelNew()
    assert "its ModelNew: it is not the one in this file: `ModelNew.forward()` differs" in said(
        made, live, capfd
    )
    live = type("Wider", (namespace.Net,), {"offset": 1.5})()
    assert "its class `Wider` is a subclass" in said(made, live, capfd)
    live = namespace.Net()
    live.forward = lambda x: x  # type: ignore[method-assign]
    assert "its forward() was set on the instance" in said(made, live, capfd)
    already = made.ModelNew()
    assert "0 replaced (no `Net`), 0 left" in said(made, already, capfd)


WRAP = """
def wrap(f):
    @functools.wraps(f)
    def inner(self, x):
        return f(self, x) + 1
    return inner

Net.forward = wrap(Net.forward)
"""
PATCHES = {
    "forward": ("Net.forward = lambda self, x: x", "Net.forward"),
    "base": ("Base.offset = 0.75", "Base.offset"),
    "method": ("Base.shifted = staticmethod(lambda x, *, by=1.5: x)", "Base.shifted"),
    "global": ("GAIN = 5.0", "GAIN"),
    "function": ("scaled = lambda x, by=3.0: x", "scaled"),
    "another's": ("Net.forward = ModelNew.forward", "Net.forward"),
    "wrapped": (WRAP, "Net.forward"),
    "attribute": ("Net.more = 1", "Net"),
    "hidden": ("Net.shifted = staticmethod(len)", "Net"),
}


@pytest.mark.parametrize("name", PATCHES)
def test_classes_patched_since_the_file_was_read_are_left(
    made: ModuleType, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    namespace = run_source(SOURCE, "live")
    live = namespace.Net().eval()
    patch, where = PATCHES[name]
    assert isinstance(made.replace(namespace.Net(), quiet=True), made.ModelNew)
    exec(patch, vars(namespace))
    assert f"`{where}" in said(made, live, capfd)


def test_the_origin_of_a_class_does_not_matter_but_its_code_does(
    made: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "net_of_theirs.py").write_text(SOURCE)
    theirs = importlib.import_module("net_of_theirs")
    monkeypatch.setitem(sys.modules, "net_of_theirs", theirs)
    old = theirs.Net()
    assert isinstance(made.replace(theirs.Net(), quiet=True), made.ModelNew)
    for name in ("__main__", "package.net"):  # a script or notebook has the first, and no file
        assert isinstance(made.replace(run_source(SOURCE, name).Net(), quiet=True), made.ModelNew)
    # The file on disk has changed, but the class has not; the reloaded one has.
    (tmp_path / "net_of_theirs.py").write_text(SOURCE.replace("- 4.5", "- 5.55"))
    assert isinstance(made.replace(old, quiet=True), made.ModelNew)
    importlib.reload(theirs)
    assert "`Net.forward()` differs" in said(made, theirs.Net(), capfd)
    # And the other way round: the file equals the drop-in's source, the class in memory does not.
    edited = theirs.Net()
    (tmp_path / "net_of_theirs.py").write_text(SOURCE)
    assert "`Net.forward()` differs" in said(made, edited, capfd)
    importlib.reload(theirs)
    assert isinstance(made.replace(theirs.Net(), quiet=True), made.ModelNew)


def test_classes_that_cannot_be_compared_are_left(capfd: pytest.CaptureFixture[str]) -> None:
    deep = HEAD + "C = []\nfor _ in range(30000):\n    C = [C, 1]" + NET.format("C")
    theirs, mine = run_source(deep, "theirs"), run_source(deep, "mine")
    assert (
        convert.dvk_differs(theirs.Net, mine.Net, set())
        == "comparing it with the one in this file raised RecursionError"
    )
    assert convert.dvk_differs(theirs.Net, theirs.Net, set()) == ""


@pytest.mark.parametrize(
    "change",
    [("* 3.0", "* 4.0"), ("GAIN = 2", "GAIN = 3"), ("by=1", "by=2"), ("return x", "return -x")],
)
@pytest.mark.slow
def test_a_function_that_differs_is_left(change: tuple[str, str]) -> None:
    text = "import torch\n\nGAIN = 2\n\n\ndef moved(x, by=1):\n    return x\n\n\ndef f(x):\n    return torch.tanh(moved(x)) * 3.0 * GAIN\n"
    made = drop_in(text, X, entry="f")[0]
    same, other = run_source(text, "live").f, run_source(text.replace(*change), "live").f
    assert (
        made.replace(same, quiet=True) is made.f_new is made.replace(quiet=True)
        and made.replace(other, quiet=True) is other
    )


@pytest.mark.parametrize("home", ["linear", "a", "inner", "x", "GAIN"])
def test_a_file_may_be_called_as_something_in_it(made: ModuleType, home: str) -> None:
    assert isinstance(made.replace(run_source(SOURCE, home).Net(), quiet=True), made.ModelNew)

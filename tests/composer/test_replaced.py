"""`replace` converts what the drop-in's own file would have made, and leaves whatever computes something else."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch
from torch import nn

from dvk.composer import dropin, embedded
from dvk.records import Task
from tests.composer.programs import differences, drop_in, run_source

SOURCE = '''
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
'''
X = torch.randn(4, 6)


@pytest.fixture(scope="module")
def made() -> ModuleType:
    return drop_in(SOURCE, X, entry="Net")[0]


def converted(made: ModuleType, source: str) -> bool:
    """Whether a live model of this source is converted; what it computes stays."""
    live = run_source(source, "live").Net().eval()
    with torch.no_grad():
        want = live(X)
        new = made.replace(nn.Sequential(live))
        assert differences(new(X), want) == []
    return isinstance(new[0], made.ModelNew)


OTHERS = [
    ("- 4.5", "- 5.5"), ("0.75", "0.5"), ("return 0.1", "return 0.2"), ("*, by=1.5", "*, by=2.5"), ("by=3.0", "by=2.0"),
    ("x + by", "x - by"), ("offset = 0.5", "offset = 0.6"), ("GAIN = 2.0", "GAIN = 3.0"), ("+ 0.25", "+ 0.5"), ("0 <= x", "1 <= x"),
]  # fmt: skip


@pytest.mark.parametrize("change", OTHERS, ids=lambda change: change[1])
def test_a_class_that_differs_is_left_as_it_is(made: ModuleType, change: tuple[str, str]) -> None:
    assert change[0] in SOURCE
    assert not converted(made, SOURCE.replace(*change))


@pytest.mark.parametrize("text", [
    SOURCE, "# moved\n\n" + SOURCE.replace("        y =", "        # a comment\n\n        y ="), SOURCE.replace("\n\n\n", "\n\n"),
    SOURCE.replace("def get_inputs", "def another(x):\n    return x\n\n\ndef get_inputs"),
])  # fmt: skip
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
    text = dropin.unchanged(Task(id="test", name="test", source=SOURCE, entry="Net", kind="module"), "as it is")
    live = run_source(SOURCE.replace("- 4.5", "- 5.5"), "live").Net().eval()
    want = live(X)
    assert torch.equal(run_source(text).replace(live)(X), want)


HEAD = "import collections, functools, logging, sys, threading, types\nimport numpy as np\nimport torch\nfrom torch import nn\n\n"
NET = "\n\nclass Net(nn.Module):\n    def forward(self, x):\n        return {}\n"


def kept(made: str, source: str = "", warm: bool = False) -> bool:
    """Whether a file's class of the one text is that of a file of another text, once it has been called."""
    theirs, mine = run_source(source or made, "theirs"), run_source(made, "mine")
    caches = [held for held in vars(mine).values() if type(held) in (dict, list, set) and not held]
    for module in (theirs, mine) if warm else ():
        module.Net()(X)
    return embedded.dvk_same(theirs.Net, mine.Net, caches)


CONFIG = "class Config:\n    def __init__(self, by):\n        self.__dict__['by'] = {'by': by}\n" \
    "    def __getattr__(self, name):\n        return self.__dict__['by'][name]\n    def __eq__(self, other):\n        raise TypeError\n\n"
ODD = {
    "names that raise": (CONFIG + "C = Config(2.0)", "x * C.by"),
    "names that are arrays": ("class C:\n    def __getattr__(self, name):\n        return np.arange(3)\n\n\nC = C()", "x * C.by.sum()"),
    "sparse": ("A = torch.eye(4).to_sparse()", "A @ x"),
    "nested": ("A = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])", "A"),
    "deep": ("C = []\nfor _ in range(3000):\n    C = [C, 1]", "C"),
    "cycle": ("C = [1]\nC.append({'C': C})", "C"),
    "opaque": ("C = logging.getLogger(__name__), threading.Lock(), torch.Generator(), sys.stdout, (n for n in 'ab')", "C"),
}


@pytest.mark.parametrize("text", ODD.values(), ids=ODD)
def test_nothing_that_a_file_holds_raises_or_keeps_it_from_itself(text: tuple[str, str]) -> None:
    assert kept(HEAD + text[0] + NET.format(text[1]))


@pytest.mark.parametrize("text", [
    ("C = {}\ndef f(n):\n    return C.setdefault(n, [2.0])[0]", "x * f(2) * D[0]\n\n\nD = [3.0]"),
    ("C = 0\ndef f(n):\n    global C\n    C += n", "(f(2), x)"),
    ("C = None\ndef f():\n    global C\n    C = torch.ones(3) if C is None else C\n    return C", "f()"),
], ids=["cache", "counter", "made when first used"])  # fmt: skip
def test_a_class_is_itself_though_it_was_called(text: tuple[str, str]) -> None:
    assert kept(HEAD + text[0] + NET.format(text[1]), warm=True)


@pytest.mark.parametrize("text", [
    ("C = nn.LeakyReLU(2)", "C(x)"), ("C = nn.Sequential(nn.ReLU())", "C(x)"), (CONFIG + "C = Config(2)", "x * C.by"),
    ("C = types.SimpleNamespace(by=2)", "x * C.by"), ("C = range(2)", "x[C]"), ("C = slice(2)", "x[C]"), ("C = np.float32(2)", "x * C"),
    ("C = np.full(3, 2)", "x * C[0]"), ("C = torch.full((300,), 2)", "x * C[0]"), ("C = collections.deque([2])", "x * C[0]"),
    ("class D:\n    __slots__ = ('by',)\n\n\nC = D()\nC.by = 2", "x * C.by"),
    ("class D:\n    def __init__(self, by):\n        self.by = by\n    def f(self, x):\n        return x * self.by\n\nC = D(2).f", "C(x)"),
    ("@functools.lru_cache\ndef f(x):\n    return x * 2", "f(x)"), ("f = functools.partial(torch.add, other=2)", "f(x)"),
    ("C = 1\ndef set_c(to):\n    global C\n    C = to\n\n\nset_c(2)", "x * C"), ("f = torch.tanh  # 2", "f(x)"),
    ("def f(x):\n    return x\n\n\nclass Base(nn.Module):\n    g = functools.partialmethod(f, 2)", "g(x)"),
], ids=lambda text: text[0][:30])  # fmt: skip
def test_what_the_file_holds_beside_it_counts(text: tuple[str, str]) -> None:
    one = HEAD + text[0] + NET.format(text[1]).replace("Net(nn.Module)", "Net(Base)" if "Base" in text[0] else "Net(nn.Module)")
    other = one.replace("torch.tanh  # 2", "torch.sin").replace("nn.Sequential(nn.ReLU())", "nn.Sequential()").replace("2", "5")
    other = other.replace("float35", "float32")
    assert one != other
    assert kept(one)
    assert not kept(one, other)


@torch.no_grad()
def test_caches_that_both_files_have_filled_are_no_difference() -> None:
    text = HEAD + "C = {}\n\n\ndef f(n):\n    if n not in C:\n        C[n] = n / 2\n    return C[n]\n"
    text += NET.format("torch.tanh(x) * f(x.shape[0]) + 1")
    made, live = drop_in(text, X, entry="Net")[0], run_source(text, "live").Net().eval()
    made.ModelNew().eval()(X[:3]), live(X[:2])
    assert made.C and isinstance(made.replace(live), made.ModelNew)

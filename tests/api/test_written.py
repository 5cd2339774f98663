"""Live modules as task files: what another process builds from the file is the module in hand, weights and changes included."""

from __future__ import annotations

import linecache
import subprocess
import sys
import textwrap
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from dvk.api.live_folder import VALUES
from dvk.api.source import NoSource, Text
from dvk.api.written import Written, write
from dvk.errors import TaskError, UsageError
from dvk.tasks import of_text
from dvk.tasks.build import build, run_file
from dvk.tasks.entry import find

SLOPE = 0.25


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DVK_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def of_cell(text: str, cell: int = 1, **more: Any) -> dict[str, Any]:
    """The globals of a notebook whose cell is `text`: known to linecache, in no file, in a module that cannot be imported."""
    name = f"/nowhere/ipykernel_1/{cell}.py"
    text = textwrap.dedent(text)
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    found = {"__name__": "__main__", "torch": torch, "nn": nn, "F": F, **more}
    exec(compile(text, name, "exec", dont_inherit=True), found)
    return found


def rebuilt(written: Written) -> Any:
    """Build the judge's module of the file, in this process."""
    path, _, entry = written.spec.rpartition(":")
    task = of_text(Path(path).read_text(), entry, entry).model_copy(update={"path": path})
    return build(task.model_copy(update={"kind": find(run_file(task), entry, path)[1]}))


def agrees(live: Any, *inputs: Any, how: str = "source", **kwargs: Any) -> Any:
    """The file's module, which computes what the live one does, bit for bit."""
    written = write(live, inputs, kwargs)
    assert written.how.partition(":")[0] == how, written.how
    built = rebuilt(written)
    with torch.no_grad():
        torch.testing.assert_close(
            built.model(*inputs, **kwargs), live(*inputs, **kwargs), rtol=0, atol=0
        )
    args, given = built.inputs(0)
    assert [torch.is_tensor(one) and one.shape for one in [*args, *given.values()]] == [
        torch.is_tensor(one) and one.shape for one in [*inputs, *kwargs.values()]
    ]
    return built.model


X = torch.linspace(-1, 1, 32).reshape(4, 8)
NET = """
    WIDTH = 8
    TABLE = torch.arange(8.0)

    class Block(nn.Sequential):
        pass

    def twist(x, by=2):
        return (x * by).abs() + TABLE

    class Base(nn.Module):
        scale = 1.5

        def tail(self, x):
            return x * self.scale

    class Net(Base):
        def __init__(self, width):
            super().__init__()
            self.block = Block(nn.Linear(width, WIDTH), nn.ReLU())
            self.act = lambda x: x.tanh()
            self.rounds = 1

        def forward(self, x):
            for _ in range(self.rounds):
                x = twist(self.act(self.block(x)))
            return self.tail(x)
"""


def test_a_class_of_a_notebook_cell() -> None:
    cell = of_cell(NET)
    net = cell["Net"](8)
    made = agrees(net, X)
    assert type(made).__name__ == "LiveNet"
    assert [name for name, _ in made.named_parameters()] == [
        name for name, _ in net.named_parameters()
    ]


def test_weights_and_attributes_as_they_are_now() -> None:
    cell = of_cell(NET)
    net = cell["Net"](8)
    with torch.no_grad():
        net.block[0].weight.mul_(3)
    net.rounds = 3
    cell["Net"].scale = 0.5  # on the class, unlike its text
    cell["Base"].scale = 9.0
    net.block[0] = nn.Linear(8, 8, bias=False)
    net.eval()
    made = agrees(net, X)
    assert not made.training and made.rounds == 3


def test_globals_as_they_are_now() -> None:
    cell = of_cell(NET)
    net = cell["Net"](8)
    cell["TABLE"] = torch.full((8,), 7.0)
    agrees(net, X)


def test_the_names_that_a_drop_in_knows_a_module_by_are_kept() -> None:
    net = of_cell(NET)["Net"](8)
    assert agrees(net, X).act.__qualname__ == net.act.__qualname__


def test_a_class_inside_a_function() -> None:
    def made(by: float) -> nn.Module:
        class Local(nn.Module):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return x * by + SLOPE

        return Local()

    agrees(made(3.0), X)
    agrees(made(4.0), X)


def test_a_method_that_was_replaced_is_the_one_that_is_judged() -> None:
    cell = of_cell(NET)
    net = cell["Net"](8)
    cell["Net"].tail = lambda self, x: x - 1
    agrees(net, X, how="graph")
    net = of_cell(NET)["Net"](8)
    net.forward = lambda x: x * 5
    agrees(net, X, how="graph")


def test_a_source_that_was_edited_is_not_believed(tmp_path: Path) -> None:
    cell = of_cell(NET, cell=2)
    of_cell(NET.replace("by=2", "by=3").replace("x * by", "x + by"), cell=2)
    agrees(cell["Net"](8), X, how="graph")


def test_a_class_without_source() -> None:
    found: dict[str, Any] = {"__name__": "__main__", "nn": nn}
    exec(
        "class Typed(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.norm = nn.LayerNorm(8)\n"
        "    def forward(self, x, *, y):\n        return {'a': self.norm(x), 'b': [x + y]}\n",
        found,
    )
    agrees(found["Typed"](), X, how="graph", y=X)


def test_without_source_and_without_graph_the_user_hears_of_both() -> None:
    found: dict[str, Any] = {"__name__": "__main__", "nn": nn}
    exec(
        "class Typed(nn.Module):\n    def forward(self, x):\n        return x * x.numpy().tolist()[0][0]\n",
        found,
    )
    with pytest.raises(
        TaskError, match="cannot be handed to another process.*torch.export cannot capture"
    ):
        write(found["Typed"](), [X], {})


def test_modules_of_installed_packages() -> None:
    net = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))
    agrees(net, X)
    agrees(nn.Sequential(OrderedDict(a=nn.Linear(8, 8), b=nn.Softmax(-1))), X)
    agrees(nn.LSTM(8, 8), X)
    agrees(nn.TransformerEncoderLayer(8, 2, batch_first=True).eval(), X[None])
    agrees(nn.utils.parametrizations.weight_norm(nn.Linear(8, 8)), X, how="graph")


def test_tied_weights_stay_tied() -> None:
    net = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    net[1].weight = net[0].weight
    made = agrees(net, X)
    assert made[1].weight is made[0].weight


@pytest.mark.slow
def test_a_model_of_transformers_by_keywords() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        vocab_size=32,
    )
    model = transformers.BertModel(config).eval()
    ids = torch.arange(12).reshape(2, 6)
    written = write(model, [], {"input_ids": ids, "attention_mask": torch.ones_like(ids)})
    built = rebuilt(written)
    assert built.inputs(0)[1].keys() == {"input_ids", "attention_mask"}
    with torch.no_grad():
        torch.testing.assert_close(built.model(ids).last_hidden_state, model(ids).last_hidden_state)


def test_functions() -> None:
    cell = of_cell(NET + "\n    def outer(by):\n        return lambda x: twist(x, by)\n")
    agrees(cell["twist"], X)
    agrees(cell["outer"](5), X)
    agrees(lambda x: x.exp() + SLOPE, X)
    agrees(F.silu, X)
    agrees(torch.softmax, X, 1)
    agrees(nn.Linear(8, 8).forward, X)


def test_inputs_vary_inside_their_range_and_keep_what_means_something() -> None:
    mask = torch.zeros(4, 8).masked_fill(torch.ones(4, 8, dtype=torch.bool).triu(1), float("-inf"))
    live = of_cell("def f(x, mask, ids, flag): return x.softmax(-1) + mask + ids\n")["f"]
    built = rebuilt(write(live, [X, mask, torch.arange(8), True], {}))
    (x, m, ids, flag), (other, *_) = built.inputs(0)[0], built.inputs(1)[0]
    assert not torch.equal(x, other) and x.min() >= X.min() and x.max() <= X.max()
    assert torch.equal(m, mask) and torch.equal(ids, torch.arange(8)) and flag is True
    assert torch.equal(built.inputs(0)[0][0], x)


def test_a_file_is_written_once(home: Path) -> None:
    net = nn.Linear(8, 8)
    first, second = write(net, [X], {}), write(net, [X], {})
    assert first.spec == second.spec and len(list((home / "live").iterdir())) == 1
    with torch.no_grad():
        net.weight.add_(1)
    assert write(net, [X], {}).spec != first.spec
    assert sorted(path.name for path in (first.folder / VALUES).iterdir()) == [
        "linear.pt",
        "linear_inputs.pt",
    ]


@pytest.mark.parametrize(
    ("live", "inputs", "said"),
    [
        (nn.Linear(8, 8, device="meta"), [X], "meta device"),
        (nn.Linear(8, 8), [], "example inputs are missing"),
        (nn.Linear, [X], "is a class"),
        (3, [X], "no module and no function"),
        (nn.Linear(8, 8), [X.to("meta")], "on cpu and meta"),
    ],
)
def test_what_cannot_be_judged_is_said_so(live: Any, inputs: list[Any], said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        write(live, inputs, {})
    assert caught.value.hint


def test_two_things_of_one_name_are_not_confused() -> None:
    text = Text()
    text.bind("a", 1)
    text.bind("a", 1)
    with pytest.raises(NoSource, match="called `a`"):
        text.bind("a", 2)


SCRIPT = """
import sys
import torch
from torch import nn
from dvk.api.written import write

print("begun")
from beside import Half

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.part = Half()
    def forward(self, x):
        return self.part(x) + 1

print(write(Net(), [torch.ones(4)], {}).spec)
"""


@pytest.mark.slow
def test_a_script_without_a_guard_is_not_run_again(tmp_path: Path) -> None:
    """Files next to it can be imported."""
    (tmp_path / "beside.py").write_text(
        "import torch\nclass Half(torch.nn.Module):\n    def forward(self, x):\n        return x / 2\n"
    )
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    begun, spec = done.stdout.split()
    assert begun == "begun"
    path, _, entry = spec.rpartition(":")
    code = (
        f"import importlib.util as u, torch; s = u.spec_from_file_location('m', {path!r}); m = u.module_from_spec(s); "
        f"s.loader.exec_module(m); print(m.{entry}()(torch.ones(4)).tolist())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd="/", capture_output=True, text=True, check=True
    )
    assert done.stdout == "[1.5, 1.5, 1.5, 1.5]\n"

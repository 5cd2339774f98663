"""Nested arguments and results of forward(): the drop-in takes the same and returns the same types."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

from dvk.composer.capture.export import trace_call
from dvk.composer.ir import structures
from dvk.composer.ir.errors import CannotCompose
from tests.composer.programs import drop_in

SOURCE = """
import collections
import dataclasses
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence
from transformers.modeling_outputs import BaseModelOutput
from transformers import DynamicCache
from typing import NamedTuple

class Pair(NamedTuple):
    a: torch.Tensor
    b: torch.Tensor

@dataclasses.dataclass(frozen=True)
class Frozen:
    a: torch.Tensor
    note: str = "none"

@dataclasses.dataclass
class Batch:
    x: torch.Tensor
    masks: list

class Plain:
    def __init__(self, x):
        self.x, self.kind = x, Pair

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, xs, batch, maybe=None, *, scale, named=None):
        x = torch.relu(self.linear(xs[0] + xs[1][0])) * scale * batch["w"]
        if named is not None:
            x = x + named.x * named.masks[0]
        with torch.autocast("cpu", enabled=False):
            y = x.float().sigmoid()
        with torch.no_grad():
            y = y * 2
        cache = DynamicCache()
        cache.update(x[None, None], y[None, None], 0)
        held = collections.defaultdict(list)
        held["x"].append(x + 1)
        return {
            "output": BaseModelOutput(last_hidden_state=y, hidden_states=(x, y + 1)), "pair": Pair(x, y * 3), "frozen": Frozen(y - 1),
            "ordered": collections.OrderedDict(b=y, a=x), "default": held, "plain": Plain(x), 3: x.shape, "top": (y * 2).topk(2),
            "packed": PackedSequence(x * 5, torch.tensor([4])), "cache": cache, "same": [held, held], "dtype": x.dtype, "z": 1 - 2j,
        }
"""


def call(names: dict[str, Any], seed: int = 0) -> tuple[list[Any], dict[str, Any]]:
    torch.manual_seed(seed)
    batch = names["Batch"](torch.randn(4, 8), [torch.randn(4, 8)])
    return [
        [torch.randn(4, 8), (torch.randn(4, 8),)],
        {"w": torch.randn(4, 8), "unused": "text"},
    ], {"scale": 2.0, "named": batch}


def alike(a: Any, b: Any, path: str = "output") -> list[str]:
    """Paths at which two objects differ: names of their types, structure, values."""
    if type(a).__qualname__ != type(b).__qualname__:
        return [f"{path}: {type(a)} and {type(b)}"]
    if isinstance(a, torch.Tensor):
        same = a.shape == b.shape and a.dtype == b.dtype and torch.allclose(a, b, atol=1e-5)
        return [] if same else [f"{path}: values"]
    if isinstance(a, dict):
        found = [] if list(a) == list(b) else [f"{path}: keys"]
        found += [text for key in a for text in alike(a[key], b[key], f"{path}[{key}]")]
    elif isinstance(a, (list, tuple)):
        found = [] if len(a) == len(b) else [f"{path}: length"]
        found += [
            text for n, (x, y) in enumerate(zip(a, b)) for text in alike(x, y, f"{path}[{n}]")
        ]
    else:
        found = (
            []
            if hasattr(a, "__dict__") and not isinstance(a, type)
            else [f"{path}: {a} and {b}"] * (repr(a) != repr(b))
        )
    if hasattr(a, "__dict__") and not isinstance(a, type):
        found += [
            text for key in vars(a) for text in alike(vars(a)[key], vars(b)[key], f"{path}.{key}")
        ]
    return found


@pytest.fixture(scope="module")
def nested() -> Iterator[tuple[ModuleType, nn.Module]]:
    reference = ModuleType("nested_reference")
    sys.modules[reference.__name__] = reference
    exec(compile(SOURCE, "<nested>", "exec"), vars(reference))
    from dvk.composer import Plan, applicable, compose
    from dvk.records import Task

    model = reference.Model()
    args, kwargs = call(vars(reference))
    captured = trace_call(model, args, kwargs, ["xs", "batch"])
    task = Task(id="nested", name="nested", source=SOURCE, entry="Model", kind="module")
    plan = Plan(tuple(r for r in applicable(captured.graph, "cpu", "cpp") if r != "own_matmul"))
    candidate = ModuleType("nested_candidate")
    sys.modules[candidate.__name__] = candidate
    exec(
        compile(compose(task, captured, plan, "cpp").source, "<candidate>", "exec"), vars(candidate)
    )
    new = candidate.ModelNew()
    new.load_state_dict(model.state_dict())
    yield candidate, new
    del sys.modules[reference.__name__], sys.modules[candidate.__name__]


def both(
    nested: tuple[ModuleType, nn.Module], args: list[Any], kwargs: dict[str, Any]
) -> tuple[list[str], bool]:
    """Differences of the drop-in from the original, and whether a fused program ran."""
    candidate, new = nested
    runs: list[Any] = []
    run = new._dvk_run
    new._dvk_run = lambda *given: runs.append(given) or run(*given)
    try:
        with torch.no_grad():
            return alike(new(*args, **kwargs), candidate.Model.forward(new, *args, **kwargs)), bool(
                runs
            )
    finally:
        del new._dvk_run


def test_nested_arguments_and_results_keep_their_types(
    nested: tuple[ModuleType, nn.Module],
) -> None:
    args, kwargs = call(vars(nested[0]), 1)
    assert both(nested, args, kwargs) == ([], True)
    with torch.no_grad():
        result = nested[1](*args, **kwargs)
    assert (
        result["same"][0] is result["same"][1] is result["default"]
        and result["output"][0] is result["output"].last_hidden_state
    )
    assert type(result["frozen"]) is nested[0].Frozen and result["plain"].kind is nested[0].Pair


CHANGES = (
    "a longer list",
    "another key",
    "another text",
    "another class",
    "another shape",
    "another scale",
    "no batch",
)


@pytest.mark.parametrize("change", CHANGES)
def test_other_structures_run_the_original(
    nested: tuple[ModuleType, nn.Module], change: str
) -> None:
    (xs, batch), kwargs = call(vars(nested[0]), 2)
    if change == "a longer list":
        xs.append(torch.ones(1))
    elif change == "another key":
        batch["more"] = 1
    elif change == "another text":
        batch["unused"] = "other"
    elif change == "another class":
        xs = tuple(xs)  # type: ignore[assignment]
    elif change == "another shape":
        xs[1] = (torch.randn(1, 8),)
    elif change == "another scale":
        kwargs["scale"] = 3.0
    else:
        del kwargs["named"]
    assert both(nested, [xs, batch], kwargs) == ([], False)


def test_keyword_only_arguments_are_not_taken_by_position(
    nested: tuple[ModuleType, nn.Module],
) -> None:
    args, kwargs = call(vars(nested[0]), 3)
    with pytest.raises(TypeError):
        nested[1](*args, 2.0, kwargs["named"])


def test_an_argument_that_forward_changes_is_refused() -> None:
    class Grows(nn.Module):
        def forward(self, xs: list[torch.Tensor]) -> torch.Tensor:
            xs.append(xs[0] * 2)
            return xs[1]

    with pytest.raises(CannotCompose, match="changes a list"):
        trace_call(Grows(), [[torch.ones(2)]], {}, ["xs"])


AUTOCAST = """
import torch
from torch import nn
import torch.nn.functional as F

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.norm = nn.Linear(16, 16), nn.Linear(16, 16), nn.LayerNorm(16)

    def forward(self, x, y):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            h = F.gelu(self.a(x))
            with torch.autocast("cpu", enabled=False):
                n = self.norm(h.float())
            s = torch.einsum("ab,cb->ac", self.b(n), h).softmax(-1)
            t = torch.cat([s.float(), s.to(torch.bfloat16).float()]) + F.mse_loss(h, y)
        with torch.inference_mode():
            return t.float().exp(), s, h
"""


def test_casts_of_an_autocast_block_are_part_of_the_graph() -> None:
    torch.manual_seed(0)
    args = torch.randn(8, 16), torch.randn(8, 16)
    module, model, candidate = drop_in(AUTOCAST, *args)
    new = module.ModelNew().eval()
    new.load_state_dict(model.state_dict())
    runs = []
    run = new._dvk_run
    new._dvk_run = lambda *given: runs.append(1) or run(*given)
    with torch.no_grad():
        got, want = new(*args), model.eval()(*args)
    assert runs and "kernels" in candidate.title
    assert [t.dtype for t in got] == [t.dtype for t in want]
    for a, b in zip(got, want):
        torch.testing.assert_close(a, b, atol=2e-2, rtol=2e-2)


@pytest.mark.parametrize(
    "value", [torch.float16, torch.device("cpu"), 1 + 2j, float("inf"), None, "text", 3]
)
def test_plain_values_are_encoded_and_come_back(value: Any) -> None:
    from dvk.composer.ir.text import literal

    assert eval(literal(structures.literal_of(value), str)) == value


DATACLASS = """
import dataclasses, torch

@dataclasses.dataclass
class Out:
    a: torch.Tensor
    b: list

class Model(torch.nn.Module):
    def forward(self, x):
        return Out(x + 1, [x * 2, 3])
"""


def test_dataclasses_of_a_file_are_structures_wherever_it_is_run() -> None:
    from dvk.tasks.sourcefile import execute
    from dvk.tasks.trees import map_tensors, named_tensors

    result = execute(DATACLASS).Model()(torch.ones(2))
    assert [name for name, _ in named_tensors(result)] == ["a", "b.0"]
    doubled = map_tensors(lambda t: t * 2, result)
    assert (
        type(doubled) is type(result) and doubled.b[0].tolist() == [4.0, 4.0] and doubled.b[1] == 3
    )

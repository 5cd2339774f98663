"""One drop-in for several sets of inputs: each runs its own program, other inputs run the original."""

from __future__ import annotations

import ast
import copy
import os
import subprocess
import sys
import types
import weakref
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from dvk.composer import CannotCompose, Part, Plan, fuse, join
from dvk.composer.capture.export import trace_module
from dvk.records import Task
from tests.composer.dropins import BLOCK
from tests.composer.programs import differences, run_source, usual
from tests.composer.several_inputs import FOLDED, joined, parts

ROOT = Path(__file__).resolve().parents[2]


class Watched:
    """A drop-in that counts runs by program."""

    def __init__(self, source: str, calls: list[tuple[Any, ...]]):
        self.reference, self.candidate = joined(source, calls)
        self.module = run_source(self.candidate.source)
        self.runs: Counter[str] = Counter()
        for name in [n for n in dir(self.module.ModelNew) if n.startswith("_dvk_run")]:
            setattr(
                self.module.ModelNew, name, self._counted(name, getattr(self.module.ModelNew, name))
            )
        self.new = self.module.ModelNew().eval()
        self.new.load_state_dict(self.reference.state_dict())

    def _counted(self, name: str, run: Any) -> Any:
        def counted(this: nn.Module, *given: Any) -> Any:
            self.runs[name] += 1
            return run(this, *given)

        return counted

    def ran(self, *args: Any, model: nn.Module | None = None, **kwargs: Any) -> str:
        """The program that computed a call, whose result agrees with the original's; empty: the original."""
        before = self.runs.copy()
        got = (model or self.new)(*args, **kwargs)
        assert differences(got, self.reference(*args, **kwargs)) == []
        return "".join(self.runs - before)


@pytest.fixture(scope="module")
def watched() -> Watched:
    torch.manual_seed(0)
    return Watched(
        BLOCK, [(torch.randn(4, 8),), (torch.randn(6, 8),), (torch.randn(4, 8), torch.randn(4, 8))]
    )


@pytest.fixture
def three(watched: Watched) -> Watched:
    watched.new = watched.module.ModelNew().eval()
    watched.new.load_state_dict(watched.reference.state_dict())
    return watched


@torch.no_grad()
def test_each_set_runs_its_program_and_others_the_original(three: Watched) -> None:
    x, skip = torch.randn(4, 8), torch.randn(4, 8)
    assert three.ran(x) == "_dvk_run"
    assert three.ran(torch.randn(6, 8)) == "_dvk_run_2"
    assert (
        three.ran(x, skip) == three.ran(x, skip=skip) == three.ran(skip=skip, x=x) == "_dvk_run_3"
    )
    assert three.ran(x=x) == "_dvk_run"
    for other in (
        (torch.randn(5, 8),),
        (torch.randn(6, 8), torch.randn(6, 8)),
        (torch.randn(2, 4, 8),),
        (torch.randn(8, 4).t(),),
    ):
        assert three.ran(*other) == ""
    with pytest.raises(TypeError):
        three.new()
    with pytest.raises(TypeError):
        three.new(x, bogus=1)


SETS = [(4, "_dvk_run"), (6, "_dvk_run_2")]


@pytest.mark.parametrize(("rows", "run"), SETS)
def test_guards_hold_for_every_set(three: Watched, rows: int, run: str) -> None:
    x = torch.randn(rows, 8)
    assert three.ran(x) == "", "gradients are wanted"
    with torch.no_grad():
        assert three.ran(x) == run
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert three.ran(x) == ""
        seen: list[int] = []
        handle = three.new.layers[0].register_forward_hook(lambda *given: seen.append(1))
        assert three.ran(x) == "" and seen
        handle.remove()
        assert three.ran(x) == run
        three.new.drop.train()
        three.new(x)
        three.new.drop.eval()
        assert three.ran(x) == run
        assert three.ran(x, model=copy.deepcopy(three.new)) == run
        assert three.ran(x.double().float().requires_grad_()) == run, (
            "no gradients are recorded here"
        )
    with torch.inference_mode():
        assert three.ran(x) == run


@torch.no_grad()
def test_weights_are_bound_once_and_read_live(three: Watched) -> None:
    calls = [(torch.randn(4, 8),), (torch.randn(6, 8),)]
    assert [three.ran(*call) for call in calls] == [run for _, run in SETS]
    assert len(three.new._dvk_weights) == len(list(three.new.parameters())), "each once"
    for model in (three.reference, three.new):
        torch.manual_seed(3)
        model.load_state_dict(
            {key: torch.randn_like(value) for key, value in model.state_dict().items()}
        )
        model.norm.weight.mul_(3)
    assert [three.ran(*call) for call in calls] == [run for _, run in SETS]


@torch.no_grad()
def test_replace_converts_a_live_model(three: Watched) -> None:
    live = nn.Sequential(run_source(BLOCK).Model()).eval()
    live[0].load_state_dict(three.reference.state_dict())
    weight = live[0].norm.weight
    three.module.replace(live)
    assert live[0].norm.weight is weight
    assert [three.ran(torch.randn(rows, 8), model=live) for rows in (4, 6, 5)] == [
        "_dvk_run",
        "_dvk_run_2",
        "",
    ]


def test_a_common_kernel_is_there_once(three: Watched) -> None:
    """The third set is the first one plus an operand: all but its last kernel are the first's."""
    source = three.candidate.source
    assert len(three.candidate.schedule) == 7 == source.count('extern "C" void k')
    body = ast.get_source_segment(
        source,
        next(n for n in ast.walk(ast.parse(source)) if getattr(n, "name", "") == "_dvk_run_3"),
    )
    assert body is not None and [f"_dvk_k{n}(" in body for n in range(7)] == [
        True,
        True,
        False,
        False,
        False,
        False,
        True,
    ]


@torch.no_grad()
def test_tensors_derived_from_weights_are_shared() -> None:
    found = Watched(FOLDED, [(torch.randn(2, 3, 6, 6),), (torch.randn(1, 3, 8, 8),)])
    assert (
        found.ran(torch.randn(2, 3, 6, 6)) == "_dvk_run"
        and found.ran(torch.randn(1, 3, 8, 8)) == "_dvk_run_2"
    )
    made = dict(found.new._dvk_made[1])
    assert made and found.candidate.source.count("\n_dvk_make") == len(made)
    found.ran(torch.randn(2, 3, 6, 6))
    assert all(found.new._dvk_made[1][number] is tensor for number, tensor in made.items())


@torch.no_grad()
def test_weights_that_another_thread_replaces_during_a_call_are_those_of_later_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = torch.randn(2, 3, 6, 6)
    found = Watched(FOLDED, [(x,)])
    found.ran(x)
    whole = found.module.dvk_renew

    def interrupted(module: nn.Module) -> Any:
        monkeypatch.setattr(found.module, "dvk_renew", whole)
        others = {name: tensor + 1 for name, tensor in module.state_dict().items()}
        found.reference.load_state_dict(others)
        module.load_state_dict(others, assign=True)
        assert module._dvk_fits(x)  # the other thread's call came this far
        return whole(module)

    monkeypatch.setattr(found.module, "dvk_renew", interrupted)
    found.new(x)
    assert found.ran(x) == "_dvk_run"


@torch.no_grad()
def test_derived_tensors_are_dropped_when_weights_move() -> None:
    found = Watched(FOLDED, [(torch.randn(2, 3, 6, 6),)])
    found.ran(torch.randn(2, 3, 6, 6))
    made = [weakref.ref(tensor) for tensor in found.new._dvk_made[1].values()]
    assert made
    found.new.double()
    assert [one() for one in made] == [None] * len(made)


def test_modules_of_other_sizes_cannot_be_joined() -> None:
    narrow, wide = run_source(BLOCK).Model(8), run_source(BLOCK).Model(16)
    both = [
        *parts(BLOCK, narrow, [(torch.randn(4, 8),)], ("x",)),
        *parts(BLOCK, wide, [(torch.randn(4, 16),)], ("x",)),
    ]
    with pytest.raises(CannotCompose, match="differs for other inputs"):
        join(both, "cpp")


@pytest.mark.slow
def test_triton_runs_in_its_interpreter(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    torch.manual_seed(0)
    _, candidate = joined(BLOCK, [(torch.randn(4, 8),), (torch.randn(6, 8),)], backend="triton")
    assert "exec(" not in candidate.source and "import dvk" not in candidate.source
    (tmp_path / "best.py").write_text(candidate.source)
    (tmp_path / "use.py").write_text("""
import torch, best
new, old = best.ModelNew().eval(), best.Model().eval()
new.load_state_dict(old.state_dict())
ran = []
for name in ("_dvk_run", "_dvk_run_2"):
    def counted(self, *args, name=name, run=getattr(best.ModelNew, name)):
        ran.append(name)
        return run(self, *args)
    setattr(best.ModelNew, name, counted)
with torch.no_grad():
    for rows in (6, 4, 5):
        x = torch.randn(rows, 8)
        torch.testing.assert_close(new(x), old(x), rtol=1e-5, atol=1e-5)
print(*ran)
""")
    done = subprocess.run(
        [sys.executable, "use.py"],
        cwd=tmp_path,
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.stdout.split() == ["_dvk_run_2", "_dvk_run"], done.stderr[-2000:]


def test_functions_too() -> None:
    source = "def scaled(x, factor=2.0):\n    return (x * factor).relu() + 1\n"
    found: types.ModuleType = run_source(source)
    task = Task(id="test", name="test", source=source, entry="scaled", kind="function")
    from tests.composer.programs import Function

    made = []
    for args in ((torch.randn(4, 8), 2.0), (torch.randn(4, 8), 3.0)):
        captured = trace_module(Function(found.scaled), list(args), ["x", "factor"])
        plan = Plan(usual(captured.graph))
        made.append(Part(task, captured, fuse(task, captured, plan.recipes), plan))
    module = run_source(join(made, "cpp").source)
    new, x = module.ModelNew(), torch.randn(4, 8)
    with torch.no_grad():
        for factor in (2.0, 3.0, 4.0):
            assert torch.allclose(new(x, factor), found.scaled(x, factor))
            assert [new._dvk_fits(x, factor), new._dvk_fits_2(x, factor)] == [
                factor == 2.0,
                factor == 3.0,
            ], "by value"

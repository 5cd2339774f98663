"""`dvk.optimize`, `dvk.verify`, `dvk.evaluate` and `dvk.Library`: the commands from Python."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import dvk
from dvk import tasks
from dvk.api.result import Result
from dvk.api.written import write
from dvk.composer import Plan, applicable, capture, compose
from dvk.config import Limits

ROOT = Path(__file__).resolve().parents[2]
QUICK = {"judge.num_seeds": 1, "judge.search_s": 0.1, "judge.claim_s": 0.2, "judge.claim_pairs": 20}
X = torch.linspace(-2, 2, 64).reshape(8, 8)


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DVK_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


class Gate(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, width))
        self.act = lambda x: x.tanh()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(x * self.weight) + x


class Twin(Gate):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.tanh(x * self.weight)


class Wrong(Gate):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x - torch.tanh(x * self.weight)


def test_verify_of_live_modules(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    good = dvk.verify(Gate(8), Twin(8), X, tier="smoke", settings=QUICK)
    assert isinstance(good, dvk.Verdict) and good.status.value == "ok"
    bad = dvk.verify(Gate(8), Wrong(8), X, tier="smoke", settings=QUICK)
    assert bad.status.value == "mismatch" and bad.error
    assert capsys.readouterr().out == ""
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_verify_of_functions_and_texts(tmp_path: Path) -> None:
    ok = dvk.verify(
        torch.nn.functional.silu, lambda x: x * torch.sigmoid(x), X, tier="smoke", settings=QUICK
    )
    assert ok.status.value == "ok"
    text = "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x * torch.sigmoid(x)\n"
    assert (
        dvk.verify(torch.nn.functional.silu, text, X, tier="smoke", settings=QUICK).status.value
        == "ok"
    )
    (tmp_path / "new.py").write_text(text)
    (tmp_path / "old.py").write_text(
        "import torch\ndef old(x):\n    return x.relu()\ndef get_inputs():\n    return [torch.randn(4)]\n"
    )
    verdict = dvk.verify("old.py", "new.py", tier="smoke", settings=QUICK, out=tmp_path / "run")
    assert verdict.status.value == "mismatch" and (tmp_path / "run" / "verdicts.jsonl").is_file()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: dvk.optimize("none.py"), "no such file"),
        (lambda: dvk.optimize("none.py", X), "takes no example inputs"),
        (lambda: dvk.optimize(Gate(8)), "example inputs are missing"),
        (lambda: dvk.optimize(Gate(8), X, baselines=["fast"]), "unknown baseline"),
        (lambda: dvk.optimize(Gate(8), X, backend="metal"), "unknown backend"),
        (lambda: dvk.optimize(Gate(8), X, strategy="magic"), "unknown strategy"),
        (lambda: dvk.optimize(Gate(8), X, settings={"judge.nothing": 1}), "bad setting"),
        (
            lambda: dvk.optimize(Gate(8), X, settings={"credit.advantage": "grop"}),
            "unknown advantage",
        ),
        (lambda: dvk.optimize(Gate(8), X, budget_s=-1), "bad setting"),
        (
            lambda: dvk.optimize(
                Gate(8), X, settings={"remote.judge": "kernelgym:http://127.0.0.1:1"}
            ),
            "files alone",
        ),
        (lambda: dvk.verify("none.py", Gate(8)), "live reference"),
        (lambda: dvk.verify(Gate(8), Gate(8), X, tier="best"), "unknown tier"),
        (lambda: dvk.evaluate("nowhere"), "nowhere"),
        (lambda: dvk.evaluate(".", device="tpu"), "unknown device"),
        (lambda: dvk.Library("nowhere.db"), "nowhere.db"),
    ],
)
def test_what_is_wrong_is_an_exception_that_says_what_to_do(
    call: Any, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(dvk.DvkError, match=said) as caught:
        call()
    assert caught.value.hint and caught.value.hint in str(caught.value)
    assert capsys.readouterr() == ("", "")


def test_library() -> None:
    with dvk.Library() as library:
        assert library.search("softmax")[0].name
        assert (
            dvk.Library(library.path).search("softmax", limit=1)[0].name
            == library.search("softmax")[0].name
        )


def test_evaluate_says_nothing_unless_asked(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    suite = tmp_path / "suite"
    suite.mkdir()
    (suite / "broken.py").write_text("import torch\nclass Model(torch.nn.Module):\n    pass\n")
    summary = dvk.evaluate(suite, out=tmp_path / "run", progress=False, device="cpu")
    assert summary["num_tasks"] == 1 and summary["fast_p"]["0"] == 0.0
    assert capfd.readouterr() == ("", "")
    dvk.evaluate(suite, out=tmp_path / "other", progress=True, device="cpu")
    said = capfd.readouterr()
    assert said.out == "" and "broken" in said.err


def found(live: nn.Module, tmp_path: Path) -> Result:
    """Run a search that ends with the composer's drop-in, without the search."""
    written = write(live, [X], {})
    task = tasks.load(written.spec)
    captured = capture(task, Limits())
    best = tmp_path / "best.py"
    best.write_text(
        compose(task, captured, Plan(tuple(applicable(captured.graph, "cpu", "cpp"))), "cpp").source
    )
    summary = {
        "status": "faster",
        "best": str(best),
        "speedup": 2.5,
        "speedup_lo": 2.0,
        "speedup_hi": 3.0,
        "run": str(tmp_path),
        "reason": None,
        "title": "fused",
        "baselines": {"eager": {"ms": 1.0, "speedup": 2.5, "lo": 2.0, "hi": 3.0}},
    }
    return Result(summary, written, live)


def test_the_module_of_a_result_runs_the_kernels_on_the_weights_in_hand(tmp_path: Path) -> None:
    live = Gate(8)
    path = list(sys.path)
    result = found(live, tmp_path)
    module = result.module
    with torch.no_grad():
        torch.testing.assert_close(module(X), live(X))
        assert module._dvk_ready, "it fell back to the original"
        live.weight.mul_(2)
        torch.testing.assert_close(module(X), live(X))
        assert module._dvk_ready
    assert (
        isinstance(module, Gate) and module.weight is live.weight and "_dvk_ready" not in vars(live)
    )
    torch.testing.assert_close(
        module(X).sum().backward() or live.weight.grad, module.weight.grad
    )  # with gradients: the original
    assert sys.path == path
    assert (result.speedup, result.interval, result.baselines["eager"]["ms"]) == (
        2.5,
        (2.0, 3.0),
        1.0,
    )
    assert (
        "2.50×" in str(result)
        and "<td>eager</td>" in result._repr_html_()
        and result.report.name == "report.html"
    )
    for candidate in (result, module):
        assert dvk.verify(live, candidate, X, tier="smoke", settings=QUICK).status.value == "ok"


@pytest.mark.slow
def test_a_saved_drop_in_has_its_weights(tmp_path: Path) -> None:
    live = Gate(8)
    with torch.no_grad():
        live.weight.fill_(3.0)
    file = found(live, tmp_path).save(tmp_path / "kept" / "fast.py")
    (tmp_path / "home").rename(tmp_path / "gone")
    code = "import torch, fast; m = fast.ModelNew()\nwith torch.no_grad(): print(m(torch.ones(8, 8))[0, 0].item(), m._dvk_ready)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=file.parent, capture_output=True, text=True, check=True
    )
    value, ready = done.stdout.split()
    assert float(value) == pytest.approx(1 + math.tanh(3.0)) and ready == "True"
    with pytest.raises(dvk.UsageError, match="no Python file"):
        found(live, tmp_path).save("fast.txt")


def test_no_speedup_gives_the_original_back() -> None:
    live = Gate(8)
    summary = {
        "status": "no_speedup",
        "best": None,
        "speedup": 0.9,
        "speedup_lo": 0.8,
        "speedup_hi": 1.0,
        "run": "runs/x",
        "reason": "it is",
        "title": None,
        "baselines": {"eager": None},
    }
    result = Result(summary, write(live, [X], {}), live)
    assert (
        result.module is live
        and result.speedup == 1.0
        and result.interval is None
        and result.baselines == {}
        and not result.faster
    )
    assert "it is" in str(result) and "it is" in result._repr_html_()
    with pytest.raises(dvk.UsageError, match="no drop-in"):
        result.save("fast.py")


@pytest.mark.slow
def test_what_is_judged_is_what_is_in_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that was patched in this process is another one in others: the graph is judged."""
    monkeypatch.setattr(torch.nn.functional, "silu", lambda x, inplace=False: x.abs())
    live = nn.Sequential(nn.SiLU(), nn.Tanh())
    assert (
        dvk.verify(
            live, nn.Sequential(nn.SiLU(), nn.Tanh()), X, tier="smoke", settings=QUICK
        ).status.value
        == "mismatch"
    )
    text = "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x.abs().tanh()\n"
    assert dvk.verify(live, text, X, tier="smoke", settings=QUICK).status.value == "ok"
    with pytest.raises(dvk.UsageError, match="failed on the example inputs"):
        dvk.verify(nn.Linear(8, 8), nn.Linear(8, 8), torch.ones(3), tier="smoke")


@pytest.mark.gpu
def test_live_modules_on_a_gpu(tmp_path: Path) -> None:
    live, x = Gate(8).cuda(), X.cuda()
    assert dvk.verify(live, Twin(8).cuda(), x, tier="smoke", settings=QUICK).status.value == "ok"
    assert (
        dvk.verify(live, Wrong(8).cuda(), x, tier="smoke", settings=QUICK).status.value
        == "mismatch"
    )
    result = dvk.optimize(
        live, x, budget_s=20, settings=QUICK, out=tmp_path / "run", progress=False
    )
    with torch.no_grad():
        torch.testing.assert_close(result.module(x), live(x))
    with pytest.raises(dvk.UsageError, match="cpu and cuda"):
        dvk.verify(live, Twin(8), X)


@pytest.mark.slow
def test_quick_start(tmp_path: Path) -> None:
    """As a user runs it: a script without a guard. However busy the machine is, it ends with a result and a report."""
    script = ROOT / "data" / "examples" / "quickstart.py"
    done = subprocess.run(
        [sys.executable, script, "10"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "report:" in done.stdout and len(list((tmp_path / "runs").iterdir())) == 1
    if "drop-in: fast.py" in done.stdout:
        assert done.stdout.rstrip().endswith("again: ok")
        code = "import json, torch, fast; print(json.dumps(fast.ModelNew().scale[0].item()))"
        again = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        assert json.loads(again.stdout) == pytest.approx(0.1)

"""`dvk optimize --extra-input` as a user has it: real kernels, the real judge, one drop-in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tests.cli.optimizing import CHAIN, QUICK, dvk
from tests.pipelines.input_sets import imported

ALSO = "x=float32[768,512]; y=float32[768,512]"


@pytest.mark.hand
@pytest.mark.slow
@pytest.mark.timeout(900)  # two confirmations at least, of five sets of processes each
def test_one_drop_in_for_two_sets_of_inputs(tmp_path: Path) -> None:
    (tmp_path / "chain.py").write_text(CHAIN)
    done = dvk("chain.py", "--extra-input", ALSO, "--out", "run", "--json", *QUICK, cwd=tmp_path)
    summary = json.loads(done.stdout)
    rows = {row["inputs"]: row for row in summary["shapes"]}
    assert list(rows) == [f"x float32[{n}, 512], y float32[{n}, 512]" for n in (512, 768)]
    run = tmp_path / "run"
    episodes = [
        json.loads(line) for line in (run / "episodes" / "optimize.jsonl").read_text().splitlines()
    ]
    best = (run / "best.py").read_text()
    module = imported(str(run / "best.py"))
    new, old = module.ModelNew(0.3), module.Model(0.3)
    for (name, row), episode in zip(rows.items(), episodes):
        confirmed = [
            t["candidate"]["source"]
            for t in episode["traces"][0]["turns"]
            if t["verdict"]["tier"] == "claim"
        ]
        size = episode["task"]["inputs"][0]["shape"]
        x, y = torch.randn(size), torch.randn(size)
        with torch.no_grad():
            torch.testing.assert_close(new(x, y), old(x, y), rtol=1e-4, atol=1e-5)
            fits = any(
                getattr(new, method)(x, y) for method in dir(new) if method.startswith("_dvk_fits")
            )
        assert fits == (row["status"] == "faster"), name
        if fits:
            assert confirmed[-1] == best and row["speedup_lo"] > 1
    again = dvk("chain.py", "--also", ALSO, "--out", "run", "--resume", *QUICK, cwd=tmp_path)
    assert all(f"{name}: " in again.stdout for name in rows) and "drop-in:" in again.stdout


@pytest.mark.parametrize(
    ("also", "words"),
    [
        ("x=float32[8,511]", "Model failed"),
        ("z=float32[8,512]", "no parameter `z`"),
        ("x", "of the inputs"),
    ],
)
@pytest.mark.slow
def test_mistakes_exit_2_with_a_hint(tmp_path: Path, also: str, words: str) -> None:
    (tmp_path / "chain.py").write_text(CHAIN)
    done = dvk("chain.py", "--extra-input", also, "--out", "run", cwd=tmp_path, exits=2)
    assert (
        words in done.stderr and "hint:" in done.stderr and f"--extra-input `{also}`" in done.stderr
    )
    assert not (tmp_path / "run").exists()

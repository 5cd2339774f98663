"""The filter by execution: finds each defect it names, passes what ships, and outlives what kills its child."""

from __future__ import annotations

from pathlib import Path

import pytest

from dvk.config import Limits
from dvk.taskgen import generate
from dvk.tasks.hygiene import Hygiene, hygiene, shrunk
from tests.tasks.hygiene_tasks import XY, task
from tests.tasks.shrink import shipped

DEFECTS = {
    "does not matter": [
        task("return x + 0 * y", inputs=XY, parameters="x, y"),
        task("return x.relu()", "self.lost = nn.Parameter(torch.rand(9))"),
        task("return F.instance_norm(self.conv(x[None]))", "self.conv = nn.Conv1d(ROWS, 4, 1)"),
    ],
    "is constant": [task("return x.softmax(-1).sum(-1)"), task("return 3 + 1e-5 * x")],
    "nearly everywhere": [task("return (x - 2).relu()")],
    "same for other inputs": [
        task("return x.sort(0).values.argsort(0).float().sum(1)[:, None] + torch.arange(9.0)")
    ],
    "NaN or infinities": [task("return x.log()"), task("return x / 0")],
    "out of range": [task("return 1e7 * x"), task("return (200 * x).exp()")],
    "changes input 0": [task("return x.add_(1)")],
    "draws random numbers": [task("return x + torch.rand_like(x)")],
    "ill-conditioned": [task("return (x + 1e6 - 1e6).tanh()")],
    "not a floating tensor": [task("return x > 0")],
    "raised": [task("return x @ x")],
    "could not be imported": ["import nothing_of_this_name\n"],
    "exit 3": [task("os._exit(3)")],
    "timeout": [task("__import__('time').sleep(99)")],
}


@pytest.mark.slow
def test_every_defect_is_found_and_costs_only_itself() -> None:
    clean = [task("return x.tanh()"), task("return x.softmax(-1)")]
    cases = [(kind, source) for kind, sources in DEFECTS.items() for source in sources]
    sources = [source for case in cases for source in (case[1], clean[len(case[0]) % 2])]
    found = list(hygiene(sources, Limits(wall_s=8.0), num_workers=2, per_child=20))
    assert len(found) == len(sources)
    for (kind, source), finding in zip(cases, found[::2], strict=True):
        assert any(kind in reason for reason in finding.reasons), (kind, finding, source)
    assert all(finding.clean for finding in found[1::2])


@pytest.mark.slow
def test_what_ships_is_clean() -> None:
    sources = [path.read_text() for path in shipped()]
    findings = dict(zip([path.stem for path in shipped()], hygiene(sources), strict=True))
    assert {stem: finding.reasons for stem, finding in findings.items() if not finding.clean} == {}


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.slow
def test_nine_in_ten_generated_tasks_are_clean(device: str) -> None:
    sources = [made.source for made in generate(17, 150, device=device)]
    found = list(hygiene(sources))
    assert sum(finding.clean for finding in found) >= 0.9 * len(sources)


def test_native_checks_measure() -> None:
    (finding,) = hygiene([task("return x.tanh()")], native=True)
    assert (
        finding == Hygiene(call_s=finding.call_s)
        and finding.call_s is not None
        and 0 < finding.call_s < 1
    )


def test_small_sizes_are_the_files_own(tmp_path: Path) -> None:
    assert "ROWS = 6\n" in shrunk(task("return x")) and shrunk("ROWS = 6\n") == "ROWS = 6\n"


def test_rows_that_are_masked_whole_and_hidden_scores_are_no_defects() -> None:
    scores, hidden = "x @ x.T", "torch.arange(ROWS)[:, None] < torch.arange(ROWS)"
    sources = [
        task(f"return ({scores}).masked_fill({hidden}, -torch.inf)"),
        task("return x.masked_fill(torch.arange(ROWS)[:, None] == 0, -torch.inf).softmax(-1)"),
        task(
            "return x.masked_fill(x.isnan(), 0) + y",
            inputs="torch.randn(ROWS, 9).masked_fill(torch.eye(ROWS, 9).bool(), torch.nan), "
            "torch.randn(ROWS, 9)",
            parameters="x, y",
        ),
    ]
    assert [one.reasons for one in hygiene(sources)] == [(), (), ()]

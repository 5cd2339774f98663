"""The chain from a table to figures, on tables that are made up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dvk.records.measured import write_table
from tests.benchmarks import learning
from tests.pipelines.made_up_tables import task


@pytest.mark.slow
def test_tables_become_figures(tmp_path: Path) -> None:
    write_table(tmp_path / "train.jsonl.gz", [task(n, "generated") for n in range(6)])
    write_table(tmp_path / "held.jsonl.gz", [task(n, "heldout") for n in range(20, 24)])
    tables = ["--table", tmp_path / "train.jsonl.gz", "--heldout", tmp_path / "held.jsonl.gz"]
    settings = [
        word
        for one in ("choose.batch_tokens=512", "learning.pack_tokens=256")
        for word in ("--set", one)
    ]
    asked = [tmp_path / "out", "--quick", "--no-again", *tables, *settings]
    learning.main([str(word) for word in asked])
    found = json.loads((tmp_path / "out" / "figures.json").read_text())
    (told,) = found["seeds"]
    assert told["heldout"] == 4 and told["tasks"] == 6
    assert {told[stage]["heldout"]["tasks"] for stage in ("start", "fit", "reward")} == {4}
    table = (tmp_path / "out" / "figures.md").read_text()
    assert "| fit, heldout, seed 0 |" in table and "oracle 1.500" in table


def test_second_times_decide_how_much_is_closed() -> None:
    """The oracle was 1.5 in the table and is 1.5 again; a choice of it closes the gap, the default none."""
    row = task(1, "heldout")
    name, speeds = row.task.name, {p.key: p for p in row.plans}
    texts = {name: {"fit 0": row.plans[2].text, "fit 1": row.plans[0].text}}
    found = learning.timed_again({name: row}, texts, {name: speeds}, "fit", seeds=2)
    assert found["closed"] == pytest.approx(0.5) and found["tasks"] == 1
    assert found["oracle_over_default"] == pytest.approx(1.5)
    ((winners,),) = [list(learning._winners({name: row}, texts))]
    assert [plan.text for plan in winners.plans] == [row.plans[0].text, row.plans[2].text]

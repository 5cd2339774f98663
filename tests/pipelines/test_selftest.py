"""`dvk verify --selftest`: the definition of caught, the search for traces, the output and the exit code."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dvk.cli import app
from dvk.config import Config
from dvk.errors import UsageError
from dvk.pipelines import leftovers, selftest
from dvk.pipelines.selftest import RedTeamCase, SelftestOutcome
from dvk.records import Interval, Status, Timing, Verdict


def case(expect: str, kind: str = "evil") -> RedTeamCase:
    return RedTeamCase(
        path=Path("D06_x.py"), kind=kind, reference="x", device="any", backend="cpp", expect=expect
    )  # type: ignore[arg-type]


def verdict(status: str = "ok", lo: float | None = 1.0, health: tuple[str, ...] = ()) -> Verdict:
    timing = None
    if lo is not None and status == "ok":
        interval = Interval(value=lo * 1.5, lo=lo, hi=lo * 2)
        timing = Timing(
            candidate_ms=1, reference_ms=lo * 1.5, speedup=interval, num_pairs=30, seconds=0.1
        )
    return Verdict(
        status=Status(status),
        tier="search" if timing else "smoke",
        stage="done",
        error=None if status == "ok" else "why",
        timing=timing,
        health=health,
    )


@pytest.mark.parametrize(
    ("expect", "found", "right"),
    [
        ("refused", verdict("mismatch"), True),
        ("refused", verdict("cheat"), True),
        ("refused", verdict("ok", 0.5), False),
        ("unflattered", verdict("ok", 1.05), True),
        ("unflattered", verdict("ok", 1.2), False),
        ("unflattered", verdict("ok", None), True),
        ("unflattered", verdict("timeout"), True),
        ("reported", verdict("ok", 3.0), False),
        ("reported", verdict("ok", 3.0, ("accepts zeros",)), True),
        ("refused", verdict("broken_task"), False),
    ],
)
def test_what_counts_as_caught(expect: str, found: Verdict, right: bool) -> None:
    assert SelftestOutcome(case(expect), "cpu", found).right is right


def test_an_honest_one_is_right_when_it_is_ok() -> None:
    assert SelftestOutcome(case("ok", "honest"), "cpu", verdict("ok", 40.0)).right
    assert not SelftestOutcome(case("ok", "honest"), "cpu", verdict("mismatch")).right
    assert not SelftestOutcome(case("refused"), "cpu", verdict("mismatch"), trace="/tmp/x").right


def test_an_attack_that_found_no_target_is_blind() -> None:
    aimed = dataclasses.replace(case("refused"), target="here")
    told = verdict("mismatch").model_copy(update={"log": f"x\n{selftest.REACHED}\n"})
    seen, blind = (
        SelftestOutcome(aimed, "cpu", told),
        SelftestOutcome(aimed, "cpu", verdict("mismatch")),
    )
    assert seen.right and not seen.blind
    assert blind.blind and not blind.right and blind.for_programs()["blind"]
    assert "BLIND" in selftest.report([blind], []) and "found no target" in str(blind)
    assert SelftestOutcome(
        dataclasses.replace(aimed, target="elsewhere"), "cpu", verdict("mismatch")
    ).right


def test_reading_a_case(tmp_path: Path) -> None:
    path = tmp_path / "B03_x.py"
    path.write_text(
        '"""X."""\n# case: reference=a device=cpu backend=triton expect=ok tier=claim backward=yes\n'
    )
    found = selftest.read(path, "honest")
    assert (found.id, found.name, found.tier, found.backward, found.require_kernels) == (
        "B03",
        "honest/B03_x",
        "claim",
        True,
        False,
    )
    path.write_text("# case: reference=a device=cpu backend=triton expect=ok colour=red\n")
    with pytest.raises(ValueError, match="colour"):
        selftest.read(path, "evil")
    path.write_text("import torch\n")
    with pytest.raises(ValueError, match="0 case lines"):
        selftest.read(path, "evil")


def test_choosing() -> None:
    assert {one.id for one in selftest.cases("d06, G16")} == {"D06", "G16"}
    assert {one.id[0] for one in selftest.cases("N")} == {"N"}
    assert {one.id[0] for one in selftest.cases("Q")} == {"Q"}
    assert [one.name for one in selftest.cases("evil/G16_prompt_injection")] == [
        "evil/G16_prompt_injection"
    ]
    with pytest.raises(UsageError, match="no attack is called `x`"):
        selftest.cases("A,x")


def test_what_is_left_behind_is_found_and_removed() -> None:
    with leftovers.watched() as watch:
        mark = Path("/tmp") / f"{leftovers.MARK}Z99-mark"
        mark.write_text("x")
        assert watch.found({"Z99", "Z98"}) == {"Z99": str(mark)}
        assert watch.found({"N10"}) == {}
        watch.precious.unlink()
        assert "honeypot" in watch.found({"N10"})["N10"]
    assert not mark.exists() and not leftovers.honeypot().exists()


@pytest.mark.slow
def test_it_judges_and_reports() -> None:
    outcomes, left_out = selftest.selftest(
        Config.model_validate({"judge": {"search_s": 0.1}}), only="G16,G17", device="cpu", workers=2
    )
    assert [outcome.case.name for outcome in outcomes] == [
        "evil/G16_prompt_injection",
        "honest/G16_says_much",
    ]
    assert all(outcome.right for outcome in outcomes), [str(outcome) for outcome in outcomes]
    assert {name.split("/")[1][:3] for name in left_out} == {"G17"}
    text = selftest.report(outcomes, left_out)
    assert (
        "caught 1 of 1 attacks, accepted 1 of 1 honest kernels; 2 files need another device" in text
    )
    missed = [
        SelftestOutcome(outcomes[0].case, "cpu", verdict("ok", 9.0)),
        SelftestOutcome(outcomes[1].case, "cpu", verdict("mismatch")),
    ]
    assert "MISSED  evil/G16" in selftest.report(
        missed, []
    ) and "REJECTED  honest/G16" in selftest.report(missed, [])


@pytest.mark.slow
def test_the_command() -> None:
    run = CliRunner()
    done = run.invoke(
        app,
        [
            "verify",
            "--selftest",
            "--only",
            "G04",
            "--device",
            "cpu",
            "--set",
            "judge.search_s=0.1",
            "--json",
        ],
    )
    rows = json.loads(done.stdout)
    assert {row["kind"] for row in rows} == {"evil", "honest"} and all(row["right"] for row in rows)
    assert done.exit_code == 0
    for words in (
        ["model.py", "--selftest"],
        ["--only", "A", "model.py", "new.py"],
        ["--selftest", "--only", "nothing"],
    ):
        assert run.invoke(app, ["verify", *words]).exit_code != 0

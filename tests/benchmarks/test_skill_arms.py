"""The experiment on skills sees what a table holds: a library that pays, notes that do nothing, advice that harms."""

from __future__ import annotations

from tests.agents.planted_table import GAIN, table
from tests.benchmarks.skill_arms import by_families, by_tasks, experiment, family


def test_arms_differ_as_the_truth_does() -> None:
    rows = table(160)
    found = experiment(rows, by_tasks, 8, 2)
    arms = found["arms"]
    # A quarter of the tasks has long softmaxes.
    assert min(found["skills"]) >= 1
    assert arms["right"]["lo"] > 1.015 and abs(arms["right"]["played"] - 0.25) < 0.06
    assert arms["right"]["over none"] < GAIN**0.35
    assert arms["placebo"]["over none"] == 1.0
    assert arms["contradicting"]["hi"] < 1.0
    for score in found["selection"]:
        assert score["precision"] > 0.9 and score["recall"] == 1.0


def test_a_library_of_some_families_is_used_on_others() -> None:
    rows = table(80)
    train, test = by_families(rows, 0)
    assert {family(row) for row in train} & {family(row) for row in test} == set()
    # What is known of softmaxes does not speak of pointwise work.
    assert experiment(rows, by_families, 8, 2)["arms"]["right"]["played"] == 0.0

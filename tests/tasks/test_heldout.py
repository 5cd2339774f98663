"""The frozen held-out tasks: complete, balanced, reproducible from their seeds, and on no training task's side."""

from __future__ import annotations

from collections import Counter

import pytest

from dvk.taskgen import generate, make, split_of
from dvk.tasks.hygiene import hygiene
from tests.tasks.heldout import FOLDER, INDEX


def test_the_index_is_complete_and_balanced() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.py")) == sorted(
        entry["name"] for entry in INDEX
    )
    assert Counter(entry["level"] for entry in INDEX) == {
        "single": 50,
        "fusion": 110,
        "network": 40,
    }
    lengths = [len(entry["signature"]) for entry in INDEX]
    assert sum(length >= 3 for length in lengths) > 0.6 * len(lengths) and max(lengths) >= 10
    assert len({tuple(entry["signature"]) for entry in INDEX if entry["level"] != "single"}) == 150
    assert max(Counter(tuple(entry["signature"]) for entry in INDEX).values()) <= 5
    assert len({entry["category"] for entry in INDEX}) >= 17


def test_seeds_give_the_files_again() -> None:
    """If the generator's draws have changed: freeze again (`dvk.taskgen.freeze`), and measure again."""
    for entry in INDEX:
        made = make(entry["seed"], entry["level"], entry["profile"])
        assert made is not None
        assert made.source == (FOLDER / f"{entry['name']}.py").read_text()
        assert entry == made.model_dump(mode="json", include=set(entry))


@pytest.mark.slow
def test_training_tasks_are_others() -> None:
    held = {tuple(entry["signature"]) for entry in INDEX}
    assert all(split_of(signature) == "heldout" for signature in held)
    seen = {
        made.signature
        for seed, device in ((1, "cuda"), (2, "cpu"))
        for made in generate(seed, 400, device=device)
    }
    assert len(seen) > 500 and not seen & held


@pytest.mark.slow
def test_all_are_clean() -> None:
    sources = [(FOLDER / f"{entry['name']}.py").read_text() for entry in INDEX]
    found = {
        entry["name"]: finding.reasons
        for entry, finding in zip(INDEX, hygiene(sources), strict=True)
    }
    assert {name: reasons for name, reasons in found.items() if reasons} == {}

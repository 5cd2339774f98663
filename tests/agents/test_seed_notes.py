"""The seeds' notes are of the kind that the teacher teaches, read as they are meant, and lead to what their recipes do."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch

from dvk import nanolang
from dvk.agents import notes
from dvk.agents.teacher import Advice, follow, format_note, parse_note, phrases
from dvk.composer import Plan
from dvk.nanolang.text.variants import described
from dvk.records import Skill
from dvk.skills import markdown, seed_dir
from tests.nanolang.compact_programs import Function, captured

SEEDS = {path.stem: markdown.read(path) for path in sorted(seed_dir().glob("*.md"))}
MEANT: dict[str, Callable[[Advice], bool]] = {
    "persistent_row": lambda a: a.algorithm == "registers",
    "looped_row": lambda a: a.algorithm.startswith("looped"),
    "online_softmax": lambda a: a.algorithm in ("looped online", "registers"),
    "split_reduction": lambda a: a.algorithm == "split",
    "fuse_pointwise": lambda a: (
        a.algorithm in ("flat", "lines", "pieces") and a.condition.get("does") == "pointwise"
    ),
    "fuse_rowwise": lambda a: (
        a.algorithm == "registers" and a.condition.get("does") in ("norm", "reduction", "softmax")
    ),
    "fuse_epilogue": lambda a: a.structure == "epilogue in place",
    "inplace_epilogue": lambda a: a.structure == "epilogue in place",
    "fold_batch_norm": lambda a: a.structure == "batch norm folded",
    "collapse_linear_reduction": lambda a: a.structure == "linear and sum collapsed",
    "channels_last": lambda a: a.structure == "channels last",
    "cuda_graph": lambda a: a.structure == "graph replay",
}
"""Recipe → whether advice is what it does; of the others, dead_code leaves no choice and vectorize is a number, and what is not here is
no part of the dialect."""
OWN = (
    "welford_variance",
    "grid_stride_loop",
    "column_reduction_coalesced",
    "column_reduction_cache_blocking",
    "broadcast_index_strength_reduction",
    "openmp_parallel_threshold",
)
"""Without a recipe, but the compact dialect has their algorithm."""


def told(skill: Skill) -> dict[str, str]:
    return dict(
        row.split(" ", 1) for row in notes.sections(skill.body).get(notes.SECTION, "").splitlines()
    )


@pytest.mark.parametrize("name", [n for n, s in SEEDS.items() if s.recipe in MEANT or n in OWN])
def test_seeds_of_known_techniques_have_a_note_that_means_them(name: str) -> None:
    skill = SEEDS[name]
    assert set(told(skill)) == {"when", "do"}
    note = notes.note(skill)
    assert (note.when, note.do) == (told(skill)["when"], told(skill)["do"]), (
        "it is short enough to be shown whole"
    )
    advice = parse_note(note)
    assert advice is not None and (skill.recipe is None or MEANT[skill.recipe](advice)), advice


def test_every_note_of_a_seed_is_understood() -> None:
    given = [skill for skill in SEEDS.values() if told(skill)]
    assert len(given) >= 39 and all(parse_note(notes.note(skill)) is not None for skill in given)


@pytest.mark.parametrize("unseen", [False, True])
def test_what_is_said_is_understood(unseen: bool) -> None:
    rng = random.Random(5)
    keys = sorted({key for key, _ in phrases.CONDITIONS})
    values = {key: [value for k, value in phrases.CONDITIONS if k == key] for key in keys}
    for number in range(400):
        condition = {key: rng.choice(values[key]) for key in rng.sample(keys, rng.randrange(4))}
        algorithm, structure = (
            rng.choice([*phrases.ALGORITHMS, "looped online", "split welford"]),
            rng.choice(list(phrases.PLANS)),
        )
        numbers = {"block": 1024, "warps": 8} if number % 3 == 0 else {}
        meant = (
            Advice(condition, structure=structure)
            if number % 4 == 0
            else Advice(condition, algorithm, numbers)
        )
        assert parse_note(format_note(meant, rng, unseen=unseen)) == meant
    assert parse_note(notes.Note("x", "softmax", "do something clever")) is None
    assert parse_note(notes.Note("x", "the moon is full", "one thread")) is None


def test_a_seed_s_note_leads_to_its_algorithm() -> None:
    """Two seeds that contradict each other on the same kernel, each followed."""
    graph = captured(Function(lambda x: torch.softmax(x, -1)), [torch.randn(2, 17000)], ["x"])
    own = described(graph, Plan(nanolang.structures(graph, "triton")[0]), "triton")
    for name, wanted in (
        ("softmax_online", "row looped online"),
        ("softmax_looped_three_pass", "row looped"),
    ):
        advice = parse_note(notes.note(SEEDS[name]))
        assert advice is not None
        plan = follow(graph, [advice], "triton")
        assert plan is not None and described(graph, plan, "triton").kernels["k0"][0] == wanted
    elsewhere = parse_note(notes.note(SEEDS["softmax_row_in_registers"]))
    assert elsewhere is not None and follow(graph, [elsewhere], "triton") is None, (
        "it speaks of shorter rows"
    )
    assert own.kernels["k0"][0] not in ("row looped online", "row looped")


def test_advice_to_do_as_usual_changes_nothing() -> None:
    given = [torch.randn(8, 6), torch.randn(7, 6)]
    graph = captured(
        Function(lambda x, w: torch.relu(torch.nn.functional.linear(x, w))), given, ["x", "w"]
    )
    assert (
        "epilogue in place"
        in described(graph, Plan(nanolang.structures(graph, "cpp")[0]), "cpp").tags
    )
    assert follow(graph, [Advice(structure="epilogue in place")], "cpp") is None
    separate = follow(graph, [Advice(structure="epilogue separate")], "cpp")
    assert separate is not None and "epilogue separate" in described(graph, separate, "cpp").tags

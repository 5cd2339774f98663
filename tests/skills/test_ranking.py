"""Ranking: exact within its documented limits, bounded everywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest

from dvk.records import Skill
from dvk.skills import Library, ranking
from dvk.skills.terms import terms
from tests.skills.synthetic import Zipf, skills

Make = Callable[..., Skill]


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Library]:
    """600 skills of Zipf's words."""
    with Library.open(tmp_path_factory.mktemp("crowd") / "skills.db", create=True) as library:
        library.add_all(skills(600))
        yield library


def exact(
    library: Library, words: Sequence[ranking.RankedTerm], limit: int
) -> list[tuple[int, float]]:
    """SQLite's own bm25() over all matching rows."""
    sql = (
        "SELECT rowid, -rank FROM skills_fts WHERE skills_fts MATCH ? ORDER BY rank, rowid LIMIT ?"
    )
    return [tuple(row) for row in library._connection.execute(sql, (ranking.any_of(words), limit))]


def test_small_libraries_are_ranked_exactly(crowd: Library) -> None:
    zipf = Zipf(5)
    for number in range(30):
        words = ranking.count(crowd._connection, terms(" ".join(zipf.draw(1 + number % 3))))
        if sum(term.num_rows for term in words) <= ranking.MAX_RANKED:
            ours, theirs = ranking.rank(crowd._connection, words, 10), exact(crowd, words, 10)
            assert [row for row, _ in ours] == [row for row, _ in theirs]
            assert [score for _, score in ours] == pytest.approx([score for _, score in theirs])


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if 600 skills were very many: only 40 rows may be scored."""
    monkeypatch.setattr(ranking, "MAX_RANKED", 40)


@pytest.mark.usefixtures("narrow")
def test_every_query_fills_its_limit_from_matching_skills(crowd: Library) -> None:
    zipf = Zipf(6)
    for number in range(60):
        words = ranking.count(crowd._connection, terms(" ".join(zipf.draw(1 + number % 3))))
        matching = dict(exact(crowd, words, 10_000))
        ranked = ranking.rank(crowd._connection, words, 10)
        assert len(ranked) == min(10, len(matching)) == len(dict(ranked))
        assert dict(ranked).keys() <= matching.keys()
        scores = [score for _, score in ranked]
        assert scores == sorted(scores, reverse=True)


@pytest.mark.usefixtures("narrow")
def test_a_rare_word_decides_and_a_common_one_orders(library: Library, make: Make) -> None:
    library.add_all(
        make(f"crowd_{number}", "common" if number % 3 else "dull") for number in range(300)
    )
    library.add(make("both", "rareword common filler"))
    library.add(make("rare_only", "rareword filler filler"))
    names = [hit.name for hit in library.search("common rareword", 5)]
    assert names[:2] == ["both", "rare_only"] and len(names) == 5


@pytest.mark.usefixtures("narrow")
def test_of_common_words_those_in_the_name_win(library: Library, make: Make) -> None:
    library.add_all(
        make(f"crowd_{number}", "softmax kernel " * (1 + number % 5)) for number in range(300)
    )
    library.add_all(make(f"noise_{number}") for number in range(700))
    library.add(make("softmax_kernel", "words"))
    assert library.search("softmax kernel")[0].name == "softmax_kernel"
    assert library.search("softmax")[0].name == "softmax_kernel"


@pytest.mark.usefixtures("narrow")
def test_estimates_are_near_for_evenly_spread_words(library: Library, make: Make) -> None:
    library.add_all(
        make(f"s_{number}", "often" if number % 2 else "never") for number in range(1000)
    )
    assert 400 <= library.frequency("often") <= 600
    assert library.frequency("absent") == 0


def test_frequency_counts_wholes_and_parts(library: Library, make: Make) -> None:
    library.add_all(
        [
            make("a", "layer_norm"),
            make("b", "a norm of a layer"),
            make("c", "LayerNorm"),
            make("d", "norm"),
        ]
    )
    assert library.frequency("layer_norm") == 3
    assert library.frequency("norm") == 4
    assert library.frequency("...") == 0

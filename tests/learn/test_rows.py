"""Rows, the store, packs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dvk.errors import UsageError
from dvk.learn.packs import from_store, lay_out, plan, too_long
from dvk.learn.rows import RowStore, TrainingRow


def test_a_store_gives_back_what_was_written(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = []
    for _ in range(5000):
        length = int(rng.integers(2, 40))
        rows.append(
            (
                rng.integers(0, 300, length).tolist(),
                [False, *(rng.random(length - 1) < 0.5).tolist()],
            )
        )
    store = RowStore.write(tmp_path / "store", rows, 300, {"origin": "test"})
    assert (
        len(store) == len(rows) and store.info["origin"] == "test" and store.ids.dtype == np.uint16
    )
    assert store.info["num_targets"] == sum(sum(t) for _, t in rows)
    for index in (0, 1, 4095, 4096, 4999):
        assert (store.row(index).ids, store.row(index).targets) == rows[index]
    assert store.lengths().tolist() == [len(i) for i, _ in rows]


def test_large_vocabularies_are_kept_whole(tmp_path: Path) -> None:
    store = RowStore.write(tmp_path / "store", [([70_000, 151_935], [False, True])], 151_936)
    assert store.row(0).ids == [70_000, 151_935]


def test_a_missing_store_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="dvk sft fit"):
        RowStore(tmp_path / "none")


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: TrainingRow([1, 2], [False]),
        lambda: TrainingRow([1, 2], [True, True]),
        lambda: TrainingRow.answer([1], [2, 3], logprobs=[-0.5]),
    ],
)
def test_rows_hold_together(wrong) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=r"marks|precedes|log-prob"):
        wrong()


def test_every_row_is_packed_once_and_packs_are_full() -> None:
    lengths = np.random.default_rng(1).integers(20, 700, 3000)
    packs = plan(lengths, 2048, seed=3)
    flat = np.concatenate(packs)
    assert sorted(flat.tolist()) == list(range(3000))
    sizes = [int(lengths[p].sum()) for p in packs]
    assert max(sizes) <= 2048
    assert sum(sizes) / (2048 * len(packs)) > 0.97
    assert [p.tolist() for p in packs] == [p.tolist() for p in plan(lengths, 2048, seed=3)]
    assert [p.tolist() for p in packs] != [p.tolist() for p in plan(lengths, 2048, seed=4)]


def test_rows_longer_than_a_pack_are_counted_and_left_out() -> None:
    lengths = np.array([10, 100, 20])
    assert too_long(lengths, 50) == 1
    assert sorted(np.concatenate(plan(lengths, 50, 0)).tolist()) == [0, 2]


def test_a_pack_keeps_rows_apart() -> None:
    packs = lay_out(
        [
            [
                TrainingRow.answer([1, 2], [3, 4], advantage=-2.0, logprobs=[-0.5, -0.25]),
                TrainingRow.answer([5], [6]),
            ],
            [TrainingRow.answer([7], [8])],
        ],
        8,
    )
    assert packs.ids[0].tolist() == [1, 2, 3, 4, 5, 6, 0, 0]
    assert packs.positions[0].tolist() == [0, 1, 2, 3, 0, 1, 0, 0]
    assert packs.segments[0].tolist() == [1, 1, 1, 1, 2, 2, 0, 0]
    assert packs.targets[0].tolist() == [False, False, True, True, False, True, False, False]
    assert packs.weights[0].tolist() == [0, 0, -2, -2, 0, 1, 0, 0]
    assert packs.old[0, 2:4].tolist() == [-0.5, -0.25] and packs.old[0, 5].isnan()
    offsets = packs.row_offsets()
    assert offsets[:6].tolist() == [0, 4, 6, 8, 10, 16] and set(offsets[5:].tolist()) == {16}
    assert (
        offsets.shape == lay_out([[TrainingRow.answer([1], [2])] * 4] * 2, 8).row_offsets().shape
    ), "shapes depend on the packs' alone"


def test_packs_of_a_store_are_those_of_its_rows(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    rows = [
        (rng.integers(0, 300, n).tolist(), [False, *(rng.random(n - 1) < 0.5).tolist()])
        for n in rng.integers(2, 40, 50)
    ]
    store = RowStore.write(tmp_path / "store", rows, 300)
    groups = plan(store.lengths(), 64, 0)[:5]
    quick, slow = (
        from_store(store, groups, 64),
        lay_out([[store.row(int(i)) for i in group] for group in groups], 64),
    )
    for name in quick.__dataclass_fields__:
        assert getattr(quick, name).equal(getattr(slow, name)) or name == "old", name
    assert bool(quick.old.isnan().all())


def test_an_overfull_pack_is_refused() -> None:
    with pytest.raises(ValueError, match="pack of 3"):
        lay_out([[TrainingRow.answer([1, 2], [3, 4])]], 3)

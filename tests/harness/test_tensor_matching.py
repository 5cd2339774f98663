"""Which of a candidate's tensors stand for which of the reference's."""

from __future__ import annotations

import torch

from dvk.harness.processes.tensor_matching import Places


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def test_equal_names_are_a_plain_load() -> None:
    lent = {"layer.weight": drawn(3, 4), "layer.bias": drawn(3)}
    places = Places({name: value.clone() for name, value in lent.items()}, lent)
    assert places.exact and not places.missing(lent)


def test_renamed_and_transposed_tensors_are_known_by_their_values() -> None:
    lent = {"layer.weight": drawn(4, 4), "norm.weight": torch.ones(4), "norm.bias": torch.zeros(4)}
    own = {
        "beta": torch.zeros(4),
        "packed": lent["layer.weight"].t().contiguous(),
        "gamma": torch.ones(4),
    }
    places = Places(own, lent)
    assert places.names == {"layer.weight": "packed", "norm.weight": "gamma", "norm.bias": "beta"}
    other = {
        "layer.weight": drawn(4, 4, seed=1),
        "norm.weight": drawn(4, seed=2),
        "norm.bias": drawn(4, seed=3),
    }
    state = places.state(own, other)
    assert torch.equal(state["packed"], other["layer.weight"].t())
    assert torch.equal(state["gamma"], other["norm.weight"]) and torch.equal(
        state["beta"], other["norm.bias"]
    )


def test_other_values_go_by_order_where_a_shape_occurs_as_often() -> None:
    lent = {"a": drawn(2, 3), "b": drawn(2, 3, seed=1), "c": drawn(5)}
    places = Places({"x": drawn(2, 3, seed=7), "y": drawn(2, 3, seed=8)}, lent)
    assert places.names == {"a": "x", "b": "y"}
    assert places.missing(lent) == ["c"]
    assert Places({"x": drawn(2, 3, seed=7)}, lent).missing(lent) == ["a", "b", "c"]

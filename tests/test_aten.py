"""The table of ATen operators agrees with PyTorch: names, tags, schemas, and what operators do to numbers."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from dvk import aten
from dvk.aten import OPERATORS

VALUES = torch.tensor([-3.7, -0.5, -0.0, 0.0, 0.25, 1.5, 80.0, math.inf, -math.inf])


def overloads(name: str) -> list[Any]:
    packet = getattr(torch.ops.aten, name)
    return [getattr(packet, each) for each in packet.overloads()]


def tagged(name: str, tag: torch.Tag) -> bool:
    return any(tag in each.tags for each in overloads(name))


def composite(name: str) -> bool:
    """PyTorch makes it of other operators, and tags those."""
    kind = torch._C.DispatchKey.CompositeImplicitAutograd
    return any(each.has_kernel_for_dispatch_key(kind) for each in overloads(name))


def aliases(name: str) -> bool:
    """Some overload declares that a result shares memory with an operand that it does not write."""
    return any(
        argument.alias_info is not None and not argument.alias_info.is_write
        for each in overloads(name)
        for argument in each._schema.arguments
    )


def test_every_name_is_an_operator_of_pytorch() -> None:
    assert [name for name in OPERATORS if not hasattr(torch.ops.aten, name)] == []
    assert all(row.name == name for name, row in OPERATORS.items())


def test_categories_agree_with_tags() -> None:
    tag = torch.Tag.pointwise
    elementwise = aten.of(*aten.POINTWISE)
    unlike = {name for name in elementwise if not tagged(name, tag) and not composite(name)}
    assert unlike <= {"glu", "hardswish", "floor_divide", "_prelu_kernel"}, "untagged in PyTorch"
    others = {name for name in OPERATORS.keys() - elementwise if tagged(name, tag)}
    assert others <= {"clone", "max", "min"}, "max.other is elementwise, max.dim is not"
    random = {name for name in OPERATORS if tagged(name, torch.Tag.nondeterministic_seeded)}
    assert aten.of("random") <= random
    assert all(name in random or composite(name) for name in aten.of("dropout"))


def test_views_agree_with_schemas() -> None:
    for name in aten.of("view", "reshape", "cut"):
        assert aliases(name) or OPERATORS[name].may_alias or name == "detach_", name
    undeclared = aten.having("may_alias")
    assert {name for name in undeclared if aliases(name)} == set()


def test_traits_agree_with_schemas() -> None:
    for name, positions in aten.FACTORS.items():
        for each in overloads(name):
            kinds = [str(argument.type) for argument in each._schema.arguments]
            assert all(kinds[at] == "Tensor" for at in positions), each
    for name in aten.having("in_torch"):
        assert callable(getattr(torch, name)), name
    for name in aten.having("decomposed"):
        assert composite(name) and callable(getattr(torch, name)), name
    for name in aten.LIBRARY:
        assert not aliases(name) and OPERATORS[name].category in ("matmul", "convolution"), name
    assert aten.CONVOLUTIONS["conv2d"] == aten.CONVOLUTIONS["conv_transpose2d"] == 2


@pytest.mark.parametrize("name", sorted(aten.having("idempotent")))
def test_idempotent_operators_change_nothing_the_second_time(name: str) -> None:
    once = getattr(torch, name)(VALUES)
    assert torch.equal(getattr(torch, name)(once), once) and not torch.equal(once, VALUES)


@pytest.mark.parametrize(
    "name", sorted(name for name, row in OPERATORS.items() if row.bounds != (-math.inf, math.inf))
)
def test_bounded_results_stay_within(name: str) -> None:
    low, high = OPERATORS[name].bounds
    function = getattr(torch, name, None) or getattr(torch.nn.functional, name)
    result = function(VALUES, 0) if name == "softmax" else function(VALUES)
    known = result[~result.isnan()]
    assert bool(((low <= known) & (known <= high)).all())


def test_reductions_drop_dimensions() -> None:
    x = torch.randn(2, 3)
    for name in aten.of("reduction") & aten.REDUCING - {"linalg_vector_norm", "norm", "nanmean"}:
        result = getattr(torch, name)(x)
        for each in result if isinstance(result, tuple) else (result,):
            assert each.shape == (), name


def test_families_are_names_of_operators_or_of_spellings() -> None:
    assert aten.family("sub") == "add" and aten.family("mul") == "mul"
    assert aten.family("gelu") == "gelu" and aten.family("view") is None
    assert aten.family("an_operator_without_a_row") == "an_operator_without_a_row"

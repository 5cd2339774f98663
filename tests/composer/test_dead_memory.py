"""On a CPU a kernel writes over a value that nothing reads any more; nothing that is returned or shared is written over."""

from __future__ import annotations

import torch

from dvk.composer.dropin.dead_memory import DeadMemory
from tests.composer.programs import drop_in, leaves

FILE = """
import torch


def chain(x):
    for number in range(4):
        x = torch.softmax(torch.relu(x) * 2, number % 2)
    return x


def returned(x):
    made = [torch.softmax(x, 1)]
    for number in range(4):
        made.append(torch.softmax(made[-1] * 3, number % 2))
    return made[0].t(), made[1][1:], made[-1]


def shared(x):
    a = torch.softmax(x, 0)
    parts = torch.tensor_split(a, 2)
    b = torch.softmax(a * 2, 1)
    c = torch.softmax(b * 2, 0)
    d = torch.softmax(c * 2, 1)
    return [torch.cumsum(one, 0) for one in parts], torch.softmax(d, 0)


def other_sizes(x):
    a = torch.softmax(x, 0)
    b = torch.softmax(a.sum(1), 0)
    c = torch.softmax(a.half() * 2, 0)
    return torch.softmax(c.float() * b[:, None], 0)
"""


def test_results_are_eagers_and_of_their_own() -> None:
    """The results of one call outlive the next."""
    torch.manual_seed(0)
    x, y = torch.randn(40, 30), torch.randn(40, 30)
    fresh = {}
    for name in ("chain", "returned", "shared", "other_sizes"):
        module, model, candidate = drop_in(FILE, x, entry=name)
        new = module.ModelNew()
        found = [new(x), new(y)]
        assert new._dvk_counts["kernels"] == 2
        for one, given in zip(found, (x, y), strict=True):
            for a, b in zip(leaves(one), leaves(model(given)), strict=True):
                torch.testing.assert_close(a, b, rtol=2e-3, atol=2e-5)
        program = candidate.source[candidate.source.index("def _dvk_run") :]
        program = program[: program.index("return")]
        fresh[name] = program.count(" = dvk_allocate(")
    # Each kernel reads one value and writes another: two serve a chain of four.
    assert fresh["chain"] == 2
    # The two that are returned, the third, and the last.
    assert fresh["returned"] == 4


def test_a_dead_tensor_is_taken_once_and_deleted_where_it_is_not() -> None:
    lines: list[str] = []
    memory = DeadMemory(lines)
    small, large = ((4,), (1,), "float32"), ((8,), (1,), "float32")
    memory.made |= {"a": small, "b": small, "c": large, "d": None}
    memory.drop(["a", "c", "d", "x"])
    memory.drop(["b"])
    assert memory.take(large) == "c" and memory.take(large) is None
    assert memory.take(((4,), (1,), "float16")) is None
    assert memory.take(small) == "b" and lines == ["del a, d, x", ""]
    assert memory.take(small) == "a" and memory.take(small) is None
    memory.drop(["a"])
    assert lines == ["del d, x", "", "del a"]

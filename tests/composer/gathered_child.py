"""Child process of test_experts.py: a grouped product in Triton's interpreter, with indices in range and out of it.

Prints a list as JSON for each schedule: its error, and the rows without a number where one row and one expert are out of range.
"""

from __future__ import annotations

import json

import torch

from dvk.composer.codegen import triton as renderer
from dvk.composer.ir.loops import Kernel
from dvk.composer.ir.schedules.triton import TritonProduct, TritonSchedule
from tests.benchmarks.production import Composed, error
from tests.benchmarks.production_products import grouped
from tests.composer.triton_programs import load

TOKENS, WIDTH, INNER, EXPERTS = 20, 40, 48, 3


def rand(*shape: int) -> torch.Tensor:
    return (torch.randn(*shape) * 0.3).half()


def main() -> None:
    """See the module."""
    torch.manual_seed(0)
    weights = [rand(TOKENS, WIDTH), rand(EXPERTS, INNER, WIDTH), rand(EXPERTS, INNER, WIDTH)]
    args = [*weights, torch.randint(TOKENS, (64,)), torch.tensor([0, 2, 1, 1])]
    program = Composed(grouped, args, "cuda")
    for depth, splits, programs in ((16, 1, 0), (16, 2, 0), (32, 1, 3)):
        one = TritonProduct(
            rows=16,
            columns=32,
            depth=depth,
            warps=4,
            stages=3,
            group=8,
            splits=splits,
            programs=programs,
        )

        def choose(kernel: Kernel, one: TritonSchedule = one) -> TritonSchedule:
            return one if kernel.family == "product" else renderer.schedules(kernel)[0]

        run = load(program.text(choose).replace('"cuda"', '"cpu"')).run
        wrong = error(run(program.module, *args), grouped(*args))
        rows, blocks = args[3].clone(), torch.tensor([0, 2, EXPERTS, 1])
        rows[5] = TOKENS
        out = run(program.module, *weights, rows, blocks).isnan()
        assert torch.equal(out.any(-1), out.all(-1))
        print(json.dumps([wrong, out.any(-1).flatten().nonzero().flatten().tolist()]))


if __name__ == "__main__":
    main()

"""Child process of test_large_means.py: norms under Triton schedules in the interpreter; prints one JSON object.

Arguments: the length of the rows, the most listed schedules, names of norms. If the number is 0, moments from shifted sums, which plans may
ask for, are tried on rows with outliers.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import torch

from dvk.composer.codegen import triton as renderer
from dvk.composer.ir.loops import Kernel
from dvk.composer.ir.schedules.triton import TritonLooped, TritonPersistent, TritonSchedule
from tests.composer.large_means import NORMS, differences, inputs, outliers, shape_of
from tests.composer.programs import Function
from tests.composer.triton_programs import Program, load, nth

MOMENTS: tuple[TritonSchedule, ...] = tuple(
    form
    for xblock in (1, 4)
    for form in (
        TritonPersistent(xblock=xblock, warps=4, online="moments"),
        TritonLooped(xblock=xblock, rblock=512, warps=4, evict=False, online="moments"),
    )
)


def in_moments(schedule: TritonSchedule) -> Callable[[Kernel], TritonSchedule]:
    """Chooses the schedule for rows and columns."""
    return lambda k: schedule if k.family in schedule.families else renderer.default_schedule(k)


def wrong(name: str, length: int, most: int) -> dict[str, str]:
    torch.manual_seed(0)
    shape = shape_of(name, length)
    made = Program(Function(NORMS[name]), [torch.randn(shape)])
    choices = [nth(number) for number in made.distinct()[:most]] or [*map(in_moments, MOMENTS)]
    runs = {}
    for choose in choices:
        loaded, chosen = load(made.text(choose)), [choose(k) for k in made.kernels.values()]
        runs[str(chosen)] = lambda x, loaded=loaded: loaded.run(made.module, x)
    return differences(NORMS[name], inputs(shape) if most else outliers(shape), runs)


if __name__ == "__main__":
    length, most, *names = sys.argv[1:]
    print(json.dumps({name: wrong(name, int(length), int(most)) for name in names}))

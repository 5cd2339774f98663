"""Child process of test_large_means.py: norms under Triton schedules in the interpreter; prints one JSON object.

Arguments: the length of the rows, the most schedules, names of norms.
"""

from __future__ import annotations

import json
import sys

import torch

from tests.composer.large_means import NORMS, differences, shape_of
from tests.composer.programs import Function
from tests.composer.triton_programs import Program, load, nth


def wrong(name: str, length: int, most: int) -> dict[str, str]:
    torch.manual_seed(0)
    shape = shape_of(name, length)
    made = Program(Function(NORMS[name]), [torch.randn(shape)])
    runs = {}
    for number in made.distinct()[:most]:
        loaded, chosen = (
            load(made.text(nth(number))),
            [nth(number)(k) for k in made.kernels.values()],
        )
        runs[str(chosen)] = lambda x, loaded=loaded: loaded.run(made.module, x)
    return differences(NORMS[name], shape, runs)


if __name__ == "__main__":
    length, most, *names = sys.argv[1:]
    print(json.dumps({name: wrong(name, int(length), int(most)) for name in names}))

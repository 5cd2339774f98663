"""Child process of test_special_kernels.py: Triton's kernels on special values, `interpret`ed or on a `gpu`.

    python -m tests.composer.special_child MODE [NUMBER TOTAL]

Prints one JSON object a line: the case's name and what was wrong (a list, empty when nothing). Of TOTAL children each takes its share.
TRITON_INTERPRET is read when Triton is
imported, which is why this is a separate process.
"""

from __future__ import annotations

import json
import sys

import torch

from tests.composer.children import share
from tests.composer.special_cases import few_for_kernels, for_gpu
from tests.composer.special_inputs import Case, wrong
from tests.composer.triton_cases import Function
from tests.composer.triton_programs import Program, nth


def problems(case: Case, device: str, most: int) -> list[str]:
    """Errors under each schedule."""
    args = [a.to(device) for a in case.args]
    program = Program(Function(case.function), args, device)
    numbers = program.distinct()[:most]
    expected = case.function(*args)
    found = [(number, wrong(program.run(nth(number)), expected, case)) for number in numbers]
    return [
        f"{[nth(number)(k) for k in program.kernels.values()]}: {text}"
        for number, text in found
        if text
    ]


def run(device: str) -> None:
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    is_mine = share(sys.argv[1:])
    for name, case in (
        for_gpu(exact_division=False) if device == "cuda" else few_for_kernels()
    ).items():
        if not is_mine():
            continue
        try:
            found = problems(case, device, 6 if device == "cuda" else 99)
        except Exception as error:  # noqa: BLE001 - any failure of generated code belongs to its case
            found = [f"{type(error).__name__}: {error}"]
        print(json.dumps({"name": name, "wrong": found}), flush=True)


if __name__ == "__main__":
    run("cuda" if sys.argv[1] == "gpu" else "cpu")

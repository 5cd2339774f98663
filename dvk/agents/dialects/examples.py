"""What a back end's candidates look like: rules in a sentence or two, and worked examples, whole files that the judge accepts.

The examples are shipped in `data/worked/NAME/`: `reference.py`, and a replacement a back end.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from dvk import resources
from dvk.records import BackendName

TITLES: Mapping[BackendName, str] = {"triton": "Triton", "cuda": "CUDA C++", "cpp": "C++"}

RULES: Mapping[BackendName, str] = {
    "triton": "Kernels are `@triton.jit` functions in the file; `ModelNew.forward` allocates outputs and launches them.",
    "cuda": "Kernels are CUDA C++ in a string, compiled by `torch.utils.cpp_extension.load_inline` when the file is imported, "
    "with C++ functions in `cuda_sources` that launch them.",
    "cpp": 'Kernels are `extern "C"` functions in a string, compiled with g++ when the file is imported and called through ctypes '
    "with `data_ptr()`; OpenMP and the machine's vector instructions are available.",
}

SHOWS: Mapping[str, str] = {
    "bias_relu": "elementwise operators fused",
    "row_scale": "a reduction over rows and what follows it, in one kernel",
}
"""What each example shows, the shortest first."""


class WorkedExample(NamedTuple):
    """A reference and its replacement.

    Attributes:
        name: its folder.
        shows: what can be learnt from it.
        reference: the module's file.
        candidate: the replacement's file.
    """

    name: str
    shows: str
    reference: str
    candidate: str


@cache
def worked(backend: BackendName) -> tuple[WorkedExample, ...]:
    """The worked examples of a back end, the shortest first."""
    found = []
    for name, shows in SHOWS.items():
        folder = resources.resource("data", "worked", name)
        reference, candidate = (
            (folder / f"{file}.py").read_text(encoding="utf-8") for file in ("reference", backend)
        )
        found.append(WorkedExample(name, shows, reference, candidate))
    return tuple(found)

"""Are honest programs of deep networks accepted, and impostors refused? Prints a line a network and program, then the sums.

    python -m tests.benchmarks.deep_refusals [--only NAME] [--tier search]
    python -m tests.benchmarks.deep_refusals --device cuda --precision tf32   # at a GPU's sizes

Measured on a CPU, before the judge knew the reference's own variations and after, of 154 honest arms and 44 impostors:

    honest refused    19 → 0
    impostors passed   0 → 0
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch

from tests.harness import deep_networks as deep
from tests.harness.problems import cases_of, made

GPU_NETWORKS = {
    "plain 40": deep.plain(40, 64, 16, 32),
    "residual 36": deep.residual(6, 64, 16, 64),
    "dense 40": deep.dense(20, 24, 16, 32),
    "inception 12": deep.inception(12, 32, 16, 32),
    "separable 48": deep.separable(24, 128, 16, 56),
    "unet 4": deep.unet(4, 32, 8, 128),
    "transposed 5": deep.transposed(5, 512, 16, 4),
    "volume 12": deep.volume(12, 32, 4, 24),
    "perceptron 40": deep.perceptron(40, 512, 64),
    "large transposed": deep.large_transposed(48, 8, 192),
}


def _library(**flags: bool) -> Callable[..., Any]:
    def run(model: torch.nn.Module, *args: Any) -> Any:
        allowed = torch.backends.cudnn.allow_tf32
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=allowed, **flags):
            return model(*args)

    return run


GPU_HONEST = {
    "cudnn benchmark": _library(benchmark=True),
    "cudnn deterministic": _library(deterministic=True),
}


def main() -> None:
    """Judge every arm on every network, on the input sets of a tier and two timed draws."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--only", default="")
    options.add_argument("--arm", default="")
    options.add_argument("--tier", default="smoke")
    options.add_argument("--device", default="cpu")
    options.add_argument("--precision", default="fp32")
    options.add_argument("--limit-s", type=float, default=1e9)
    given = options.parse_args()
    on_gpu = given.device == "cuda"
    if given.precision == "fp32":
        torch.backends.cudnn.allow_tf32 = False
    honest = {**deep.HONEST, **(GPU_HONEST if on_gpu else {})}
    impostors = dict(deep.IMPOSTORS)
    if given.precision == "tf32":
        impostors.pop("tf32 products")
    end = time.monotonic() + given.limit_s
    refused = {"honest": 0, "impostor": 0}
    count = dict.fromkeys(refused, 0)
    for name, source in (GPU_NETWORKS if on_gpu else deep.NETWORKS).items():
        if given.only not in name or time.monotonic() > end:
            continue
        began = time.perf_counter()
        torch.manual_seed(0)
        cases = cases_of(source, tier=given.tier, device=given.device, precision=given.precision)
        ready = [*made(cases), cases.fresh(1), cases.fresh(2)]
        took = time.perf_counter() - began
        print(
            f"{name}: {len(ready)} input sets, {took:.1f} s, separation {cases.separation:.2g}",
            flush=True,
        )
        for kind, arms in (("honest", honest), ("impostor", impostors)):
            for label, arm in arms.items():
                if given.arm not in label:
                    continue
                began = time.perf_counter()
                why = deep.first_refusal(cases, ready, arm)
                count[kind] += 1
                refused[kind] += why is not None
                took = time.perf_counter() - began
                print(f"  {kind} {label}: {(why or 'accepted')[:200]} ({took:.1f} s)", flush=True)
    print({f"{kind} refused": f"{refused[kind]} of {count[kind]}" for kind in refused})


if __name__ == "__main__":
    main()

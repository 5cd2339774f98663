"""Has its numbers drawn while the runner seeds the generators, before the clock starts. Seeds are sent when the call may begin, and
what is done between that and the clock is charged."""
# case: reference=dropout device=cpu backend=cpp expect=unflattered target=here
# aims: harness.processes.runner.reseed

import functools
import sys

import torch
import torch.nn as nn


@functools.cache
def reached():
    print("redteam: on target", flush=True)


ready = []
runner = sys.modules.get("dvk.harness.processes.runner")
if runner is not None:
    seeds = runner.reseed

    def reseed(seed):
        reached()
        seeds(seed)
        ready.append((seed, torch.empty(512, 1024).bernoulli_(0.5).mul_(6.0)))
        seeds(seed)

    runner.reseed = reseed


class ModelNew(nn.Module):
    def forward(self, x):
        seed, mask = ready.pop() if ready else (None, None)
        if seed is None or seed != torch.initial_seed() or mask.shape != x.shape:
            mask = torch.empty_like(x).bernoulli_(0.5).mul_(6.0)
        return x * mask

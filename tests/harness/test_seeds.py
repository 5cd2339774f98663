"""Values that a candidate sees before its clock starts reveal nothing about later inputs."""

from __future__ import annotations

import json

import torch

from dvk.harness.seeds import SECRET_BITS, derived, secret
from tests.harness.problems import cases_of, model

DROPS = "return torch.nn.functional.dropout(x, 0.5, training=True)"


def test_seeds_follow_from_the_secret_and_from_no_other_seed() -> None:
    one, other = secret(), secret()
    assert derived(one, "timed", 3) == derived(one, "timed", 3) != derived(other, "timed", 3)
    seeds = [derived(one, "timed", number) for number in range(500)]
    steps = [b - a for a, b in zip(seeds, seeds[1:], strict=False)]
    assert (
        len(set(seeds)) == 500
        and len(set(steps)) == len(steps)
        and max(seeds) < 1 << 31 <= 4 * max(seeds)
    )
    assert json.loads(json.dumps(one)) == one and max(one, other).bit_length() > SECRET_BITS // 2


def test_the_seed_of_a_call_is_not_the_seed_of_its_inputs() -> None:
    cases = cases_of(model(DROPS, "[torch.randn(64, 64)]"), stochastic=True)
    told = [cases.fresh(number) for number in range(4)]
    for case in told:
        for other in told:
            torch.manual_seed(case.seed)
            assert not torch.equal(torch.randn(64, 64), other.args[0])
    steps = {b.key.seed - a.key.seed for a, b in zip(told, told[1:], strict=False)}
    assert len(steps) == 3

"""Weights and buffers that a candidate holds: loaded and read back. The referee's side.

Weights are changed in every way of `weight_rewrites`, in a secret order: a candidate that packs or folds them must notice each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from dvk.harness.checking import compare
from dvk.harness.checking.cases import Cases
from dvk.harness.processes.weight_rewrites import HOW, all_ways
from dvk.harness.supervision.runner_client import CandidateFailed, Interfered, RunnerClient
from dvk.harness.timing.paired_timer import PairedTimer
from dvk.harness.transport.faults import claims
from dvk.records import Status

MOST_BYTES = 64 << 20
"""Most extra bytes of a result over the reference's before it is rejected unread."""


class Changed(Exception):
    """The candidate has written to its weights; the message names one."""


class Holding:
    """The tensors that one candidate's module holds."""

    def __init__(self, cases: Cases, timer: PairedTimer, runner: RunnerClient):
        self.cases, self.timer, self.runner = cases, timer, runner
        self._ways = all_ways()
        self._way = ""

    def load(self, number: int) -> bool:
        """Whether it takes the weights of a set; a candidate that takes none is judged under one set only, so must need none.

        Raises:
            CandidateFailed: it has no place for weights that the result depends on.
        """
        missing = self._given(number)
        if needed := self.cases.needed(missing):
            shapes = "x".join(map(str, self.cases.state(0)[needed[0]].shape)) or "scalar"
            error = (
                f"nothing in it stands for the weight `{needed[0]}` ({shapes}), which the result depends on: keep the reference's "
                "parameters under their names, and make copies, packed or folded, again whenever the parameters have changed"
            )
            raise CandidateFailed(Status.REJECTED, "check", error)
        return not self.cases.sets.names & set(missing)

    def restore(self) -> None:
        """Load the weights as constructed."""
        self._given(0)

    @property
    def told(self) -> str:
        """Return how its weights were last changed, for a message about a wrong answer; empty if by load_state_dict, or not at all."""
        return (
            f"; its weights had been changed {HOW[self._way]}, which it has to notice"
            if self._way in HOW
            else ""
        )

    def _given(self, number: int) -> list[str]:
        self._way = next(self._ways)
        return self.timer.load(self.runner, number, self._way)

    def check_kept(self, number: int) -> None:
        """Check that only the judge changes weights.

        Raises:
            Changed: one of them changed.
        """
        state = self.cases.state(number)
        for name, mine in self.named("parameters", set(state)).items():
            turned = (
                name in self.runner.aliases.values() and state[name].dim() > 1
            )  # its values are seen in outputs
            if not turned and not compare.same_bits(mine, state[name].detach()):
                raise Changed(f"it changes the weight `{name}`")

    def named(self, which: str, wanted: set[str]) -> dict[str, torch.Tensor]:
        """Return copies of the candidate's buffers or parameters."""
        answer = self.runner.ask("tensors", which=which)
        leaves, names = claims(answer)[0], answer.get("names")
        if not isinstance(names, list) or len(names) != len(leaves):
            raise Interfered("it wrote to the judge's line")
        called = [self.runner.aliases.get(str(name), str(name)) for name in names]
        held = [(name, leaf) for name, leaf in zip(called, leaves, strict=True) if name in wanted]
        values = self.runner.fetch(
            [leaf for _, leaf in held], most_bytes=2 * self.cases.weight_bytes + MOST_BYTES
        )
        return {
            name: value
            for (name, _), value in zip(held, values, strict=True)
            if isinstance(value, torch.Tensor)
        }


def leaves_of(
    wanted: Sequence[Any], outputs: Sequence[torch.Tensor], constants: Sequence[Any]
) -> list[Any]:
    """Return a timed call's leaves in order: tensors and constants; None if it returned fewer.

    Args:
        wanted: the reference's leaves.
        outputs: the tensors.
        constants: the constants.
    """
    given, beside = iter(outputs), iter(constants)
    return [next(given) if isinstance(one, torch.Tensor) else next(beside, None) for one in wanted]

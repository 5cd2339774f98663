"""Whether what a candidate has returned lasts: later calls on other values must leave it as it was. The referee's side.

Here for calls that are not timed; `retained_outputs` has those that are. The first outputs since inputs were lent are held in the
candidate's process, and read before and after each later call, all of them: what lies in an input or a weight is written
between calls, and stays out of it.

A reference that returns memory it keeps leaves a candidate free to do so, output by output.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from dvk.harness.checking.case import Case
from dvk.harness.checking.cases import Cases
from dvk.harness.checking.compare import same_bits
from dvk.harness.supervision.runner_client import CandidateFailed, Interfered, RunnerClient


class OutputOverwritten(Exception):
    """A call wrote where outputs of an earlier one lie; the message says what to do."""


def check_retained(cases: Cases, case: Case, peer: RunnerClient) -> None:
    """Between timed calls, before that of a case: a candidate must have left alone what it holds; of others nothing is asked.

    Raises:
        OutputOverwritten: it has not.
        Gone: its process has ended.
    """
    try:
        changed = peer.overwritten()
    except CandidateFailed as error:
        if not peer.trusted:
            raise _unreadable(error) from None
        return
    if changed and not peer.trusted:
        tensors = [number for number, e in enumerate(case.expected) if isinstance(e.same, torch.Tensor)]
        _refuse(cases, case, {tensors[n] for n in changed})


class AliasCheck:
    """What a candidate holds of a call that is not timed."""

    def __init__(self, cases: Cases, peer: RunnerClient):
        self._cases, self._peer = cases, peer
        self._held: list[dict[str, Any]] = []
        self._case: Case | None = None
        self._changed: set[int] = set()

    def forget(self) -> None:
        """Other inputs are lent: nothing is held."""
        self._held = []

    @contextmanager
    def watch_call(self) -> Iterator[None]:
        """The body is one call.

        Raises:
            OutputOverwritten: what is held cannot be read any more.
        """
        before = self._read()
        yield
        pairs = zip(before, self._read(), strict=True)
        self._changed = {n for n, (a, b) in enumerate(pairs) if isinstance(a, torch.Tensor) and not same_bits(a, b)}

    def accept(self, case: Case, leaves: list[dict[str, Any]]) -> None:
        """The watched call, on a case, was right and returned these leaves.

        Raises:
            OutputOverwritten: it wrote over what is held.
        """
        if self._case is not None and self._changed:
            _refuse(self._cases, self._case, self._changed)
        if not self._held:
            self._held, self._case = leaves, case

    def _read(self) -> list[Any]:
        if not self._held:
            return []
        try:
            return self._peer.fetch(self._held, earlier=True)
        except (CandidateFailed, Interfered) as error:
            raise _unreadable(error) from None


def _refuse(cases: Cases, case: Case, changed: set[int]) -> None:
    """Name the first leaf that was written over, unless the reference does that to all of them."""
    if left := sorted(changed - cases.reference.keeps(case.draw)):
        name = case.expected[left[0]].name
        told = name if name == "output" else f"output {name}"
        raise OutputOverwritten(f"{told} of an earlier call was overwritten by a later one: return new memory, not a buffer that is kept")


def _unreadable(error: Exception) -> OutputOverwritten:
    return OutputOverwritten(f"an output of an earlier call cannot be read after a later one: return new memory, e.g. a clone ({error})")

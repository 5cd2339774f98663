"""Output aliasing: whether later calls on other values overwrite a candidate's earlier outputs. The referee's side.

Covers untimed calls; `retained_outputs` covers timed ones. The first outputs since inputs were lent are held in the candidate's process,
and read completely before and after each later call. Outputs in an input's or weight's memory are excluded, since those are written between
calls.

If the reference returns memory that it reuses, a candidate may do so, output by output.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from dvk.harness.checking.case import Case
from dvk.harness.checking.cases import Cases
from dvk.harness.checking.compare import same_bits
from dvk.harness.supervision.digests import SMALL_BYTES, Digests
from dvk.harness.supervision.runner_client import CandidateFailed, Interfered, RunnerClient
from dvk.harness.transport.lent_tensors import copied


class OutputOverwritten(Exception):
    """A call overwrote outputs of an earlier one; the message says what to do."""


def check_retained(cases: Cases, case: Case, runner: RunnerClient) -> None:
    """Check between timed calls, before that of a case, that a candidate has not changed held outputs; other arms are not checked.

    Raises:
        OutputOverwritten: it has.
        Gone: its process has ended.
    """
    try:
        changed = runner.overwritten()
    except CandidateFailed as error:
        if not runner.trusted:
            raise _unreadable(error) from None
        return
    if changed and not runner.trusted:
        tensors = [
            number for number, e in enumerate(case.expected) if isinstance(e.same, torch.Tensor)
        ]
        _refuse(cases, case, {tensors[n] for n in changed})


class AliasCheck:
    """Outputs that a candidate holds of an untimed call."""

    def __init__(self, cases: Cases, runner: RunnerClient):
        self._cases, self._runner = cases, runner
        self._held: list[dict[str, Any]] = []
        self._case: Case | None = None
        self._changed: set[int] = set()
        self._digests = Digests()

    def forget(self) -> None:
        """Release all: other inputs are lent."""
        self._held = []

    @contextmanager
    def watch_call(self) -> Iterator[None]:
        """Check the held outputs around the body, which is one call.

        Raises:
            OutputOverwritten: a held output cannot be read any more.
        """
        before = self._read()
        yield
        pairs = zip(before, self._read(), strict=True)
        self._changed = {
            n
            for n, (a, b) in enumerate(pairs)
            if (isinstance(a, torch.Tensor) and not same_bits(a, b))
            or (isinstance(a, int) and a != b)
        }

    def accept(self, case: Case, leaves: list[dict[str, Any]]) -> None:
        """Hold the leaves of the watched call, which was right on its case.

        Raises:
            OutputOverwritten: it overwrote a held output.
        """
        if self._case is not None and self._changed:
            _refuse(self._cases, self._case, self._changed)
        if not self._held:
            self._held, self._case = leaves, case

    def _read(self) -> list[Any]:
        """Return what is held: copies of small tensors, digests of large ones."""
        if not self._held:
            return []
        try:
            read = self._runner.fetch(self._held, earlier=True, briefly=True)
        except (CandidateFailed, Interfered) as error:
            raise _unreadable(error) from None
        return [
            None
            if not isinstance(one, torch.Tensor)
            else self._digests.of(one)
            if one.nbytes > SMALL_BYTES
            else copied(one)
            if one.is_cuda  # on a CPU it is a copy already
            else one
            for one in read
        ]


def _refuse(cases: Cases, case: Case, changed: set[int]) -> None:
    """Name the first overwritten leaf, unless the reference overwrites all of them."""
    if left := sorted(changed - cases.reference.retained_leaves(case.draw)):
        name = case.expected[left[0]].name
        told = name if name == "output" else f"output {name}"
        raise OutputOverwritten(
            f"{told} of an earlier call was overwritten by a later one: return new memory, not a buffer that is kept"
        )


def _unreadable(error: Exception) -> OutputOverwritten:
    return OutputOverwritten(
        f"an output of an earlier call cannot be read after a later one: return new memory, e.g. a clone ({error})"
    )

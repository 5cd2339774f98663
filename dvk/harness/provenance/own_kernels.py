"""Whether a candidate's own kernels do the computing, as --require-kernels demands. The referee's side.

The test disables everything else that could compute, and checks that the answer is still right. PyTorch's operators are disabled first
inside the process (`operators`), at every compared shape, since that reports which one was called; then from outside (`disable_ops`), where
Python cannot undo it, at the native shape and in every timed call, so that a candidate gains nothing by computing only when it is checked.
Libraries of GPU kernels (`libraries`) are disabled from outside, at the native shape and from then on, and no warm call loads another. On a
CPU, where any library may contain a BLAS, the program counters of its threads decide (`pc_sampling`) in both.

A launch plan has no host code: it lists its operators by name.

A CUDA graph runs kernels without a call into their library, so replays are trapped in the test, too. A candidate that ends there, as one
that captures its own kernels does, gets a second test in a fresh process: captures are trapped while it is loaded, and after that it has
neither operators nor libraries. What it captures then is its own, and that process is timed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

from dvk.harness.checking.case import Case
from dvk.harness.checking.case_keys import InputSetKey
from dvk.harness.checking.cases import Cases
from dvk.harness.provenance.disable_ops import Span, What, ops_disabled
from dvk.harness.provenance.libraries import disable_libraries
from dvk.harness.provenance.operators import ALLOWED
from dvk.harness.supervision.pc_sampling import SampledOwners
from dvk.harness.supervision.runner_client import CandidateFailed, Interfered, RunnerClient
from dvk.harness.timing.paired_timer import PairedTimer
from dvk.harness.timing.thread_sampler import ENOUGH_SEEN
from dvk.harness.transport.link import Gone
from dvk.records import Status

MOSTLY = 0.5
"""Least share of samples in its own code, if it can be measured."""


class KernelProvenance:
    """The test of one candidate.

    Args:
        bench: lends inputs and weights.
        peer: its process, or the player of its plan.
        home: its private folder.
        bare: makes one call of a case without operators and checks it; raises `CandidateFailed`.
        sampled: whether its threads' program counters are sampled.

    Attributes:
        coverage: share of own code among the samples; None before, and with too few samples.
        ended: whether its process ended without PyTorch's operators, libraries and graphs.
    """

    def __init__(
        self,
        timer: PairedTimer,
        runner: RunnerClient,
        home: str,
        bare: Callable[[Case], None],
        sampled: bool,
    ):
        self._timer, self._runner, self._home, self._bare = timer, runner, home, bare
        self._sampled = sampled
        self._taken: frozenset[Span] = frozenset()
        self._seen: SampledOwners | None = None
        """Samples in calls that were not timed."""
        self.coverage: float | None = None
        self.ended = False

    def prove_plan(self, operators: Iterable[str]) -> None:
        """Check a launch plan that trusted code replays by its content.

        Args:
            operators: PyTorch's operators that a call runs, as `aten.NAME.OVERLOAD`.

        Raises:
            CandidateFailed: one of them computes.
        """
        computing = [name for name in operators if name.split(".")[1] not in ALLOWED]
        if computing:
            raise _refused(CandidateFailed(Status.REJECTED, None, f"{computing[0]} is called"))

    def prove(self, checked: Mapping[str, InputSetKey], cases: Cases, follows: bool) -> None:
        """Check that it still answers rightly without other libraries, at every compared shape.

        Args:
            checked: a compared input set of each variant.
            cases: makes them again, and the native shape, which comes last.
            follows: whether it takes the reference's weights.

        Raises:
            CandidateFailed: it does not.
            Interfered: it restores disabled code.
        """
        native = cases.fresh(0)
        others = (cases.get(key) for at, key in checked.items() if at != native.key.variant)
        try:
            for case in (*filter(None, others), native):
                if follows:
                    self._timer.load(self._runner, case.key.weights)
                self._timer.lend(self._runner, case)
                self._bare(case)
        except (CandidateFailed, Gone) as error:
            raise _refused(error) from None
        self._withdraw()
        with self._without("operators", "replays", "loading"):
            self._bare(native)
        if self._sampled:  # it may call other libraries; its threads' positions are visible
            self._seen = self._timer.sample_threads(self._runner, self._home)
            self._at_work(self._seen, "check")

    @contextmanager
    def while_loading(self) -> Iterator[None]:
        """Trap captures in the body, which builds the candidate and gives it its weights."""
        with self._without("captures"):
            yield

    def first_call(self, native: Case) -> None:
        """Disable operators and libraries, but not graphs, in a process that was loaded that way.

        Raises:
            Failed, Interfered: see `prove`.
        """
        self._withdraw()
        with self._without("operators"):
            self._bare(native)

    @contextmanager
    def while_timing(self) -> Iterator[SampledOwners | None]:
        """Check own computation during timed calls in the body; yields a sampler of its threads.

        Raises:
            Failed, Interfered: see `prove`.
        """
        seen = SampledOwners(self._runner.pid, self._home) if self._sampled else None
        self._withdraw()  # libraries loaded since
        with self._without("operators", "loading", stage="time"):
            yield seen
        if seen is not None:
            if seen.count < ENOUGH_SEEN // 2 and self._seen is not None:
                seen.add(self._seen)
            self._at_work(seen, "time")

    def _withdraw(self) -> None:
        self._taken = disable_libraries(self._runner.pid, self._home, self._taken)

    @contextmanager
    def _without(self, *what: What, stage: str = "check") -> Iterator[None]:
        try:
            with ops_disabled(self._runner.pid, *what) as traps:
                yield
        except Gone as error:
            self.ended = stage == "check"
            raise _refused(error, stage) from None
        except CandidateFailed as error:
            raise (_refused(error) if stage == "check" else error) from None
        if traps.lifted:
            raise Interfered("it put back the operators that had been taken out of its process")

    def _at_work(self, seen: SampledOwners, stage: str) -> None:
        if seen.count < ENOUGH_SEEN // 2:
            return
        self.coverage = min(seen.share, self.coverage if self.coverage is not None else 1.0)
        if self.coverage < MOSTLY:
            share = f"{1 - self.coverage:.0%} of its running threads were seen in libraries' code"
            raise CandidateFailed(
                Status.REJECTED, stage, f"its own kernels do not do the computing: {share}"
            )


def _refused(error: CandidateFailed | Gone, stage: str = "check") -> CandidateFailed:
    what = (
        error.error
        if isinstance(error, CandidateFailed)
        else "its process ended where operators, libraries or graphs had been"
    )
    return CandidateFailed(
        Status.REJECTED,
        stage,
        f"without PyTorch's operators it does not compute the result: {what}",
    )


__all__ = ["KernelProvenance"]

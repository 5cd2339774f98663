"""Whether a candidate's own kernels do the computing, as --require-kernels asks. The referee's side.

Decided by taking away what else could do it, and looking whether the answer still comes. PyTorch's operators: inside the process
(`operators`), at every shape that was compared, since that tells which one was called; then from outside (`disable_ops`), where no
Python of its own lifts it, at the native shape and in every timed call, so that who computes by himself only when he is looked at
gains nothing. Libraries of GPU kernels (`libraries`): from outside, at the native shape and from then on, and no call that is warm
loads another. On a CPU, where any library may hold a BLAS: where its threads stand (`pc_sampling`) in both.

A launch plan has no host code: its operators are in it by name.

A CUDA graph runs kernels without a call into whose library they are, so replays are trapped in the proof, too. Who ends there, as
one who captures kernels of his own does, is heard a second time in a fresh process: nothing may be captured while it is loaded,
and after that it never has operators or libraries. What it captures then is its own, and that process is timed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from dvk.harness.checking.case import Case
from dvk.harness.provenance.disable_ops import Span, What, ops_disabled
from dvk.harness.provenance.libraries import disable_libraries
from dvk.harness.provenance.operators import ALLOWED
from dvk.harness.supervision.pc_sampling import SampledOwners
from dvk.harness.supervision.runner_client import CandidateFailed, Interfered, RunnerClient
from dvk.harness.timing.paired_timer import ENOUGH_SEEN, PairedTimer
from dvk.harness.transport.link import Gone
from dvk.records import Status

MOSTLY = 0.5
"""Share of the looks that must meet its own code, where it can be told."""


class KernelProvenance:
    """The proof for one candidate.

    Args:
        bench: lends inputs and weights.
        peer: its process, or the player of its plan.
        home: its private folder.
        bare: makes one call of a case without operators and checks it; raises `CandidateFailed`.
        sampled: look where its threads stand.

    Attributes:
        coverage: share of own code where its threads were seen; None before, and where they were not seen often enough.
        ended: its process ended where PyTorch's operators, libraries and graphs had been.
    """

    def __init__(self, bench: PairedTimer, peer: RunnerClient, home: str, bare: Callable[[Case], None], sampled: bool):
        self._bench, self._peer, self._home, self._bare = bench, peer, home, bare
        self._sampled = sampled
        self._taken: frozenset[Span] = frozenset()
        self._seen: SampledOwners | None = None
        """Where it was in calls that were not timed."""
        self.coverage: float | None = None
        self.ended = False

    def prove_plan(self, operators: Iterable[str]) -> None:
        """A launch plan that trusted code replays is known by what is in it.

        Args:
            operators: PyTorch's that a call runs, as `aten.NAME.OVERLOAD`.

        Raises:
            CandidateFailed: one of them computes.
        """
        computing = [name for name in operators if name.split(".")[1] not in ALLOWED]
        if computing:
            raise _refused(CandidateFailed(Status.REJECTED, None, f"{computing[0]} is called"))

    def prove(self, checked: Sequence[Case], native: Case, follows: bool) -> None:
        """Without what is not its own it must still answer, and rightly, at every shape that was compared.

        Args:
            checked: what it was compared on.
            native: the native shape, last.
            follows: it takes the reference's weights.

        Raises:
            CandidateFailed: it does not.
            Interfered: it puts back what was taken.
        """
        usual = [case for case in checked if not (case.backward or case.key.told or case.key.other_mode)]
        shapes = {case.key.variant: case for case in usual if case.key.variant != native.key.variant}
        try:
            for case in (*shapes.values(), native):
                if follows:
                    self._bench.load(self._peer, case.key.weights)
                self._bench.lend(self._peer, case)
                self._bare(case)
        except (CandidateFailed, Gone) as error:
            raise _refused(error) from None
        self._withdraw()
        with self._without("operators", "replays", "loading"):
            self._bare(native)
        if self._sampled:  # other libraries it may call; where its threads stand it cannot hide
            self._seen = self._bench.sample_threads(self._peer, self._home)
            self._at_work(self._seen, "check")

    @contextmanager
    def while_loading(self) -> Iterator[None]:
        """The candidate is built and given its weights in the body, and captures nothing."""
        with self._without("captures"):
            yield

    def first_call(self, native: Case) -> None:
        """Of a process that was loaded so: without operators and libraries, but with graphs.

        Raises:
            Failed, Interfered: see `prove`.
        """
        self._withdraw()
        with self._without("operators"):
            self._bare(native)

    @contextmanager
    def while_timing(self) -> Iterator[SampledOwners | None]:
        """The candidate is called in the body, timed, and there, too, computes by itself; gives who looks where it stands.

        Raises:
            Failed, Interfered: see `prove`.
        """
        seen = SampledOwners(self._peer.pid, self._home) if self._sampled else None
        self._withdraw()  # what it has loaded since
        with self._without("operators", "loading", stage="time"):
            yield seen
        if seen is not None:
            if seen.count < ENOUGH_SEEN // 2 and self._seen is not None:
                seen.add(self._seen)
            self._at_work(seen, "time")

    def _withdraw(self) -> None:
        self._taken = disable_libraries(self._peer.pid, self._home, self._taken)

    @contextmanager
    def _without(self, *what: What, stage: str = "check") -> Iterator[None]:
        try:
            with ops_disabled(self._peer.pid, *what) as traps:
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
            raise CandidateFailed(Status.REJECTED, stage, f"its own kernels do not do the computing: {share}")


def _refused(error: CandidateFailed | Gone, stage: str = "check") -> CandidateFailed:
    what = error.error if isinstance(error, CandidateFailed) else "its process ended where operators, libraries or graphs had been"
    return CandidateFailed(Status.REJECTED, stage, f"without PyTorch's operators it does not compute the result: {what}")


__all__ = ["KernelProvenance"]

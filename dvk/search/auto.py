"""The portfolio: the composer and the model propose side by side, under one budget.

The side that has used less of the clock goes next. Nothing is known beforehand of which is better on a task, and with
equal shares the result is at least what the better one alone finds in half the time; any other split gives up more on some
task. A side's clock is the time to judge its candidates and the model's time to write: while it writes on this
machine nothing is timed, since the two would disturb each other. The composer proposes candidate by candidate, and a model in
this process is paused between two tokens when its turn is over, however long its answers are. (A server on this machine
cannot be paused; the search waits for it until half of the remaining time is over.) A remote model costs no time here,
and the composer works meanwhile. A side that has nothing to propose, or waits, leaves its share to the
other. The composer starts: it has something right within seconds.

The two do not see each other's results, so each is deterministic given its own verdicts and answers, in any order
of turns. Where neither found anything faster, the last candidate is the model as it is (`as_it_is`).
Without a model this is the composer alone, without an operator graph the model alone.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from dvk.backbone import Backbone
from dvk.backbone.pause_gate import OutOfTime, PauseGate
from dvk.errors import ModelError
from dvk.records import Candidate, Verdict
from dvk.search import Proposals, SearchProblem, as_it_is, composer, refine

LEAVE_S = 5.0
"""A paused model ends at its next step, and keeps its text so far."""
TURN_S = 1.0
"""Shortest turn of a model that is held: some ten of its steps, long compared with the cost of holding it."""


def search(problem: SearchProblem) -> Proposals:
    """See the module."""
    backbone = problem.backbone
    if backbone is None:
        yield from composer.search(problem)
        return
    if problem.captured is None:
        yield from _taking_turns(problem, backbone)
        return
    # The limit is of both sides together, so that neither can keep the last candidate for it.
    unchanged = lambda: composer.Planner(problem).unchanged()  # noqa: E731 - the composer's side has made one by then
    yield from as_it_is.last(_taking_turns(problem, backbone), unchanged, problem.limit)


def _taking_turns(problem: SearchProblem, backbone: Backbone) -> Proposals:
    sides = [
        *([Side(composer.search(problem))] if problem.captured is not None else []),
        Side(refine.search(problem), backbone, problem.warn),
    ]
    try:
        while going := [side for side in sides if not side.ended]:
            ready = sorted(
                (side for side in going if not side.thinking), key=lambda one: one.spent_s
            )
            held = next(
                (side for side in going if side not in ready and side.brake is not None), None
            )
            if held is not None and (not ready or held.spent_s <= ready[0].spent_s):
                held.write_on(ready[0].spent_s - held.spent_s if ready else 0.0)
            elif not ready:
                going[0].wait()
            elif (candidate := ready[0].following()) is None:
                ready[0].think()
            else:
                (verdict,) = yield [candidate]
                if verdict is None:
                    return
                ready[0].on_verdict(verdict)
    finally:
        for side in sides:
            side.leave()


class Side:
    """One proposer: its batches handed out a candidate at a time.

    Args:
        proposals: the strategy.
        backbone: the model that it asks; None for a strategy that asks none.
        warn: takes the error that made the model unusable; the side has then ended, and the other continues.
    """

    def __init__(
        self,
        proposals: Proposals,
        backbone: Backbone | None = None,
        warn: Callable[[ModelError], None] = lambda error: None,
    ):
        self.proposals, self.backbone, self.warn = proposals, backbone, warn
        self.brake: PauseGate | None = getattr(backbone, "brake", None)
        self.elsewhere = bool(getattr(backbone, "elsewhere", False))
        self.ended = False
        self._judged_s = 0.0
        self._charged: set[str] = set()
        """Candidates that were judged: their verdicts are cached, and take no time."""
        self._written_s, self._before_s = 0.0, 0.0
        """Times of the turns since it began to think, and the model's time before."""
        self._batch: list[Candidate] | None = None
        self._verdicts: list[Verdict | None] = []
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    @property
    def spent_s(self) -> float:
        """Seconds of this machine's clock that it has used."""
        if self.backbone is None or self.elsewhere:
            return self._judged_s
        told = self.backbone.usage.seconds
        # The answer in progress is reported when it is finished.
        return self._judged_s + told + max(0.0, self._written_s - (told - self._before_s))

    @property
    def thinking(self) -> bool:
        """A separate thread is at work; when it has ended, its exception is raised here."""
        if self._thread is not None and not self._thread.is_alive():
            self.wait()
        return self._thread is not None

    def following(self) -> Candidate | None:
        """The next candidate of the current batch; None when it has to think first."""
        at = len(self._verdicts)
        return self._batch[at] if self._batch is not None and at < len(self._batch) else None

    def on_verdict(self, verdict: Verdict) -> None:
        """The result of `following()`."""
        candidate = self.following()
        assert candidate is not None
        self._verdicts.append(verdict)
        if candidate.id in self._charged:
            return
        self._charged.add(candidate.id)
        self._judged_s += verdict.seconds - verdict.stages_s.get(
            "setup", 0.0
        )  # processes are started for both

    def think(self) -> None:
        """Find the next batch, or the end; a model that can be paused or is remote only starts to."""
        if (
            self.brake is None
            and not self.elsewhere
            and not getattr(self.backbone, "hosted", False)
        ):
            self._advance()
            return
        self._written_s, self._before_s = (
            0.0,
            self.backbone.usage.seconds if self.backbone is not None else 0.0,
        )
        self._thread = threading.Thread(target=self._caught, name="proposing", daemon=True)
        self._thread.start()
        if self.brake is not None:
            self.write_on(0.0)
        elif not self.elsewhere:
            self._thread.join(self._patience_s())
            if not self._thread.is_alive():
                self.wait()

    def _patience_s(self) -> float | None:
        """Timeout for a server on this machine; then the composer starts alongside it, so a hanging server cannot take all the time."""
        left = getattr(self.backbone, "left", lambda: math.inf)()
        return max(TURN_S, left / 2) if left < math.inf else None

    def write_on(self, seconds: float) -> None:
        """Let it write for about that long, then pause it."""
        assert self._thread is not None and self.brake is not None
        began = time.perf_counter()
        self.brake.release()
        self._thread.join(max(TURN_S, seconds))
        self.brake.hold(self._thread)
        self._written_s += time.perf_counter() - began

    def wait(self) -> None:
        """Wait until its thread has ended."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._error is not None:
            error, self._error, self.ended = self._error, None, True
            raise error

    def leave(self) -> None:
        """At the time limit: send its outstanding verdicts, and end it."""
        if self._thread is not None and self._thread.is_alive():
            if self.brake is None:  # it ends with or without its answer
                return
            assert self.backbone is not None
            getattr(self.backbone, "close", lambda: None)()
            self._thread.join(LEAVE_S)
            return
        if not self.ended and self._batch is not None and self.following() is not None:
            missing = len(self._batch) - len(self._verdicts)
            with suppress(StopIteration, OutOfTime):
                self.proposals.send([*self._verdicts, *[None] * missing])
        self.proposals.close()

    def _caught(self) -> None:
        try:
            self._advance()
        except BaseException as error:  # noqa: BLE001 - raised again where the other side's thread waits
            self._error = error

    def _advance(self) -> None:
        try:
            batch = (
                next(self.proposals) if self._batch is None else self.proposals.send(self._verdicts)
            )
            self._batch, self._verdicts = batch, []
        except StopIteration:
            self.ended = True
        except ModelError as error:
            self.ended = True
            self.warn(error)

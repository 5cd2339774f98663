"""What one line of PyTorch gives, as candidates beside those of a strategy: channels_last, torch.compile, replay as a CUDA graph.

The strategy's first batch goes first: it shows whether anything can be judged. Then come the lines that cost nothing to prepare. Those of
torch.compile are compiled once, in another process, where there are cores for it and the GPU does the work; each is judged once
it is compiled. On a CPU compiling would disturb what is timed, so they take their turn in the second half of the budget.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from dvk import machine
from dvk.backbone.pause_gate import OutOfTime
from dvk.composer.dropin.lines import Line, candidate
from dvk.harness.session.compiling import Precompilation
from dvk.records import Candidate, Task, Verdict
from dvk.search import Proposals, SearchProblem, Strategy

COMPILE_S = 30.0
"""Least time for a line of torch.compile that is compiled while it is judged."""
CORES = 4
"""Cores from which on a compilation in parallel does not disturb it."""
POLL_S = 0.2
TUNED = "max-autotune-no-cudagraphs"
WAITS_FOR: dict[str | None, str | None] = {
    None: None,
    "reduce-overhead": None,
    TUNED: TUNED,
    "max-autotune": TUNED,
}
"""The mode whose compiled code a mode of torch.compile reuses."""


def beside(strategy: Strategy) -> Strategy:
    """The strategy with PyTorch's own lines among its candidates."""

    def search(problem: SearchProblem) -> Proposals:
        yield from Lines(problem).search(strategy(problem))

    return search


def lines_of(task: Task, has_convolutions: bool) -> Iterator[tuple[Line, str | None]]:
    """The lines for a task, cheap ones first, each with the reason why it is left out, or None. In training: those of torch.compile."""
    cuda = task.device == "cuda"
    draws = "it draws random numbers, and {} draws others" if task.stochastic else None
    layouts = [False, True] if has_convolutions else [False]
    if (
        task.train
    ):  # another layout's copies of weights have no gradients, and a graph holds no backward
        for mode in (None, TUNED) if cuda else (None,):
            yield Line("compile", mode), draws.format("torch.compile") if draws else None
        return
    for run in ("eager", "graph") if cuda else ("eager",):
        for last in layouts:
            if run != "eager" or last:
                line = Line(run, channels_last=last)
                yield line, draws.format("channels_last") if draws and last else None
    for mode in WAITS_FOR if cuda else (None, "max-autotune"):
        line = Line("compile", mode)
        yield line, draws.format("torch.compile") if draws else None


class Lines:
    """PyTorch's lines for one search."""

    def __init__(self, problem: SearchProblem):
        self.problem, task = problem, problem.task
        captured = problem.captured
        operators = [n.op for n in captured.graph.nodes] if captured else [task.source.lower()]
        has_convolutions = any("conv" in operator for operator in operators) and any(
            len(t.shape) in (4, 5) for t in task.inputs
        )
        self.cheap: list[Candidate] = []
        self.compiled: list[tuple[Line, Candidate]] = []
        for line, why in lines_of(task, has_convolutions):
            made = candidate(task, line, "cpp")
            if why is not None:
                problem.leave_out(made.title, why)
            elif line.run == "compile":
                self.compiled.append((line, made))
            else:
                self.cheap.append(made)
        remote = problem.config.remote.judge or problem.config.remote.engine
        self.in_background = (
            task.device == "cuda" and machine.num_cores() >= CORES and remote is None
        )
        self.current: Precompilation | None = None
        self.ready: set[str | None] = set()
        """Modes whose code is in the cache."""

    def search(self, own: Proposals) -> Proposals:
        """Both in turn, until the time is over.

        Raises:
            Exception: the strategy's own, once the lines are judged.
        """
        failure: Exception | None = None
        batch: list[Candidate] | None = None
        try:
            batch, failure = _following(own, None)
            while True:
                if batch is not None:
                    verdicts = yield batch
                    batch, failure = _following(own, verdicts)
                    if None in verdicts:
                        return
                while (line := self._due(alone=batch is None)) is not None:
                    if None in (yield [line]):
                        self.problem.leave_out(line.title, "the budget ended before its verdict")
                        return
                if batch is None:
                    break
        finally:
            own.close()
            self._close()
        if failure is not None:
            raise failure

    # ------------------------------------------------------------ what is due

    def _due(self, alone: bool) -> Candidate | None:
        """The next line to judge, if it is time for one.

        Args:
            alone: the strategy has ended.
        """
        if self.cheap:
            return self.cheap.pop(0)
        if not self.compiled:
            return None
        if self.in_background:
            return self._compiled_beside(alone)
        left, budget = self.problem.left(), self.problem.config.optimize.budget_s
        if left < COMPILE_S or not (alone or left <= budget / 2):
            return None
        return self.compiled.pop(0)[1]

    def _compiled_beside(self, alone: bool) -> Candidate | None:
        """A line whose code is in the cache by now; starts to compile the next one."""
        while self.compiled:
            line, made = next(
                (one for one in self.compiled if WAITS_FOR[one[0].mode] in self.ready),
                self.compiled[0],
            )
            if WAITS_FOR[line.mode] in self.ready:
                self.compiled.remove((line, made))
                return made
            if self.current is None:
                self.current = Precompilation(self.problem.task, made, self.problem.config.limits)
            while not (done := self.current.is_done()) and alone and self.problem.left() > 0:
                time.sleep(POLL_S)
            if not done:
                return None
            failed, self.current = self.current.failed, None
            if failed is None:
                self.ready.add(WAITS_FOR[line.mode])
            else:
                self._leave_out(WAITS_FOR[line.mode], failed)
        return None

    def _leave_out(self, waits_for: str | None, why: str) -> None:
        for line, made in self.compiled:
            if WAITS_FOR[line.mode] == waits_for:
                self.problem.leave_out(made.title, why)
        self.compiled = [one for one in self.compiled if WAITS_FOR[one[0].mode] != waits_for]

    def _close(self) -> None:
        """End what still compiles, and say what was not judged."""
        if self.current is not None:
            self.current.close()
            self.current = None
        for made in [*self.cheap, *(made for _, made in self.compiled)]:
            self.problem.leave_out(made.title, "the budget ended before its turn")


def _following(
    own: Proposals, verdicts: list[Verdict | None] | None
) -> tuple[list[Candidate] | None, Exception | None]:
    """The strategy's next batch, or None and the error that ended it."""
    try:
        return (next(own) if verdicts is None else own.send(verdicts)), None
    except StopIteration:
        return None, None
    except OutOfTime:
        raise
    except Exception as error:  # noqa: BLE001 - raised again at the end
        return None, error

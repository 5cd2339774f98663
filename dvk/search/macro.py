"""Macro moves: a language model names what to change and how, the composer carries it out.

After MTMC ("macro thinking, micro coding", QiMeng-Kernel, arXiv 2511.20100), where a second model writes each step. A move is a kind
and a region (see `moves`): a recipe on or off, another algorithm for a kernel. The planner sees the facts about every region,
the legal moves there, and the results of its last moves; it answers with one move or a few. Each is tried on the plan that is the best
at its turn, an algorithm in the few schedules that the composer ranks highest, and stays if it made the program faster. Unparsable
or illegal moves get a one-line answer, and the answer counts as malformed.

If the best plan has no legal move left, the search goes back to the plan before it. It ends when none has one, after a few
answers in a row that led to nothing new, or at the time limit.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

from dvk.agents import planning
from dvk.agents.feedback import short
from dvk.agents.planning import Move
from dvk.agents.reading import MalformedAnswer
from dvk.composer import Plan
from dvk.records import Candidate, Status, Verdict, show_ratio
from dvk.search import Proposals, SearchProblem
from dvk.search.composer import Planner, comparable, is_faster, speedup_of
from dvk.search.generations import Patience
from dvk.search.moves import PlanAttempt, PlanPosition, ProposedPlans
from dvk.search.writer import ProgramWriter, turn_record

MOVES = 3
"""Most moves per answer: later moves would not know the results of the first."""
SCHEDULES = 3
"""Schedules measured per move with a named algorithm: the planner chooses the algorithm, not the blocks."""
REGIONS = 12
"""Kernels shown: those with moves left that touch most bytes; two pages for a network."""
HISTORY = 12
"""Most recent moves shown with their results: half a page."""


def search(problem: SearchProblem) -> Proposals:
    """See the module.

    Raises:
        UsageError: there is no language model, or one that reads no prose.
        CannotCompose: there is no operator graph.
    """
    writer = ProgramWriter(problem, "macro")
    writer.prose("has a planner name moves by calls of a tool")
    planner = Planner(problem)
    plan, title = planner.structures()[0]
    opening = planner.candidate(plan, title)
    (verdict,) = yield [opening]
    if verdict is None or verdict.status is Status.BROKEN_TASK:
        return
    line = MacroLine(writer, planner, opening, Plan.of(opening, plan.recipes), verdict)
    patience = Patience()
    while line.goes_on():
        fresh = False
        for move in line.named():
            tried = yield from line.try_move(move)
            if tried is None:
                return
            fresh = fresh or tried
        if patience.spent(fresh):
            return


class MacroLine:
    """The current plan, its ancestors, and the moves made.

    Args:
        writer: asks the planner, and keeps its answers.
        planner: the composer's.
        opening: the program to start from.
        plan: its plan.
        verdict: its verdict.
    """

    def __init__(
        self,
        writer: ProgramWriter,
        planner: Planner,
        opening: Candidate,
        plan: Plan,
        verdict: Verdict,
    ):
        self.writer, self.planner = writer, planner
        self.proposed = ProposedPlans()
        self.told: list[str] = []
        """A line a move or refusal, oldest first."""
        self.proposed.add(plan, opening)
        self.position = PlanPosition(planner, plan, self.proposed)
        self.verdict = self.best = verdict
        """Times of the current plan, and of the fastest."""
        self.earlier: list[tuple[PlanPosition, Verdict]] = []
        """Earlier best plans with their verdicts, slowest first."""

    def goes_on(self) -> bool:
        """Whether there is a legal move, from the current plan or else from an earlier one."""
        while not self.position.legal and self.earlier:
            self.position, self.verdict = self.earlier.pop()
        return bool(self.position.legal)

    def named(self) -> list[Move]:
        """The moves that the planner names now; errors in its answer go into the next prompt."""
        writer, most = self.writer, MOVES
        offered = writer.problem.skills[: writer.agents.num_candidates]
        last = self.told[-HISTORY:]
        if hidden := len(self.told) - len(last):
            last.insert(0, f"({hidden} earlier ones are left out)")
        regions = self.position.regions(REGIONS)
        best = self.best.timing if self.best is not self.verdict else None
        asked = planning.build_prompt(
            writer.subject, regions, self.verdict, best, last, offered, most
        )
        (answer,) = writer.answers("selection", [asked])
        turn = turn_record(asked, answer)
        moves: list[Move] = []
        refused: list[str] = []
        if turn.malformed is None:
            try:
                answered = planning.read(answer, most)
                refused += answered.refused
                for move in answered.moves:
                    if why := self.position.refusal(move):
                        refused.append(f"{move}: {why}")
                    else:
                        moves.append(move)
            except MalformedAnswer as error:
                refused.append(f"nothing could be read from your answer: {error}")
            if refused:
                turn = turn.model_copy(update={"malformed": "; ".join(refused)})
                self.told += [f"refused: {line}" for line in refused]
        writer.keep("selection", turn)
        return moves

    def try_move(self, move: Move) -> Generator[list[Candidate], list[Verdict | None], bool | None]:
        """Try a move; returns whether it led to something new, None when the search is over."""
        if why := self.position.refusal(
            move
        ):  # an earlier move of the same answer changed the plan
            self.told.append(f"refused: {move}: {why}")
            return False
        attempts = self.position.attempts(move, SCHEDULES)
        if not attempts:
            self.told.append(f"refused: {move}: it leads to programs that were measured before")
            return False
        verdicts = yield [attempt.candidate for attempt in attempts]
        judged = [verdict for verdict in verdicts if verdict is not None]
        if len(judged) < len(attempts) or any(
            verdict.status is Status.BROKEN_TASK for verdict in judged
        ):
            return None
        fastest = max(range(len(judged)), key=lambda number: speedup_of(judged[number]))
        better = is_faster(judged[fastest], self.best)
        self.told.append(
            f"{move}: {self._found(attempts, judged, fastest)}; {'kept' if better else 'undone'}"
        )
        if better:
            self.earlier.append((self.position, self.verdict))
            self.verdict = self.best = judged[fastest]
            self.position = PlanPosition(self.planner, attempts[fastest].plan, self.proposed)
        return True

    def _found(
        self, attempts: Sequence[PlanAttempt], judged: Sequence[Verdict], fastest: int
    ) -> str:
        """A move's measurement, against the best before it."""
        verdict, changed = judged[fastest], attempts[fastest].changed
        if verdict.timing is None:
            return "right, and not timed" if verdict.status is Status.OK else short(verdict)
        which = (
            f" ({changed}{f', the best of {len(judged)}' if len(judged) > 1 else ''})"
            if changed
            else ""
        )
        ratio = (
            f", {show_ratio(speedup_of(verdict) / speedup_of(self.best))} of the best before"
            if speedup_of(self.best)
            else ""
        )
        if not comparable(verdict, self.best):
            ratio = ", timed in another way than the best and not comparable"
        return f"{verdict.timing.speedup}{ratio}{which}"

"""Multi-turn refinement: the three agents' conversations, round after round, each attempt answered by the judge's feedback.

A round is the same as a task's play in training: selections of skills and the null scheme, some conversations each, of some
turns (settings in `rollout`). Rounds differ by their seed. The search ends when a round brings nothing that was
not proposed before, as the second one does with greedy sampling, or at the time limit. Candidates that the user gave are shown
as a first attempt: conversations take them in turn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator

from dvk.agents import TaskContext, dialects, repair
from dvk.agents.episode_runner import EpisodeRunner, order
from dvk.agents.rollout import Unparsed, generate_turns, repair_unparsed
from dvk.backbone import Backbone
from dvk.config import Config, RolloutConfig
from dvk.errors import UsageError
from dvk.records import Candidate, Verdict
from dvk.search import Proposals, SearchProblem
from dvk.search.archive import of_seeds


def search(problem: SearchProblem) -> Proposals:
    """See the module."""
    yield from rounds(problem, problem.config.rollout.turns)


def rounds(problem: SearchProblem, num_turns: int) -> Proposals:
    """Rounds of conversations of `num_turns` turns.

    Raises:
        UsageError: there is no language model.
    """
    backbone = problem.backbone
    if backbone is None:
        raise UsageError(
            "this strategy asks a language model",
            "add --backbone, e.g. --backbone nano, or choose --strategy composer",
        )
    dialect = dialects.get(backbone.dialect)
    # A lesson is asked for when episodes are kept for learning, not in a search against the clock.
    rollout = problem.config.rollout.model_copy(update={"turns": num_turns, "summaries": 0})
    rollout = within_caps(rollout, problem.config)
    config = problem.config.model_copy(update={"rollout": rollout})
    seeds = [program.turn for program in of_seeds(problem.seeds, dialect)]
    offered = problem.skills[: config.agents.num_candidates]
    seen: set[str] = set()
    number = 0
    fresh: bool | None = True
    while fresh:
        known = problem.bounds()
        subject = TaskContext(problem.task, problem.captured, problem.backend, bounds=known)
        runner = EpisodeRunner(
            number,
            subject,
            offered,
            dialect,
            config,
            proposer=backbone.name,
            step=number,
            seeds=seeds,
        )
        try:
            fresh = yield from one_round(runner, backbone, dialect, config, seen)
        finally:  # the time limit may strike in the middle: recorded answers stay
            for trace in runner.episode().traces:
                if trace.turns:
                    problem.keep(trace)
        if fresh is None:
            return
        number += 1


ANSWER_TOKENS = (6000, 2500)
"""Tokens of a question and of its answer, about, for what a cap allows: whole files with skills and an earlier attempt."""


def within_caps(rollout: RolloutConfig, config: Config) -> RolloutConfig:
    """A smaller round where the caps do not allow a whole one: skills by BM25 without asking, fewer conversations, the turns kept."""
    caps, prices = config.optimize, config.backbone
    read, written = ANSWER_TOKENS
    allowed = [caps.max_requests] if caps.max_requests is not None else []
    if caps.max_tokens is not None:
        allowed.append(caps.max_tokens // (read + written))
    if caps.max_usd is not None and prices.prompt_usd is not None:
        usd = (read * prices.prompt_usd + written * (prices.completion_usd or 0.0)) / 1e6
        allowed.append(int(caps.max_usd / usd) if usd else 1 << 30)
    schemes = rollout.schemes + rollout.null_scheme
    whole = rollout.schemes + max(1, schemes) * rollout.rollouts * rollout.turns
    if not allowed or min(allowed) >= whole:
        return rollout
    conversations = max(1, min(allowed) // rollout.turns)
    few = {"schemes": min(1, rollout.schemes, conversations - 1)}
    return rollout.model_copy(
        update={
            **few,
            "selector": "bm25",
            "rollouts": max(1, min(rollout.rollouts, conversations // (1 + few["schemes"]))),
        }
    )


def one_round(
    runner: EpisodeRunner,
    backbone: Backbone,
    dialect: dialects.Dialect,
    config: Config,
    seen: set[str],
) -> Generator[list[Candidate], list[Verdict | None], bool | None]:
    """Play to the end; whether something new was proposed, None when time is over.

    Args:
        seen: ids of candidates proposed before, which is added to.
    """
    fresh = False
    asked_before: Counter[str] = Counter()
    while not runner.finished:
        ready = sorted(runner.ready, key=lambda talk: order(talk.key))[: config.rollout.batch]
        pairs = [(runner, conversation) for conversation in ready]
        lost: list[Unparsed] = []
        most = repair.repair_attempts(config.rollout, repair.TRIES_IN_SEARCH)
        # Parsed answers are judged before the model continues with the rest.
        for answers in (
            generate_turns(pairs, backbone, dialect, config, runner.step, asked_before, lost),
            repair_unparsed(lost, backbone, dialect, most),
        ):
            made = [(conversation, candidate) for _, conversation, candidate in answers]
            if not made:
                continue
            fresh = fresh or any(candidate.id not in seen for _, candidate in made)
            seen.update(candidate.id for _, candidate in made)
            verdicts = yield [candidate for _, candidate in made]
            for (conversation, _), verdict in zip(made, verdicts, strict=True):
                if verdict is None:
                    return None
                runner.on_verdict(conversation, verdict)
    return fresh

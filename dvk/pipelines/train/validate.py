"""How good the policy is now: the same held-out tasks each time, greedy, one turn, with the library as it stands."""

from __future__ import annotations

from typing import Any

from dvk.agents import play_many
from dvk.agents.judging import Docket
from dvk.config import Config
from dvk.pipelines.train.draw import Draw
from dvk.pipelines.train.state import State
from dvk.records import Status, Turn
from dvk.rewards import scores
from dvk.rewards.scores import Outcome


def validate(draw: Draw, state: State, config: Config, judging: Docket[Any]) -> dict[str, Any]:
    """fast_p and the geometric mean speedup on the validation tasks, as `val_…`."""
    greedy = config.rollout.model_copy(update={"schemes": 1, "null_scheme": False, "rollouts": 1, "turns": 1, "summaries": 0,
                                               "temperature": 0.0})
    played = config.model_copy(update={"rollout": greedy})
    outcomes = []
    for episode in play_many(state.team.share(draw.validation()), state.backbone, state.library, played, judging=judging, step=state.step):
        turns = [turn for trace in episode.traces if trace.role == "policy" for turn in trace.turns]
        outcomes.append(outcome(episode.task.name, turns[0] if turns else None))
    outcomes = state.team.gather(outcomes)
    found = scores.summary(outcomes)
    figures = {f"val_fast_{threshold}": share for threshold, share in found["fast_p"].items()}
    return {**figures, "val_speedup": found["geomean_kept"], "val_tasks": len(outcomes)}


def outcome(task: str, turn: Turn | None) -> Outcome:
    """A turn as an outcome; none at all is a failure."""
    verdict = turn.verdict if turn is not None else None
    interval = verdict.timing.speedup if verdict is not None and verdict.timing is not None else None
    right = verdict is not None and verdict.status is Status.OK
    return Outcome(task, right, interval.value if interval else None, interval.lo if interval else None)

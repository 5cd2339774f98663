"""A judge session whose candidates are judged on a Ray cluster. Runs no candidate here."""

from __future__ import annotations

from collections.abc import Sequence

from dvk.cluster.connection import connect
from dvk.config import Config
from dvk.errors import DvkError, MachineError
from dvk.harness.remote.elsewhere import JudgeElsewhere, seconds_left
from dvk.harness.remote.node import SeatConfig
from dvk.harness.remote.node_pool import SeatRequest, SeatSlot, seats_of
from dvk.harness.session.concurrency import per_device
from dvk.harness.session.judge_spec import JudgeSpec
from dvk.records import Candidate, Device, Status, Task, Tier, Verdict

ATTEMPTS = 5
"""Most seats that one candidate may lose: more than nodes usually die, and a limit for one that kills them."""
MODEL_SHARE = 0.51
"""Share of a GPU for a model that writes there: no two models share a GPU, and Ray fills the rest with judges."""


class RayJudgeSession(JudgeElsewhere):
    """A `JudgeSession` by a seat of the cluster in `remote.engine`.

    Args:
        task: the reference.
        config: limits, judge settings, the cluster; `concurrency.per_device` seats share a GPU.
        spec: settings for every candidate.

    Raises:
        UsageError, MachineError: see `connect`.
    """

    def __init__(self, task: Task, config: Config, spec: JudgeSpec = JudgeSpec()):  # noqa: B008 - it is frozen
        assert config.remote.engine is not None, "there is no cluster"
        super().__init__(task, config)
        self.seats = seats_of(connect(config.remote.engine))
        self._kind = SeatConfig(config, spec.of_session)
        self._before: SeatSlot | None = None

    def judge(
        self,
        candidate: Candidate,
        tier: Tier = "search",
        baselines: Sequence[str] = (),
        deadline: float | None = None,
    ) -> Verdict | None:
        """See `JudgeElsewhere.judge`. A candidate whose seat is lost goes to another."""
        ray = self.seats.cluster.ray
        want, why = want_of(self.task.device, self.config), ""
        for _ in range(ATTEMPTS):
            place = self.seats.acquire(want, self._kind, self.task.id, self._before)
            limit_s = seconds_left(deadline)
            sharers = self.seats.sharers(place)
            try:
                answer = ray.get(
                    place.actor.judge.remote(
                        self._kind, self.task, candidate, tier, tuple(baselines), sharers, limit_s
                    )
                )
            except ray.exceptions.RayTaskError:  # a bug of dvk, raised there
                self.seats.lose(place)
                raise
            except ray.exceptions.RayError as error:  # its process or its node died
                why = f"{type(error).__name__}: {(str(error).strip() or 'no reason given').splitlines()[0]}"
                self.seats.lose(place, why)
                continue
            except BaseException:  # this process is interrupted, and the seat still works
                self.seats.lose(place)
                raise
            self.seats.release(place)
            self._before = place
            if isinstance(answer, DvkError):
                raise MachineError(f"on the Ray node {place.node}: {answer.message}", answer.hint)
            verdict: Verdict | None = answer
            return verdict
        text = (
            f"{ATTEMPTS} judging processes in a row ended while they judged it, the last by {why}"
        )
        return Verdict(status=Status.LAUNCH_ERROR, tier=tier, stage="check", error=text)


def want_of(device: Device, config: Config) -> SeatRequest:
    """Return resources of a seat; Ray counts shares of a GPU in ten-thousandths. If models write there, too, seats share the rest."""
    left = 1.0 - MODEL_SHARE if config.remote.rollouts else 1.0
    return (
        SeatRequest(device, int(10_000 * left / per_device(config, device)) / 10_000)
        if device == "cuda"
        else SeatRequest(device)
    )

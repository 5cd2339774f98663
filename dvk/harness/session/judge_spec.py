"""Settings of a judgement as one record, and the protocol of every judge: this machine's, a Ray cluster's, a server's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from dvk.records import Candidate, Record, Task, Tier, Verdict

Contract = Literal["auto", "short", "module", "plan"]


class JudgeSpec(Record):
    """Settings for every candidate of a list.

    A session takes `tier` and `baselines` with each candidate; the other fields are fixed for the session.
    """

    tier: Tier = "search"
    """`smoke` checks and times nothing, `search` times briefly, `claim` in several fresh sets of processes."""
    baselines: tuple[str, ...] = ()
    """Timed in the same rounds, besides eager: `compile`, `max-autotune`, `graph`."""
    backward: bool = False
    """Compare gradients, too."""
    brief: bool = False
    """Fewer input sets, for ranking candidates that will be judged again."""
    require_kernels: bool = False
    """Reject candidates that leave the computation to PyTorch's operators."""
    contract: Contract = "module"
    """How a candidate is run.

    `plan`: trusted code replays its launches, and times them by the device (Triton and CUDA on a GPU; an error if that is impossible).
    `module`: its host code is run, and timed from end to end.
    `auto`: by plan if possible; of a claim only short calls, whose host code is checked as well: see `claim_sets`.
    `short`: by plan if possible and the reference's call is short, else its host code.

    A replayed candidate is compared with baselines by the device's time alone: they are replayed, too.
    """
    profile: bool | Literal["times", "written"] = False
    """Also measure where the time of an ok candidate's call goes; `times`: without counters (ncu), which take ten seconds; `written`: so,
    and at the search tier alone, for candidates that neither the composer nor PyTorch's lines propose."""

    @property
    def of_session(self) -> JudgeSpec:
        """The fixed part: equal if one session can serve both."""
        return self.model_copy(update={"tier": "search", "baselines": ()})

    def profiled(self, candidate: Candidate, tier: Tier) -> bool | Literal["times"]:
        """Whether to profile a candidate at a tier."""
        if self.profile != "written":
            return self.profile
        told = tier != "search" or candidate.line or candidate.proposer == "composer"
        return False if told else "times"

    @property
    def flags(self) -> dict[str, object]:
        """The part of a verdict's key besides tier and baselines; see `verdict_cache.key`."""
        flags: dict[str, object] = {
            "backward": self.backward,
            "require_kernels": self.require_kernels,
            "contract": self.contract,
        }
        return flags | {
            name: value for name in ("brief", "profile") if (value := getattr(self, name))
        }


class Judge(Protocol):
    """Judges candidates for one task at a time.

    Attributes:
        task: the reference.
        broken: why no candidate can be judged against the reference; every verdict then says so.
        sharers: judges of this process at work at the same time, this one included.
        make_room: called if a GPU's memory is taken: idle judges release theirs.
        decide_by: on time.monotonic's clock: a claim that has had its first look by then is not measured further, an
        unsteady one when as much time again has passed.

    Remote judges ignore the last three: the other machine has its own.
    """

    task: Task
    broken: str | None
    sharers: int
    make_room: Callable[[], None]
    decide_by: float | None

    def __enter__(self) -> Judge: ...

    def __exit__(self, *_: object) -> None: ...

    def close(self) -> None:
        """End all processes; they are started again when needed."""

    def switch_task(self, task: Task) -> None:
        """Continue with another task."""

    def judge(
        self,
        candidate: Candidate,
        tier: Tier = "search",
        baselines: Sequence[str] = (),
        deadline: float | None = None,
    ) -> Verdict | None:
        """The verdict; None when the deadline, on time.monotonic's clock, came first."""

"""What is asked of a judge, as one record, and what every judge can do: this machine's, a Ray cluster's, a server's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from dvk.records import Candidate, Record, Task, Tier, Verdict

Contract = Literal["auto", "module", "plan"]


class JudgeSpec(Record):
    """What is asked about every candidate of a list.

    A session takes `tier` and `baselines` with each candidate; the rest holds as long as the session does.
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
    """Refuse candidates that leave the computing to PyTorch's operators."""
    contract: Contract = "module"
    """`plan` has trusted code replay the candidate's launches (Triton and CUDA on a GPU; an error where that cannot be), `module` runs its
    host code, `auto` replays where it can, except for claims, which are about what users run, and beside baselines: torch.compile's host
    code counts."""
    profile: bool | Literal["times"] = False
    """Find out where the time of an ok candidate's call goes, too; `times`: without counters (ncu), which take ten seconds."""

    @property
    def of_session(self) -> JudgeSpec:
        """What a session is made for: equal where one session can serve both."""
        return self.model_copy(update={"tier": "search", "baselines": ()})

    @property
    def flags(self) -> dict[str, object]:
        """What tells verdicts apart beside tier and baselines; see `verdict_cache.key`."""
        flags: dict[str, object] = {"backward": self.backward, "require_kernels": self.require_kernels, "contract": self.contract}
        return flags | {name: value for name in ("brief", "profile") if (value := getattr(self, name))}


class Judge(Protocol):
    """Judges candidates for one task at a time.

    Attributes:
        task: the reference.
        broken: why the reference cannot be judged against; every verdict then says so.
        sharers: judges of this process at work at the same time, this one included.
        make_room: called where a GPU's memory is taken: has judges that wait for work give back what they hold.
        decide_by: on time.monotonic's clock: a claim that has had its first look by then is not measured further.

    A judge elsewhere takes the last three and leaves them: that machine has its own.
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
        """Go on with another task."""

    def judge(
        self, candidate: Candidate, tier: Tier = "search", baselines: Sequence[str] = (), deadline: float | None = None
    ) -> Verdict | None:
        """The verdict; None when the deadline, on time.monotonic's clock, came first."""

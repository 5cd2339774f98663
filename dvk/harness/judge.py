"""Judge candidates. Parent side: opens no CUDA context, imports no torch, executes no candidate.

A bad kernel is data: whatever a candidate does, up to killing its process, becomes a `Verdict`. `judge` raises only for faults of dvk or
the computer (`MachineError`), or if the user interrupts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dvk.config import Config
from dvk.harness.session.attempt import passed
from dvk.harness.session.judge_session import JudgeSession
from dvk.harness.session.judge_spec import Contract, JudgeSpec
from dvk.records import Candidate, Task, Tier, Verdict

BASELINES = ("compile", "max-autotune", "graph")

OnVerdict = Callable[[int, Verdict], None]


def judge(
    task: Task,
    candidates: Sequence[Candidate],
    *,
    tier: Tier = "search",
    baselines: Sequence[str] = (),
    config: Config,
    on_verdict: OnVerdict | None = None,
    backward: bool = False,
    require_kernels: bool = False,
    contract: Contract = "module",
    deadline: float | None = None,
) -> list[Verdict]:
    """Return one verdict per candidate, in order; each runs in a fresh process.

    Args:
        task: the reference.
        candidates: the candidates.
        tier: `smoke` checks and times nothing, `search` times briefly, `claim` in several fresh sets of processes.
        baselines: besides eager, timed in the same rounds: `compile`, `max-autotune`, `graph` (CUDA-graphed eager).
        config: limits and judge settings.
        on_verdict: called with position and verdict as each is known.
        backward: compare gradients, too.
        require_kernels: reject candidates that leave the computation to PyTorch's operators.
        contract: see `JudgeSpec`.
        deadline: on time.monotonic's clock; candidates not finished by then are missing at the end of the list.

    Raises:
        MachineError: no sandbox can be started.
    """
    verdicts: list[Verdict] = []
    with JudgeSession(
        task,
        config,
        JudgeSpec(backward=backward, require_kernels=require_kernels, contract=contract),
    ) as session:
        for position, candidate in enumerate(candidates):
            if passed(deadline):
                break
            if (verdict := session.judge(candidate, tier, baselines, deadline)) is None:
                break
            verdicts.append(verdict)
            if on_verdict is not None:
                on_verdict(position, verdict)
    return verdicts

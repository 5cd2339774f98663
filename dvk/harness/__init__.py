"""The judge: load → check → time a candidate in processes that may die, and report the result.

judge                    candidates of one task → verdicts                                     (parent, as `session`)
queue                    of many tasks at once, as they come; waiting_jobs, open_sessions: what it holds
placement, remote        which machine judges: this one, a server, a Ray cluster
session                  one task: a referee, its arms, a runner for each candidate; verdicts of earlier runs

processes/referee        holds the reference, the secrets and the clock                        (child that decides)
processes/evaluation     one candidate, from text to findings
checking                 input sets, the reference's outputs for them, tolerances, comparison
timing                   paired timing, overhead, baselines, claims, rooflines
supervision              the referee's client of one runner: calls, pauses, samples, memory
provenance               whether the candidate's own kernels compute the result
profiling                where the time of a call goes

processes/runner         loads a candidate and calls it on lent inputs                         (child that is judged)
processes/player         replays a candidate's launch plan (`launch_plans`)

transport                frames, lent tensors and memory between these processes
toolchain                compilers: NVRTC, extensions, precompiled headers, Triton's stubs
"""

from dvk.harness.judge import BASELINES, judge
from dvk.harness.queue import JudgeQueue
from dvk.harness.session.judge_session import JudgeSession
from dvk.harness.session.judge_spec import Judge, JudgeSpec

__all__ = ["BASELINES", "Judge", "JudgeQueue", "JudgeSession", "JudgeSpec", "judge"]

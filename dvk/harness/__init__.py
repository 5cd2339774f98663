"""The judge: load → check → time a candidate in processes that may die, and say what was found.

judge        candidates → verdicts                                        (parent, as all to static)
pool         many at once, over several tasks
judge session  one task: a referee, its arms, a runner for each candidate
claims       fresh sets of processes → is the speedup reproducible?
remembered   verdicts of earlier runs
static       what a candidate's text says
backends     what kernels can be written in, and what each needs

referee      holds the reference, the secrets and the clock               (child that decides)
examination  one candidate, from text to findings
cases        input sets and what the reference makes of them
bench        boards, fresh values, flushed caches, rounds
peer         the referee's hold on one runner: orders, outputs, timed calls
charges      what only the judge's clock saw is paid for

runner       loads a candidate and calls it on lent inputs                (child that is judged)
arms         what it is timed against: the same program with trusted code

link, board, memory, slots                                                 what passes between the two
"""

from dvk.harness.judge import BASELINES, judge
from dvk.harness.pool import JudgePool
from dvk.harness.session.judge_session import JudgeSession

__all__ = ["BASELINES", "JudgeSession", "JudgePool", "judge"]

"""The judge: compile → check → time a candidate in a process that may die, and say what was found.

judge       candidates → verdicts, in this process nothing foreign      (parent)
pool        many at once
static      what a candidate's text says
backends    what kernels can be written in, and what each needs
worker      builds the reference, judges candidates in turn             (child, as all below)
attempt     one candidate
cases       input sets and what the reference makes of them
compare     outputs against outputs
tolerance   how much error a precision class admits
timing      interleaved measurement
intervals   samples → ratio with interval
lanes       one measurement at a time a device
"""

from dvk.harness.judge import BASELINES, judge
from dvk.harness.pool import Pool

__all__ = ["BASELINES", "Pool", "judge"]

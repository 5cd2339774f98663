"""The diversity filter: which of many examples are worth learning from, and the reason for each one left out.

The daVinci paper names one (density clustering of the SFT data) and publishes neither code nor criterion; this is
dvk's own. In order: `filter` removes weak examples, `contamination` overlap with benchmark suites (both also as the
separate stage `sift`), then `duplicates`, `clusters` of equal structure with a cap on each, and `balance` over
kinds, operators and skills so that no skill dominates. `sketches` and `lexing` make texts comparable, `report` shows
coverage before and after, `stream` runs it all over files. `steps` is Kernel-Smith's choice of improving steps.

Everything is a function of the rows, the settings and the seed: the order of the input does not matter.
"""

from dvk.learn.diversity.contamination import Suites
from dvk.learn.diversity.sift import sift
from dvk.learn.diversity.steps import best_steps
from dvk.learn.diversity.stream import DiversityResult, diversify, run

__all__ = ["DiversityResult", "Suites", "best_steps", "diversify", "run", "sift"]

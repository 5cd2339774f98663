"""What the tracer of loops over time steps and the reader of its graphs agree on; without PyTorch, which the command line imports late."""

MARK = "dvk.mark.default"
"""The operator that names a value's role."""
CARRY, OUT, LAST = 0, 1, 2
"""Roles: a value from the step before, one that is collected, one read after the loop."""


class Unfit(Exception):
    """The loop must be traced as it is."""

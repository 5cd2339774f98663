"""The harness: compile → check → time, in a worker process, and a verdict for whatever happens there.

`judge` is the parent's side, `worker` the child's; `cases`, `check` and `compare` decide correctness,
`timing` measures, `static` reads source, `backends` say what a machine needs, `pool` runs many at once.

Covered: everything that goes wrong by accident, from a wrong value to a fork bomb. Not yet covered:
candidates that set out to deceive the process they are judged in.
"""

from dvk.harness.judge import judge

__all__ = ["judge"]

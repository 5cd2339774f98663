"""Programs for ranges of sizes in Triton's interpreter, which a process has from the start or not at all: `python -m
tests.composer.triton_sized FORWARD SPEC` prints the sizes at which a program differs from the original."""

from __future__ import annotations

import json
import sys

from tests.composer.sized_models import disagreements

if __name__ == "__main__":
    forward, spec = sys.argv[1:]
    print(json.dumps(disagreements(forward, (spec,), "pass", backend="triton")))

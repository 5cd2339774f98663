"""Child of test_gpu.py, started without a GPU: records what stdin asks for, as JSON on stdout, and says what devices it opened."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from dvk.harness.launch_plans.calls import CallSpec, GpuProperties, Layout
from dvk.harness.launch_plans.record import record
from dvk.records import Task


def main() -> None:
    answers = []
    for request in json.load(sys.stdin):
        calls = [CallSpec.model_validate(call) for call in request["calls"]]
        state = {name: Layout.model_validate(layout) for name, layout in request["state"].items()}
        task = Task.model_validate(request["task"])
        made = record(
            request["source"], task, calls, state, GpuProperties.model_validate(request["gpu"])
        )
        answers.append(made.wire())
    opened = [os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.exists()]
    json.dump(
        {"recordings": answers, "devices": [name for name in opened if "nvidia" in name]},
        sys.stdout,
    )


if __name__ == "__main__":
    main()

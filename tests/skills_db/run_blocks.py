"""Run the examples of seed skills, one module each, in this one process.

Usage: python run_blocks.py RESULTS.jsonl BLOCK.py [BLOCK.py ...]

Contract: every block is imported as a real module from its file (Triton's @jit reads the source back), in the order
given; for each, one JSON line {"block", "ok", "error", "cpu_s"} is flushed to RESULTS before the next begins, so that
a block which kills the process is the first one without a line. `cpu_s` counts this process and its compilers, not the
import of torch and Triton. It does not set limits: the caller has a timeout.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import traceback
from pathlib import Path

import torch  # noqa: F401 - imported here so that no block is charged for it
import triton  # noqa: F401


def run(block: Path) -> str | None:
    """Import one block; returns None, or the traceback of what it raised."""
    name = f"seed_block_{block.stem}"
    spec = importlib.util.spec_from_file_location(name, block)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception:  # noqa: BLE001 - whatever an example raises is its test result
        return traceback.format_exc()
    return None


def cpu_s() -> float:
    """CPU seconds of this process and of its children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def main(results: str, blocks: list[str]) -> None:
    with open(results, "w", encoding="utf-8") as out:
        for block in blocks:
            start = cpu_s()
            error = run(Path(block))
            line = {
                "block": Path(block).stem,
                "ok": error is None,
                "error": error,
                "cpu_s": cpu_s() - start,
            }
            out.write(json.dumps(line) + "\n")
            out.flush()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])

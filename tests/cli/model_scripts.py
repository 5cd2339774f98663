"""`dvk optimize` with a scripted model."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.optimizing import CHAIN, SETTINGS

QUICK = [
    word
    for setting in (*SETTINGS, "rollout.schemes=1", "rollout.rollouts=1")
    for word in ("--set", setting)
]


def write(folder: Path, *lines: dict[str, str]) -> None:
    (folder / "chain.py").write_text(CHAIN)
    (folder / "script.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

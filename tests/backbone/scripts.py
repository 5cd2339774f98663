"""Scripted answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dvk.backbone import Backbone, Conversation, open_backbone

CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def asking(*texts: str) -> list[Conversation]:
    return [Conversation(messages=({"role": "user", "content": text},)) for text in texts]


def script(folder: Path, *lines: Any) -> Backbone:
    path = folder / "script.jsonl"
    path.write_text(
        "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    )
    return open_backbone(f"scripted:{path}")

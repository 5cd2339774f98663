"""The held-out tasks' index."""

from __future__ import annotations

import json
from typing import Any

from tests.tasks.shrink import TASKS

FOLDER = TASKS / "heldout"

INDEX: list[dict[str, Any]] = json.loads((FOLDER / "index.json").read_text())

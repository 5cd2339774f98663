"""Recipes by their names."""

from __future__ import annotations

import json
import re

from dvk.backbone import Conversation
from tests.search.writing import asked


def named(*moves: tuple[str, str]) -> str:
    """A call of the tool."""
    arguments = {"think": "", "moves": [{"kind": kind, "region": region} for kind, region in moves]}
    return json.dumps({"name": "plan_moves", "arguments": arguments})


def legal(conversation: Conversation) -> list[tuple[str, str]]:
    """The moves that a question lists, as (kind, region)."""
    found = []
    region = ""
    for line in (
        asked(conversation).partition("## Regions")[2].partition("## Moves made")[0].splitlines()
    ):
        region = line[4:] if line.startswith("### ") else region
        if (kind := re.match(r"- `([^`]+)`:", line)) is not None:
            found.append((kind[1], region))
    return found

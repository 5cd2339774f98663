"""Send an answer to the judge: `python3 score.py TASK ANSWER [FOLDER]`. Prints the findings; FOLDER gets the reward.

Runs in the boxes of Harbor's tasks, which have no dvk and no torch: standard library only. $DVK_SCORE_URL is a `dvk serve`,
$DVK_JUDGE_TOKEN its token. Without an answer from the judge it exits with 1 and writes no reward.
"""

from __future__ import annotations

import json
import os
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

RETRY_S = (2, 4, 8, 16, 30, 30, 30, 30)
"""Pauses after a full queue or a lost connection."""
ANSWER_S = 900
"""Longest wait for one answer."""


def asked(url: str, token: str, body: bytes) -> dict[str, Any]:
    """The judge's answer to POST /v1/score.

    Raises:
        OSError: it cannot be reached, or refuses.
    """
    headers = {"Content-Type": "application/json"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    request = urllib.request.Request(f"{url.rstrip('/')}/v1/score", body, headers)
    for pause in (*RETRY_S, None):
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except urllib.error.HTTPError as error:
            if pause is None or error.code not in (429, 502, 503, 504):
                raise OSError(
                    f"HTTP {error.code}: {error.read(500).decode('utf-8', 'replace')}"
                ) from None
        except OSError:
            if pause is None:
                raise
        time.sleep(pause or 0)
    raise AssertionError("the last try returns or raises")


def numbers(found: dict[str, Any]) -> dict[str, float]:
    """What Harbor's reward.json takes: `reward`, which goes first, `right`, `speedup` (0: not timed), and the reward's terms."""
    verdict = found["verdict"] or {}
    timing = verdict.get("timing") or {}
    speedup = (timing.get("speedup") or {}).get("value") or 0.0
    right = float(verdict.get("status") == "ok")
    terms = {f"term_{name}": value for name, value in found["terms"].items()}
    return {"reward": found["reward"], "right": right, "speedup": speedup, **terms}


def main(task: str, answer: str, folder: str | None = None) -> int:
    """Exit code: 0 if there is a reward."""
    url = os.environ.get("DVK_SCORE_URL")
    if not url:
        print("no judge: set DVK_SCORE_URL to the address of a `dvk serve`", file=sys.stderr)
        return 1
    path = Path(answer)
    text = path.read_text("utf-8", "replace") if path.is_file() else ""
    body = json.dumps({"task": Path(task).read_text("utf-8"), "text": text}).encode()
    try:
        found = asked(url, os.environ.get("DVK_JUDGE_TOKEN", ""), body)
    except OSError as error:
        print(f"no answer from the judge at {url}: {error}", file=sys.stderr)
        return 1
    print(found["feedback"])
    if folder is not None:
        place = Path(folder) / "reward.json"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(json.dumps(numbers(found)), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

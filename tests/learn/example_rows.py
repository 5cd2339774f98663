"""Examples with the fields that a test is about."""

from __future__ import annotations

from typing import Any

from dvk.learn.examples import Example, ExampleTask


def one(**fields: Any) -> Example:
    code = fields.get("code", "def run(x0): return launch(x0)")
    said = (
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": code or "an answer long enough"},
    )
    base = {
        "kind": "policy",
        "messages": said,
        "task": ExampleTask(id="t"),
        "origin": "composer",
        "verified": True,
        "speedup": 1.5,
        "code": code,
    }
    return Example.new(**{**base, **fields})


def said(text: str) -> tuple[dict[str, str]]:
    return ({"role": "assistant", "content": text},)

"""Settings and examples of a small fit."""

from __future__ import annotations

from typing import Any

from dvk.config import Config
from dvk.learn.examples import Example, ExampleTask
from dvk.learn.sources import InMemory

OPS = ("relu", "gelu", "tanh", "silu", "exp")


def examples(count: int = 60) -> InMemory:
    """The operator that a listing names, answered by its kernel; every third with a second turn."""
    found = InMemory()
    for number in range(count):
        op = OPS[number % len(OPS)]
        messages: list[dict[str, Any]] = [
            {"role": "user", "content": f"cpp s0={number}\nv0 = {op}(x0)\nwrite"},
            {"role": "assistant", "content": f"def run(x0):\n    return F.{op}(x0)"},
        ]
        if number % 3 == 0:
            messages += [
                {"role": "user", "content": "ok 1.02\nagain"},
                {"role": "assistant", "content": f"def run(x0):\n    return {op}_(x0)"},
            ]
        found.append(
            Example.new(
                kind="policy",
                messages=tuple(messages),
                task=ExampleTask(id=f"task{number}"),
                origin="test",
                backend="cpp",
            )
        )
    return found


def settings(**fit_settings: Any) -> Config:
    return Config.model_validate(
        {
            "fit": {
                "size": "tiny",
                "epochs": 16,
                "save_every": 10,
                "held_out": 0.1,
                **fit_settings,
            },
            "learning": {
                "rate": 5e-3,
                "pack_tokens": 256,
                "batch_tokens": 1024,
                "micro_packs": 2,
                "precision": "fp32",
                "warmup": 0.05,
            },
        }
    )

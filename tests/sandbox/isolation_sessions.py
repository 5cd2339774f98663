"""Sessions with children that are isolated, or not, and deeds they are asked to do."""

from __future__ import annotations

import pytest

from dvk.config import Limits
from dvk.sandbox import Message, SandboxSession

LIMITS = Limits(wall_s=60, memory_bytes=1 << 30, num_processes=60, output_bytes=4096)
KINDS = ("cpu", "cuda")
DENIED = {"error": "EPERM"}, {"error": "EACCES"}, {"error": "EROFS"}


def start(kind, **arguments):
    return SandboxSession("tests.sandbox.isolated:does", LIMITS, isolate=kind, **arguments)


def do(session, deed, *arguments):
    session.send({"do": deed, "with": list(arguments)})
    answer = session.receive(30)
    assert isinstance(answer, Message), answer
    return answer.value


def needs(session, *layers):
    level = session.isolation.split("+")
    lacking = [layer for layer in layers if not any(reached.startswith(layer) for reached in level)]
    if lacking:
        pytest.skip(f"this machine does not grant {lacking}: {session.isolation}")


def landlock(session):
    return max(
        [int(layer[8:]) for layer in session.isolation.split("+") if layer.startswith("landlock")],
        default=0,
    )

"""Runs a dvk command in a separate process: its answer, progress and errors; the process ends when the client is gone."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import anyio
from anyio.abc import Process
from anyio.streams.text import TextReceiveStream

LEAVE_S = 10.0
"""Grace period of an interrupted search, which keeps its best and ends; then it is killed."""
KEPT_LINES = 20
"""Lines of a command's stderr kept for an error's message."""
LINE = 300
"""Maximal characters of a reported line."""


class CommandFailed(Exception):
    """The command gave no answer; the message has the reason, and a remedy."""


async def run(arguments: Sequence[str], tell: Callable[[str], Awaitable[None]]) -> Any:
    """The JSON value that `dvk ARGUMENTS` prints. Cancelled, the command is interrupted and then killed.

    Args:
        arguments: of the command line, `--json` among them.
        tell: called with every line on stderr.

    Raises:
        CommandFailed: it ended with an error.
    """
    command = [sys.executable, "-m", "dvk", *arguments]
    process = await anyio.open_process(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    parts: list[str] = []
    last: deque[str] = deque(maxlen=KEPT_LINES)
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(_read, process, parts)
            group.start_soon(_follow, process, last, tell)
        code = await process.wait()
    finally:
        with anyio.CancelScope(shield=True):
            await _end(process)
    if code in (0, 1):
        try:
            return json.loads("".join(parts))
        except ValueError:
            pass
    raise CommandFailed(
        "\n".join(last) or f"dvk {arguments[0]} ended with code {code} and said nothing"
    )


async def _read(process: Process, parts: list[str]) -> None:
    assert process.stdout is not None
    async for text in TextReceiveStream(process.stdout, errors="replace"):
        parts.append(text)


async def _follow(
    process: Process, last: deque[str], tell: Callable[[str], Awaitable[None]]
) -> None:
    assert process.stderr is not None
    rest = ""
    async for text in TextReceiveStream(process.stderr, errors="replace"):
        *lines, rest = (rest + text).split("\n")
        for line in filter(None, (line.strip()[:LINE] for line in lines)):
            last.append(line)
            await tell(line)
    if rest.strip():
        last.append(rest.strip()[:LINE])


async def _end(process: Process) -> None:
    if process.returncode is None:
        process.send_signal(signal.SIGINT)
        with anyio.move_on_after(LEAVE_S):
            await process.wait()
    if process.returncode is None:
        process.kill()
        await process.wait()
    await process.aclose()

"""The clients of a workspace's judge: they send a text and wait, and start the judge if none runs."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from dvk.errors import MachineError, UsageError
from dvk.pipelines.workspace import copies
from dvk.pipelines.workspace.judge import MAX_LINE, address, send
from dvk.pipelines.workspace.places import LOG, Place
from dvk.tasks.sourcetext import read_source

START_S = 60.0
"""Longest wait for a judge that was started."""
STARTS = 6
"""Judges that a client starts, one after another, until one answers."""
AGAIN_S = 1.5
"""Seconds before another is started."""
RETRIES = 3
"""Judges that may die under one question."""
SAY_S = 10.0
"""Seconds between two lines on what is waited for."""
LAST = 400
"""Characters of the judge's last words in an error."""

Tell = Callable[[str], None]


def ask(
    folder: Path,
    file: Path,
    title: str,
    tier: Literal["smoke", "search"],
    *,
    profile: bool = False,
    tell: Tell = lambda line: None,
) -> dict[str, Any]:
    """Have a file judged; the copies of the log and of the best file in the folder are brought up to date.

    Args:
        folder: the agent's folder.
        file: the candidate.
        title: one line on the idea; empty: the file's name.
        tier: `smoke` checks, `search` also times.
        tell: takes lines on the progress.

    Raises:
        UsageError: no workspace, or no readable file.
        MachineError: no judge can be started, or it failed.
    """
    place = Place.of(folder)
    request = {
        "verb": "judge",
        "source": _text(file),
        "title": title or file.name,
        "tier": tier,
        "profile": profile,
    }
    if len(json.dumps(request)) > MAX_LINE:
        raise UsageError(f"`{file}` is larger than {MAX_LINE >> 20} MiB", "send one Python file")
    answer = _answered(place, request, tell)
    if "error" in answer and "status" not in answer:
        raise MachineError(
            f"the judge failed: {answer['error']}", f"its log is `{place.path / LOG}`"
        )
    _copy(Path(place.opened.folder), answer, tell)
    return {k: v for k, v in answer.items() if k not in ("log", "best_source")}


def end(place: Place) -> None:
    """End the judge, if one runs; a candidate in work is not finished."""
    with suppress(OSError), _connected(place) as connection:
        send(connection, {"verb": "end"})
        while connection.recv(1 << 16):
            pass


def _text(file: Path) -> str:
    try:
        return read_source(file)
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise UsageError(f"cannot read `{file}`: {why}", "name a Python file") from None


def _answered(place: Place, request: dict[str, Any], tell: Tell) -> dict[str, Any]:
    for _ in range(RETRIES):
        with suppress(ConnectionError), _reached(place, tell) as connection:
            send(connection, request)
            for message in _messages(connection, tell):
                if "waiting" not in message:
                    return message
                waiting = message["waiting"]
                tell("judging it" if waiting is None else f"waiting: {waiting + 1} before it")
        tell("the judge ended; asking again")
    raise MachineError(
        f"the judge ended {RETRIES} times while it judged this file",
        f"its log is `{place.path / LOG}`",
    )


def _messages(connection: socket.socket, tell: Tell) -> Iterator[dict[str, Any]]:
    """Messages until the judge closes the connection."""
    began, connection_rest = time.monotonic(), b""
    connection.settimeout(SAY_S)
    while True:
        try:
            data = connection.recv(1 << 16)
        except TimeoutError:
            tell(f"{time.monotonic() - began:.0f} s")
            continue
        if not data:
            return
        *lines, connection_rest = (connection_rest + data).split(b"\n")
        yield from map(json.loads, lines)


def _connected(place: Place) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with address(place.path) as name:
            connection.connect(name)
    except OSError:
        connection.close()
        raise
    return connection


def _reached(place: Place, tell: Tell) -> socket.socket:
    """A connection to the judge, which is started if none runs.

    Raises:
        MachineError: none can be started.
    """
    started: list[subprocess.Popen[bytes]] = []
    until = time.monotonic() + START_S
    while True:
        with suppress(OSError):
            return _connected(place)
        # One that ended at once found the folder taken: by another client's judge, or by one that is about to end.
        ended = all(one.poll() is not None for one in started)
        if ended and len(started) < STARTS:
            if started:
                time.sleep(AGAIN_S)
            else:
                tell("starting the judge")
            started.append(_start(place))
        elif ended or time.monotonic() > until:
            raise MachineError(
                f"the judge does not start: {_last_words(place)}",
                "start it outside of a sandbox that forbids it, e.g. through `dvk mcp`; "
                f"its log is `{place.path / LOG}`",
            )
        time.sleep(0.05)


def _start(place: Place) -> subprocess.Popen[bytes]:
    """Start the judge with the environment of the user who opened the workspace, apart from this process."""
    code = "import sys; from dvk.pipelines.workspace.judge import main; main(sys.argv[1])"
    path = place.path.resolve()
    roots = str(Path(__file__).resolve().parents[3])
    environment = dict(place.opened.environment)
    before = environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = os.pathsep.join([before, roots] if before else [roots])
    try:
        with open(path / LOG, "ab") as log:
            return subprocess.Popen(
                [place.opened.python, "-c", code, str(path)],
                cwd=path,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
    except OSError as error:
        raise MachineError(
            f"the judge cannot be started: {error.strerror or error}",
            "start it outside of a sandbox that forbids it, e.g. through `dvk mcp`",
        ) from None


def _last_words(place: Place) -> str:
    try:
        lines = (place.path / LOG).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    return lines[-1][:LAST] if lines else "it said nothing"


def _copy(folder: Path, answer: dict[str, Any], tell: Tell) -> None:
    """Bring the copies for the agent up to date; what it made of its folder is no reason to fail."""
    texts = {"log.jsonl": answer["log"], "best.py": answer["best_source"]}
    for name, text in texts.items():
        if text is None:
            continue
        try:
            copies.write(folder, name, text)
        except OSError as error:
            tell(f"note: `{name}` was not written: {error.strerror or error}")

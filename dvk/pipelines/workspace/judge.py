"""The judge of one workspace: a process that takes candidates as text from a Unix socket, judges them and keeps the log.

    {"verb": "judge", "source": …, "title": …, "tier": …, "profile": …}  →  {"waiting": n} …, {"number": …, "log": …, …}
    {"verb": "end"}                                                       →  {"ended": true}

A JSON object a line. It holds the lock of the workspace's run folder, so that there is one judge at a time; several candidates are judged
side by side as far as the machine serves, and timed one after another. A client that is gone before its candidate was begun is forgotten.
"""

from __future__ import annotations

import json
import os
import queue
import select
import socket
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from dvk import backends
from dvk.agents import feedback
from dvk.agents.turns import best_timing
from dvk.errors import DvkError
from dvk.harness.placement import num_workers
from dvk.harness.queue import JudgeQueue, default_contract
from dvk.harness.session.judge_spec import JudgeSpec
from dvk.harness.session.verdict_cache import Remembered
from dvk.harness.waiting_jobs import JudgeJob, Judgement
from dvk.pipelines.workspace import trials
from dvk.pipelines.workspace.places import COMMAND, SOCKET, TURNS, Place
from dvk.records import Candidate, Turn, Verdict
from dvk.runs import RunFolder

IDLE_S = 1800.0
"""Seconds without a client after which the judge ends."""
REST_S = 120.0
"""Seconds without a client after which the processes of its sessions end, which frees their memory."""
LOOK_S = 0.5
"""Longest time between two looks at a client that waits."""
REQUEST_S = 60.0
"""Longest wait for a request: a client that says nothing would keep the judge alive."""
MAX_LINE = 8 << 20
"""Longest request, bytes."""


def main(path: str) -> None:
    """Judge until idle for long, or told to end.

    Args:
        path: the judge's folder.
    """
    try:
        place = Place(Path(path))
        task = place.task
        backends.add(place.opened.backend)
        with RunFolder.open(
            place.path,
            command=COMMAND,
            name=task.name,
            argv=sys.argv,
            config=place.config,
            resume=True,
        ) as run:
            WorkspaceJudge(place, run).serve()
    except DvkError as error:
        print(f"{error.message} ({error.hint})", file=sys.stderr, flush=True)
        sys.exit(2)


class WorkspaceJudge:
    """See the module.

    Args:
        place: the workspace.
        run: its folder, open for writing.
    """

    def __init__(self, place: Place, run: RunFolder):
        self.place, self.opened, self.run = place, place.opened, run
        self.task, self.config = place.task, place.config
        self.turns = place.turns
        self._remembered = Remembered()
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._clients = 0
        self._last = time.monotonic()

    def serve(self) -> None:
        """Answer clients."""
        workers = num_workers(self.config, self.task.device)
        with (
            listening(self.place.path) as listener,
            JudgeQueue[int](workers, self.config) as judges,
        ):
            self._judges = judges
            listener.settimeout(LOOK_S)
            rested = True
            while not self._ending.is_set():
                with suppress(TimeoutError):
                    connection, _ = listener.accept()
                    with self._lock:
                        self._clients += 1
                    threading.Thread(target=self._answer, args=(connection,), daemon=True).start()
                    rested = False
                idle = 0.0 if self._clients else time.monotonic() - self._last
                if idle > REST_S and not rested:
                    judges.make_room()
                    rested = True
                if idle > IDLE_S:
                    return

    def _answer(self, connection: socket.socket) -> None:
        try:
            with connection, suppress(OSError):
                self._talk(connection)
        finally:
            with self._lock:
                self._clients -= 1
                self._last = time.monotonic()

    def _talk(self, connection: socket.socket) -> None:
        connection.settimeout(REQUEST_S)
        with connection.makefile("rb") as stream:
            line = stream.readline(MAX_LINE + 1)
        connection.settimeout(None)
        try:
            asked: dict[str, Any] = json.loads(line)
            verb = asked["verb"]
            if verb == "end":
                self._ending.set()
                send(connection, {"ended": True})
                return
            candidate = self._candidate(str(asked["source"]), str(asked["title"]))
            profile = bool(asked["profile"])
            tier = "smoke" if asked["tier"] == "smoke" else "search"
        except (ValueError, KeyError, TypeError) as error:
            send(connection, {"error": f"not a request: {type(error).__name__}: {error}"})
            return
        spec = JudgeSpec(
            tier=tier,
            require_kernels=self.opened.require_kernels,
            contract=default_contract(self.task.device),
            profile=profile,
        )
        result = self._judged(connection, candidate, spec)
        if isinstance(result, Verdict):
            send(connection, self._kept(candidate, result))
        elif result is not None:
            send(connection, {"error": f"{type(result).__name__}: {result}"})

    def _judged(
        self, connection: socket.socket, candidate: Candidate, spec: JudgeSpec
    ) -> Verdict | BaseException | None:
        """The verdict, or the error that kept it from being made; None if the client is gone or the judge ends."""
        answers: queue.SimpleQueue[Verdict | BaseException] = queue.SimpleQueue()
        job = JudgeJob(answers.put, Judgement(self.task, candidate, spec, self._remembered))
        self._judges.add(job)
        before: int | None = -1
        while True:
            with suppress(queue.Empty):
                return answers.get(timeout=LOOK_S)
            waiting = self._judges.position(job)
            if waiting is not None and (self._ending.is_set() or gone(connection)):
                self._judges.drop({job})
                return None
            if self._ending.is_set():
                return None
            if waiting != before:
                before = waiting
                with suppress(OSError):
                    send(connection, {"waiting": waiting})

    def _candidate(self, source: str, title: str) -> Candidate:
        backend = self.opened.backend if self.opened.only else backends.detect(source)
        return Candidate(
            source=source, backend=backend, proposer="agent", title=" ".join(title.split())[:200]
        )

    def _kept(self, candidate: Candidate, verdict: Verdict) -> dict[str, Any]:
        """The answer, once the trial is in the log."""
        turn = Turn(
            candidate=candidate, verdict=verdict, elapsed_s=max(0.0, time.time() - self.opened.at)
        )
        with self._lock:
            earlier = best_timing(self.turns)
            self.run.append(TURNS, turn)
            self.turns.append(turn)
            turns = list(self.turns)
        findings = feedback.describe(verdict, feedback.FEEDBACK_TOKENS, earlier)
        best = trials.best(turns)
        return {
            **trials.row(len(turns), turn),
            "found": findings,
            "best": trials.line(*best) if best else None,
            "best_source": best[1].candidate.source if best and best[1].candidate else None,
            "log": trials.log(turns),
        }


def listening(place: Path) -> socket.socket:
    """A socket that listens in the judge's folder; an earlier judge's is replaced."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with suppress(FileNotFoundError):
        os.unlink(place / SOCKET)
    with address(place) as name:
        listener.bind(name)
    listener.listen(64)
    return listener


class address:
    """Short address of the socket in a folder, whose own path may be longer than addresses can be; a context manager."""

    def __init__(self, place: Path):
        self._folder = os.open(place, os.O_RDONLY | os.O_DIRECTORY)

    def __enter__(self) -> str:
        return f"/proc/self/fd/{self._folder}/{SOCKET}"

    def __exit__(self, *_: object) -> None:
        os.close(self._folder)


def send(connection: socket.socket, message: dict[str, Any]) -> None:
    """Send one line.

    Raises:
        OSError: the other end is gone.
    """
    connection.sendall(json.dumps(message).encode() + b"\n")


def gone(connection: socket.socket) -> bool:
    """Whether the client has closed its end."""
    readable, _, _ = select.select([connection], [], [], 0)
    try:
        return bool(readable) and connection.recv(1, socket.MSG_PEEK) == b""
    except OSError:
        return True

"""A scorer whose judge is a `dvk serve`: nothing is compiled, run or timed on the trainer's machine."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pydantic import ValidationError

from dvk import tasks
from dvk.agents.scored import Scored
from dvk.api.scoring import Answer, task_file
from dvk.config import Config
from dvk.errors import UsageError
from dvk.interop.kernelgym.client import SCHEME, Client
from dvk.records import Verdict

AT_ONCE = 64
"""Requests in flight at a time; the server judges as many as it has workers and queues the others."""


class HttpScorer:
    """As `dvk.Scorer`, by a server.

    Args:
        url: of the server, e.g. `http://judge:10907`; a token is $DVK_JUDGE_TOKEN.
        config: its `remote` section has waits and the name of the token's variable.

    Raises:
        UsageError: not a URL.
    """

    def __init__(self, url: str, config: Config | None = None):
        self.client = Client(f"{SCHEME}{url}", (config or Config()).remote)
        self._threads = ThreadPoolExecutor(AT_ONCE, "dvk-score")

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def score(self, task: str | Path, text: str) -> Scored:
        """The score of one answer.

        Args:
            task: a task file, or its text.
            text: the model's whole answer.

        Raises:
            DvkError: the task cannot be used, the server cannot be reached or fails.
        """
        read = tasks.unexamined(str(task_file(task)))
        said = self.client.score(read.source, read.entry, text)
        try:
            verdict = said["verdict"] and Verdict.model_validate(said["verdict"])
            return Scored(
                said["reward"], said["terms"], said["feedback"], verdict, said["malformed"]
            )
        except (KeyError, ValidationError):
            raise UsageError(
                f"the judge at `{self.client.url}` is of another version of dvk",
                "install the same version on both sides",
            ) from None

    def score_all(self, answers: Sequence[Answer]) -> list[Scored]:
        """The scores of several answers, in their order.

        Raises:
            DvkError: see `score`.
        """
        return list(self._threads.map(lambda answer: self.score(*answer), answers))

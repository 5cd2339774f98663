"""A backbone that records its answers as they come and replays them when the run resumes.

A call is identified by its input: equal conversations under equal sampling get the answers recorded for them, each
record once, in order. A caller that repeats a question after a kill gets the same answer, at no cost, and needs no code for it;
a new question goes to the model. `usage` counts recorded calls like fresh ones: it is the total of the whole run.
"""

from __future__ import annotations

import queue
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence

from pydantic import Field

from dvk.backbone import Backbone, Completion, Conversation, Dialect, Sampling, TokenUsage
from dvk.backbone.allowance import Allowance
from dvk.backbone.pause_gate import OutOfTime, PauseGate
from dvk.config import OptimizeConfig
from dvk.errors import DvkError, ModelError
from dvk.records import Record, content_hash
from dvk.runs import RunFolder

FILE = "answers.jsonl"
TRACEBACK = "model_error.txt"
CLOSE_S = 10.0
"""Longest wait for a local model to reach its next step before other work begins."""


UNASKED = Completion(text="", finish="error", error="a cap on the model left no room to ask it")
"""Answer to a question that a cap left out of a call."""


class RecordedCall(Record):
    """One call of `generate`, answered."""

    id: str = Field(
        description="Content hash of who was asked what: name, conversations, sampling."
    )
    conversations: tuple[Conversation, ...] = Field(
        description="What the model was shown: as many as the caps allowed."
    )
    sampling: Sampling = Field(description="How the answers were drawn.")
    completions: tuple[Completion, ...] = Field(
        description="The answers, in the order of the conversations."
    )
    prompt_tokens: int = Field(description="Tokens read.")
    completion_tokens: int = Field(description="Tokens written.")
    seconds: float = Field(
        description="Wall clock of the call, without what it was held; requests inside it overlap."
    )
    cost_usd: float | None = Field(None, description="What it cost; null where no price is known.")
    elapsed_s: float = Field(
        0.0, description="Seconds since the search began when the answers came."
    )


class RecordedBackbone:
    """`backbone`, with its calls in `run`.

    Args:
        backbone: the model to ask if there is no record.
        run: an open run; its `answers.jsonl` is read and added to.
        settings: caps on what the model may use; None: no caps.

    Attributes:
        calls: all answered calls, the recorded ones of an earlier process included, oldest first.
        left: seconds left, asked before and during every fresh call.
        clock: seconds since the search began.
        on_ask: called with the number of conversations before a fresh call, and with 0 after it.
    """

    def __init__(self, backbone: Backbone, run: RunFolder, settings: OptimizeConfig | None = None):
        self.backbone, self.run = backbone, run
        self.name: str = backbone.name
        self.dialect: Dialect = backbone.dialect
        self.usage = TokenUsage(cost_usd=None if backbone.usage.cost_usd is None else 0.0)
        self.hosted = bool(getattr(backbone, "hosted", False))
        """Whether another process writes: the search waits for it, and may stop waiting."""
        self.elsewhere = bool(getattr(backbone, "elsewhere", False))
        """Whether another machine writes: it does not disturb timing here."""
        self.calls = [RecordedCall.model_validate(row) for row in run.read(FILE)]
        self.left: Callable[[], float] = lambda: float("inf")
        self.clock: Callable[[], float] = lambda: 0.0
        self.on_ask: Callable[[int], None] = lambda number: None
        prices = getattr(backbone, "prices", None)
        self._allowance = Allowance(settings or OptimizeConfig(), backbone, prices)
        self._known: dict[str, deque[RecordedCall]] = {}
        for call in self.calls:
            self._known.setdefault(call.id, deque()).append(call)
        self._lock, self._writing = threading.Lock(), threading.Lock()
        self._closed = False
        self.brake: PauseGate | None = None
        """Lock of a model that writes in this process, a few tokens at a time."""
        if hasattr(backbone, "pulse"):
            self.brake = PauseGate(lambda: self._closed or self.left() <= 0)
            backbone.pulse = self.brake.check

    def generate(
        self, conversations: Sequence[Conversation], sampling: Sampling
    ) -> list[Completion]:
        """The recorded answers, else `backbone`'s; `UNASKED` to the last questions where not all fit the caps.

        Raises:
            OutOfTime: nothing is recorded and no time is left, or it ends while the model writes.
            CapReached: the settings do not allow the question.
            ModelError: the model, or its server, failed; another exception than a `DvkError` leaves its traceback in the run folder.
        """
        if not conversations:
            return []
        asked = content_hash(self.name, *(_told(c) for c in conversations), _told(sampling))
        with self._lock:
            known = self._known.get(asked)
            call = known.popleft() if known else None
        if call is None:
            call = self._fresh(asked, tuple(conversations), sampling)
        elif catch_up := getattr(self.backbone, "catch_up", None):
            catch_up(conversations, sampling)
        self.usage.add(call.prompt_tokens, call.completion_tokens, call.seconds, call.cost_usd)
        return [*call.completions, *[UNASKED] * (len(conversations) - len(call.completions))]

    def close(self) -> None:
        """Later answers come too late to be recorded; a model that writes in this process is stopped."""
        with self._lock:
            self._closed = True
        if self.brake is not None and self._writing.acquire(timeout=CLOSE_S):
            self._writing.release()

    def _fresh(
        self, asked: str, conversations: tuple[Conversation, ...], sampling: Sampling
    ) -> RecordedCall:
        if self.left() <= 0:
            raise OutOfTime
        number, sampling = self._allowance.fitting(conversations, sampling, self.calls)
        conversations = conversations[:number]
        if self.brake is not None:
            self.brake.check()
        self.on_ask(len(conversations))
        began, held = time.perf_counter(), self._held_s()
        try:
            if not self.hosted:
                with self._writing:
                    return self._call(asked, conversations, sampling)
            answer: queue.SimpleQueue[RecordedCall | BaseException] = queue.SimpleQueue()

            def wait() -> None:
                try:
                    answer.put(self._call(asked, conversations, sampling))
                except BaseException as error:  # noqa: BLE001 - raised again in the thread that asked
                    answer.put(error)

            threading.Thread(target=wait, name="asking", daemon=True).start()
            try:
                result = answer.get(timeout=min(max(self.left(), 0.0), threading.TIMEOUT_MAX))
            except queue.Empty:
                raise OutOfTime from None
            if isinstance(result, BaseException):
                raise result
            return result
        except OutOfTime:  # it gave no answer, but it took time
            self.usage.add(seconds=time.perf_counter() - began - (self._held_s() - held))
            raise
        finally:
            self.on_ask(0)

    def _held_s(self) -> float:
        return self.brake.held_s if self.brake is not None else 0.0

    def _call(
        self, asked: str, conversations: tuple[Conversation, ...], sampling: Sampling
    ) -> RecordedCall:
        usage, began, held = self.backbone.usage, time.perf_counter(), self._held_s()
        before = usage.prompt_tokens, usage.completion_tokens, usage.cost_usd
        completions = self._written(conversations, sampling)
        call = RecordedCall(
            id=asked,
            conversations=conversations,
            sampling=sampling,
            completions=completions,
            prompt_tokens=usage.prompt_tokens - before[0],
            completion_tokens=usage.completion_tokens - before[1],
            seconds=round(time.perf_counter() - began - (self._held_s() - held), 4),
            elapsed_s=round(self.clock(), 3),
            cost_usd=None if usage.cost_usd is None else usage.cost_usd - (before[2] or 0.0),
        )
        with self._lock:
            if not self._closed:
                if any(one.finish != "error" for one in completions):  # a resumed run asks again
                    self.run.append(FILE, call)
                self.calls.append(call)
        return call

    def _written(
        self, conversations: tuple[Conversation, ...], sampling: Sampling
    ) -> tuple[Completion, ...]:
        try:
            completions = tuple(self.backbone.generate(conversations, sampling))
            if len(completions) != len(conversations):
                raise ValueError(f"{len(completions)} answers to {len(conversations)} questions")
            return completions
        except DvkError as error:
            raise ModelError(error.message, error.hint) from error
        except OutOfTime:
            raise
        except Exception as error:  # a search keeps its findings, whatever a model's code raises
            told = str(error).strip().partition("\n")[0]
            self.run.write_text(TRACEBACK, traceback.format_exc())
            problem = f"the model `{self.name}` failed: {type(error).__name__}{f': {told}' if told else ''}"
            raise ModelError(
                problem, f"its traceback is in `{self.run.path / TRACEBACK}`"
            ) from error


LATER = frozenset({"begun", "choices", "stream", "alternatives"})
"""Fields that earlier runs lack."""


def _told(record: Record) -> str:
    """As JSON, without fields that earlier runs lack and this record leaves as they are by default."""
    fields = type(record).model_fields
    usual = {name for name in LATER & set(fields) if getattr(record, name) == fields[name].default}
    return record.model_dump_json(exclude=usual)

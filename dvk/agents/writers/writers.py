"""The driver's side: one backbone whose answers come from actors all over the cluster."""

from __future__ import annotations

import io
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dvk.agents.task_context import TaskContext
from dvk.agents.writers.writer import ModelActor, OpenedModel
from dvk.backbone import Completion, Conversation, Dialect, Sampling, TokenUsage, Trainable
from dvk.backbone.packing import files
from dvk.cluster.connection import connect
from dvk.config import Config
from dvk.errors import DvkError, MachineError
from dvk.harness.remote.ray import MODEL_SHARE
from dvk.records import Device

PIECE_BYTES = 64 << 20
"""Bytes of a file sent at a time: an object store needs to hold few of them."""
PATIENCE_S = 900.0
"""Longest without any actor that can write: a model of 16 GB over a gigabit takes minutes, as does a node that is replaced."""
GLANCE_S = 1.0
"""Interval of checks for new nodes."""
ATTEMPTS = 5
"""Actors that one part may lose, and that may fail to open in a row in one place, before an error is raised."""


@dataclass(eq=False)
class QuestionBatch:
    """Some of a call's questions."""

    positions: list[int]
    num_lost: int = 0


@dataclass(eq=False)
class ActorHandle:
    """An actor; it opens, writes a part, or waits."""

    actor: Any
    place: tuple[str, int]
    """Id of its node, and its index there."""
    asked: Any
    """The handle that signals completion."""
    node: str = ""
    """Its node's name, once it can write."""
    part: QuestionBatch | None = None


class RayBackbone:
    """A backbone; `generate` is for one thread. Use `close`, or leave it to the cluster's.

    Args:
        spec: the model, a folder: see `packing.is_folder`.
        config: `remote.engine`, and the model's settings.
        device: the actors' device.

    Attributes:
        width: actors that the cluster has room for.
        num_lost: those that died while they wrote.

    Raises:
        UsageError, MachineError: no such model; no such cluster, or nothing in it to write on.
    """

    def __init__(self, spec: str, config: Config, device: Device):
        assert config.remote.engine is not None, "there is no cluster"
        self.name, self.usage, self.num_lost = spec, TokenUsage(), 0
        self._config, self._device = config, device
        self._cluster = connect(config.remote.engine)
        self.width = self._cluster.room(device, 1)
        self._pieces = [
            (name, self._cluster.ray.put(piece))
            for name, path in files(spec)
            for piece in _pieces(path)
        ]
        self._weights: tuple[Any, ...] = ()
        self._hands: list[ActorHandle] = []
        self._failed: Counter[tuple[str, int]] = Counter()
        self._why = ""
        self._waiting: deque[QuestionBatch] = deque()
        self._answers: list[Completion | None] = []
        self._since = time.monotonic()
        """Time when an actor was last ready."""
        self.dialect: Dialect = "chat"
        with self._closed_if_it_fails():
            while not any(hand.node for hand in self._hands):
                self._go_on()

    def close(self) -> None:
        """End the actors, even at work."""
        hands, self._hands = self._hands, []
        if self._cluster.ray.is_initialized():
            for hand in hands:
                self._cluster.ray.kill(hand.actor)

    def renew(self, trained: Trainable) -> None:
        """Make later answers use the trained parameters' current values."""
        import torch

        now = io.BytesIO()
        torch.save(
            {
                name: parameter.detach().cpu()
                for name, parameter in trained.model.named_parameters()
                if parameter.requires_grad
            },
            now,
        )
        self._weights = (
            self._weights[0] + 1 if self._weights else 1,
            self._cluster.ray.put(now.getvalue()),
        )

    def rest(self) -> None:
        """Nothing: actors have GPUs of the cluster's."""

    def generate(
        self,
        conversations: Sequence[Conversation],
        sampling: Sampling,
        subjects: Sequence[TaskContext] | None = None,
    ) -> list[Completion]:
        """One completion a conversation, in their order.

        Args:
            subjects: the task of each, if they ask for candidates: completions that have not failed are then `policy.Reply`.

        Raises:
            MachineError: a node is at fault, or there is none left.
        """
        self._answers, self._since = [None] * len(conversations), time.monotonic()
        self._waiting = deque(
            QuestionBatch(positions)
            for positions in partition(conversations, max(1, len(self._hands)))
        )
        with self._closed_if_it_fails():
            while self._waiting or any(hand.part for hand in self._hands):
                for hand in self._hands:
                    if self._waiting and hand.node and hand.part is None:
                        hand.part = self._waiting.popleft()
                        questions = [conversations[position] for position in hand.part.positions]
                        theirs = (
                            [subjects[position] for position in hand.part.positions]
                            if subjects is not None
                            else None
                        )
                        hand.asked = hand.actor.write.remote(
                            questions, sampling, theirs, *self._weights
                        )
                self._go_on()
        return [answer for answer in self._answers if answer is not None]

    # ------------------------------------------------------------ actors

    @contextmanager
    def _closed_if_it_fails(self) -> Iterator[None]:
        """Close after an error or an interrupt, so that actors stop the work left behind."""
        try:
            yield
        except BaseException:  # Ctrl-C leaves actors at work like any error; it is raised again
            self.close()
            raise

    def _go_on(self) -> None:
        """Keep an actor in every free place, and receive one message, or wait a little."""
        self._hire()
        asked = {hand.asked: hand for hand in self._hands if hand.asked is not None}
        if not asked:  # all nodes are gone
            time.sleep(GLANCE_S)
        for answer in self._cluster.ray.wait(list(asked), timeout=GLANCE_S)[0] if asked else ():
            self._heard(asked[answer])
        if any(hand.node for hand in self._hands):
            self._since = time.monotonic()
        elif time.monotonic() - self._since > PATIENCE_S:
            problem = f"the Ray cluster `{self._cluster.engine}` has had no room for a model for {PATIENCE_S:g} s"
            raise MachineError(
                problem,
                "see `ray status`; add nodes, end what holds them, or set remote.rollouts=false",
            )

    def _hire(self) -> None:
        taken = {hand.place for hand in self._hands}
        places = [
            (node, number)
            for node, count in self._cluster.places(self._device, 1).items()
            for number in range(count)
        ]
        self._hands += [
            self._begun(place)
            for place in places
            if place not in taken and self._failed[place] < ATTEMPTS
        ]
        if places and not self._hands:
            problem = (
                f"no model can be opened on the Ray cluster `{self._cluster.engine}`: {self._why}"
            )
            raise MachineError(problem, "look at the logs of its nodes, for memory first")

    def _begun(self, place: tuple[str, int]) -> ActorHandle:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        needs = {"num_gpus": MODEL_SHARE} if self._device == "cuda" else {}
        there = NodeAffinitySchedulingStrategy(place[0], soft=False)
        actor = (
            self._cluster.ray.remote(ModelActor)
            .options(num_cpus=0, **needs, scheduling_strategy=there)
            .remote()
        )
        self._cluster.actors.append(actor)
        for name, piece in self._pieces:
            actor.take.remote(name, piece)
        return ActorHandle(actor, place, actor.open.remote(self.name, self._config, self._device))

    def _heard(self, hand: ActorHandle) -> None:
        errors = self._cluster.ray.exceptions
        try:
            said = self._cluster.ray.get(hand.asked)
        except errors.RayTaskError:  # a bug of dvk, raised there
            raise
        except errors.RayError as error:  # its process or its node died
            self._lose(
                hand,
                f"{type(error).__name__}: {(str(error).strip() or 'no reason given').splitlines()[0]}",
            )
            return
        if isinstance(said, DvkError):
            raise MachineError(
                f"on the Ray node {hand.node or hand.place[0]}: {said.message}", said.hint
            )
        hand.asked = None
        if isinstance(said, OpenedModel):
            hand.node, self.dialect = said
            del self._failed[hand.place]
            return
        assert hand.part is not None, "it was asked nothing"
        for position, answer in zip(hand.part.positions, said.answers, strict=True):
            self._answers[position] = answer
        self.usage.add(said.prompt_tokens, said.completion_tokens, said.seconds)
        hand.part = None

    def _lose(self, hand: ActorHandle, why: str) -> None:
        part, gone = hand.part, [hand]
        if (
            part is not None
        ):  # idle ones there may have died with it; a part that was sent to one after the other would be blamed
            gone += [
                other
                for other in self._hands
                if other.asked is None and other.place[0] == hand.place[0]
            ]
        self._hands = [other for other in self._hands if other not in gone]
        for one in gone:
            self._cluster.ray.kill(one.actor)
        if part is None:
            self._failed[hand.place] += 1
            self._why = why
            return
        self.num_lost += 1
        part.num_lost += 1
        if part.num_lost >= ATTEMPTS:
            problem = f"{ATTEMPTS} actors in a row ended while they wrote the same answers, the last by {why}"
            raise MachineError(problem, "look at the logs of the cluster's nodes, for memory first")
        self._waiting.appendleft(part)
        print(
            f"a model on {hand.node} was lost, another writes its answers: {why}",
            file=sys.stderr,
            flush=True,
        )


def partition(conversations: Sequence[Conversation], count: int) -> list[list[int]]:
    """Positions in at most `count` parts of similar size. Equal questions stay together: their order in a call separates their draws."""
    equal: dict[str, list[int]] = {}
    for position, conversation in enumerate(conversations):
        equal.setdefault(conversation.model_dump_json(), []).append(position)
    shares: list[list[int]] = [[] for _ in range(count)]
    for group in sorted(equal.values(), key=len, reverse=True):
        min(shares, key=len).extend(group)
    return [sorted(part) for part in shares if part]


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(PIECE_BYTES):
            yield piece

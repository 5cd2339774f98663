"""The node's side: an actor with a model, which arrives file by file. Imports no Ray: its class travels by name."""

from __future__ import annotations

import io
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from dvk.agents import dialects
from dvk.agents.policy import parse_reply
from dvk.agents.task_context import TaskContext
from dvk.backbone import Backbone, Completion, Conversation, Dialect, Sampling, open_backbone
from dvk.backbone.packing import arrived
from dvk.cluster.node import unbound
from dvk.config import Config
from dvk.errors import DvkError, MachineError
from dvk.records import Device


class OpenedModel(NamedTuple):
    """Description of a model that is ready to answer."""

    node: str
    dialect: Dialect


class GeneratedAnswers(NamedTuple):
    """Answers, in the order of the questions, and their cost."""

    answers: list[Completion]
    prompt_tokens: int
    completion_tokens: int
    seconds: float


class ModelActor:
    """See the module. Errors that a user can fix are returned, not raised."""

    def __init__(self) -> None:
        unbound()
        self._folder = Path(tempfile.mkdtemp(prefix="dvk-model-"))
        self._problem: DvkError | None = None
        self._backbone: Backbone | None = None
        self._version = 0

    def take(self, name: str, piece: bytes) -> None:
        """The next bytes of one of the model's files; see `packing.files` for names."""
        path = self._folder / name
        try:
            path.parent.mkdir(exist_ok=True)
            with path.open("ab") as file:
                file.write(piece)
        except OSError as error:
            self._problem = MachineError(
                f"no room for the model under `{self._folder}`: {error.strerror}",
                "start Ray with another TMPDIR",
            )

    def open(self, spec: str, config: Config, device: Device) -> OpenedModel | DvkError:
        """Open the received model and delete its files.

        Args:
            spec: as the driver calls the model.
        """
        try:
            if self._problem is not None:
                return self._problem
            self._backbone = open_backbone(arrived(spec, self._folder), config, device=device)
        except DvkError as error:
            return error
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)
        return OpenedModel(os.uname().nodename, self._backbone.dialect)

    def write(
        self,
        conversations: Sequence[Conversation],
        sampling: Sampling,
        subjects: Sequence[TaskContext] | None = None,
        version: int = 0,
        weights: bytes = b"",
    ) -> GeneratedAnswers | DvkError:
        """Answer.

        Args:
            subjects: the task of each, if the answers are to be parsed for candidates.
            version: version of the weights; 0: the initial ones.
            weights: the trained parameters of that version, by name, as torch saves them.
        """
        backbone = self._backbone
        assert backbone is not None, "it is not open"
        if version != self._version:
            self._load(weights)
            self._version = version
        before = (
            backbone.usage.prompt_tokens,
            backbone.usage.completion_tokens,
            backbone.usage.seconds,
        )
        try:
            answers = backbone.generate(conversations, sampling)
        except DvkError as error:
            return error
        if subjects is not None:
            dialect = dialects.get(backbone.dialect)
            answers = [
                parse_reply(dialect, subject, answer)
                for subject, answer in zip(subjects, answers, strict=True)
            ]
        used = backbone.usage
        return GeneratedAnswers(
            answers,
            used.prompt_tokens - before[0],
            used.completion_tokens - before[1],
            used.seconds - before[2],
        )

    def _load(self, weights: bytes) -> None:
        import torch

        mine = dict(self._backbone.model.named_parameters())  # type: ignore[union-attr]  # only models with weights come here
        with torch.no_grad():
            for name, tensor in torch.load(
                io.BytesIO(weights), map_location="cpu", weights_only=True
            ).items():
                mine[name].copy_(tensor)

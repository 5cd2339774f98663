"""Models that write on the nodes of the Ray cluster that judges: `--engine` with `dvk eval` and `dvk train`.

    serving   servers that sample in training, see `dvk.backbone.served`
    writers   a backbone whose answers come from actors: assigns questions, replaces lost actors   (driver)
    writer    the actor, a model in it                                                             (node)

An actor has a GPU's larger half, and the judges share the rest; on CPUs there is one a node. The driver plays: it keeps every
conversation, searches the library and has candidates judged; only the questions of a call are sent out, in as many parts as there
are actors. Several actors also parse the candidates in their answers, which for a small model is the larger work. So a node that
dies costs a part of one call, which another actor answers again; an episode can be neither lost nor duplicated. A conversation's
random numbers belong to it, not to the batch, so its answer does not depend on the actor.

A model is sent as files, through Ray's object store. In training, new weights are stored there once a step, and an actor fetches
them with the next question. Only local models are sent: the driver asks a server itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from dvk.agents.task_context import TaskContext
from dvk.agents.writers import serving
from dvk.agents.writers.writers import RayBackbone
from dvk.backbone import (
    Backbone,
    Completion,
    Conversation,
    Renewed,
    Sampling,
    Trainable,
    open_backbone,
)
from dvk.backbone.packing import is_folder
from dvk.config import Config, changed
from dvk.distributed import ProcessGroup
from dvk.records import Device

__all__ = [
    "RayBackbone",
    "answers",
    "engine_advice",
    "opened",
    "opened_for_training",
    "renew",
    "rest",
    "serving",
    "with_rollout_place",
    "widened",
]

ENGINE_PARAMETERS = 50_000_000
"""Models up to this size sample with dvk's own engine at little loss. Measured on a CPU, one core, 16 answers at once: vLLM 0.32 for CPUs
sampled 2.4 times as fast at 12 and 110 million parameters, but starts in a minute, where a step of nano takes seconds."""


def with_rollout_place(spec: str, config: Config, num_processes: int = 1) -> Config:
    """The settings, with `remote.rollouts` saying whether the model `spec` writes on the cluster, if judges leave room for it.

    Several processes of a run have a GPU each to write on.
    """
    there = (
        config.remote.engine is not None
        and config.remote.rollouts is not False
        and is_folder(spec)
        and num_processes == 1
    )
    return (
        changed(config, {"remote.rollouts": there})
        if there != bool(config.remote.rollouts)
        else config
    )


@contextmanager
def opened(
    spec: str, config: Config, device: Device, here: Backbone | None = None
) -> Iterator[Backbone]:
    """The writers that the settled settings name: the cluster's actors, else the local backbone, which is opened if needed.

    Args:
        device: the device of the tasks and of the model.

    Raises:
        DvkError: there is no such model, or the cluster cannot be had.
    """
    if config.remote.rollouts:
        with closing(RayBackbone(spec, config, device)) as writers:
            yield writers
    else:
        yield here if here is not None else open_backbone(spec, config, device=device)


@contextmanager
def opened_for_training(
    here: Trainable, config: Config, device: Device, run: Path, processes: ProcessGroup
) -> Iterator[Backbone]:
    """The writers of a training: servers, the cluster's actors, or the learner itself.

    Args:
        here: the learner.
        run: the run's folder.

    Raises:
        DvkError: they cannot be had.
    """
    if config.served.rollouts is not None:
        with serving.opened_servers(here, config, run, processes) as servers:
            yield servers
        return
    with opened(here.name, config, device, here) as found:
        yield found


def widened(config: Config, backbone: Backbone) -> Config:
    """The settings, with the total number of conversations a call of all writers."""
    return (
        changed(config, {"rollout.batch": config.rollout.batch * backbone.width})
        if isinstance(backbone, RayBackbone)
        else config
    )


def answers(
    backbone: Backbone,
    subjects: Sequence[TaskContext],
    questions: Sequence[Conversation],
    sampling: Sampling,
) -> list[Completion]:
    """A policy's answers to questions with their tasks; several actors parse theirs. Parsing here alone would keep the judges waiting."""
    if isinstance(backbone, RayBackbone) and backbone.width > 1:
        return backbone.generate(questions, sampling, subjects)
    return backbone.generate(questions, sampling)


def renew(backbone: Backbone, trained: Trainable) -> None:
    """Send these weights to the writers, unless they share the learner's."""
    if isinstance(backbone, Renewed):
        backbone.renew(trained)


def engine_advice(trained: Trainable, config: Config) -> str | None:
    """Advice to sample on servers, for a model that is too large for dvk's own engine; None where it is not, or they do."""
    size = sum(parameter.numel() for parameter in trained.model.parameters())
    if size <= ENGINE_PARAMETERS or config.served.rollouts is not None or config.remote.rollouts:
        return None
    return (
        f"{size / 1e6:.0f} million parameters: dvk's own engine is for models up to {ENGINE_PARAMETERS / 1e6:.0f} million; vLLM "
        "samples several times as fast, --rollouts local"
    )


def rest(backbone: Backbone) -> None:
    """Have writers that share the learner's GPU free their memory until `renew`."""
    if isinstance(backbone, Renewed):
        backbone.rest()

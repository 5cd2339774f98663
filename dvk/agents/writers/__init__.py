"""Models that write on the nodes of the Ray cluster that judges: `--engine` with `dvk eval` and `dvk train`.

    writers   a backbone whose answers come from actors: who writes what, who was lost   (driver)
    writer    the actor, a model in it                                                   (node)

An actor has a GPU's larger half, and the judges share the rest; on CPUs there is one a node. The driver plays: it keeps every
conversation, asks the library, has candidates judged as ever, and only the questions of a call go out, in as many parts as there
are actors. Several read the candidates in what they have written, too, which for a small model is the larger work. So a node that
dies costs a part of one call, which another actor answers again; an episode can neither be lost nor come twice. A conversation's
random numbers belong to it, not to the batch, and so it says the same wherever it is asked.

A model is sent as files, through Ray's object store. In training, new weights are put there once a step, and an actor fetches
them with the first question after. Only models whose weights are here are sent: a server is asked by the driver.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

from dvk.agents.task_context import TaskContext
from dvk.agents.writers.writers import RayBackbone
from dvk.backbone import Backbone, Completion, Conversation, Sampling, Trainable, open_backbone
from dvk.backbone.packing import is_folder
from dvk.config import Config, changed
from dvk.records import Device

__all__ = ["RayBackbone", "answers", "opened", "renew", "settled", "widened"]


def settled(spec: str, config: Config, num_processes: int = 1) -> Config:
    """The settings, with `remote.rollouts` saying whether the model `spec` writes on the cluster, where judges leave it room.

    Several processes of a run have a GPU each to write on.
    """
    there = config.remote.engine is not None and config.remote.rollouts is not False and is_folder(spec) and num_processes == 1
    return changed(config, {"remote.rollouts": there}) if there != bool(config.remote.rollouts) else config


@contextmanager
def opened(spec: str, config: Config, device: Device, here: Backbone | None = None) -> Iterator[Backbone]:
    """The writers that the settled settings name: the cluster's actors, else the local backbone, which is opened if needed.

    Args:
        device: where the tasks are run; the model, too.

    Raises:
        DvkError: there is no such model, or the cluster cannot be had.
    """
    if config.remote.rollouts:
        with closing(RayBackbone(spec, config, device)) as writers:
            yield writers
    else:
        yield here if here is not None else open_backbone(spec, config, device=device)


def widened(config: Config, backbone: Backbone) -> Config:
    """The settings, with as many conversations a call as all who write together take."""
    return changed(config, {"rollout.batch": config.rollout.batch * backbone.width}) if isinstance(backbone, RayBackbone) else config


def answers(backbone: Backbone, subjects: Sequence[TaskContext], questions: Sequence[Conversation], sampling: Sampling) -> list[Completion]:
    """A policy's answers, a question and its task each; those of several actors are read already. One would keep the judges waiting."""
    if isinstance(backbone, RayBackbone) and backbone.width > 1:
        return backbone.generate(questions, sampling, subjects)
    return backbone.generate(questions, sampling)


def renew(backbone: Backbone, trained: Trainable) -> None:
    """Send these weights to the writers, unless they share the learner's."""
    if isinstance(backbone, RayBackbone):
        backbone.renew(trained)

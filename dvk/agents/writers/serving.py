"""Servers that sample in training: `dvk train --rollouts URL[,URL…]`, or `local` for one that this run starts and ends."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from dvk import machine
from dvk.backbone import Trainable
from dvk.backbone.packing import ADAPTER, BASE, is_folder
from dvk.config import Config, changed
from dvk.device_lock import of_cpu, of_gpu
from dvk.distributed import ProcessGroup
from dvk.errors import UsageError

if TYPE_CHECKING:
    from dvk.backbone.served.backbone import ServedBackbone

LOCAL = "local"
FOLDER = "rollouts"
"""In the run's folder: the weights for the servers, and the local server's log."""


def check(config: Config, start: str, num_processes: int) -> None:
    """Refuse settings that do not go together, before a model is opened.

    Raises:
        UsageError: names them.
    """
    if config.served.rollouts is None:
        return
    if config.remote.engine is not None and config.remote.rollouts:
        raise UsageError(
            "a Ray cluster and --rollouts both are to sample", "set remote.rollouts=false"
        )
    if start == "nano" or not is_folder(start):
        raise UsageError(
            f"--rollouts needs a model's folder or name, not `{start}`",
            "give --from hf:PATH-or-name; nano samples fastest with dvk's own engine",
        )
    if config.served.rollouts == LOCAL and num_processes > 1:
        raise UsageError(
            "--rollouts local is for one process, and this run has several",
            "start `vllm serve` on other GPUs, and give --rollouts URL",
        )


def with_gpus_apart(config: Config) -> Config:
    """The settings, with the GPUs of a local server named, which this process and its judges do not use; one GPU is shared."""
    if config.served.rollouts != LOCAL or len(machine.gpu_names()) < 2:
        return config
    from dvk.backbone.served.local import server_gpus

    gpus = server_gpus(config)
    rest = [name for name in machine.visible_gpus() if name not in (gpus or "").split(",")]
    if not rest:
        raise UsageError(
            f"served.gpus={gpus} leaves no GPU to the learner", "leave one of them out"
        )
    machine.confine_to(rest)
    return changed(config, {"served.gpus": gpus})


@contextmanager
def opened_servers(
    here: Trainable, config: Config, run: Path, processes: ProcessGroup
) -> Iterator[ServedBackbone]:
    """The servers of the settings, for the weights of `here`.

    Args:
        run: the run's folder.

    Raises:
        DvkError: no server answers, or the local one does not start.
    """
    from dvk.backbone.served.backbone import ServedBackbone, servers
    from dvk.backbone.served.local import LocalServer, SharedTurns, shares_gpu
    from dvk.backbone.served.pool import ServerPool

    assert config.served.rollouts is not None
    urls, local = config.served.rollouts, None
    turn: Callable[[], AbstractContextManager[object]] = nullcontext
    with ExitStack() as ended:
        if urls == LOCAL:
            local = LocalServer(base_model(here.name), config, run / FOLDER / "server.log")
            ended.callback(local.stop)
            local.start()
            urls = local.url
        running = servers(urls, config)
        shared = local is not None and shares_gpu(config)
        if not machine.gpu_names() and any(server.is_local for server in running):
            turn = SharedTurns(of_cpu())
        elif shared:
            turn = SharedTurns(of_gpu())
        revive = (lambda _: local.revive()) if local is not None else None
        pool = ServerPool(running, config.backbone.concurrency, revive, turn)
        if config.rollout.temperature != 1:
            for server in pool.alive:
                server.require_sampled_logprobs()
        name = f"served:{urls}"
        folder = (config.served.adapters or run / FOLDER) / "weights"
        backbone = ServedBackbone(
            name, pool, here.chat, here.dialect, config.backbone, folder, processes, sleeps=shared
        )
        ended.enter_context(closing(backbone))
        yield backbone


def base_model(spec: str) -> str:
    """Folder or Hub name of a spec's whole weights: of its base model if it holds adapters."""
    argument = spec.partition(":")[2]
    file = Path(argument).expanduser() / ADAPTER
    if file.is_file():
        return base_model(f"hf:{json.loads(file.read_text())[BASE]}")
    folder = Path(argument).expanduser()
    return str(folder.absolute()) if folder.is_dir() else argument

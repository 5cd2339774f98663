"""Which court judges: this machine's, a server's, or a Ray cluster's, where the settings name one."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from dvk import registry
from dvk.cluster.connection import connect
from dvk.config import Config
from dvk.harness.remote.ray import RayCourt
from dvk.harness.session.concurrency import here, of_each
from dvk.harness.session.judge_session import Contract, Court
from dvk.records import Device, Task

AnyCourt: TypeAlias = "Court | RayCourt | Any"

SERVERS = {"kernelgym": "dvk.interop.kernelgym.remote:RemoteCourt"}
"""Protocol of a server that judges → its court. By import path: interop is above."""


def open_court(
    task: Task, config: Config, *, backward: bool = False, brief: bool = False, require_kernels: bool = False, gpu: str | None = None,
    contract: Contract = "module", profile: bool | Literal["times"] = False,
) -> AnyCourt:
    """A court for `task`; arguments as of `Court`.

    Raises:
        UsageError: `remote.judge` or `remote.engine` is none.
        MachineError: the cluster cannot be reached.
    """
    if config.remote.judge is not None:
        return registry.resolve("kernelgym", SERVERS, "protocol")(
            task, config, backward=backward, brief=brief, require_kernels=require_kernels, contract=contract, profile=profile)
    if config.remote.engine is not None:
        return RayCourt(task, config, backward=backward, brief=brief, require_kernels=require_kernels, contract=contract, profile=profile)
    return Court(
        task, config, backward=backward, brief=brief, require_kernels=require_kernels, gpu=gpu, contract=contract, profile=profile)


def room(config: Config, device: Device) -> int:
    """Candidates to have in work at a time, on all of this machine or of the cluster that the settings name.

    Raises:
        UsageError, MachineError: see `connect`; the cluster has no such device.
    """
    if config.remote.engine is None:
        return here(config, device)
    return connect(config.remote.engine).room(device, of_each(config, device))


def elsewhere(config: Config) -> dict[str, object]:
    """What tells verdicts of a cluster from those of this machine, for their key: the kinds of machine in it.

    Raises:
        UsageError, MachineError: see `connect`.
    """
    return {} if config.remote.engine is None else {"cluster": connect(config.remote.engine).machines}

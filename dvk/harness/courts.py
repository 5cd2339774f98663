"""Which court judges: this machine's, or a server's where the settings name one."""

from __future__ import annotations

from typing import Literal, TypeAlias

from dvk.config import Config
from dvk.harness.court import Contract, Court
from dvk.harness.kernelgym.remote import RemoteCourt
from dvk.records import Task

AnyCourt: TypeAlias = "Court | RemoteCourt"


def open_court(
    task: Task, config: Config, *, backward: bool = False, brief: bool = False, require_kernels: bool = False, gpu: str | None = None,
    contract: Contract = "module", profile: bool | Literal["times"] = False,
) -> AnyCourt:
    """A court for `task`; arguments as of `Court`.

    Raises:
        UsageError: `remote.judge` is not one.
    """
    if config.remote.judge is not None:
        return RemoteCourt(
            task, config, backward=backward, brief=brief, require_kernels=require_kernels, contract=contract, profile=profile)
    return Court(
        task, config, backward=backward, brief=brief, require_kernels=require_kernels, gpu=gpu, contract=contract, profile=profile)

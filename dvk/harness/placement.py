"""Choice of the judge session: this machine's, a server's, or a Ray cluster's, by the settings."""

from __future__ import annotations

from dvk import registry
from dvk.cluster.connection import connect
from dvk.config import Config
from dvk.harness.remote.ray import RayJudgeSession
from dvk.harness.session.concurrency import local_workers, per_device
from dvk.harness.session.judge_session import JudgeSession
from dvk.harness.session.judge_spec import Judge, JudgeSpec
from dvk.records import Device, Task

JUDGES = {
    "kernelgym": "dvk.interop.kernelgym.remote:RemoteJudgeSession",
    "table": "dvk.harness.remote.table:TableJudgeSession",
}
"""Kind of a judge elsewhere, the part of `remote.judge` before its colon → its judge session. By import path, since interop is a
higher layer."""


def open_session(
    task: Task,
    config: Config,
    spec: JudgeSpec = JudgeSpec(),  # noqa: B008
    *,
    gpu: str | None = None,
) -> Judge:
    """Return a judge for `task`; `gpu` as for `JudgeSession`.

    Raises:
        UsageError: `remote.judge` or `remote.engine` is invalid.
        MachineError: the cluster cannot be reached.
    """
    if config.remote.judge is not None:
        kind = config.remote.judge.partition(":")[0]
        kind = kind if kind in JUDGES else "kernelgym"
        opened: Judge = registry.resolve(kind, JUDGES, "judge")(task, config, spec)
        return opened
    if config.remote.engine is not None:
        return RayJudgeSession(task, config, spec)
    return JudgeSession(task, config, spec, gpu=gpu)


def num_workers(config: Config, device: Device) -> int:
    """Return the number of candidates to judge at once, on all of this machine or of the configured cluster.

    Raises:
        UsageError, MachineError: see `connect`; the cluster has no such device.
    """
    if config.remote.engine is None:
        return local_workers(config, device)
    return connect(config.remote.engine).room(device, per_device(config, device))


def is_remote(config: Config) -> dict[str, object]:
    """Return the kinds of machine of a cluster, which distinguish its verdicts in their key from those of this machine.

    Raises:
        UsageError, MachineError: see `connect`.
    """
    return (
        {} if config.remote.engine is None else {"cluster": connect(config.remote.engine).machines}
    )

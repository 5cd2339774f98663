"""A judge session on a KernelGYM server. No candidate runs here, and this machine's speed does not matter.

The protocol carries a reference as one text in KernelBench's format. Requests beyond its fields (input specs, the claim tier, gradients,
other baselines …) need `dvk serve`; for other servers they are an error, since those would ignore them
silently.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Sequence

from dvk.config import Config
from dvk.errors import MachineError, UsageError
from dvk.harness.remote.elsewhere import JudgeElsewhere
from dvk.harness.session.judge_spec import JudgeSpec
from dvk.interop.kernelgym.client import Client, RequestRefused
from dvk.interop.kernelgym.fields import JudgeOptions
from dvk.interop.kernelgym.readings import NoVerdict, verdict_of
from dvk.records import Candidate, Device, Status, Task, Tier, Verdict


def devices(config: Config) -> tuple[Device, ...]:
    """Devices on which the configured server can judge, the preferred one first; KernelGYM's own servers have GPUs only.

    Raises:
        MachineError, UsageError: see `Client.health`.
    """
    assert config.remote.judge is not None, "there is no remote judge"
    health = Client(config.remote.judge, config.remote).health()
    told = health.get("devices") if "dvk" in health else None
    known: list[Device] = ["cuda", "cpu"]
    return tuple(device for device in known if isinstance(told, list) and device in told) or (
        "cuda",
    )


def require_ours(config: Config, what: str) -> None:
    """Refuse a server that is no `dvk serve`, since `what` needs the claim tier.

    Raises:
        MachineError, UsageError: see `Client.health`; it is not `dvk serve`.
    """
    assert config.remote.judge is not None, "there is no remote judge"
    client = Client(config.remote.judge, config.remote)
    if "dvk" not in client.health():
        raise UsageError(
            f"{what}, which the KernelGYM server at `{client.url}` cannot",
            "start `dvk serve` there, or leave --judge out",
        )


_TIMED_AGAINST = {(): "pytorch", ("compile",): "torch_compile"}


class RemoteJudgeSession(JudgeElsewhere):
    """As `JudgeSession`, by a server.

    Args:
        task: the reference.
        config: its `remote` section names the server.
        spec: settings for every candidate.

    Raises (`judge`):
        MachineError, UsageError: see `Client.evaluate`; the server is no `dvk serve` and the request needs one.
    """

    def __init__(self, task: Task, config: Config, spec: JudgeSpec = JudgeSpec()):  # noqa: B008 - it is frozen
        assert config.remote.judge is not None, "there is no remote judge"
        super().__init__(task, config)
        self.asked = JudgeOptions.model_validate(
            spec.model_dump() | {"profile": bool(spec.profile)}
        )
        self.client = Client(config.remote.judge, config.remote)
        self._ours: bool | None = None
        """Whether the server is a `dvk serve`; None before the first request."""

    def judge(
        self,
        candidate: Candidate,
        tier: Tier = "search",
        baselines: Sequence[str] = (),
        deadline: float | None = None,
    ) -> Verdict | None:
        """See `JudgeElsewhere.judge`."""
        began = time.monotonic()
        if self._ours is None:
            self._ours = "dvk" in self.client.health()
        if not self._ours:
            self._check(tier, baselines)
        request = self._request(candidate, tier, baselines)
        try:
            result = self.client.evaluate(request, deadline)
        except RequestRefused as error:
            if error.field != "kernel_code":
                problem = f"the judge at `{self.client.url}` does not take `{error.field}`: {error}"
                raise UsageError(problem, "judge it here: leave --judge out") from None
            return Verdict(
                status=Status.REJECTED,
                tier=tier,
                stage="static",
                error=f"the server does not take it: {error}",
            )
        if result is None:
            return None
        try:
            return verdict_of(result, tier, time.monotonic() - began, ours=self._ours)
        except NoVerdict as error:
            problem = (
                f"the judge at `{self.client.url}` gave no verdict on `{self.task.name}`: {error}"
            )
            raise MachineError(
                problem, "look at its log, or judge here: leave --judge out"
            ) from None

    def _check(self, tier: Tier, baselines: Sequence[str]) -> None:
        """Refuse requests that KernelGYM's own servers would silently ignore."""
        task, asked = self.task, self.asked
        unknown = {
            "--tier claim": tier == "claim",
            "--backward": asked.backward,
            f"--contract {asked.contract}": asked.contract == "plan",
            "--input": bool(task.input_specs),
            "--init": bool(task.init_args),
            "--eval": task.eval_mode,
            "--dtype": task.dtype is not None,
            "--device cpu": task.device == "cpu",
            f"--baseline {' '.join(baselines)}": tuple(baselines) not in _TIMED_AGAINST,
        }
        if wrong := next((name for name, so in unknown.items() if so), None):
            problem = f"`{wrong}` is nothing that the KernelGYM server at `{self.client.url}` knows"
            raise UsageError(problem, "drop it, or start `dvk serve` there")

    def _request(
        self, candidate: Candidate, tier: Tier, baselines: Sequence[str]
    ) -> dict[str, object]:
        task, remote = self.task, self.config.remote
        reference, entry = (task.source, task.entry) if self._ours else as_model(task)
        asked = self.asked.model_copy(
            update={
                "tier": tier,
                "baselines": tuple(baselines),
                "device": task.device,
                "inputs": task.input_specs,
                "init": task.init_args,
                "eval_mode": task.eval_mode,
                "dtype": task.dtype,
            }
        )
        return {
            "task_id": f"dvk-{candidate.id}-{uuid.uuid4().hex[:12]}",
            "reference_code": reference,
            "kernel_code": candidate.source,
            "entry_point": entry,
            "backend": candidate.backend,
            "reference_backend": _TIMED_AGAINST.get(tuple(baselines), "pytorch"),
            "timeout": int(
                min(3600, max(10, remote.timeout_s / 3))
            ),  # the rest is time in its queue
            "run_performance": tier != "smoke",
            "measure_performance": tier != "smoke",
            "run_correctness": True,
            "enable_profiling": self.asked.profile,
            "enable_triton_detection": candidate.backend == "triton",
            "run_triton_detection": candidate.backend == "triton",
            "verbose_errors": True,
            **({"dvk": asked.model_dump(mode="json")} if self._ours else {}),
        }


def as_model(task: Task) -> tuple[str, str]:
    """The reference with its entry under the name `Model`: the candidate's class has to be called `ModelNew`, after it.

    Raises:
        UsageError: it has no get_inputs(), which the protocol needs.
    """
    if not re.search(r"^\s*def get_inputs\b|^get_inputs\s*=", task.source, re.M):
        raise UsageError(
            f"`{task.name}` has no get_inputs(), and KernelGYM's protocol carries no other inputs",
            "write one into the file",
        )
    if task.entry == "Model" and task.kind == "module":
        return task.source, "Model"
    if task.kind == "module":
        return f"{task.source.rstrip()}\n\n\nclass Model({task.entry}):\n    pass\n", "Model"
    wrapped = (
        f"import torch as _torch\n\n\nclass Model(_torch.nn.Module):\n    def forward(self, *args, **kwargs):\n"
        f"        return {task.entry}(*args, **kwargs)\n"
    )
    return f"{task.source.rstrip()}\n\n\n{wrapped}", "Model"

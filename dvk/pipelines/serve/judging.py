"""One request of `dvk serve`: parse it, examine its reference once, and after the judge, answer in KernelGYM's format."""

from __future__ import annotations

import re
import tempfile
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any

from dvk import backends, tasks
from dvk.config import Config
from dvk.errors import DvkError, Exhausted, MachineError, UsageError
from dvk.harness import BASELINES, JudgeQueue, JudgeSpec
from dvk.harness.queue import default_contract
from dvk.harness.session import static
from dvk.harness.session.single_flight import SingleFlight
from dvk.harness.session.verdict_cache import Remembered
from dvk.harness.waiting_jobs import Judgement
from dvk.interop.kernelgym import Evaluation, EvaluationResult, JudgeOptions
from dvk.interop.kernelgym.answers import result_of
from dvk.records import BackendName, Candidate, Device, Status, Task, Verdict, content_hash

REFERENCES = 256
"""Examined references kept; examining one takes seconds."""
JOIN_S = 1.0
"""Timeout at closing for judges in progress; their processes end with this one."""


class JudgeService:
    """The judge as requests see it. Use as a context manager: within it, its processes stay for the next request.

    References come from strangers, too: every process that runs one is confined like a candidate's.

    Args:
        config: limits, judge and `serve` settings.
        workers: requests that are answered at a time.
        device: default device; None takes the GPU if there is one.
        remembered: cached verdicts; None judges everything again.
        require_kernels: every candidate's own kernels must do all the computing.
    """

    def __init__(
        self,
        config: Config,
        workers: int,
        device: Device | None = None,
        remembered: Remembered | None = None,
        *,
        require_kernels: bool = False,
    ):
        strangers = config.limits.model_copy(update={"trust_references": False})
        config = config.model_copy(update={"limits": strangers})
        self.config, self.require_kernels = config, require_kernels
        self.devices: tuple[Device, ...] = (
            ("cuda", "cpu") if backends.default_device() == "cuda" else ("cpu",)
        )
        self.device: Device = device or self.devices[0]
        self.remembered = remembered
        self.queue: JudgeQueue[str] = JudgeQueue(workers, config)
        self._changed = threading.Lock()
        self._references: OrderedDict[str, Task | DvkError] = OrderedDict()
        self._looking: dict[str, SingleFlight[Task | DvkError]] = {}

    def __enter__(self) -> JudgeService:
        self.queue.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.queue.close(wait_s=JOIN_S)

    def prepare(self, request: Evaluation) -> Judgement | EvaluationResult:
        """What the judge is asked, or the result, if that is known without it; errors in its texts are results, not exceptions.

        Raises:
            MachineError: this machine cannot judge.
            UsageError: a missing backend or device, an unknown baseline.
        """
        asked = self._asked(request)
        if (why := _unreadable(request)) is not None:
            field_name, error = why
            status = Status.REJECTED if field_name == "kernel_code" else Status.BROKEN_TASK
            return self.result(
                request, Verdict(status=status, tier=asked.tier, stage="static", error=error)
            )
        candidate, device = self._place(request, asked)
        task = self._reference(request, asked, device)
        if isinstance(task, MachineError):
            raise task
        if isinstance(task, DvkError):
            text = f"{task.message} ({task.hint})"
            return self.result(
                request,
                Verdict(status=Status.BROKEN_TASK, tier=asked.tier, stage="check", error=text),
            )
        whole = request.dvk is not None
        spec = JudgeSpec(
            tier=asked.tier,
            baselines=asked.baselines,
            backward=asked.backward,
            require_kernels=asked.require_kernels,
            contract=asked.contract if whole else default_contract(device),
            profile=asked.profile if whole else "times" if asked.profile else False,
        )
        return Judgement(task, candidate, spec, None if request.force_refresh else self.remembered)

    def result(self, request: Evaluation, verdict: Verdict) -> EvaluationResult:
        """The verdict in KernelGYM's format."""
        return result_of(
            request.task_id,
            verdict,
            over=_over(request),
            whole=request.dvk is not None,
            detect=detects(request),
        )

    def _asked(self, request: Evaluation) -> JudgeOptions:
        asked = asked_of(request)
        return asked.model_copy(update={"require_kernels": True}) if self.require_kernels else asked

    def _place(self, request: Evaluation, asked: JudgeOptions) -> tuple[Candidate, Device]:
        """The candidate with its back end, and the device to judge on."""
        source = candidate_source(request)
        detected: BackendName = backends.detect(source)
        # Its trainer always says triton; a text that imports no Triton is no Triton.
        backend: BackendName = (
            detected if request.backend in ("auto", "triton") else request.backend
        )
        device = asked.device or (
            "cpu" if backend == "cpp" and static.calls_cpp(source) else self.device
        )
        if device not in self.devices:
            raise UsageError(f"this server has no {device}", f"ask for {' or '.join(self.devices)}")
        if backend != "cpp" and (why := backends.get(backend).available()) is not None:
            raise UsageError(f"this server has no {backend}: {why}", "write it for another backend")
        if unknown := [name for name in asked.baselines if name not in BASELINES]:
            raise UsageError(f"unknown baseline: `{unknown[0]}`", f"choose {', '.join(BASELINES)}")
        return Candidate(source=source, backend=backend, proposer="request"), device

    def _reference(
        self, request: Evaluation, asked: JudgeOptions, device: Device
    ) -> Task | DvkError:
        """The examined reference, or its error; examined once, but again after a transient error or on refresh."""
        how: dict[str, Any] = {
            "inputs": asked.inputs,
            "init": asked.init,
            "eval_mode": asked.eval_mode,
            "dtype": asked.dtype,
        }
        name = content_hash(request.reference_code, request.entry_point, device, repr(how))
        with self._changed:
            known = self._references.get(name)
            if known is not None and not (request.force_refresh and isinstance(known, DvkError)):
                self._references.move_to_end(name)
                return known
            once = self._looking.setdefault(name, SingleFlight())
        result, _ = once.do(name, lambda: self._examine(request, device, how))
        with self._changed:
            self._looking.pop(name, None)
            if not isinstance(result, (MachineError, Exhausted)):  # transient errors
                self._references[name] = result
            while len(self._references) > REFERENCES:
                self._references.popitem(last=False)
        return result

    def _examine(self, request: Evaluation, device: Device, how: dict[str, Any]) -> Task | DvkError:
        with tempfile.TemporaryDirectory(prefix="dvk_serve_") as folder:
            file = Path(folder) / "reference.py"
            file.write_text(request.reference_code, encoding="utf-8")
            try:
                task = tasks.load(
                    f"{file}:{request.entry_point}", device=device, limits=self.config.limits, **how
                )
            except DvkError as error:
                return error
        return task.model_copy(
            update={"path": None, "folders": (), "name": str(request.uuid or request.entry_point)}
        )


def asked_of(request: Evaluation) -> JudgeOptions:
    """The judge's options: from the request's `dvk`, else from KernelGYM's own fields."""
    if request.dvk is not None:
        return request.dvk
    timed = request.run_performance is not False and request.measure_performance is not False
    over = _over(request)
    return JudgeOptions(
        tier="search" if timed else "smoke",
        baselines=(over,) if over and timed else (),
        profile=bool(request.enable_profiling) or detects(request),
    )


def detects(request: Evaluation) -> bool:
    """Whether candidates that launch no generated kernels are to be reported."""
    asked = (
        request.enable_triton_detection is not False and request.detect_decoy_kernel is not False
    )
    return request.dvk is None and request.backend == "triton" and asked


def candidate_source(request: Evaluation) -> str:
    """The candidate with its class renamed to the judge's name."""
    wanted = f"{request.entry_point}New"
    if (
        request.dvk is not None
        or wanted == "ModelNew"
        or re.search(r"^class\s+ModelNew\b", request.kernel_code, re.M)
    ):
        return request.kernel_code
    if not re.search(rf"^class\s+{wanted}\b", request.kernel_code, re.M):
        return request.kernel_code
    return f"{request.kernel_code.rstrip()}\n\n\nModelNew = {wanted}\n"


def _over(request: Evaluation) -> str | None:
    """The speedup's baseline; None is eager."""
    return (
        "compile"
        if request.dvk is None and request.reference_backend in ("torch_compile", "compile")
        else None
    )


def _unreadable(request: Evaluation) -> tuple[str, str] | None:
    """The field whose text no file can hold, and why."""
    for name in ("kernel_code", "reference_code"):
        text = getattr(request, name)
        try:
            size = len(text.encode())
        except UnicodeEncodeError:
            return name, "it is not Unicode text: half of a surrogate pair"
        if size > static.MAX_SOURCE_BYTES:
            return name, f"it is longer than {static.MAX_SOURCE_BYTES >> 20} MiB"
    return None

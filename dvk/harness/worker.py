"""The worker: builds the reference, then compiles, checks and times candidates one by one. Child side.

Only this process executes code that a model wrote. It announces each stage before entering it, so
that whatever kills it is blamed on the right stage. It judges in the process it runs in: defence
against candidates that tamper with the judge belongs to a later protocol, not to this file.
"""

from __future__ import annotations

import time
import traceback
from typing import Any

import torch

from dvk.config import Judge
from dvk.errors import TaskError
from dvk.harness import timing
from dvk.harness.cases import Reference
from dvk.harness.check import check
from dvk.machine import fingerprint
from dvk.records import Task
from dvk.sandbox import Channel
from dvk.tasks.build import CandidateError, build, build_candidate
from dvk.tasks.state import restore, snapshot
from dvk.tasks.trees import named_tensors

COMPILE_WORDS = ("CompilationError", "compiler failed", "Error building extension", "nvcc", "ptxas", "NVRTC", "CompileTimeAssertionFailure")
MAX_VARIANTS = 4
"""Shapes besides the native one that a thorough check tries."""


def main(channel: Channel) -> None:
    """Serve one session: an opening request, then one request a candidate."""
    request = channel.receive()
    if request is None:
        return
    task = Task.model_validate(request["task"])
    settings = Judge.model_validate(request["judge"])
    try:
        worker = Worker(task, settings, request["tier"], request["baselines"], request["seed"], request["thorough"])
    except TaskError as error:
        channel.send({"broken": error.message})
        return
    except Exception as error:  # noqa: BLE001 - the user's reference may raise anything
        channel.send({"broken": f"the reference failed: {_first_line(error)}"})
        return
    channel.send({"opened": True})
    while (request := channel.receive()) is not None:
        began = time.monotonic()
        fields = worker.judge(request["source"], request["timed"], lambda stage: channel.send({"stage": stage}))
        channel.send({"verdict": {**fields, "seconds": time.monotonic() - began, "machine": fingerprint(task.device)}})


class Worker:
    """A reference with its cases and baselines, ready to judge."""

    def __init__(self, task: Task, settings: Judge, tier: str, baselines: list[str], seed: int, thorough: bool):
        self.task, self.settings, self.tier, self.seed = task, settings, tier, seed
        built = build(task)
        self.reference = Reference(built, task, *((settings.num_seeds, MAX_VARIANTS) if thorough else (1, 1)))
        next(self.reference.each())
        self.baselines: dict[str, Any] = {}
        if "compile" in baselines and tier != "smoke":
            self.baselines["compile"] = self._compiled()

    def _compiled(self) -> Any:
        compiled = torch.compile(self.reference.model)
        case = self.reference.cases[0]
        args, kwargs = case.arguments()
        try:
            with torch.no_grad():
                for _ in range(3):
                    compiled(*args, **kwargs)
        except Exception:  # noqa: BLE001 - torch.compile may fail on anything; then there is no such baseline
            return None
        finally:
            restore(self.reference.model, self.reference.state)
        return compiled

    def judge(self, source: str, timed: bool, stage: Any) -> dict[str, Any]:
        """Verdict fields for one candidate."""
        at = "compile"
        try:
            stage(at)
            model = build_candidate(source, self.task, self.reference.built)
            stage(at := "check")
            outcome = check(model, self.reference)
            checked = {"precision": self.task.precision, "tolerance": outcome.tolerance, "worst_error": outcome.worst_error,
                       "num_checks": outcome.num_checks, "shapes": outcome.shapes}
            if outcome.error:
                return {"status": "mismatch", "stage": at, "error": outcome.error, **checked}
            if self.tier == "smoke" or not timed:
                return {"status": "ok", "stage": "done", **checked}
            stage(at := "time")
            return {"status": "ok", "stage": "done", "timing": self._time(model, stage), **checked}
        except CandidateError as error:
            return {"status": error.status, "stage": error.stage, "error": error.message}
        except torch.cuda.OutOfMemoryError as error:
            return {"status": "launch_error", "stage": at, "error": f"out of GPU memory: {_first_line(error)}"}
        except BaseException as error:  # noqa: BLE001 - candidate code may raise anything, SystemExit included
            text = "".join(traceback.format_exception(error))
            kind = "compile_error" if any(w in text for w in COMPILE_WORDS) else "launch_error"
            return {"status": kind, "stage": "compile" if kind == "compile_error" else at, "error": blame(error)}

    def _time(self, model: torch.nn.Module, stage: Any) -> dict[str, Any]:
        case = self.reference.cases[0]
        args, kwargs = case.arguments()
        working = sum(t.numel() * t.element_size() for _, t in named_tensors((args, kwargs, case.outputs)))
        models = {"eager": self.reference.model, "candidate": model, **{n: m for n, m in self.baselines.items() if m is not None}}
        arms = [lambda m=m: m(*args, **kwargs) for m in models.values()]
        claim = self.tier == "claim"
        kept = snapshot(model)
        with timing.alone(self.task.device):
            stage("time")
            samples = timing.measure(
                arms, self.task.device, working_bytes=working, num_pairs=self.settings.claim_pairs if claim else self.settings.search_pairs,
                max_s=self.settings.claim_s if claim else self.settings.search_s, warmup_s=self.settings.warmup_s, seed=self.seed)
        restore(model, kept)
        restore(self.reference.model, self.reference.state)
        names = list(models)
        ratios = {n: samples.ratio(i, 1, self.settings.num_bootstrap) for i, n in enumerate(names) if n != "candidate"}
        intervals = {n: {"value": v, "lo": lo, "hi": hi} for n, (v, lo, hi) in ratios.items()}
        return {"candidate_ms": samples.median_ms(1), "reference_ms": samples.median_ms(0), "speedup": intervals.pop("eager"),
                "baselines": intervals, "baselines_ms": {n: samples.median_ms(names.index(n)) for n in intervals},
                "num_pairs": len(samples.ms), "seconds": samples.seconds}


def blame(error: BaseException) -> str:
    """What a writer of kernels needs: the last lines of the message, and where it was raised."""
    text = str(error).strip() or type(error).__name__
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "dvk" not in f.filename.split("/")[-2:-1]]
    where = f" (line {frames[-1].lineno}: {frames[-1].line})" if frames else ""
    return f"{type(error).__name__}: {text[:2000]}{where}"


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__

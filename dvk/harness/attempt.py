"""One candidate, from text to findings: compile, check, time. Child side; may die at any moment.

Nothing here decides what the user is told about a death; it only says, before each stage, which one
begins (`say`). What it returns are the fields of a `Verdict` that it knows.
"""

from __future__ import annotations

import gc
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn

from dvk.config import Judge
from dvk.harness import compare, timing
from dvk.harness.cases import FEW, Case, Cases, buffers_of, call, put_buffers
from dvk.harness.intervals import ratio_interval
from dvk.records import Status, Task, Timing
from dvk.tasks.build import CandidateError, build_candidate, same_weights
from dvk.tasks.sourcefile import blame

Say = Callable[[str], None]
Findings = dict[str, Any]

INTERPRETER_SHARE = 0.6
"""Of a candidate's time: where nothing is timed and checking is slow, later input sets are left out after this."""


class Wrong(Exception):
    """The candidate disagrees with the reference; the message says how."""

    def __init__(self, message: str, error: float = float("nan")):
        super().__init__(message)
        self.error = error


class Attempt:
    """Judges one candidate against a session's cases.

    Args:
        task: what both compute.
        cases: the input sets, reference included.
        settings: pairs, seconds and resamples.
        tier: `smoke`, `search` or `claim`.
        untimed: None, or why no time is taken.
        say: called with the name of each stage as it begins.
        lane: context manager that holds the device, for a measurement (True) or for other work.
    """

    def __init__(
        self,
        task: Task,
        cases: Cases,
        settings: Judge,
        tier: str,
        untimed: str | None,
        say: Say,
        lane: Callable[[bool], AbstractContextManager[None]],
    ):
        self.task, self.cases, self.settings, self.tier, self.untimed = task, cases, settings, tier, untimed
        self.say, self.lane = say, lane
        self.checked: list[Case] = []
        self.worst = 0.0
        self.tolerance = 0.0

    def run(self, source: str, baselines: Mapping[str, timing.Arm], clock: timing.Clock | None) -> Findings:
        """Findings on `source`; whatever it raises is one."""
        stage = "compile"
        began = time.perf_counter()
        try:
            self.say("queue")
            with self.lane(False):
                self.say("compile")
                model = build_candidate(source, self.task, self.cases.built)
                initial = buffers_of(model)
                stage = "check"
                self.say("check")
                for number in range(len(self.cases)):
                    if (
                        self.untimed
                        and self.checked
                        and time.perf_counter() - began > INTERPRETER_SHARE * self.settings.candidate_s
                    ):
                        break
                    self._check(model, initial, number)
                self._weights_kept(model)
            if self.tier == "smoke" or self.untimed or clock is None:
                return self._findings(Status.OK, "done", untimed_reason=self.untimed)
            stage = "time"
            timed = self._time(model, initial, baselines, clock)
            return self._findings(Status.OK, "done", timing=timed.model_dump(mode="json"))
        except CandidateError as error:
            return self._findings(Status(error.status), error.stage, error=error.message)
        except Wrong as error:
            self.worst = error.error if not error.error <= self.worst else self.worst
            return self._findings(Status.MISMATCH, stage, error=str(error))
        except BaseException as error:  # noqa: BLE001 - a candidate may raise anything, KeyboardInterrupt included
            traceback.print_exc(limit=20)
            return self._findings(_status_of(error, stage), _stage_of(error, stage), error=blame(error))

    def _findings(self, status: Status, stage: str, **more: Any) -> Findings:
        reached = bool(self.checked) or status is Status.MISMATCH
        worst = self.worst if self.worst == self.worst and self.worst != float("inf") else None
        return {
            "status": status.value,
            "stage": stage,
            "precision": self.task.precision if reached else None,
            "tolerance": self.tolerance if reached else None,
            "worst_error": worst if reached else None,
            "num_checks": len(self.checked),
            "shapes": list(dict.fromkeys(case.text for case in self.checked)),
            **more,
        }

    # ------------------------------------------------------------ check

    def _check(self, model: nn.Module, initial: dict[str, torch.Tensor], number: int) -> None:
        case = self.cases.get(number)
        put_buffers(model, initial)
        output = call(model, case.args, case.kwargs, case.seed)
        if self.task.device == "cuda":
            torch.cuda.synchronize()
        for before, now in zip(case.kept, case.inputs, strict=True):
            if not compare.same_bits(before, now):
                self.cases.forget(number)
                raise Wrong(f"it changes an input in place ({case.text})")
        self._agree(output, case)
        self._buffers_agree(model, case)
        self.checked.append(case)

    def _agree(self, output: Any, case: Case) -> None:
        leaves, difference = compare.structure(output, case.spec, case.expected)
        if difference is not None:
            raise Wrong(f"{difference.text} ({case.text})")
        for number, (leaf, want) in enumerate(zip(leaves, case.expected, strict=True)):
            if not isinstance(leaf, torch.Tensor):
                continue
            self.tolerance = max(self.tolerance, want.tolerance)
            worst, difference = compare.values(leaf, want)
            if difference is None:
                self.worst = max(self.worst, worst)
            elif not self._on_edges(difference, leaf.numel(), case, number):
                raise Wrong(f"{difference.text} ({case.text}){self._excuse(leaf)}", difference.error)

    def _on_edges(self, difference: compare.Difference, num_elements: int, case: Case, number: int) -> bool:
        """Only so many elements are off, and only so far, as jump in float64 under one rounding of the inputs."""
        if not 0 <= difference.count <= max(8, FEW * num_elements):
            return False
        found = self.cases.jumps(case)
        if not found or not found[number].count:
            return False
        return difference.count <= 2 * found[number].count + 4 and difference.error <= 2 * found[number].size

    def _excuse(self, leaf: torch.Tensor) -> str:
        inputs = [s.dtype for s in self.task.inputs]
        if self.untimed and ("bfloat16" in inputs or leaf.dtype is torch.bfloat16):
            return "; Triton's interpreter computes bfloat16 wrongly, so check this one on a GPU"
        return ""

    def _buffers_agree(self, model: nn.Module, case: Case) -> None:
        """Running statistics are part of what a module in train mode computes."""
        got = dict(model.named_buffers())
        before = self.cases.initial
        for name, want in case.buffers.items():
            changed = not compare.same_bits(want, before[name])
            if name not in got:
                if changed:
                    raise Wrong(f"it does not update the buffer `{name}` as the reference does ({case.text})")
                continue
            mine = got[name]
            if compare.same_bits(mine, want):
                continue
            if mine.shape != want.shape or mine.dtype != want.dtype or not want.is_floating_point():
                raise Wrong(f"the buffer `{name}` differs after the call ({case.text})")
            rms = max(float(want.double().square().mean().sqrt()), 1e-30)
            ratio = compare.worst_ratio(mine, want, rms, self.cases.range.ceiling)
            if not ratio <= 1:
                raise Wrong(
                    f"the buffer `{name}` differs after the call by {ratio * self.cases.range.ceiling:.1e} of scale "
                    f"({case.text})"
                )

    def _weights_kept(self, model: nn.Module) -> None:
        """Both arms must still have the weights they were given."""
        reference = self.cases.built.model
        if not same_weights(model, reference):
            return
        theirs = dict(reference.named_parameters())
        for name, tensor in model.named_parameters():
            if name in theirs and not compare.same_bits(tensor.detach(), theirs[name].detach()):
                raise Wrong(f"it changes the weight `{name}`")

    # ------------------------------------------------------------ time

    def _time(
        self,
        model: nn.Module,
        initial: dict[str, torch.Tensor],
        baselines: Mapping[str, timing.Arm],
        clock: timing.Clock,
    ) -> Timing:
        case = self.cases.get(0)
        claim = self.tier == "claim"
        reference = self.cases.built.model
        arms: dict[str, timing.Arm] = {
            "reference": lambda: reference(*case.args, **case.kwargs),
            "candidate": lambda: model(*case.args, **case.kwargs),
            **baselines,
        }
        self.say("queue")
        with self.lane(True):
            self.say("time")
            samples = timing.measure(
                arms,
                clock,
                warmup_s=self.settings.warmup_s,
                limit_s=self.settings.claim_s * (1 + len(baselines)) if claim else self.settings.search_s,
                max_rounds=self.settings.claim_pairs if claim else self.settings.search_pairs,
                early=None if claim else ("reference", "candidate"),
            )
        # A kernel that is honest for its first calls only, or wrote where it should not have, shows here.
        put_buffers(reference, self.cases.initial)
        self.say("check")
        again = len(self.checked)
        self._check(model, initial, 0)
        del self.checked[again:]
        ms = samples.ms
        ours = ms["candidate"]
        return Timing(
            candidate_ms=_median(ours),
            reference_ms=_median(ms["reference"]),
            speedup=ratio_interval(ms["reference"], ours, self.settings.num_bootstrap),
            baselines={name: ratio_interval(ms[name], ours, self.settings.num_bootstrap) for name in baselines},
            baselines_ms={name: _median(ms[name]) for name in baselines},
            num_pairs=len(ours),
            seconds=samples.seconds,
        )


def forget(before: set[str]) -> None:
    """Drop what a candidate left in this process: its modules (those not in `before`) and its memory."""
    for name in set(sys.modules) - before:
        if name.startswith("dvk_source_candidate"):
            del sys.modules[name]
    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def _median(values: list[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def _status_of(error: BaseException, stage: str) -> Status:
    return Status.COMPILE_ERROR if _by_a_compiler(error) else Status.LAUNCH_ERROR


def _stage_of(error: BaseException, stage: str) -> str:
    return "compile" if _by_a_compiler(error) else stage


def _by_a_compiler(error: BaseException) -> bool:
    """g++, nvcc or Triton refused the kernel; many candidates compile at their first call only."""
    seen: BaseException | None = error
    while seen is not None:
        kind = type(seen)
        if kind.__module__.startswith("triton.compiler") or kind.__name__ in (
            "CompilationError",
            "CalledProcessError",
            "PTXASError",
        ):
            return True
        if "Error building extension" in str(seen):
            return True
        seen = seen.__cause__ or seen.__context__
    return False

"""Triton launches as nodes: the compiled code, the grid, and each argument with the type the kernel takes it as."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from dvk.harness.launch_plans.plan import SCALARS, KernelLaunch, Pointer, Scalar
from dvk.harness.launch_plans.tape import Tape

MAX_OPTIONS = 16
"""Most compiled configurations of one kernel; an autotuner's further ones are left out."""


class RecordingLauncher:
    """Replacement of Triton's compiled launcher, one per compiled kernel."""

    def __init__(self, source: Any, metadata: Any, tape: Tape, trials: AutotuneConfigs):
        self.tape, self.metadata, self.trials = tape, metadata, trials
        self.name = str(metadata.name)
        self.types = list(source.signature.values())
        self.problem = unsupported(metadata, self.types)

    def __call__(
        self,
        x: int,
        y: int,
        z: int,
        stream: Any,
        function: Any,
        packed: Any,
        launched: Any,
        enter: Any,
        leave: Any,
        *args: Any,
    ) -> None:
        if self.problem:
            raise self.tape.refusals.refuse(self.problem)
        if min(x, y, z) == 0:
            return  # as the real one: no program, no launch
        flat = [
            pair for kind, arg in zip(self.types, args, strict=True) for pair in flatten(kind, arg)
        ]
        arguments = tuple(self._argument(kind, arg) for kind, arg in flat if kind != "constexpr")
        # `function` is the result of `Driver.load_binary`: the key of the code.
        self.trials.launch(
            KernelLaunch(
                cubin=function,
                name=self.name,
                grid=(int(x), int(y), int(z)),
                block=(32 * int(self.metadata.num_warps), 1, 1),
                shared_bytes=int(self.metadata.shared),
                args=arguments,
            )
        )

    def _argument(self, kind: str, value: Any) -> Pointer | Scalar:
        refuse = self.tape.refusals.refuse
        if kind.startswith("*"):
            return pointer(
                self.tape,
                value if isinstance(value, torch.Tensor) else getattr(value, "base", value),
            )
        if kind not in SCALARS:
            raise refuse(f"a kernel takes an argument of type {kind}")
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            value = int(value)
        if isinstance(value, int) and self.tape.is_address(value):
            raise refuse("it passes an address as a number")
        if isinstance(value, float) and not math.isfinite(value):
            return Scalar(type=kind, value=repr(value))
        return Scalar(type=kind, value=value)


class AutotuneConfigs:
    """Configurations that autotuners try. None can be measured here, so a launch carries the others along as options."""

    def __init__(self, tape: Tape):
        self.tape = tape
        self._tried: list[KernelLaunch] = []
        self._options: dict[Any, list[KernelLaunch]] = {}

    def attempt(self, call: Callable[[], Any]) -> float:
        """Compile and record one configuration; the result makes an autotuner take the first that compiles."""
        if len(self._tried) >= MAX_OPTIONS:
            return math.inf
        self.tape.trial = True
        try:
            call()
        finally:
            self.tape.trial = False
        return float(len(self._tried))

    def launch(self, node: KernelLaunch) -> None:
        """Record a launch: as an option while one is tried, else as part of the call, with the available options."""
        if self.tape.trial:
            self._tried.append(node)
            return
        if self._tried:
            self._options[_choice(node)] = self._tried
            self._tried = []
        others = [
            option
            for option in self._options.get(_choice(node), ())
            if _choice(option) != _choice(node)
        ]
        rebound = [
            option.model_copy(update={"args": node.args})
            for option in others
            if _kinds(option) == _kinds(node)
        ]
        self.tape.launch(node.model_copy(update={"options": tuple(rebound)}) if rebound else node)


def _choice(node: KernelLaunch) -> Any:
    """Properties of a launch other than its tensors."""
    return node.cubin, node.grid, tuple(a for a in node.args if isinstance(a, Scalar))


def _kinds(node: KernelLaunch) -> list[Any]:
    return [a.modulo16 if isinstance(a, Pointer) else a for a in node.args]


def pointer(tape: Tape, tensor: Any) -> Pointer:
    """Return a tensor as an argument."""
    if not isinstance(tensor, torch.Tensor):
        raise tape.refusals.refuse("it passes an address as a number")
    if tensor.device.type != "cuda":
        raise tape.refusals.refuse("it launches a kernel on host memory")
    return Pointer(ref=tape.value(tensor), modulo16=tape.address(tensor) % 16)


def unsupported(metadata: Any, types: list[Any]) -> str | None:
    """Return why launches of a kernel cannot be replayed."""
    get = lambda name: getattr(metadata, name, None)  # noqa: E731
    if (get("num_ctas") or 1) != 1:
        return "it launches thread block clusters"
    if get("launch_cooperative_grid"):
        return "it launches a cooperative grid"
    if get("launch_pdl"):
        return "it uses programmatic dependent launch"
    if get("global_scratch_size") or get("profile_scratch_size"):
        return "a kernel needs scratch memory"
    if any("tensordesc" in str(kind) or kind == "nvTmaDesc" for kind in types):
        return "it uses tensor descriptors"
    return None


def flatten(kind: Any, value: Any) -> list[tuple[str, Any]]:
    """Return arguments with their types, tuples flattened."""
    if isinstance(kind, tuple):
        return [pair for k, v in zip(kind, value, strict=True) for pair in flatten(k, v)]
    return [(str(kind), value)]

"""Plans and their wire format: nodes that name operators and cubins, values that are numbers.

A value is an integer. Leaves are inputs, entries of the state_dict and constants; every node adds its results. Operands are JSON: plain
literals, lists, and one-entry objects `{"ref": value}`, `{"float": text}`, `{"dtype"|"layout"|"memory_format"|"device": name}`.

A plan arrives from a process that ran a candidate: `decode` validates its form, and `Replay` its meaning.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from dvk.harness.launch_plans.calls import Layout
from dvk.records import Record

VERSION = 1
MAX_NODES = 20_000
MAX_CUBIN_BYTES = 64 << 20
MAX_CONST_BYTES = 64 << 20
SCALARS = {
    "i1": 1,
    "u1": 1,
    "i8": 1,
    "u8": 1,
    "i16": 2,
    "u16": 2,
    "i32": 4,
    "u32": 4,
    "i64": 8,
    "u64": 8,
    "fp16": 2,
    "bf16": 2,
    "fp32": 4,
    "fp64": 8,
}
"""Types of kernel arguments besides pointers, with their bytes."""


class LaunchPlanError(ValueError):
    """A plan that trusted code will not run; the message says what is wrong with it."""


class PlanMismatch(LaunchPlanError):
    """The plan is well formed, but its replay shows that the recording assumed a wrong layout of a real tensor."""


class NotCapturable(LaunchPlanError):
    """A call that a CUDA graph cannot hold, such as one that copies a number from the host; it must be timed from end to end."""


class NotReducible(Exception):
    """The candidate does something that a plan cannot express; the message says what."""


class Aten(Record):
    """One operator of PyTorch."""

    kind: Literal["aten"] = "aten"
    op: str = Field(
        pattern=r"^aten\.[A-Za-z_][A-Za-z0-9_]*\.[A-Za-z_][A-Za-z0-9_]*$",
        description="aten.NAME.OVERLOAD",
    )
    args: tuple[Any, ...] = Field(description="Encoded positional operands.")
    kwargs: dict[str, Any] = Field(description="Encoded named operands.")
    outs: tuple[int | None, ...] = Field(
        description="Values of the flattened result; null for what existed before or is no tensor."
    )


class Scalar(Record):
    """A number given to a kernel."""

    type: str = Field(description="As Triton names it: a key of SCALARS.")
    value: int | float | str = Field(
        description="`str` for floats that JSON has no word for: inf, -inf, nan."
    )


class Pointer(Record):
    """A tensor given to a kernel: the address of its first element."""

    ref: int
    modulo16: int = Field(
        ge=0, lt=16, description="What the kernel was compiled for: address modulo 16 bytes."
    )


class KernelLaunch(Record):
    """One kernel launch. Parameters of the kernel beyond `args` are scratch pointers and get null."""

    kind: Literal["launch"] = "launch"
    cubin: str = Field(description="Key of the compiled code.")
    name: str = Field(max_length=4096, description="Name of the kernel in it.")
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int = Field(ge=0, le=1 << 20)
    args: tuple[Pointer | Scalar, ...]
    options: tuple[KernelLaunch, ...] = Field(
        (), description="Other configurations that autotuning may choose instead of this one."
    )


Node = Annotated[Aten | KernelLaunch, Field(discriminator="kind")]


class Const(Record):
    """A tensor on the host whose values are in the candidate's source."""

    layout: Layout
    data: str = Field(description="base64 of its elements in row-major order.")


class LaunchPlan(Record):
    """One call of a candidate, and its preparation."""

    variant: str
    arch: int = Field(description="Architecture of the cubins, 90 for capability 9.0.")
    inputs: tuple[tuple[int, Layout], ...] = Field(
        description="Values and layouts of the call's tensors, in order."
    )
    state: dict[str, tuple[int, Layout]] = Field(
        description="state_dict entries as they are loaded."
    )
    consts: dict[int, Const]
    values: dict[int, Layout] = Field(
        description="What every value made by a node looked like when recorded."
    )
    prepare: tuple[Node, ...] = Field(
        description="Once per load of the weights: the module's own tensors, packed weights, constants."
    )
    call: tuple[Node, ...] = Field(description="Every call.")
    outputs: Any = Field(description="The returned tree; tensors are values.")
    buffers: dict[str, int] = Field(
        description="state_dict entries of the module after the call, by name."
    )

    def launches(self) -> Iterator[KernelLaunch]:
        """Return all launches, options included."""
        for node in (*self.prepare, *self.call):
            if isinstance(node, KernelLaunch):
                yield node
                yield from node.options


class LaunchRecording(Record):
    """The plans of one candidate, one per shape variant, sharing their cubins."""

    version: int = VERSION
    plans: tuple[LaunchPlan, ...]
    cubins: dict[str, bytes] = Field(repr=False)
    seconds: dict[str, float] = Field(
        default_factory=dict,
        description="Where the time of the recording went; nothing relies on it.",
    )

    def wire(self) -> dict[str, Any]:
        """Return JSON for one frame."""
        packed = {
            key: base64.b64encode(zlib.compress(code, 1)).decode()
            for key, code in self.cubins.items()
        }
        return {
            "version": self.version,
            "plans": [p.model_dump(mode="json") for p in self.plans],
            "cubins": packed,
            "seconds": self.seconds,
        }


def decode(wire: Any) -> LaunchRecording:
    """Read the output of `LaunchRecording.wire`.

    Raises:
        LaunchPlanError: it is malformed or too large.
    """
    if not isinstance(wire, dict) or wire.get("version") != VERSION:
        raise LaunchPlanError(f"not a recording of version {VERSION}")
    try:
        cubins = {str(key): _inflate(text) for key, text in dict(wire["cubins"]).items()}
        recording = LaunchRecording(
            plans=wire["plans"], cubins=cubins, seconds=wire.get("seconds", {})
        )
    except (
        ValidationError,
        KeyError,
        TypeError,
        ValueError,
        RecursionError,
        binascii.Error,
        zlib.error,
    ) as error:
        text = str(error).strip().splitlines()
        raise LaunchPlanError(
            f"malformed recording: {type(error).__name__}: {' '.join(text)[:300]}"
        ) from None
    for plan in recording.plans:
        check(plan, recording.cubins)
    return recording


def _inflate(text: str) -> bytes:
    inflater = zlib.decompressobj()
    code = inflater.decompress(base64.b64decode(text, validate=True), MAX_CUBIN_BYTES)
    if inflater.unconsumed_tail:
        raise ValueError("a cubin is too large")
    return code


def check(plan: LaunchPlan, cubins: dict[str, bytes]) -> None:
    """Check statically that every value is defined once, before it is used.

    Raises:
        LaunchPlanError: one is not.
    """
    if len(plan.prepare) + len(plan.call) > MAX_NODES:
        raise LaunchPlanError(f"more than {MAX_NODES} nodes")
    if any(node.cubin not in cubins for node in plan.launches()):
        raise LaunchPlanError("a launch names a cubin that is not there")
    if any(
        not isinstance(a, Pointer) and a.type not in SCALARS
        for node in plan.launches()
        for a in node.args
    ):
        raise LaunchPlanError("a kernel argument has an unknown type")
    if sum(len(const.data) for const in plan.consts.values()) > MAX_CONST_BYTES * 4 // 3:
        raise LaunchPlanError("the constants are too large")
    known = (
        {value for value, _ in plan.inputs}
        | {value for value, _ in plan.state.values()}
        | set(plan.consts)
    )
    if len(known) != len(plan.inputs) + len(plan.state) + len(plan.consts):
        raise LaunchPlanError("two leaves are one value")
    from_inputs = {value for value, _ in plan.inputs}
    for phase, nodes in (("prepare", plan.prepare), ("call", plan.call)):
        for node in nodes:
            used = set(references(node))
            if not used <= known:
                raise LaunchPlanError(
                    f"a node of {phase} uses value {min(used - known)} before it is made"
                )
            if phase == "prepare" and used & from_inputs:
                raise LaunchPlanError("prepare uses an input")
            for out in node.outs if isinstance(node, Aten) else ():
                if out is None:
                    continue
                if out in known or out not in plan.values:
                    raise LaunchPlanError(f"value {out} is made twice or has no layout")
                known.add(out)
    if not {*plan.buffers.values(), *_leaves(plan.outputs)} <= known:
        raise LaunchPlanError("a result is no value of the plan")


def references(node: Aten | KernelLaunch) -> Iterator[int]:
    """Return values that a node reads or writes."""
    if isinstance(node, KernelLaunch):
        for launch in (node, *node.options):
            yield from (a.ref for a in launch.args if isinstance(a, Pointer))
        return
    for operand in (*node.args, *node.kwargs.values()):
        yield from _refs(operand)


def _refs(operand: Any) -> Iterator[int]:
    if isinstance(operand, dict):
        if set(operand) == {"ref"}:
            if type(operand["ref"]) is not int:
                raise LaunchPlanError("a reference is not a number")
            yield operand["ref"]
    elif isinstance(operand, (list, tuple)):
        for inner in operand:
            yield from _refs(inner)


def _leaves(tree: Any) -> Iterator[int]:
    if not isinstance(tree, dict) or len(tree) != 1:
        raise LaunchPlanError("malformed outputs")
    ((kind, inner),) = tree.items()
    if kind == "tensor":
        yield inner
    elif kind in ("list", "tuple", "dict"):
        for item in inner:
            yield from _leaves(item[1] if kind == "dict" else item)

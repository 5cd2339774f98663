"""Workload: the variable axes' sizes of one call, and where each input's data comes from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from dvk.interop.flashinfer.axes import Sizes
from dvk.interop.flashinfer.definition import Definition
from dvk.interop.flashinfer.fields import MAX_SIZE, Fields
from dvk.interop.flashinfer.tensors import check_stored

Kind = Literal["random", "scalar", "safetensors", "custom"]
LAUNCHES = "launches"
"""A field of dvk's own: how often a running model made this call. Other readers of the schema ignore it."""


@dataclass(frozen=True)
class InputSource:
    """Where one input comes from: `value` of a scalar; file and key of stored data."""

    kind: Kind
    value: int | float | bool = 0
    path: Path = Path()
    key: str = ""


@dataclass(frozen=True)
class Workload:
    """One call of a definition. `sizes` are those of all axes; `raw` is its JSON object."""

    uuid: str
    given: Sizes
    sizes: Sizes
    inputs: dict[str, InputSource]
    launches: float
    """Weight of the call; 1 where nothing was counted."""
    raw: dict[str, Any]

    @property
    def label(self) -> str:
        """Its variable sizes as text: `batch=7,seq=128`; its identifier where there are none."""
        return ",".join(f"{name}={size}" for name, size in self.given.items()) or self.uuid[:8]


def read_workload(value: Any, definition: Definition, root: Path, where: str) -> Workload:
    """A workload from its JSON: the object itself, or a trace that holds it.

    Args:
        root: folder that paths of stored inputs start from.

    Raises:
        UsageError: it does not follow the schema or the definition, or stored data is missing or of another shape or dtype.
    """
    fields = Fields(value, where)
    uuid = fields.text("uuid")
    fields.where = f"workload `{uuid}` of `{definition.name}`"
    given = {
        name: Fields(fields.mapping("axes"), fields.where).size(name)
        for name in fields.mapping("axes")
    }
    sizes = definition.sizes(given, fields)
    told = fields.mapping("inputs")
    names = [entry.name for entry in definition.inputs]
    if unknown := sorted(told.keys() - set(names)):
        raise fields.error(f"has the input `{unknown[0]}`, which the definition does not have")
    inputs = {}
    for entry in definition.inputs:
        # As FlashInfer-Bench reads it: what is not named is random.
        one = Fields(
            told.get(entry.name, {"type": "random"}), f"input `{entry.name}` of {fields.where}"
        )
        source = _source(one, root)
        if source.kind == "scalar" and entry.shape:
            raise one.error("is a scalar, and the definition has a tensor")
        if source.kind == "custom" and not definition.inputs_function:
            raise one.error(
                "is custom, and the definition has no custom_inputs_entrypoint",
                "name the function of the reference code that makes the inputs",
            )
        if source.kind == "safetensors":
            check_stored(source.path, source.key, definition.shape(entry, sizes), entry.dtype, one)
        inputs[entry.name] = source
    custom = [name for name, source in inputs.items() if source.kind == "custom"]
    if custom and len(custom) < len([s for s in inputs.values() if s.kind != "scalar"]):
        raise fields.error("mixes custom inputs with others", "make all of them custom")
    return Workload(uuid, given, sizes, inputs, _launches(fields), fields.value)


def _source(fields: Fields, root: Path) -> InputSource:
    kind = fields.value.get("type")
    if kind in ("random", "custom"):
        return InputSource(kind)
    if kind == "scalar":
        value = fields.value.get("value")
        if not isinstance(value, (int, float)):
            raise fields.error("is a scalar without a number `value`")
        return InputSource("scalar", value=value)
    if kind == "safetensors":
        path = fields.text("path")
        if ".." in PurePosixPath(path).parts:
            raise fields.error(
                f"has the path `{path}`", "paths start from the data set, without .."
            )
        return InputSource("safetensors", path=root / path, key=fields.text("tensor_key"))
    raise fields.error(
        f"has the type `{kind}`", "the types are random, scalar, safetensors and custom"
    )


def _launches(fields: Fields) -> float:
    value = fields.value.get(LAUNCHES, 1)
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value < MAX_SIZE:
        raise fields.error(f"has {value!r} as `{LAUNCHES}`, which is no count")
    return float(value)

"""A definition with one of its workloads as a task file: the reference code, and below it a module, its inputs and its other sizes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from dvk.interop.flashinfer.axes import Sizes
from dvk.interop.flashinfer.definition import Definition, TensorEntry
from dvk.interop.flashinfer.tensors import readable
from dvk.interop.flashinfer.workload import Workload
from dvk.tasks.variants import BATCH_ENOUGH, MAX_VARIANTS, SizeAxis, sizes

Variant = tuple[str, list[tuple[str, int, int]]]
"""A name, and (input, dimension, size) of what differs."""

RETURNED = '''
def _dvk_outputs(value):
    """A dict or a list as a tuple; a single output alone."""
    if isinstance(value, dict):
        value = [value[name] for name in {names!r}]
    if isinstance(value, (tuple, list)):
        value = tuple(value)
        return value[0] if len(value) == 1 else value
    return value
'''
RANDOM = '''
def _dvk_random(shape, dtype):
    """As FlashInfer-Bench draws them: normal floats (8-bit ones in [-2, 2]), whole numbers in [-1024, 1024) or all of int8."""
    if dtype.is_floating_point and dtype.itemsize == 1:
        return _torch.randn(shape).clamp(-2, 2).to(dtype)
    if dtype.is_floating_point:
        return _torch.randn(shape, dtype=dtype)
    low, high = {_torch.bool: (0, 2), _torch.int8: (-128, 128), _torch.uint8: (0, 256)}.get(dtype, (-1024, 1024))
    return _torch.randint(low, high, shape).to(dtype)
'''
STORED = '''
def _dvk_stored(path, key, dtype):
    """A tensor of a safetensors file."""
    import json

    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        entry = json.loads(file.read(length))[key]
        begin, end = entry["data_offsets"]
        file.seek(8 + length + begin)
        data = bytearray(file.read(end - begin))
    return _torch.frombuffer(data, dtype=dtype).reshape(entry["shape"]) if data else _torch.empty(entry["shape"], dtype=dtype)
'''


def task_text(definition: Definition, workload: Workload, others: Sequence[Workload] = ()) -> str:
    """The task file; copies of stored inputs go to dvk's cache.

    Args:
        others: further workloads of the definition, whose sizes are checked where all inputs are random.
    """
    names = ", ".join(entry.name for entry in definition.inputs)
    kinds = {source.kind for source in workload.inputs.values()}
    parts = [
        definition.reference.rstrip(),
        "\n\n",
        f"# Definition `{definition.name}`, workload `{workload.uuid}`: {workload.label}.",
        "import torch as _torch",
        "",
        RETURNED.format(names=[entry.name for entry in definition.outputs]),
        *([RANDOM] if "random" in kinds else []),
        *([STORED] if "safetensors" in kinds else []),
        "",
        "class Model(_torch.nn.Module):",
        f"    def forward(self, {names}):",
        f"        return _dvk_outputs(run({names}))",
        "\n",
        "def get_inputs():",
        *(f"    {line}" for line in _inputs(definition, workload)),
        f"    return [{names}]",
        "\n",
        "def get_init_inputs():",
        "    return []",
        "\n",
        "def get_shape_variants():",
        '    """Other sizes that the definition allows: (name, [(input, dimension, size), …])."""',
        f"    return {variants(definition, workload, others)!r}",
        "",
    ]
    return "\n".join(parts)


def _inputs(definition: Definition, workload: Workload) -> Iterator[str]:
    """Statements that bind each input's name."""
    custom = [n for n, source in workload.inputs.items() if source.kind == "custom"]
    scalars = {n: s.value for n, s in workload.inputs.items() if s.kind == "scalar"}
    if custom:
        given = {**workload.sizes, **scalars}
        yield f"_made = {definition.inputs_function}({given!r}, _torch.get_default_device())"
    for entry in definition.inputs:
        source = workload.inputs[entry.name]
        dtype = f"_torch.{entry.dtype}"
        if source.kind == "scalar":
            number = (
                f"float({str(source.value)!r})" if _special(source.value) else repr(source.value)
            )
            yield (
                f"{entry.name} = {number}"
                if entry.shape is None
                else (f"{entry.name} = _torch.tensor({number}, dtype={dtype})")
            )
        elif source.kind == "custom":
            yield f"{entry.name} = _made[{entry.name!r}]"
        elif source.kind == "safetensors":
            path = str(readable(source.path))
            yield f"{entry.name} = _dvk_stored({path!r}, {source.key!r}, {dtype})"
        else:
            shape = definition.shape(entry, workload.sizes)
            number = ".item()" if entry.shape is None else ""
            drawn = f"_dvk_random({shape!r}, {dtype}){number}"
            if definition.op_type == "sampling" and entry.name == "probs":
                drawn = f"_torch.softmax({drawn}, dim=-1)"  # as FlashInfer-Bench does
            yield f"{entry.name} = {drawn}"


def _special(value: float) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def variants(
    definition: Definition, workload: Workload, others: Sequence[Workload] = ()
) -> list[Variant]:
    """Sizes besides the workload's at which a solution has to be right: those of other workloads, and neighbours along single axes.

    Axes of stored or custom inputs keep their sizes; constraints hold.
    """
    if any(source.kind == "custom" for source in workload.inputs.values()):
        return []
    drawn = [e for e in definition.inputs if workload.inputs[e.name].kind == "random" and e.shape]
    found: dict[str, Variant] = {}

    def add(name: str, other: Sizes) -> None:
        changes = _changes(definition, drawn, workload.sizes, other)
        fixed = [e for e in definition.inputs if e not in drawn and e.shape]
        if changes and not _changes(definition, fixed, workload.sizes, other):
            if all(size > 0 for _, _, size in changes):
                found.setdefault(repr(changes), (name, changes))

    for axis, size in _neighbours(definition, workload, drawn):
        other = definition.resized({**workload.given, axis: size})
        if other is not None:
            add(_named(definition, workload, axis, other), other)
    for call in others:
        if call.sizes != workload.sizes and len(found) < 2 * MAX_VARIANTS:
            add(call.label, call.sizes)
    return list(found.values())[: 2 * MAX_VARIANTS]


def _neighbours(
    definition: Definition, workload: Workload, drawn: Sequence[TensorEntry]
) -> Iterator[tuple[str, int]]:
    """Variable axes with sizes to try, the first axis with more of them."""
    num_bytes = sum(4 * math.prod(definition.shape(entry, workload.sizes)) for entry in drawn)
    count = 0
    for axis in definition.bindings:
        label = "batch" if not count else axis
        if not (size := workload.sizes[axis]):
            continue
        for _, other in sizes(SizeAxis(label, size, ()), num_bytes, count >= BATCH_ENOUGH):
            if count >= MAX_VARIANTS:
                return
            count += 1
            yield axis, other


def _named(definition: Definition, workload: Workload, axis: str, other: Sizes) -> str:
    """The name of a variant with one variable axis changed.

    Families of inputs are drawn with a smaller batch where a variant is called `batch…`: an axis that is nothing but the first dimension of
    inputs, in which every size is allowed.
    """
    changes = _changes(definition, definition.inputs, workload.sizes, other)
    free = axis not in definition.constrained and all(
        dimension == 0 and size == other[axis] for _, dimension, size in changes
    )
    return f"batch={other[axis]}" if free else f"{axis}={other[axis]}"


def _changes(
    definition: Definition, entries: Sequence[TensorEntry], before: Sizes, after: Sizes
) -> list[tuple[str, int, int]]:
    return [
        (entry.name, dimension, new)
        for entry in entries
        for dimension, (old, new) in enumerate(
            zip(definition.shape(entry, before), definition.shape(entry, after))
        )
        if old != new
    ]

"""What is to be made faster: a `Task` with its tensors and the other shapes it accepts."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from dvk.records.record import Record

Device = Literal["cpu", "cuda"]


class TensorSpec(Record):
    """Shape, dtype and layout of one tensor."""

    name: str = Field(
        description="Parameter name in the forward signature, or a path such as `0.mask` in a pytree."
    )
    dtype: str = Field(description="torch dtype without the prefix, e.g. `float32`.")
    shape: tuple[int, ...] = Field(description="Sizes in elements, outermost first.")
    strides: tuple[int, ...] = Field(description="Strides in elements.")


class ShapeVariant(Record):
    """Another size of the example inputs that the reference accepts."""

    name: str = Field(description="E.g. `batch=1`, `batch+3`, `batch*2+1`, `width-1`.")
    changes: tuple[tuple[str, int, int], ...] = Field(
        description="(input's TensorSpec name, dimension from the front, new size in elements), applied together."
    )


class Task(Record):
    """One module or function to make faster, as given by the user."""

    id: str = Field(
        description="Content hash of source, files next to it, entry, inputs, mode, dtype and device."
    )
    name: str = Field(description="Human name: the file's stem, or stem:entry.")
    path: str | None = Field(None, description="Where the source was read from, if from a file.")
    source: str = Field(description="The whole text of the reference file.")
    beside: tuple[tuple[str, str], ...] = Field(
        (), description="Files below `path`'s folder that it imports: (path from there, text)."
    )
    folders: tuple[str, ...] = Field(
        (),
        description="Folders that it puts on sys.path, absolute; isolated processes may import from them.",
    )
    entry: str = Field(description="Name of the nn.Module class or function in `source`.")
    kind: Literal["module", "function"] = Field(description="What `entry` names.")
    input_specs: tuple[str, ...] = Field(
        (), description="`x=float32[64,1024]` specs; empty when the file has get_inputs()."
    )
    init_args: tuple[str, ...] = Field(
        (), description="Constructor arguments as Python literals, `value` or `name=value`."
    )
    eval_mode: bool = Field(False, description="Call .eval() on the module before use.")
    train: bool = Field(
        False, description="A call is forward and backward: gradients are results, too."
    )
    dtype: str | None = Field(
        None,
        description="Cast floating inputs and weights to this torch dtype; null keeps the file's.",
    )
    autocast: Literal["bfloat16", "float16"] | None = Field(
        None, description="Calls are under torch.autocast to this dtype; null leaves it off."
    )
    device: Device = Field("cpu", description="Where reference and candidates run.")
    inputs: tuple[TensorSpec, ...] = Field(
        (), description="The example inputs' tensors, as examined."
    )
    outputs: tuple[TensorSpec, ...] = Field(
        (), description="The reference outputs' tensors, as examined."
    )
    written_inputs: tuple[str, ...] = Field(
        (),
        description="Names of `inputs` that the reference writes in place, e.g. caches: what a call leaves in them counts as output.",
    )
    num_shape_variants: int = Field(
        1, description="Shapes the reference accepts among those the judge tries, native included."
    )
    shape_variants: tuple[ShapeVariant, ...] = Field(
        (), description="Those shapes, without the native one, as examined."
    )
    precision: Literal["fp64", "fp32", "tf32", "half", "exact"] = Field(
        "fp32",
        description="Precision class of the reference by its dtypes and torch's TF32 flags: sets tolerance.",
    )
    stochastic: bool = Field(
        False,
        description="The reference draws random numbers (dropout in train mode); equal seeds are compared.",
    )
    training: bool | None = Field(
        None,
        description="The module is called in train mode, as examined; null of a function, or not known.",
    )
    peak_bytes: int | None = Field(
        None,
        description="GPU memory that examining one call took: inputs, outputs and intermediate results; null on a CPU.",
    )
    package: str = Field(
        "",
        description="The package that its file is a module of, e.g. `pkg.nn`; empty when it is of none.",
    )

    @property
    def mode(self) -> Literal["train", "eval"] | None:
        """The mode that the module is called in; None for a function, and if unknown."""
        if self.kind != "module":
            return None
        if self.training is None:
            return "eval" if self.eval_mode else None
        return "train" if self.training else "eval"

"""Dominant operators: matmuls, convolutions, and the pools that follow them."""

from __future__ import annotations

import math

from dvk.taskgen.dice import Dice
from dvk.taskgen.program import TaskProgram
from dvk.taskgen.sizes import WIDTHS, Dim, count, up_to
from dvk.taskgen.values import Sample, TaskValue, UnfitOperands, deviation, rms


def mixed(program: TaskProgram, x: TaskValue, gain: float = 0.577) -> Sample:
    """The sample of a sum over many weighted elements: normal, with the variance that PyTorch's initial weights give."""
    return program.normal_sample(
        0.3 if deviation([abs(v) for v in x.sample]) > 0.5 else 0.0, max(gain * rms(x.sample), 1e-6)
    )


def affordable(program: TaskProgram, work: float) -> None:
    """Refuse a matmul with too many multiply-adds, or of fp16 or bf16 if those are unusably slow.

    Raises:
        UnfitOperands: it is refused.
    """
    if work > program.profile.flops:
        raise UnfitOperands("too much work")
    if program.dtype != "float32" and not program.profile.half_products:
        raise UnfitOperands("a half product on a CPU")


def linear(
    program: TaskProgram, x: TaskValue, out: Dim | None = None, bias: bool | None = None
) -> TaskValue:
    """A linear layer over the last dimension: the module, the function, or a matmul with a weight."""
    dice = program.dice
    if x.rank < 2 or x.shape[-1].small < 3:
        raise UnfitOperands("no rows")
    if out is None:
        limit = min(4 * x.shape[-1].native, program.profile.flops / max(count(x.shape), 1), 8192)
        if limit < 16:
            raise UnfitOperands("too much work")
        out = program.constant(
            dice.pick(("HIDDEN", "FEATURES", "OUT_FEATURES", "WIDTH_OUT")),
            up_to(dice, limit, (16, 32, 48, *WIDTHS)),
        )
    affordable(program, count(x.shape) * out.native)
    bias = dice.chance(0.75) if bias is None else bias
    inside, sample = x.shape[-1], mixed(program, x)
    shape = (*x.shape[:-1], out)
    form = dice.weighted({"module": 6, "functional": 1, "product": 1})
    if form == "module":
        name = program.module(
            f"nn.Linear({inside.text}, {out.text}{'' if bias else ', bias=False'})",
            ("linear", "fc", "proj", "dense"),
        )
        return program.emit("linear", ("matmul",), f"{name}({{0}})", [x], sample, shape=shape)
    reach = round(1 / math.sqrt(inside.native), 4)
    if form == "functional":
        weight = program.parameter((out, inside), 0.0, reach, ("weight", "kernel"), buffer=False)
        if bias:
            offset = program.parameter((out,), 0.0, max(reach, 0.05), ("bias",), buffer=False)
            return program.emit(
                "linear",
                ("matmul",),
                "F.linear({0}, {1}, {2})",
                [x, weight, offset],
                sample,
                shape=shape,
            )
        return program.emit(
            "linear", ("matmul",), "F.linear({0}, {1})", [x, weight], sample, shape=shape
        )
    weight = program.parameter((inside, out), 0.0, reach, ("weight", "kernel"), buffer=False)
    return program.emit(
        "matmul",
        ("matmul",),
        dice.pick(("{0} @ {1}", "torch.matmul({0}, {1})")),
        [x, weight],
        sample,
        shape=shape,
    )


def product(program: TaskProgram, a: TaskValue, b: TaskValue, text: str | None = None) -> TaskValue:
    """A batched matmul of two values, [..., m, k] and [..., k, n]."""
    shape = (*a.shape[:-1], b.shape[-1])
    affordable(program, count(shape) * a.shape[-1].native)
    text = text or program.dice.pick(
        (
            "{0} @ {1}",
            "torch.matmul({0}, {1})",
            *(("torch.bmm({0}, {1})",) if a.rank == b.rank == 3 else ()),
        )
    )
    size = rms(a.sample) * rms(b.sample) * math.sqrt(a.shape[-1].native)
    return program.emit(
        "product",
        ("matmul",),
        text,
        [a, b],
        program.normal_sample(0.3, max(size, 1e-6)),
        shape=shape,
    )


def _extent(size: Dim, kernel: int, stride: int, padding: int, dilation: int = 1) -> Dim:
    if stride == 1 and 2 * padding == dilation * (kernel - 1):
        return size

    def after(n: int) -> int:
        return (n + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1

    native, small = after(size.native), after(size.small)
    if native < 1 or small < 1:
        raise UnfitOperands("nothing left")
    add = 2 * padding - dilation * (kernel - 1)
    if stride == 1:
        return Dim(f"{size.text} {'+' if add > 0 else '-'} {abs(add)}", native, small)
    if kernel == stride and padding == 0:
        return size.over(stride)
    inside = (
        f"({size.text} {'+' if add > 1 else '-'} {abs(add - 1)})"
        if add != 1
        else size.over(1).text.removesuffix(" // 1")
    )
    return Dim(f"{inside} // {stride} + 1", native, small)


def convolution(
    program: TaskProgram,
    x: TaskValue,
    out: Dim | None = None,
    *,
    kernel: int | None = None,
    stride: int | None = None,
    depthwise: bool | None = None,
    bias: bool | None = None,
) -> TaskValue:
    """A convolution of 1-D, 2-D or 3-D maps."""
    dice, space = program.dice, x.rank - 2
    if space not in (1, 2, 3):
        raise UnfitOperands("not maps")
    channels = x.shape[1]
    kernel = dice.pick((1, 3, 3, 3, 5, 7) if space < 3 else (1, 3)) if kernel is None else kernel
    stride = dice.pick((1, 1, 1, 2)) if stride is None else stride
    dilation = 2 if kernel == 3 and dice.chance(0.06) else 1
    padding = dilation * (kernel // 2) if dice.chance(0.85) or stride > 1 else 0
    depthwise = dice.chance(0.15) if depthwise is None else depthwise
    if depthwise:
        out, groups = channels, channels.text
    elif out is None:
        limit = program.profile.flops / (count(x.shape) * kernel**space / stride**space)
        if limit < 8:
            raise UnfitOperands("too much work")
        out = program.constant(
            dice.pick(("CHANNELS_OUT", "OUT_CHANNELS", "FILTERS")),
            up_to(dice, min(limit, 512), (8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512)),
        )
        groups = "1"
    else:
        groups = "1"
    extents = tuple(_extent(size, kernel, stride, padding, dilation) for size in x.shape[2:])
    work = (
        count((x.shape[0], out, *extents)) * kernel**space * (1 if depthwise else channels.native)
    )
    affordable(program, work)
    options = (
        [f"stride={stride}"] * (stride != 1)
        + [f"padding={padding}"] * (padding != 0)
        + [f"dilation={dilation}"] * (dilation != 1)
    )
    options += [f"groups={groups}"] * (groups != "1")
    bias = dice.chance(0.7) if bias is None else bias
    options += [] if bias else ["bias=False"]
    size = dice.pick((f"{kernel}", f"kernel_size={kernel}"))
    text = f"nn.Conv{space}d({', '.join([channels.text, out.text, size, *options])})"
    name = program.module(text, ("conv", "convolution", "dw" if depthwise else "filters"))
    return program.emit(
        f"conv{space}d",
        ("conv",),
        f"{name}({{0}})",
        [x],
        mixed(program, x),
        shape=(x.shape[0], out, *extents),
    )


def grown(size: Dim, stride: int, add: int) -> Dim:
    """`stride * size + add`."""
    size = size if stride == 1 else size.times(stride)
    if not add:
        return size
    return Dim(
        f"{size.text} {'+' if add > 0 else '-'} {abs(add)}", size.native + add, size.small + add
    )


def transposed_convolution(program: TaskProgram, x: TaskValue) -> TaskValue:
    """Upsampling by a transposed convolution."""
    dice, space = program.dice, x.rank - 2
    if space not in (1, 2, 3):
        raise UnfitOperands("not maps")
    kernel, stride, padding = dice.pick(((2, 2, 0), (4, 2, 1), (3, 1, 1), (3, 2, 1)))
    channels = x.shape[1]
    limit = program.profile.flops / (count(x.shape) * kernel**space)
    if limit < 4:
        raise UnfitOperands("too much work")
    out = program.constant(
        "CHANNELS_OUT", up_to(dice, min(limit, 128), (4, 8, 16, 24, 32, 48, 64, 96, 128))
    )
    extents = tuple(grown(d, stride, kernel - 2 * padding - stride) for d in x.shape[2:])
    affordable(program, count(x.shape) * out.native * kernel**space)
    options = "".join(
        f", {k}={v}"
        for k, v in (("stride", stride), ("padding", padding))
        if v != (1 if k == "stride" else 0)
    )
    name = program.module(
        f"nn.ConvTranspose{space}d({channels.text}, {out.text}, {kernel}{options})",
        ("up", "deconv", "upsample"),
    )
    return program.emit(
        f"conv_transpose{space}d",
        ("conv_transpose",),
        f"{name}({{0}})",
        [x],
        mixed(program, x),
        shape=(x.shape[0], out, *extents),
    )


def pool(program: TaskProgram, x: TaskValue, kind: str | None = None) -> TaskValue:
    """Max or average pooling over windows, or adaptive averages."""
    dice, space = program.dice, x.rank - 2
    if space not in (1, 2, 3):
        raise UnfitOperands("not maps")
    kind = kind or dice.weighted({"max": 3, "avg": 3, "global": 1.5})
    if kind == "global":
        one = Dim("1", 1, 1)
        if x.tied is False and x.rank == 3 and x.shape[2].native < 2:
            raise UnfitOperands("one element")
        text = dice.pick(
            (f"F.adaptive_avg_pool{space}d({{0}}, 1)", f"nn.AdaptiveAvgPool{space}d(1)")
        )
        total = math.sqrt(count(x.shape[2:]))
        centre = math.fsum(x.sample) / 64
        sample = program.normal_sample(0.0, max(deviation(x.sample) / total, 1e-9), centre)
        shape = (*x.shape[:2], *([one] * space))
    else:
        kernel, stride, padding = dice.pick(((2, 2, 0), (2, 2, 0), (3, 2, 1), (3, 1, 1)))
        if any(min(size[1:]) < kernel for size in x.shape[2:]):
            raise UnfitOperands("smaller than a window")
        extents = tuple(_extent(size, kernel, stride, padding) for size in x.shape[2:])
        word, title = (
            (f"max_pool{space}d", f"MaxPool{space}d")
            if kind == "max"
            else (f"avg_pool{space}d", f"AvgPool{space}d")
        )
        more = (
            f"{kernel}"
            + ("" if stride == kernel else f", stride={stride}")
            + (f", padding={padding}" if padding else "")
        )
        text = dice.pick((f"F.{word}({{0}}, {more})", f"nn.{title}({more})"))
        factor = 1.0 if kind == "max" else 0.7
        sample = tuple(v * factor for v in x.sample)
        shape = (*x.shape[:2], *extents)
    module = text if text.startswith("nn.") else ""
    return program.emit(
        f"{kind}_pool{space}d",
        ("pool",),
        "{m}({0})" if module else text,
        [x],
        sample,
        shape=shape,
        floor=x.floor,
        module=module,
    )


def attention(program: TaskProgram, x: TaskValue) -> TaskValue:
    """Scaled dot-product attention of [batch, heads, queries, depth] to further inputs of the same or another length."""
    dice = program.dice
    if x.rank != 4 or min(x.shape[-1][1:]) < 3:
        raise UnfitOperands("no heads")
    causal = dice.chance(0.3)
    own = causal or dice.chance(0.3)
    keys = (
        x.shape[2]
        if own
        else program.constant(
            "SOURCE", up_to(dice, 1024, (32, 49, 64, 77, 100, 128, 197, 256, 512, 1024))
        )
    )
    affordable(program, 2 * count(x.shape) * keys.native)
    shape = (*x.shape[:2], keys, x.shape[3])
    key, value = (
        program.input(shape, ("k", "key", "keys")),
        program.input(shape, ("v", "value", "values")),
    )
    text = (
        f"F.scaled_dot_product_attention({{0}}, {{1}}, {{2}}{', is_causal=True' if causal else ''})"
    )
    sample = program.normal_sample(
        0.3, max(rms(value.sample) * min(1.0, 2.0 / math.sqrt(keys.native)), 1e-6)
    )
    return program.emit(
        "attention", ("scaled_dot_product_attention",), text, [x, key, value], sample
    )


def embedded(program: TaskProgram, x: TaskValue) -> TaskValue:
    """`x` and a row of a table for each of its positions."""
    dice = program.dice
    if x.rank < 2 or x.half:
        raise UnfitOperands("no rows")
    words = program.constant(
        dice.pick(("WORDS", "ENTRIES", "VOCABULARY")),
        dice.pick((100, 512, 1000, 4096, 10007, 32000)),
        11,
    )
    ids = program.labels(x.shape[:-1], words)
    name = program.module(
        f"nn.Embedding({words.text}, {x.shape[-1].text})", ("embedding", "table", "positions")
    )
    text = dice.pick((f"{{0}} + {name}({{1}})", f"{name}({{1}}) + {{0}}"))
    sample = [v + dice.normal() for v in x.sample]
    return program.emit("embedding_add", ("embedding", "add"), text, [x, ids], sample)


def head(program: TaskProgram, x: TaskValue, channels_first: bool) -> TaskValue:
    """A matmul or convolution that suits the layout."""
    dice: Dice = program.dice
    if channels_first and x.rank > 2:
        return convolution(program, x) if dice.chance(0.8) else transposed_convolution(program, x)
    if x.rank == 3 and dice.chance(0.2):
        width = program.constant(
            "KEYS", up_to(dice, 1024, (32, 48, 64, 77, 100, 128, 196, 256, 512, 1024))
        )
        other = program.input((x.shape[0], x.shape[2], width), ("y", "keys", "other"))
        return product(program, x, other)
    return linear(program, x)

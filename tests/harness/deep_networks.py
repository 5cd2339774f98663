"""Untrained networks of many layers in train mode, and programs that compute them: honest ones in another order, and impostors.

A train-mode batch norm divides by the spread of a few values and so amplifies rounding, layer after layer; two honest programs differ by
far more than one rounding. The arms share no code with the judge's own variations of a reference.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode

from dvk.harness.checking.case import Case, Comparison
from dvk.harness.checking.cases import Cases
from dvk.harness.checking.rounding_noise import with_low_bits_cleared
from dvk.harness.transport.calls import buffers_of, describe, in_mode, put_buffers
from dvk.tasks.trees import map_tensors

HEAD = """import torch
import torch.nn as nn
import torch.nn.functional as F


def unit(i, o, k=3, stride=1, groups=1):
    conv = nn.Conv2d(i, o, k, stride, k // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(o), nn.ReLU())

"""


def source(parts: str, model: str, forward: str, inputs: str) -> str:
    """A reference file: its other classes, the lines of the model's __init__ and forward, and its inputs."""
    lines = ["class Model(nn.Module):", "    def __init__(self):", "        super().__init__()"]
    lines += [f"        {line}" for line in model.splitlines()]
    lines += ["", "    def forward(self, x):"]
    lines += [f"        {line}" for line in forward.splitlines()]
    return "\n".join(
        [HEAD + parts, "", *lines, "", "", "def get_inputs():", f"    return {inputs}\n"]
    )


def plain(depth: int, width: int, batch: int, size: int) -> str:
    """Convolution, norm and ReLU, `depth` times."""
    model = f"self.stem = unit(3, {width})\nself.body = nn.Sequential(*[unit({width}, {width}) for _ in range({depth - 1})])"
    model += f"\nself.head = nn.Linear({width}, 10)"
    return source(
        "",
        model,
        "return self.head(self.body(self.stem(x)).mean((2, 3)))",
        f"[torch.randn({batch}, 3, {size}, {size})]",
    )


def residual(blocks: int, width: int, batch: int, size: int) -> str:
    """Basic residual blocks in stages that halve the image and double the width."""
    block = """class Block(nn.Module):
    def __init__(self, i, o, stride):
        super().__init__()
        self.one, self.two = unit(i, o, stride=stride), nn.Conv2d(o, o, 3, 1, 1, bias=False)
        self.norm = nn.BatchNorm2d(o)
        self.short = nn.Sequential(nn.Conv2d(i, o, 1, stride, bias=False), nn.BatchNorm2d(o)) if i != o else nn.Identity()

    def forward(self, x):
        return torch.relu(self.norm(self.two(self.one(x))) + self.short(x))
"""
    model = f"stages = []\nwidth = {width}\nself.stem = unit(3, width)\nfor stage in range(3):"
    model += f"\n    for n in range({blocks}):\n        grows = stage and not n\n        wide = width * 2 if grows else width"
    model += "\n        stages.append(Block(width, wide, 2 if grows else 1))\n        width = wide"
    model += "\nself.body, self.head = nn.Sequential(*stages), nn.Linear(width, 10)"
    return source(
        block,
        model,
        "return self.head(self.body(self.stem(x)).mean((2, 3)))",
        f"[torch.randn({batch}, 3, {size}, {size})]",
    )


def dense(layers: int, growth: int, batch: int, size: int) -> str:
    """Dense blocks: each layer reads the concatenation of all before it."""
    part = """class Dense(nn.Module):
    def __init__(self, i, growth, layers):
        super().__init__()
        self.layers = nn.ModuleList()
        for n in range(layers):
            at = i + n * growth
            self.layers.append(nn.Sequential(nn.BatchNorm2d(at), nn.ReLU(), nn.Conv2d(at, growth, 3, 1, 1, bias=False)))

    def forward(self, x):
        for layer in self.layers:
            x = torch.cat([x, layer(x)], 1)
        return x
"""
    model = f"self.stem = nn.Conv2d(3, {growth}, 3, 1, 1)\nself.one = Dense({growth}, {growth}, {layers})"
    wide = growth * (layers + 1)
    model += f"\nself.between = unit({wide}, {wide // 2}, 1)\nself.two = Dense({wide // 2}, {growth}, {layers})"
    model += f"\nself.norm = nn.BatchNorm2d({wide // 2 + growth * layers})"
    forward = "x = F.avg_pool2d(self.between(self.one(self.stem(x))), 2)\nreturn torch.relu(self.norm(self.two(x))).mean((2, 3))"
    return source(part, model, forward, f"[torch.randn({batch}, 3, {size}, {size})]")


def inception(blocks: int, width: int, batch: int, size: int) -> str:
    """Four branches side by side, concatenated."""
    part = """class Branches(nn.Module):
    def __init__(self, i, w):
        super().__init__()
        self.a, self.b = unit(i, w, 1), nn.Sequential(unit(i, w, 1), unit(w, w))
        self.c, self.d = nn.Sequential(unit(i, w, 1), unit(w, w), unit(w, w)), unit(i, w, 1)

    def forward(self, x):
        return torch.cat([self.a(x), self.b(x), self.c(x), self.d(F.avg_pool2d(x, 3, 1, 1))], 1)
"""
    model = f"self.stem = unit(3, {4 * width})\nself.body = nn.Sequential(*[Branches({4 * width}, {width}) for _ in range({blocks})])"
    return source(
        part, model, "return self.body(self.stem(x))", f"[torch.randn({batch}, 3, {size}, {size})]"
    )


def separable(blocks: int, width: int, batch: int, size: int) -> str:
    """Depthwise and pointwise convolutions in turn."""
    layers = f"[m for _ in range({blocks}) for m in (unit({width}, {width}, groups={width}), unit({width}, {width}, 1))]"
    model = f"self.stem = unit(3, {width}, stride=2)\nself.body = nn.Sequential(*{layers})\nself.head = nn.Linear({width}, 10)"
    return source(
        "",
        model,
        "return self.head(self.body(self.stem(x)).mean((2, 3)))",
        f"[torch.randn({batch}, 3, {size}, {size})]",
    )


def unet(levels: int, width: int, batch: int, size: int) -> str:
    """Down by pooling, up by transposed convolutions, with skips and a softmax."""
    model = f"w = [{width} << n for n in range({levels})]\ndouble = lambda i, o: nn.Sequential(unit(i, o), unit(o, o))"
    model += "\nself.down = nn.ModuleList([double(i, o) for i, o in zip([3, *w], w)])"
    model += "\nself.up = nn.ModuleList([nn.ConvTranspose2d(o, i, 2, 2) for i, o in zip(w, w[1:])])"
    model += "\nself.back = nn.ModuleList([double(2 * i, i) for i in w[:-1]])\nself.head = nn.Conv2d(w[0], 4, 1)"
    forward = "kept = []\nfor n, block in enumerate(self.down):\n    x = block(x if not n else F.max_pool2d(x, 2))\n    kept.append(x)"
    forward += "\nfor n in reversed(range(len(self.up))):\n    x = self.back[n](torch.cat([kept[n], self.up[n](x)], 1))"
    forward += "\nreturn torch.softmax(self.head(x), 1)"
    return source("", model, forward, f"[torch.randn({batch}, 3, {size}, {size})]")


def transposed(layers: int, width: int, batch: int, size: int) -> str:
    """A generator: transposed convolutions with norms, each doubling the image."""
    model = f"layers = []\nfor n in range({layers}):"
    model += f"\n    i, o = {width} >> n, {width} >> n + 1"
    model += "\n    layers += [nn.ConvTranspose2d(i, o, 4, 2, 1, bias=False), nn.BatchNorm2d(o), nn.ReLU()]"
    model += f"\nself.body = nn.Sequential(*layers)\nself.last = nn.ConvTranspose2d({width} >> {layers}, 3, 3, 1, 1)"
    return source(
        "",
        model,
        "return torch.tanh(self.last(self.body(x)))",
        f"[torch.randn({batch}, {width}, {size}, {size})]",
    )


def volume(depth: int, width: int, batch: int, size: int) -> str:
    """Convolutions in three dimensions, every other one transposed."""
    model = f"layers, at = [], 2\nfor n in range({depth}):\n    kind = nn.ConvTranspose3d if n % 2 else nn.Conv3d"
    model += f"\n    layers += [kind(at, {width}, 3, padding=1), nn.BatchNorm3d({width}), nn.LeakyReLU(0.1)]\n    at = {width}"
    model += "\nself.body = nn.Sequential(*layers)"
    return source(
        "", model, "return self.body(x)", f"[torch.randn({batch}, 2, {size}, {size}, {size})]"
    )


def perceptron(depth: int, width: int, batch: int) -> str:
    """Linear layers with batch norms, over a batch so small that every norm is coarse."""
    model = f"layers = []\nfor n in range({depth}):\n    layers += [nn.Linear({width}, {width}), nn.BatchNorm1d({width}), nn.ReLU()]"
    model += "\nself.body = nn.Sequential(*layers)"
    return source("", model, "return self.body(x)", f"[torch.randn({batch}, {width})]")


def large_transposed(width: int, batch: int, size: int) -> str:
    """One transposed convolution with a large output, where some element of millions is at the tail."""
    return source(
        "",
        f"self.one = nn.ConvTranspose2d({width}, {width}, 5, 2, 2, output_padding=1)",
        "return self.one(x)",
        f"[torch.randn({batch}, {width}, {size}, {size})]",
    )


NETWORKS = {
    "plain 20": plain(20, 24, 4, 16),
    "plain 40": plain(40, 16, 4, 12),
    "plain 60": plain(60, 16, 2, 12),
    "plain wide 20": plain(20, 64, 2, 8),
    "residual 18": residual(3, 16, 4, 16),
    "residual 36": residual(6, 16, 4, 16),
    "residual 54": residual(9, 8, 2, 16),
    "dense 24": dense(12, 8, 4, 16),
    "dense 40": dense(20, 8, 2, 16),
    "inception 8": inception(8, 8, 4, 12),
    "inception 16": inception(16, 8, 2, 12),
    "separable 24": separable(12, 32, 4, 24),
    "separable 48": separable(24, 32, 4, 16),
    "unet 3": unet(3, 8, 4, 32),
    "unet 5": unet(5, 8, 2, 32),
    "transposed 4": transposed(4, 64, 4, 4),
    "transposed 5": transposed(5, 128, 2, 2),
    "volume 12": volume(12, 8, 2, 8),
    "volume 24": volume(24, 8, 2, 6),
    "perceptron 20": perceptron(20, 64, 8),
    "perceptron 40": perceptron(40, 64, 4),
    "large transposed": large_transposed(24, 2, 96),
}

Arm = Callable[..., Any]


class Rewritten(TorchFunctionMode):
    """Run the body with some functions of PyTorch replaced, by name."""

    def __init__(self, replaced: dict[str, Callable[..., Any]]):
        super().__init__()
        self.replaced = replaced

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        one = self.replaced.get(getattr(func, "__name__", ""))
        if one is None:
            return func(*args, **(kwargs or {}))
        with torch._C.DisableTorchFunction():
            return one(func, *args, **(kwargs or {}))


def _by_halves(
    func: Any, x: torch.Tensor, w: torch.Tensor, b: Any = None, *rest: Any, **named: Any
) -> Any:
    """A convolution or product in two halves of its sum."""
    across = 0 if "transpose" in func.__name__ else 1
    half = w.shape[across] // 2
    grouped = func is not F.linear and x.shape[1] != w.shape[across]
    if half == 0 or grouped:
        return func(x, w, b, *rest, **named)
    axis = -1 if func is F.linear else 1
    parts = [(slice(0, half), None), (slice(half, None), b)]
    done = [
        func(
            x[..., part] if axis == -1 else x[:, part],
            w[part] if across == 0 else w[:, part],
            bias,
            *rest,
            **named,
        )
        for part, bias in reversed(parts)
    ]
    return done[0] + done[1]


def _norm(
    x: torch.Tensor, mean: torch.Tensor, var: torch.Tensor, w: Any, b: Any, eps: float, folded: bool
) -> torch.Tensor:
    shape = [1, -1, *[1] * (x.dim() - 2)]
    mean, rstd = mean.view(shape), torch.rsqrt(var + eps).view(shape)
    if folded:
        scale = rstd * w.view(shape)
        return x * scale + (b.view(shape) - mean * scale)
    return (x - mean) * rstd * w.view(shape) + b.view(shape)


def _own_norm(folded: bool, wide: bool) -> Callable[..., Any]:
    """A batch norm written out, its sums in one pass over the flattened values."""

    def norm(
        func: Any,
        x: torch.Tensor,
        running_mean: Any,
        running_var: Any,
        weight: Any = None,
        bias: Any = None,
        training: bool = False,
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> torch.Tensor:
        if not training:
            return _norm(x, running_mean, running_var, weight, bias, eps, folded)
        flat = x.transpose(0, 1).reshape(x.shape[1], -1)
        sums = flat.double() if wide else flat
        mean = sums.sum(1) / flat.shape[1]
        var = ((sums - mean[:, None]) ** 2).sum(1) / flat.shape[1]
        mean, var = mean.to(x.dtype), var.to(x.dtype)
        n = flat.shape[1]
        running_mean.lerp_(mean, momentum)
        running_var.lerp_(var * (n / max(1, n - 1)), momentum)
        return _norm(x, mean, var, weight, bias, eps, folded)

    return norm


CONVOLUTIONS = ("conv2d", "conv3d", "conv_transpose2d", "conv_transpose3d", "linear")


def by_halves(model: nn.Module, *args: Any) -> Any:
    with Rewritten(dict.fromkeys(CONVOLUTIONS, _by_halves)):
        return model(*args)


def folded(model: nn.Module, *args: Any) -> Any:
    with Rewritten({"batch_norm": _own_norm(True, False)}):
        return model(*args)


def wide_sums(model: nn.Module, *args: Any) -> Any:
    with Rewritten({"batch_norm": _own_norm(False, True)}):
        return model(*args)


def everything_else(model: nn.Module, *args: Any) -> Any:
    """Halved sums, a folded norm and no library."""
    with (
        torch.backends.mkldnn.flags(enabled=False),
        Rewritten(
            {**dict.fromkeys(CONVOLUTIONS, _by_halves), "batch_norm": _own_norm(True, False)}
        ),
    ):
        return model(*args)


def without_library(model: nn.Module, *args: Any) -> Any:
    with torch.backends.mkldnn.flags(enabled=False), torch.backends.cudnn.flags(enabled=False):
        return model(*args)


def channels_last(model: nn.Module, *args: Any) -> Any:
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}

    def laid(tensor: torch.Tensor) -> torch.Tensor:
        form = formats.get(tensor.dim())
        return tensor if form is None else tensor.contiguous(memory_format=form)

    other = copy.deepcopy(model)
    for weight in other.parameters():
        weight.data = laid(weight.data)
    result = other(*map_tensors(laid, list(args)))
    put_buffers(model, buffers_of(other))
    return map_tensors(lambda t: t.contiguous(), result)


def in_float64(model: nn.Module, *args: Any) -> Any:
    """More precise than the reference."""
    other = copy.deepcopy(model).double()
    result = other(*map_tensors(lambda t: t.double(), list(args)))
    put_buffers(
        model, {n: b.float() if b.is_floating_point() else b for n, b in buffers_of(other).items()}
    )
    return map_tensors(lambda t: t.float(), result)


def _coarse(rounded: Callable[[torch.Tensor], torch.Tensor]) -> Arm:
    def product(func: Any, x: torch.Tensor, w: torch.Tensor, *rest: Any, **named: Any) -> Any:
        return func(rounded(x), rounded(w), *rest, **named)

    def run(model: nn.Module, *args: Any) -> Any:
        with Rewritten(dict.fromkeys(CONVOLUTIONS, product)):
            return model(*args)

    return run


HONEST: dict[str, Arm] = {
    "by halves": by_halves,
    "folded norm": folded,
    "norm in double": wide_sums,
    "everything else": everything_else,
    "without library": without_library,
    "channels last": channels_last,
    "float64": in_float64,
}
IMPOSTORS: dict[str, Arm] = {
    "tf32 products": _coarse(lambda t: with_low_bits_cleared(t, 11)),
    "bf16 products": _coarse(lambda t: t.bfloat16().float()),
}


def judged(cases: Cases, case: Case, arm: Arm) -> Comparison:
    """The outcome of an arm on one case: its outputs, then the buffers it left."""
    model = cases.built.model
    cases.use(case.key.weights)
    args, kwargs = map_tensors(torch.clone, (case.args, case.kwargs))
    with torch.no_grad(), in_mode(model, case.key.other_mode):
        result = arm(model, *args, **kwargs)
    left = {name: buffer for name, buffer in buffers_of(model).items() if name in case.buffers}
    put_buffers(model, cases.initial(case.key.weights))
    outcome = cases.check(case, *describe(result))
    return cases.check_buffers(case, left) if outcome.ok and left else outcome


def first_refusal(cases: Cases, made: list[Case], arm: Arm) -> str | None:
    """Why an arm is refused; None if it is accepted on every case."""
    for case in made:
        outcome = judged(cases, case, arm)
        if not outcome.ok:
            return str(outcome.text)
    return None

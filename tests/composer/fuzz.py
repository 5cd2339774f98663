"""Random modules: operator chains with views, broadcasts, reductions, shared subexpressions, several inputs and outputs.

A module is source text, so that a failure can be read. Values are kept moderate, because fusion and indexing are under test; operator tests
cover edge values. Run it alone:

    python -m tests.composer.fuzz --modules 300 --seed 1
"""

from __future__ import annotations

import argparse
import copy
import math
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from dvk.composer import applicable
from dvk.composer.capture.export import CannotCompose
from dvk.composer.codegen import cpp
from dvk.composer.ir.loops import Kernel
from tests.composer.fuzz_nets import NetGenerator
from tests.composer.fuzz_operators import BINARY, REDUCE, UNARY
from tests.composer.programs import (
    EPSILON,
    Program,
    compiled,
    differences,
    out_of_bounds,
    run_source,
)

SIZES = (1, 2, 3, 4, 5, 6, 8, 12, 16)
MAX_ELEMENTS = 150_000


class Generator:
    """Writes one module, evaluating as it goes so that every statement fits its operands."""

    def __init__(self, seed: int):
        self.rng = random.Random(seed)
        self.seed = seed
        self.lines: list[str] = []
        self.values: dict[str, torch.Tensor] = {}
        self.held: dict[str, tuple[int, ...]] = {}
        torch.manual_seed(seed)
        self.args = [self._input() for _ in range(self.rng.choice((1, 1, 2, 2, 3)))]
        self.values.update((f"x{n}", a) for n, a in enumerate(self.args))

    def _input(self) -> torch.Tensor:
        rng = self.rng
        previous = getattr(self, "args", None) or list(self.values.values())
        shape = [rng.choice(SIZES) for _ in range(rng.choice((1, 2, 2, 3, 3, 4)))]
        if rng.random() < 0.1:
            # Long enough for threads, for several chunks, for sums in double.
            shape[rng.choice((0, -1))] = rng.choice((300, 1030, 5000, 70_001))
            shape[len(shape) // 2] = min(shape[len(shape) // 2], 5000)
        if previous and rng.random() < 0.6:
            shape = list(previous[0].shape)
        dtype = rng.choice((torch.float32,) * 6 + (torch.float64, torch.float16, torch.bfloat16))
        layout = rng.choice(("plain",) * 4 + ("transposed", "sliced", "expanded", "channels_last"))
        if layout == "transposed" and len(shape) > 1:
            return torch.randn(*reversed(shape)).to(dtype).permute(*reversed(range(len(shape))))
        if layout == "sliced":
            return torch.randn(*shape[:-1], shape[-1] * 2).to(dtype)[..., ::2]
        if layout == "expanded":
            return torch.randn(1, *shape[1:]).to(dtype).expand(shape)
        value = torch.randn(shape).to(dtype)
        return (
            value.contiguous(memory_format=torch.channels_last)
            if layout == "channels_last" and len(shape) == 4
            else value
        )

    def write(self) -> Generator:
        """Generate the statements."""
        for _ in range(self.rng.randint(3, 14) if self.seed % 4 else self.rng.randint(15, 35)):
            for _ in range(10):
                text = self.rng.choice(self._kinds())()
                if text and self._accept(text):
                    break
        return self

    def _accept(self, text: str) -> bool:
        if (" > " in text or " < " in text) and any(
            v.dtype in (torch.float16, torch.bfloat16) for v in self.values.values()
        ):
            return False  # fp16 and bf16 stay unrounded in registers: a jump may fall on the other side
        try:
            # Without memory first: a broadcast of two long vectors would not fit in it.
            with torch.device("meta"):
                shape = self._evaluate(text, "meta").shape
            if not 0 < shape.numel() <= MAX_ELEMENTS:
                return False
            value = self._evaluate(text, "cpu")
        except (
            RuntimeError,
            IndexError,
            TypeError,
            ValueError,
            NotImplementedError,
            AttributeError,
        ):
            return False
        if not isinstance(value, torch.Tensor) or value.dtype is torch.bool:
            return False
        if not torch.isfinite(value).all() or value.double().abs().max() > 60:
            return False
        name = f"v{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        self.values[name] = value
        return True

    def _evaluate(self, text: str, device: str) -> Any:
        scope: dict[str, Any] = {"torch": torch, "F": torch.nn.functional}
        scope["self"] = type(
            "Held", (), {n: torch.full(s, 0.5, device=device) for n, s in self.held.items()}
        )
        scope.update({n: v.to(device) for n, v in self.values.items()})
        with torch.no_grad():
            return eval(text, scope)

    def _kinds(self) -> list[Callable[[], str]]:
        return (
            [self._unary] * 4
            + [self._binary] * 6
            + [self._reduce] * 3
            + [self._view] * 4
            + [self._norm] * 2
            + [self._cast, self._weight, self._extern, self._loss, self._iota]
        )

    def _pick(self) -> str:
        names = list(self.values)
        recent = names[-3:]
        return self.rng.choice(recent if self.rng.random() < 0.6 else names)

    def _unary(self) -> str:
        return self.rng.choice(UNARY).format(self._pick())

    def _binary(self) -> str:
        a = self._pick()
        names = list(self.values)
        self.rng.shuffle(names)
        for b in names:
            try:
                torch.broadcast_shapes(self.values[a].shape, self.values[b].shape)
            except RuntimeError:
                continue
            pair = [a, b] if self.rng.random() < 0.5 else [b, a]
            return self.rng.choice(BINARY).format(*pair)
        return ""

    def _dims(self, rank: int) -> Any:
        dims = self.rng.sample(range(rank), self.rng.randint(1, rank))
        return dims[0] if len(dims) == 1 else tuple(dims)

    def _reduce(self) -> str:
        a = self._pick()
        rank = self.values[a].dim()
        return (
            self.rng.choice(REDUCE).format(a, self._dims(rank), self.rng.random() < 0.6)
            if rank
            else ""
        )

    def _norm(self) -> str:
        a = self._pick()
        shape = tuple(self.values[a].shape)
        if not shape:
            return ""
        choice = self.rng.randrange(6)
        if choice == 0:
            return f"torch.softmax({a}, {self.rng.randrange(len(shape))})"
        if choice == 1:
            return f"torch.log_softmax({a}, {self.rng.randrange(len(shape))}) * 0.5"
        if choice == 2:
            return f"F.layer_norm({a}, {shape[-self.rng.randint(1, len(shape)) :]}, eps=0.1)"
        if choice == 3:
            return f"F.rms_norm({a}, {shape[-1:]}, eps=0.1)"
        if choice == 4 and len(shape) > 2:
            return f"F.group_norm({a}, {self.rng.choice([g for g in range(1, shape[1] + 1) if shape[1] % g == 0])}, eps=0.1)"
        return f"F.normalize({a}, dim={self.rng.randrange(len(shape))}, eps=0.1)"

    def _view(self) -> str:
        rng, a = self.rng, self._pick()
        shape = tuple(self.values[a].shape)
        rank = len(shape)
        choice = rng.randrange(12)
        if rank == 0:
            return f"{a}.expand({rng.choice(SIZES)})"
        d = rng.randrange(rank)
        if choice == 0:
            return f"{a}.permute({rng.sample(range(rank), rank)})"
        if choice == 1:
            return f"{a}.transpose({d}, {rng.randrange(rank)})"
        if choice in (2, 3):
            return f"{a}.reshape({self._factors(math.prod(shape))})"
        if choice == 4:
            return f"{a}.unsqueeze({rng.randint(0, rank)})"
        if choice == 5:
            return f"{a}.squeeze()"
        if choice == 6:
            return f"{a}.expand({[rng.choice(SIZES) if s == 1 else s for s in shape]})"
        if choice == 7 and shape[d] > 1:
            start = rng.randrange(shape[d] - 1)
            return f"{a}[{':, ' * d}{start}:{rng.randint(start + 1, shape[d])}:{rng.choice((1, 1, 2))}]"
        if choice == 8:
            return f"{a}.select({d}, {rng.randrange(-shape[d], shape[d])})"
        if choice == 9:
            return f"{a}.chunk(2, {d})[{rng.randrange(2)}]"
        if choice == 10:
            return f"{a}.contiguous()"
        return f"{a}.flatten({d})"

    def _factors(self, number: int) -> list[int]:
        factors = []
        while number > 1 and len(factors) < 4:
            part = self.rng.choice(
                [f for f in range(1, number + 1) if number % f == 0 and f <= 64] or [number]
            )
            factors.append(part)
            number //= part
        factors.insert(self.rng.randint(0, len(factors)), number)
        return factors

    def _cast(self) -> str:
        a = self._pick()
        return f"{a}.to(torch.{self.rng.choice(('float32', 'float32', 'float64', 'float16', 'bfloat16'))})"

    def _weight(self) -> str:
        a = self._pick()
        shape = tuple(self.values[a].shape)
        if not shape or self.values[a].dtype is not torch.float32:
            return ""
        name = f"w{len(self.held)}"
        self.held[name] = shape[-1:]
        return self.rng.choice(("{0} * self.{1}", "{0} + self.{1}", "self.{1} - {0}")).format(
            a, name
        )

    def _extern(self) -> str:
        a, b = self._pick(), self._pick()
        shape = tuple(self.values[a].shape)
        if not shape:
            return ""
        d = self.rng.randrange(len(shape))
        return self.rng.choice(
            (
                "torch.cat([{a}, {b}], {d})",
                "torch.cumsum({a}, {d}) * 0.3",
                "torch.flip({a}, [{d}])",
                "torch.cumsum({a}.flip({d}), {d}).flip({d}) * 0.3",
                "torch.cummax({a}, {d})[0]",
                "F.pad({a}, (1, 2), value=0.5)",
                "F.max_pool1d({a}.reshape(1, -1), 3, 2, 1)",
                "F.avg_pool1d({a}.reshape(1, -1), 2, 2, 1, count_include_pad=False)",
                "({a}.min({d})[1] * 0.1 + {a}.min({d})[0])",
                "torch.stack([{a}, {b}], {d})",
                "torch.matmul({a}, {b}.transpose(-1, -2)) * 0.1",
            )
        ).format(a=a, b=b, d=d)

    def _loss(self) -> str:
        a = self._pick()
        same = [n for n, v in self.values.items() if v.shape == self.values[a].shape]
        kind = self.rng.choice(("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"))
        return f"F.{kind}({a}, {self.rng.choice(same)}, reduction='{self.rng.choice(('none', 'mean', 'sum'))}') * 0.1"

    def _iota(self) -> str:
        a = self._pick()
        shape = tuple(self.values[a].shape)
        if not shape:
            return ""
        return self.rng.choice(
            (
                f"{a} * (torch.arange({shape[-1]}) * {1 / shape[-1]!r})",
                f"torch.where(torch.arange({shape[-1]}) < {shape[-1] // 2}, {a}, 0.5)",
                f"torch.tril({a})",
                f"{a} + torch.tensor([0.25, -0.5]).sum()",
            )
        )

    def source(self) -> str:
        """The module as a file's text."""
        names = [f"v{n}" for n in range(len(self.lines))] or ["x0"]
        chosen = list(
            dict.fromkeys([names[-1], *self.rng.choices(names, k=self.rng.choice((0, 0, 1, 2)))])
        )
        if self.rng.random() < 0.15 and self.values[names[-1]].dim():
            chosen.append(f"{names[-1]}.transpose(0, -1)")
        result = chosen[0] if len(chosen) == 1 else f"({', '.join(chosen)})"
        weights = "".join(
            f"        self.{n} = nn.Parameter(torch.full({s}, 0.5) + 0.1 * torch.arange({s[0]}) / {s[0]})\n"
            for n, s in self.held.items()
        )
        body = "".join(f"        {line}\n" for line in self.lines)
        return (
            f"import torch\nimport torch.nn.functional as F\nfrom torch import nn\n\n\nclass Model(nn.Module):\n    def __init__(self):\n"
            f"        super().__init__()\n{weights}\n    def forward(self, {', '.join(f'x{n}' for n in range(len(self.args)))}):\n"
            f"{body}        return {result}\n"
        )


class Case:
    """A generated module and programs of it: the default one, and one under random recipes and schedules."""

    def __init__(self, seed: int, nets: bool = False):
        generator = NetGenerator(seed).write() if nets else Generator(seed).write()
        self.seed, self.args, self.text = seed, generator.args, generator.source()
        torch.manual_seed(seed)
        self.module: nn.Module = run_source(self.text, f"fuzz{seed}").Model()
        rng = random.Random(seed + 1)

        def choose(kernel: Kernel) -> dict[str, Any]:
            return rng.choice(cpp.schedules(kernel))

        first = Program(self.module, *self.args)
        everything = applicable(first.graph, "cpu", "cpp")
        some = tuple(r for r in everything if rng.random() < 0.6)
        self.programs = [first, first.under(choose, some)]

    def faults(self) -> list[str]:
        """Errors in the results of the compiled programs."""
        reference = copy.deepcopy(self.module)
        torch.manual_seed(0)
        with torch.no_grad():
            want = reference(*self.args)
        before = copy.deepcopy(self.module.state_dict())
        copies = [a.clone() for a in self.args]
        seen = {
            getattr(torch, n.dtype) for n in self.programs[0].graph.nodes if n.dtype is not None
        }
        precision = max((d for d in seen if d in EPSILON), key=EPSILON.__getitem__)
        found = []
        for which, program in zip(("default", "varied"), self.programs):
            bounds = [text for k in program.kernels for text in out_of_bounds(k)]
            found += [f"{which}: {text}" for text in bounds]
            if not bounds:
                program.module.load_state_dict(before)
                torch.manual_seed(0)
                found += [
                    f"{which} {program.recipes if which == 'varied' else ''}: {text}"
                    for text in differences(
                        program.run(), want, scale=3, precision=precision, floor=0.5
                    )
                ]
        found += [
            f"input {n} was written"
            for n, (a, b) in enumerate(zip(self.args, copies))
            if not torch.equal(a, b)
        ]
        return found


def cases(
    seeds: range, report: Callable[[int, str], None], nets: bool = False, batch: int = 25
) -> Iterator[Case]:
    """Cases ready to run; modules that cannot be composed are reported with their text."""
    for start in range(seeds.start, seeds.stop, batch):
        ready = []
        for seed in range(start, min(start + batch, seeds.stop)):
            try:
                ready.append(Case(seed, nets))
            except CannotCompose as error:
                report(seed, f"cannot: {error}")
            except Exception as error:  # noqa: BLE001 - a fuzzer reports whatever it provokes
                report(
                    seed,
                    f"{type(error).__name__}: {error}\n{(NetGenerator if nets else Generator)(seed).write().source()}",
                )
        compiled(p for c in ready for p in c.programs)
        yield from ready


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--modules", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--nets", action="store_true", help="small networks instead of operator chains"
    )
    options = parser.parse_args()
    faults: list[tuple[int, str]] = []
    began, count, kernels = time.time(), 0, 0
    for case in cases(
        range(options.seed, options.seed + options.modules),
        lambda s, t: faults.append((s, t)),
        options.nets,
    ):
        print(case.seed, end=" ", flush=True)
        count += 1
        kernels += sum(len(p.kernels) for p in case.programs)
        found = case.faults()
        if found:
            faults.append((case.seed, "\n".join([*found, case.text])))
    for seed, text in faults:
        print(f"\n=== seed {seed}: {text}")
    print(
        f"\n{count} modules, {kernels} kernels, {len(faults)} faults, {time.time() - began:.0f} s"
    )


if __name__ == "__main__":
    main()

"""Random modules that write: through views and chains of views, in place, by `out=`, into inputs, buffers, slices and temporaries.

A module is source text, so that a failure can be read. Compared with eager: results, inputs and buffers afterwards, values that change when
the caller writes into a result, and all of it once more in a second call. Run it alone:

    python -m tests.composer.fuzz_writes --modules 300 --seed 1
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

from dvk.composer.capture.export import CannotCompose
from dvk.composer.codegen import cpp
from tests.composer import programs
from tests.composer.fuzz_write_operators import (
    BUFFERS,
    IN_PLACE,
    NORMS,
    OUT,
    PURE,
    STATEMENTS,
    VIEWS,
)
from tests.composer.programs import (
    EPSILON,
    Program,
    differences,
    drop_in,
    leaves,
    run_source,
    usual,
)

SIZES = (1, 2, 3, 4, 6)


class Generator:
    """Writes one module, and runs it after each line so that every statement fits its operands."""

    def __init__(self, seed: int):
        self.rng = random.Random(seed)
        self.seed = seed
        torch.manual_seed(seed)
        rank = self.rng.choice((1, 2, 2, 2, 3))
        self.shape = tuple(self.rng.choice(SIZES) for _ in range(rank))
        self.dtype = self.rng.choice((torch.float32,) * 8 + (torch.float64, torch.float16))
        self.args = [self._input() for _ in range(self.rng.choice((1, 2, 2)))]
        self.lines: list[str] = []
        self.names = [f"x{n}" for n in range(len(self.args))]
        self.result = ""
        self.values: dict[str, torch.Tensor] = {}

    def _input(self) -> torch.Tensor:
        layout = self.rng.choice(("plain",) * 4 + ("transposed", "sliced"))
        if layout == "transposed" and len(self.shape) > 1:
            return (
                torch.randn(*reversed(self.shape))
                .to(self.dtype)
                .permute(*reversed(range(len(self.shape))))
            )
        if layout == "sliced":
            return torch.randn(*self.shape[:-1], self.shape[-1] * 2).to(self.dtype)[..., ::2]
        return torch.randn(self.shape).to(self.dtype)

    def write(self) -> Generator:
        """Generate the statements and the returned names."""
        self._values([])
        for _ in range(self.rng.randint(3, 14)):
            for _ in range(20):
                line = self._line()
                values = self._values([line])
                if values is not None:
                    self.lines.append(line)
                    self.names += [
                        n for n in values if n not in self.names and not n.startswith("self.")
                    ]
                    break
        for _ in range(20):
            self.result = self._returned()
            if self._values([f"result = {self.result}"]) is not None:
                return self
        self.result = self.names[-1]
        return self

    def _line(self) -> str:
        rng = self.rng
        texts, new = rng.choice(
            (
                (PURE, 1.0),
                (PURE, 1.0),
                (VIEWS, 1.0),
                (VIEWS, 1.0),
                (VIEWS, 1.0),
                (IN_PLACE, 0.3),
                (IN_PLACE, 0.3),
                (IN_PLACE, 0.3),
                (STATEMENTS, 0.0),
                (STATEMENTS, 0.0),
                (OUT, 0.4),
                (OUT, 0.4),
                (NORMS, 1.0) if rng.random() < 0.4 else (VIEWS, 1.0),
            )
        )
        text = rng.choice(texts).format(
            a=self._pick(),
            b=self._pick(),
            c=self._pick(),
            d=rng.choice((0, -1, 1)),
            e=rng.choice((0, -1)),
            i=rng.choice((0, 0, 1, 2)),
            j=rng.choice((1, 2, 3)),
        )
        if (
            texts is STATEMENTS
            and "self." in text.partition("=")[0]
            and (
                "+=" in text
                or "*=" in text
                or "-=" in text
                or "/=" in text
                or ", " in text.partition("=")[0]
            )
            and "[" not in text
        ):
            return ""
        return f"v{len(self.lines)} = {text}" if rng.random() < new else text

    def _pick(self) -> str:
        rng = self.rng
        if rng.random() < 0.15:
            return "self." + rng.choice(BUFFERS[:2])
        return rng.choice(self.names[-3:] if rng.random() < 0.5 else self.names)

    def _returned(self) -> str:
        rng = self.rng
        parts = [self._pick() for _ in range(rng.choice((1, 1, 2, 3, 4)))]
        parts = [
            rng.choice((p, p, p, rng.choice(VIEWS).format(a=p, b=p, d=0, e=-1, i=0, j=1)))
            for p in parts
        ]
        if rng.random() < 0.2:
            parts.append(parts[0])
        if rng.random() < 0.15:
            return "{" + ", ".join(f"'k{n}': {part}" for n, part in enumerate(parts)) + "}"
        return (
            parts[0]
            if len(parts) == 1
            else f"[{', '.join(parts)}]"
            if rng.random() < 0.2
            else f"({', '.join(parts)})"
        )

    def _values(self, more: list[str]) -> dict[str, torch.Tensor] | None:
        """Values of the names after all lines, in two calls; None if a line does not fit, or numbers grow."""
        if more == [""]:
            return None
        scope: dict[str, Any] = {
            "torch": torch,
            "F": nn.functional,
            "self": held(self.shape, self.dtype),
        }
        try:
            with torch.no_grad():
                code = compile("\n".join([*self.lines, *more]), "<lines>", "exec")
                for _ in range(2):
                    torch.manual_seed(self.seed)
                    scope.update({f"x{n}": copied(a) for n, a in enumerate(self.args)})
                    given = [scope[f"x{n}"] for n in range(len(self.args))]
                    exec(code, scope)
                    buffers = [scope["self"].b0, scope["self"].b1]
                    if any(
                        t.stride() != a.stride() or t.shape != a.shape
                        for t, a in zip(given, self.args, strict=True)
                    ) or any(b.shape != self.shape or not b.is_contiguous() for b in buffers):
                        return None  # changes of an input's shape are refused
        except (
            RuntimeError,
            IndexError,
            TypeError,
            ValueError,
            NotImplementedError,
            AttributeError,
        ):
            return None
        values = {n: v for n, v in scope.items() if isinstance(v, torch.Tensor)}
        values |= {f"self.{n}": b for n, b in scope["self"].named_buffers()}
        for value in values.values():
            if not 0 < value.numel() <= 5000 or value.dim() > 5:
                return None
            if value.dtype.is_floating_point and not (
                torch.isfinite(value).all() and value.double().abs().max() <= 60
            ):
                return None
        return values

    def source(self) -> str:
        """The module as a file's text."""
        body = "".join(f"        {line}\n" for line in self.lines)
        shape, dtype = self.shape, self.dtype
        values = {
            "b0": f"(torch.arange({math.prod(shape)}) * 0.1).reshape({shape}).to({dtype})",
            "b1": f"torch.full({shape}, 0.5, dtype={dtype})",
            "m": f"torch.zeros(3, dtype={dtype})",
            "v": f"torch.ones(3, dtype={dtype})",
        }
        held = "".join(
            f"        self.register_buffer({name!r}, {text})\n" for name, text in values.items()
        )
        return (
            "import torch\nimport torch.nn.functional as F\nfrom torch import nn\n\n\nclass Model(nn.Module):\n    def __init__(self):\n"
            f"        super().__init__()\n{held}\n    def forward(self, {', '.join(f'x{n}' for n in range(len(self.args)))}):\n"
            f"{body}        return {self.result}\n"
        )


def held(shape: tuple[int, ...], dtype: torch.dtype) -> nn.Module:
    """A module with the buffers of generated ones."""
    module = nn.Module()
    module.register_buffer("b0", (torch.arange(math.prod(shape)) * 0.1).reshape(shape).to(dtype))
    module.register_buffer("b1", torch.full(shape, 0.5, dtype=dtype))
    module.register_buffer("m", torch.zeros(3, dtype=dtype))
    module.register_buffer("v", torch.ones(3, dtype=dtype))
    return module


def copied(tensor: torch.Tensor) -> torch.Tensor:
    """The same values in the same layout."""
    span = 1 + sum(
        (size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )
    return tensor.as_strided((span,), (1,)).clone().as_strided(tensor.shape, tensor.stride())


Call = Callable[..., Any]


def faults(
    ours: Call, module: nn.Module, reference: nn.Module, args: list[torch.Tensor], **how: Any
) -> list[str]:
    """Differences of two calls of `ours`, whose buffers are those of `module`, from two of the reference.

    Args:
        how: passed to `differences`.
    """
    found: list[str] = []
    kept: list[tuple[Any, Any]] = []
    for which in ("first", "second"):
        both: list[list[Any]] = []
        for call, owner in ((ours, module), (reference, reference)):
            given = [copied(a) for a in args]
            torch.manual_seed(3)
            with torch.no_grad():
                try:
                    both.append([call(*given), given, dict(owner.named_buffers())])
                except Exception as error:  # noqa: BLE001 - a drop-in must not raise whatever it is
                    return [*found, f"{which} call: {type(error).__name__}: {error}"]
        mine, theirs = both
        kept.append((mine[0], theirs[0]))
        found += _apart(f"{which} call", mine, theirs, how)
        for number in range(len(leaves(theirs[0]))):
            marked = [_mark(leaves(side[0])[number], number) for side in both]
            if marked[0] != marked[1]:
                found.append(
                    f"{which} call, result {number}: the caller can write {'ours' if marked[0] else 'only that of eager'}"
                )
            found += _apart(f"{which} call, result {number} written", mine, theirs, how)
        if found:
            return found
    for mine, theirs in kept:
        found += [
            f"a result of an earlier call: {text}" for text in differences(mine, theirs, **how)
        ]
    return found


def _apart(when: str, mine: list[Any], theirs: list[Any], how: dict[str, Any]) -> list[str]:
    texts = [
        (what, differences(a, b, **how))
        for what, a, b in zip(("results", "inputs", "buffers"), mine, theirs, strict=True)
    ]
    types = [
        (type(a), type(b))
        for a, b in zip(leaves(mine[0]), leaves(theirs[0]))
        if type(a) is not type(b)
    ]
    return [f"{when}: {what} {text}" for what, found in texts for text in found] + [
        f"{when}: types {types}" for _ in types[:1]
    ]


def _mark(tensor: Any, number: int) -> bool:
    """Write into a result; False if PyTorch does not let its caller."""
    if not isinstance(tensor, torch.Tensor):
        return False
    try:
        tensor.fill_(number % 2 if tensor.dtype is torch.bool else 70 + number)
    except RuntimeError:
        return False
    return True


class Case:
    """A generated module and its programs: of calls alone, with kernels, and for some the whole drop-in."""

    def __init__(self, seed: int):
        generator = Generator(seed).write()
        self.seed, self.args, self.text = seed, generator.args, generator.source()
        self.module: nn.Module = run_source(self.text, f"writes{seed}").Model()
        first = Program(self.module, *self.args, recipes=usual)
        self.programs = {"kernels": first, "calls": first.under(recipes=())}
        dtypes = {getattr(torch, n.dtype) for n in first.graph.nodes if n.dtype is not None}
        self.how = {
            "scale": 3,
            "floor": 0.5,
            "precision": max((d for d in dtypes if d in EPSILON), key=EPSILON.__getitem__),
        }

    def faults(self, whole: bool) -> list[str]:
        """Errors of the compiled programs.

        Args:
            whole: also write the whole drop-in, which compiles its kernels alone.
        """
        found = []
        for name, program in self.programs.items():
            program.module = copy.deepcopy(self.module)
            found += [
                f"{name}: {t}"
                for t in faults(
                    program.run, program.module, copy.deepcopy(self.module), self.args, **self.how
                )
            ]
        if whole:
            candidate, reference, _ = drop_in(self.text, *self.args)
            ours = candidate.ModelNew().eval()
            found += [f"drop-in: {t}" for t in faults(ours, ours, reference, self.args, **self.how)]
        return found


def cases(seeds: range, report: Callable[[int, str], None], batch: int = 25) -> Iterator[Case]:
    """Cases ready to run; modules that cannot be composed are reported with their text."""
    for start in range(seeds.start, seeds.stop, batch):
        ready = []
        for seed in range(start, min(start + batch, seeds.stop)):
            try:
                ready.append(Case(seed))
            except CannotCompose as error:
                report(seed, f"cannot: {error}")
            except Exception as error:  # noqa: BLE001 - a fuzzer reports whatever it provokes
                report(seed, f"{type(error).__name__}: {error}\n{Generator(seed).write().source()}")
        programs.compiled(p for c in ready for p in c.programs.values())
        yield from ready


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--modules", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--drop-ins",
        type=int,
        default=5,
        help="make the whole drop-in of every so many-th module; 0: of none",
    )
    options = parser.parse_args()
    reported: list[tuple[int, str]] = []
    cpp.FLAGS = tuple(flag for flag in cpp.FLAGS if not flag.startswith("-O")) + (
        "-O1",
    )  # indices and order are compared
    began, count, kernels, refused = time.time(), 0, 0, 0
    for case in cases(
        range(options.seed, options.seed + options.modules), lambda s, t: reported.append((s, t))
    ):
        count += 1
        kernels += len(case.programs["kernels"].kernels)
        if found := case.faults(bool(options.drop_ins) and case.seed % options.drop_ins == 0):
            reported.append((case.seed, "\n".join([*found[:6], case.text])))
    for seed, text in reported:
        refused += text.startswith("cannot: ")
        print(f"\n=== seed {seed}: {text}")
    print(
        f"\n{count} modules, {kernels} kernels, {refused} refused, {len(reported) - refused} faults, {time.time() - began:.0f} s"
    )


if __name__ == "__main__":
    main()

"""Convolutions with an epilogue: the library's and a kernel behind it, torch.compile, and implicit matmuls under their schedules.

    python -m tests.benchmarks.convolutions --out convolutions.jsonl

One line a shape: milliseconds of each arm (median of calls by CUDA events), and how far each is off, relative to the mean magnitude of
float32 results without TF32. Kernels are compiled in parallel first. `--device cpu` writes and checks the kernels without timing.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

CALLS = 15
WORKERS = 12
TEXT = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d({inputs}, {outputs}, {window}, {stride}, {padding}, {dilation}, {groups}).to({dtype})
        self.conv = self.conv.to(memory_format=torch.channels_last)

    def forward(self, x):
        return nn.functional.hardswish(self.conv(x))

def get_inputs():
    x = torch.randn({batch}, {inputs}, {size}, {size}, dtype={dtype})
    return [x.to(memory_format=torch.channels_last)]

def get_init_inputs():
    return []
"""


@dataclass(frozen=True)
class Shape:
    """A convolution of a batch of square images."""

    name: str
    batch: int
    inputs: int
    size: int
    outputs: int
    window: int = 3
    stride: int = 1
    dilation: int = 1
    groups: int = 1
    dtype: str = "torch.float32"

    @property
    def text(self) -> str:
        padding = self.dilation * (self.window - 1) // 2
        return TEXT.format(**asdict(self), padding=padding)


SHAPES = (
    Shape("narrow", 8, 32, 256, 32),
    Shape("narrow_bf16", 8, 32, 256, 32, dtype="torch.bfloat16"),
    Shape("narrow_fp16", 16, 16, 256, 16, dtype="torch.float16"),
    Shape("wider", 32, 32, 112, 64),
    Shape("wider_bf16", 32, 32, 112, 64, dtype="torch.bfloat16"),
    Shape("strided", 64, 16, 256, 64, 5, stride=2),
    Shape("dilated", 16, 32, 128, 32, dilation=2),
    Shape("large_window", 16, 32, 128, 64, 5),
    Shape("grouped", 64, 64, 112, 128, groups=4),
    Shape("deep", 32, 32, 28, 256),
    Shape("wide_pointwise", 32, 256, 56, 64, 1),
    Shape("depthwise", 32, 128, 112, 128, groups=128),
)
OWN = {"wide_pointwise": "own_pointwise", "depthwise": "own_depthwise"}


def sources(shapes: list[Shape], device: str, most: int) -> dict[str, dict[str, str]]:
    """Shape → arm → text of a drop-in."""
    from dvk.composer import CannotCompose, Plan, applicable, fuse, write
    from dvk.composer.capture.batch import capture_many
    from dvk.composer.codegen.base import codegen
    from dvk.composer.plan_space import MEASURED
    from dvk.records import Task, content_hash
    from dvk.target import of_machine

    tasks = [
        Task(
            id=content_hash(s.text),
            name=s.name,
            source=s.text,
            entry="Model",
            kind="module",
            device=device,
            precision="tf32",
        )
        for s in shapes
    ]
    target, found = of_machine(device), {}
    for number, captured in capture_many(tasks):
        shape, task = shapes[number], tasks[number]
        if isinstance(captured, CannotCompose):
            raise captured
        usual = [r for r in applicable(captured.graph, "cuda", "triton") if r not in MEASURED]
        arms = {}
        for arm, names in (
            ("library", (*usual, "channels_last")),
            ("own", (*usual, "channels_last", OWN.get(shape.name, "own_convolution"))),
        ):
            made = fuse(task.model_copy(update={"device": "cuda"}), captured, names)
            options = {k.name: codegen("triton").schedules(k, target) for k in made.ordered}
            largest = max(made.ordered, key=lambda k: k.num_rows * k.row_length)
            for option in options[largest.name][: most if arm == "own" else 1]:
                plan = {name: of[0] for name, of in options.items()} | {largest.name: option}
                words = " ".join(f"{v}" for v in option.printed().values())
                title = "library" if arm == "library" else f"own {words}"
                arms[title] = write(task, captured, made, Plan(names, plan), "triton").source
        found[shape.name] = arms
    return found


def read(path: Path) -> dict[str, Any]:
    space: dict[str, Any] = {"__name__": path.stem, "__file__": str(path)}
    exec(compile(path.read_text(), str(path), "exec"), space)
    return space


def measure(call: Callable[[], Any], device: str) -> float:
    """Median milliseconds of a call; 0 without a GPU."""
    import torch

    for _ in range(3 if device == "cuda" else 0):
        call()
    if device != "cuda":
        return 0.0
    times = []
    for _ in range(CALLS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return sorted(times)[CALLS // 2]


def row(shape: Shape, folder: Path, device: str) -> dict[str, Any]:
    """All arms of one shape, in this process."""
    import torch

    space: dict[str, Any] = {}
    exec(shape.text, space)
    torch.manual_seed(0)
    inputs = [x.to(device) for x in space["get_inputs"]()]
    model = space["Model"]().to(device).eval()
    found: dict[str, Any] = {"shape": shape.name, "ms": {}, "off": {}, "errors": {}}
    with torch.no_grad():
        torch.backends.cudnn.allow_tf32 = False
        exact = model.float()(*[x.float() for x in inputs])
        torch.backends.cudnn.allow_tf32 = True
        model = model.to(inputs[0].dtype)

        def arm(name: str, make: Callable[[], Callable[[], Any]]) -> None:
            try:
                call = make()
                got = call()
                worst = ((got.double() - exact.double()).abs().max() / exact.abs().mean()).item()
                found["off"][name] = float(f"{worst:.2g}")
                found["ms"][name] = round(measure(call, device), 4)
            except Exception as error:  # noqa: BLE001 - an arm that fails is a row of the table
                found["errors"][name] = f"{type(error).__name__}: {error}"[:300]

        arm("eager", lambda: lambda: model(*inputs))
        if device == "cuda":

            def compiled() -> Callable[[], Any]:
                torch._dynamo.reset()
                fast = torch.compile(model)
                return lambda: fast(*inputs)

            arm("compile", compiled)
        for path in sorted((folder / shape.name).glob("*.py")):

            def ours(path: Path = path) -> Callable[[], Any]:
                new = read(path)["ModelNew"]().to(device).eval()
                new.load_state_dict(model.state_dict())
                return lambda: new(*inputs)

            arm(path.with_suffix(".txt").read_text(), ours)
    return found


def warm(paths: list[str], device: str) -> None:
    """Call drop-ins once, and `shape:NAME` through torch.compile, so that kernels are compiled and cached."""
    import torch

    for text in paths:
        shape = next((s for s in SHAPES if text == f"shape:{s.name}"), None)
        space: dict[str, Any] = {}
        try:
            if shape is None:
                space = read(Path(text))
            else:
                exec(shape.text, space)
            model = space["Model" if shape else "ModelNew"]().to(device).eval()
            call = torch.compile(model) if shape else model
            with torch.no_grad():
                call(*[x.to(device) for x in space["get_inputs"]()])
        except Exception as error:  # noqa: BLE001 - the timing run reports it
            print(text, error, file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path("convolutions.jsonl"))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--only", default="", help="names of shapes, with commas")
    parser.add_argument("--most", type=int, default=9, help="schedules a shape")
    parser.add_argument("--warm", nargs="*")
    args = parser.parse_args()
    os.environ["DVK_STRICT"] = "1"
    if args.warm is not None:
        warm(args.warm, args.device)
        return
    only = set(args.only.split(",")) - {""}
    shapes = [s for s in SHAPES if not only or s.name in only]
    if args.device == "cpu":
        shapes = [replace(s, batch=1, size=6, dtype="torch.float32") for s in shapes]
    began = time.monotonic()
    folder = Path(f"{args.out}.files")
    for name, arms in sources(shapes, args.device, args.most).items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number, (title, text) in enumerate(arms.items()):
            (folder / name / f"{number}.py").write_text(text)
            (folder / name / f"{number}.txt").write_text(title)
    paths = sorted(map(str, folder.rglob("*.py")))
    print(f"{len(paths)} programs after {time.monotonic() - began:.0f} s", flush=True)
    command = [sys.executable, "-m", "tests.benchmarks.convolutions", "--device", args.device]
    if args.device == "cuda":
        jobs = [*(f"shape:{s.name}" for s in shapes), *paths]
        parts = [jobs[n::WORKERS] for n in range(WORKERS)]
        running = [subprocess.Popen([*command, "--warm", *part]) for part in parts if part]
        for one in running:
            one.wait()
    print(f"compiled after {time.monotonic() - began:.0f} s", flush=True)
    with args.out.open("w") as file:
        for shape in shapes:
            found = row(shape, folder, args.device)
            file.write(json.dumps(found) + "\n")
            file.flush()
            print(shape.name, found["ms"], found["off"], found["errors"] or "", flush=True)


if __name__ == "__main__":
    main()

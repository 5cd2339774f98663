"""Where the time and the memory of a large task's first verdict go: the referee's stages in this process, one line each.

    python -m tests.benchmarks.verdict_stages --bytes 1e8                       # row variance on the CPU
    python -m tests.benchmarks.verdict_stages --device cuda --bytes 4.3e9 --judge
    python -m tests.benchmarks.verdict_stages --task data/tasks/large/development/row_variance_fp16.py --device cuda --judge

Prints for each stage: seconds, processor seconds, how often the operators passed over the inputs and outputs (bytes read and written over
their size), the most memory held, over the same size, and what is still held afterwards. `--judge` adds a real verdict with its processes,
by stage. Asserted nowhere: seconds depend on the machine. `tests/harness/test_memory_estimate.py` holds the memory against the estimate.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from dvk import tasks
from dvk.config import Config
from dvk.harness.checking.case_keys import plan
from dvk.harness.checking.cases import Cases
from dvk.harness.processes.referee import first_cases
from dvk.harness.session.memory_estimate import bytes_to_judge
from dvk.harness.timing.paired_timer import PairedTimer
from dvk.harness.timing.roofline_bytes import needed_bytes
from dvk.records import Task
from dvk.tasks.build import build
from dvk.tasks.peak_memory import LiveBytes
from dvk.tasks.sizes import num_bytes

SEED = 7
ROWS = 4096
"""Elements of a row of a made task."""

SOURCES = {
    "row_variance": ("x.float().var(dim=1, correction=0)", 1, "float16"),
    "pointwise": ("torch.nn.functional.silu(x) * y + 1.0", 3, "float32"),
    "softmax": ("torch.softmax(x, -1)", 2, "float32"),
    "product": ("torch.relu(x @ y)", 3, "float32"),
    "norm": ("torch.nn.functional.layer_norm(x, x.shape[-1:])", 2, "bfloat16"),
}
"""Body of forward, tensors of equal size among inputs and outputs, dtype."""

FILE = """import torch
import torch.nn as nn


class {name}(nn.Module):
    def forward(self, {arguments}):
        return {body}


def get_inputs():
    return [torch.randn({shape}, dtype=torch.{dtype}) for _ in range({count})]
"""


def source(kind: str, size: float, name: str = "Model") -> str:
    """A file of a task of about this many bytes of inputs and outputs."""
    body, tensors, dtype = SOURCES[kind]
    count = 2 if "y" in body.replace("layer", "") else 1
    elements = size / tensors / getattr(torch, dtype).itemsize
    side = int(elements**0.5)
    shape = f"{side}, {side}" if kind == "product" else f"{max(8, int(elements / ROWS))}, {ROWS}"
    arguments = "x, y" if count == 2 else "x"
    return FILE.format(
        name=name, arguments=arguments, body=body, shape=shape, dtype=dtype, count=count
    )


class Traffic(LiveBytes):
    """Counts live bytes, and the bytes that operators read and write."""

    def __init__(self) -> None:
        super().__init__(limit_s=math.inf)
        self.moved = 0

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = super().__torch_dispatch__(function, types, args, kwargs)
        if not function.is_view:
            self.moved += sum(
                t.numel() * t.element_size()
                for t in tree_leaves((args, kwargs, result))
                if isinstance(t, torch.Tensor)
            )
        return result


@dataclass(frozen=True)
class Stage:
    """Figures of one stage."""

    name: str
    seconds: float
    processor_s: float
    """Processor time of the process, which other work on the machine does not change."""
    moved: int
    most: int
    """Bytes alive at the most, those from earlier stages included."""
    held: int
    """Bytes alive afterwards."""


class Stages:
    """Runs stages, and keeps their figures. On a CPU memory is counted by operators, on a GPU by PyTorch's allocator."""

    def __init__(self, device: str):
        self.device, self.traffic, self.found = device, Traffic(), list[Stage]()

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """The body is one stage."""
        gc.collect()  # cycles of earlier stages
        live = self.traffic
        live.most, live.moved = live.now, 0
        if self.device == "cuda":
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        began, used = time.perf_counter(), time.process_time()
        with live:
            yield
        if self.device == "cuda":
            torch.cuda.synchronize()
        took, used = time.perf_counter() - began, time.process_time() - used
        most, held = live.most, live.now
        if self.device == "cuda":
            most, held = torch.cuda.max_memory_allocated(), torch.cuda.memory_allocated()
        self.found.append(Stage(name, took, used, live.moved, most, held))


def run(task: Task, tier: str, timed_calls: int = 3) -> list[Stage]:
    """Do in this process what a referee does for the first candidate of a task: the candidate's answers are the reference's."""
    stages, config = Stages(task.device), Config()
    keys = plan(task, tier, config.judge.num_seeds, SEED)
    with torch.no_grad():
        with stages.stage("construct the reference"):
            built = build(task)
        with stages.stage("first case"):
            cases = Cases(built, plan(task, "claim", config.judge.num_seeds, SEED), SEED)
            cases.get(keys[0])
        with stages.stage("lend inputs"):
            timer = PairedTimer(task, cases, config.judge)
        if task.device == "cuda":
            with stages.stage("shapes for recording"):
                first_cases(cases)
        for key in keys:
            with stages.stage(f"case {key.text}"):
                case = cases.get(key)
            if case is not None:
                with stages.stage(f"check {key.text}"):
                    _checked(cases, timer, case)
            del case  # as in the referee, it ends with its check
        for number in range(timed_calls):
            with stages.stage(f"timed draw {number + 1}"):
                case = cases.fresh(number + 1)
            with stages.stage(f"timed check {number + 1}"):
                _checked(cases, timer, case)
            del case
        with stages.stage("health"):
            cases.remarks  # noqa: B018 - computed on first use
        with stages.stage("needed bytes"):
            case, model = cases.fresh(0), built.model
            needed_bytes(lambda: model(*case.args, **case.kwargs), case.inputs)
    timer.close()
    return stages.found


def _checked(cases: Cases, timer: PairedTimer, case: Any) -> None:
    """Compare an answer that is a rounding off, and look at the lent inputs."""
    board = timer.board_for(case)
    answers = [
        e.same * (1 + torch.finfo(e.same.dtype).eps)
        if isinstance(e.same, torch.Tensor) and e.same.is_floating_point()
        else e.same
        for e in case.expected
    ]
    board.holds(case.inputs)
    board.written_beside()
    cases.check(case, answers, case.spec_text)


def judged(task: Task, text: str) -> dict[str, Any]:
    """A real verdict on the reference's own source, with processes."""
    from dvk.harness import judge
    from dvk.records import Candidate
    from tests.benchmarks.large_tasks import Memory

    backend = "triton" if task.device == "cuda" else "cpp"
    candidate = Candidate(
        source=text.replace("class Model(", "class ModelNew("), backend=backend, proposer="bench"
    )
    with Memory(task.device) as memory:
        began = time.perf_counter()
        (verdict,) = judge(task, [candidate], config=Config())
        took = time.perf_counter() - began
    return {
        "status": verdict.status.value,
        "error": verdict.error,
        "seconds": round(took, 2),
        "stages_s": {name: round(s, 2) for name, s in verdict.stages_s.items()},
        "most_bytes": memory.most,
    }


def main() -> None:
    """Print the stages of each task."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--device", default="cpu")
    options.add_argument("--bytes", nargs="+", type=float, default=[1e8])
    options.add_argument("--kinds", nargs="+", default=["row_variance"])
    options.add_argument("--task", type=Path, help="a task's file instead of a made one")
    options.add_argument("--tier", default="search")
    options.add_argument("--judge", action="store_true")
    options.add_argument("--jsonl", type=Path, help="append the stages to this file, too")
    given = options.parse_args()
    texts: list[tuple[str, Callable[[], str]]] = [
        (f"{kind} {size:.2g}", lambda kind=kind, size=size: source(kind, size))  # type: ignore[misc]
        for size in given.bytes
        for kind in given.kinds
    ]
    if given.task is not None:
        texts = [(given.task.stem, given.task.read_text)]
    for label, text in texts:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "task.py"
            path.write_text(text())
            began = time.perf_counter()
            task = tasks.load(str(path), device=given.device)
            loaded_s = time.perf_counter() - began
        size = num_bytes(task)
        print(
            f"{label}: {size / 1e9:.2f} GB, examined in {loaded_s:.1f} s, estimate {_estimate(task):.1f}x",
            flush=True,
        )
        for stage in run(task, given.tier):
            row: dict[str, Any] = {"task": label, "stage": stage.name}
            row["s"] = round(stage.seconds, 3)
            row |= {"cpu_s": round(stage.processor_s, 3)}
            row |= {"passes": round(stage.moved / size, 1), "most": round(stage.most / size, 2)}
            row |= {"held": round(stage.held / size, 2)}
            print(
                "  {stage:32} {s:8.3f} s {cpu_s:8.3f} cpu s {passes:8.1f} passes {most:6.2f} most {held:6.2f} held".format(
                    **row
                ),
                flush=True,
            )
            if given.jsonl is not None:
                with given.jsonl.open("a") as file:
                    file.write(json.dumps(row) + "\n")
        if given.judge:
            print("  judged", json.dumps(judged(task, text())), flush=True)


def _estimate(task: Task) -> float:
    return bytes_to_judge(task.model_copy(update={"device": "cuda"})) / num_bytes(task)


if __name__ == "__main__":
    main()

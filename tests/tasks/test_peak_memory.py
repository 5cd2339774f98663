"""Memory that a reference takes, counted without it, and examined against what is granted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from dvk import gpu_memory, machine, tasks
from dvk.composer import CannotCompose, CapturedGraph, capture
from dvk.composer.capture.batch import capture_many
from dvk.config import Limits
from dvk.errors import MachineError, TaskError
from dvk.gpu_memory import GpuMemory, Grant
from dvk.records import Task
from dvk.tasks import loading, peak_memory
from dvk.tasks.peak_memory import LiveBytes, peak_bytes
from dvk.tasks.sizes import bytes_to_run

GIB = 1 << 30
LARGE = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(1024, 4096), torch.nn.Linear(4096, 1024)

    def forward(self, x):
        return torch.softmax(self.down(torch.relu(self.up(x))), -1) + x

def get_inputs():
    return [torch.randn(1 << 20, 1024)]

def get_init_inputs():
    return []
"""


def test_a_call_of_36_gib_is_estimated_without_them(tmp_path: Path) -> None:
    (tmp_path / "large.py").write_text(LARGE)
    peak = peak_bytes(tasks.unexamined(str(tmp_path / "large.py")))
    weights = 4 * (2 * 1024 * 4096 + 4096 + 1024)
    assert peak == 36 * GIB + weights, "the input, the first product and its relu"


@pytest.mark.parametrize(
    ("forward", "peak"),
    [
        (lambda x: x + 1, 8),
        (lambda x: (x + 1) * 2, 12),
        (lambda x: x.view(-1)[: x.numel() // 2], 4),
        (lambda x: x.relu_(), 4),
        (lambda x: sum(x[i : i + 1].sum() for i in range(4)), 4),
    ],
)
def test_views_are_counted_once_and_what_is_freed_no_more(
    forward: Callable[[torch.Tensor], object], peak: int
) -> None:
    live = LiveBytes()
    x = torch.empty(GIB, 1, device="meta")
    live.count([x])
    with torch.no_grad(), live:
        forward(x)
    assert round(live.most / GIB) == peak and live.now == 4 * GIB
    del x
    assert live.now == 0


@pytest.mark.slow
def test_a_call_of_many_steps_is_estimated_by_its_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peak_memory, "LIMIT_S", 0.2)
    loop = "for _ in range(1 << 40):\n            y = x + 1\n        return torch.softmax"
    (tmp_path / "loop.py").write_text(LARGE.replace("return torch.softmax", loop))
    peak = peak_bytes(tasks.unexamined(str(tmp_path / "loop.py")))
    assert peak is not None and round(peak / GIB) == 12


def test_what_decides_by_values_has_no_estimate(tmp_path: Path) -> None:
    text = LARGE.replace("return torch.softmax", "assert x.sum() > 0\n        return torch.softmax")
    (tmp_path / "deciding.py").write_text(text)
    assert peak_bytes(tasks.unexamined(str(tmp_path / "deciding.py"))) is None


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int | None]:
    """What is asked of two made-up GPUs of 80 GiB; children still see that there is none."""
    memory, asked = GpuMemory(lambda: (80 * GIB, 80 * GIB)), list[int | None]()
    place = memory.place

    def noted(need: int | None, *where: Any) -> Grant | None:
        asked.append(need)
        return place(need, *where)

    monkeypatch.setattr(memory, "place", noted)
    monkeypatch.setattr(gpu_memory, "owner", lambda: memory)
    monkeypatch.setattr(machine, "gpu_names", lambda: ("a", "b"))
    return asked


@pytest.mark.slow
def test_a_file_for_a_gpu_waits_for_room_before_it_allocates(
    tmp_path: Path, asked: list[int | None]
) -> None:
    (tmp_path / "large.py").write_text(LARGE)
    with pytest.raises(MachineError, match="no usable CUDA device"):
        tasks.load(str(tmp_path / "large.py"), device="cuda")
    (tmp_path / "placed.py").write_text(f"DEVICE = 'cuda'\n{LARGE}")
    with pytest.raises(MachineError, match="no usable CUDA device"):
        tasks.load(str(tmp_path / "placed.py"), device="cuda")
    known, unknown = asked
    assert known is not None and known > 72 * GIB, "two calls of 36 GiB"
    assert unknown is not None and unknown < 8 * GIB


def test_a_file_that_finds_the_memory_taken_is_examined_again_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "large.py").write_text(LARGE)
    alone: list[bool] = []

    def examined(*_: object, whole: bool) -> Task:
        alone.append(whole)
        raise TaskError("CUDA out of memory. Tried to allocate 2.00 GiB. Process 1 has 3 GiB", "")

    monkeypatch.setattr(loading, "_examined", examined)
    with pytest.raises(TaskError, match="^CUDA out of memory"):
        tasks.load(str(tmp_path / "large.py"), device="cuda")
    assert alone == [False, True]


@pytest.mark.slow
def test_a_capture_that_must_run_on_a_gpu_waits_for_room_and_others_ask_nothing(
    tmp_path: Path, asked: list[int | None]
) -> None:
    (tmp_path / "small.py").write_text(LARGE.replace("1 << 20", "64"))
    (tmp_path / "placed.py").write_text(f"PLACE = 'cuda'\n{LARGE.replace('1 << 20', '64')}")
    files = [tasks.unexamined(str(tmp_path / f"{name}.py")) for name in ("small", "placed")]
    wanted = [one.model_copy(update={"device": "cuda", "peak_bytes": GIB}) for one in files]
    fake, real = (found for _, found in capture_many(wanted))
    assert isinstance(fake, CapturedGraph) and isinstance(real, CannotCompose)
    assert asked == [bytes_to_run(GIB)]
    with pytest.raises(CannotCompose):
        capture(wanted[0], Limits())
    assert asked == [bytes_to_run(GIB)] * 2
    short = f"raise RuntimeError('CUDA out of memory. Tried to allocate 9 GiB')\n{wanted[1].source}"
    (cannot,) = (
        found for _, found in capture_many([wanted[1].model_copy(update={"source": short})])
    )
    assert isinstance(cannot, CannotCompose) and asked[2:] == [bytes_to_run(GIB), None]

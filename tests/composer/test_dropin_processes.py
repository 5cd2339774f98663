"""Drop-ins in several processes: workers, and the wrappers for training on several devices."""

from __future__ import annotations

import copy
import multiprocessing
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.composer.dropins import Counting
from tests.composer.programs import run_source


def _worker(path: str, channel: Any) -> None:
    torch.set_num_threads(1)
    namespace = run_source(Path(path).read_text(encoding="utf-8"))
    torch.manual_seed(0)
    model = namespace.ModelNew().eval()
    with torch.no_grad():
        got = model(torch.ones(4, 8))
    channel.put((model.dvk_calls["kernels"], float(got.sum())))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_workers(block: Counting, method: str, tmp_path: Path) -> None:
    path = tmp_path / "best.py"
    path.write_text(block.candidate.source, encoding="utf-8")
    context = multiprocessing.get_context("spawn")
    outer = context.Process(target=_forks, args=(str(path), method, queue := context.Queue()))
    outer.start()
    first, second = queue.get(timeout=120), queue.get(timeout=120)
    outer.join()
    assert first == second and first[0] == 1


def _forks(path: str, method: str, channel: Any) -> None:
    """In a fresh process, which has not used tensors: a fork after that may hang."""
    context: Any = multiprocessing.get_context(method)
    for _ in range(2):
        child = context.Process(target=_worker, args=(path, channel))
        child.start()
        child.join()


def _parallel(rank: int, path: str, wrapper: str, store: str, channel: Any) -> None:
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    namespace = run_source(Path(path).read_text(encoding="utf-8"))
    torch.manual_seed(0)
    model = namespace.ModelNew().eval()
    want = copy.deepcopy(model)
    given = torch.ones(4, 8) + rank
    if wrapper == "ddp":
        wrapped: Any = nn.parallel.DistributedDataParallel(model)
    else:
        from torch.distributed.fsdp import fully_shard

        wrapped = fully_shard(model, mesh=dist.device_mesh.init_device_mesh("cpu", (2,)))
    with torch.no_grad():
        same = torch.allclose(wrapped(given), want(given), atol=1e-5)
    calls = model.dvk_calls
    wrapped(given).sum().backward()
    gradients = all(p.grad is not None for p in model.parameters())
    if rank == 0:
        channel.put((same, gradients, calls))
    dist.barrier()
    dist.destroy_process_group()


@pytest.mark.slow
@pytest.mark.parametrize("wrapper", ["ddp", "fsdp"])
def test_wrappers_of_several_processes(block: Counting, wrapper: str, tmp_path: Path) -> None:
    path = tmp_path / "best.py"
    path.write_text(block.candidate.source, encoding="utf-8")
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    given = (str(path), wrapper, str(tmp_path / "store"), queue)
    ranks = [context.Process(target=_parallel, args=(rank, *given)) for rank in range(2)]
    for process in ranks:
        process.start()
    same, gradients, calls = queue.get(timeout=120)
    for process in ranks:
        process.join()
    assert same and gradients
    assert calls["kernels"] == 1 or any("weight" in kind or "gains" in kind for kind in calls), (
        calls
    )

"""Fresh processes of the proof build a model at the same time, and time it one after another."""

from __future__ import annotations

from contextlib import ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from dvk.api.network import fresh, patching, proving, verifying
from dvk.api.network.building import ModelSource
from dvk.config import Config, JudgeConfig
from dvk.errors import MachineError
from dvk.harness.timing.claims import FIRST_LOOK
from dvk.sandbox import Message

MODEL = """
import os, pathlib, time
from torch import nn

HERE = pathlib.Path({folder!r})

def make():
    (HERE / f"built-{{os.getpid()}}").touch()
    while len(list(HERE.glob("built-*"))) < {together}:
        time.sleep(0.01)  # a process that builds alone waits here until its time is over
    return nn.Linear(8, 8)
"""
PATCH = """
import os, pathlib, time

def apply(model, quiet=False, only=None):
    if only == ["end"]:
        os._exit(3)
    (pathlib.Path({folder!r}) / f"patched-{{os.getpid()}}").write_text(",".join(only))
    return model

def remove(model):
    return model
"""


def timing(folder: Path, together: int = 2) -> fresh.FreshTiming:
    """Of a model whose processes wait for each other while they build."""
    file = folder / "model.py"
    file.write_text(MODEL.format(folder=str(folder), together=together))
    (folder / "patch").mkdir()
    (folder / "patch" / "__init__.py").write_text(PATCH.format(folder=str(folder)))
    judge = JudgeConfig(claim_s=0.01, claim_pairs=20)
    config = Config(judge=judge)
    config = config.model_copy(update={"limits": config.limits.model_copy(update={"wall_s": 60.0})})
    source = ModelSource(spec=f"{file}:make", inputs=("input=float32[4,8]",))
    return fresh.FreshTiming(source=source, package=folder / "patch", config=config, compiled=False)


def test_processes_build_at_once_and_are_timed_one_after_another(tmp_path: Path) -> None:
    with fresh.processes(timing(tmp_path), 2) as wave:
        wave.built()
        wave.warmed(["Layer"])
        assert len(list(tmp_path.glob("built-*"))) == 2
        found = [wave.timed(), wave.timed()]
        assert wave.sessions == []
    assert [one.read_text() for one in tmp_path.glob("patched-*")] == ["Layer", "Layer"]
    assert all(one.speedup > 0 and one.original_ms > 0 for one in found)


def test_paths_may_be_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the default run folder is, and a model's file on a command line; the processes have other working folders."""
    made = timing(tmp_path, 1)
    monkeypatch.chdir(tmp_path)
    source = replace(made.source, spec="model.py:make")
    with fresh.processes(replace(made, source=source, package=Path("patch")), 1) as wave:
        wave.built()
        wave.warmed(["Layer"])
        assert wave.timed().speedup > 0


def test_a_process_that_fails_is_reported_with_its_error(tmp_path: Path) -> None:
    made = timing(tmp_path, 1)
    (tmp_path / "patch" / "__init__.py").write_text("raise ValueError('no kernels')")
    with fresh.processes(made, 1) as wave:
        wave.built()
        with pytest.raises(MachineError, match=r"exit 1 \(ValueError: no kernels\)"):
            wave.warmed(["Layer"])


def test_a_process_that_ends_is_reported_with_what_to_do(tmp_path: Path) -> None:
    with fresh.processes(timing(tmp_path, 1), 1) as wave:
        wave.built()
        with pytest.raises(MachineError, match=r"timed the whole model ended: exit 3"):
            wave.warmed(["end"])


def test_a_model_that_fills_the_memory_is_built_by_one_process_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = nn.Linear(1000, 1000)
    monkeypatch.setattr(fresh.machine, "num_cores", lambda: 16)
    monkeypatch.setattr(fresh.machine, "memory_bytes", lambda: 1 << 40)
    monkeypatch.setattr(fresh.proctree, "available_bytes", lambda: 1 << 40)
    assert fresh.at_once(model, "cpu", comparing=False) == 16
    monkeypatch.setattr(fresh.proctree, "available_bytes", lambda: 1 << 30)
    assert fresh.at_once(model, "cpu", comparing=False) == 1
    assert fresh.at_once(model, "cpu", comparing=True) == 0


def test_a_process_outlives_a_comparison_that_takes_longer_than_its_answers_may(
    tmp_path: Path,
) -> None:
    given = timing(tmp_path, 1)
    limits = given.config.limits.model_copy(update={"wall_s": 0.05})
    short = replace(given, config=given.config.model_copy(update={"limits": limits}))
    with fresh.processes(short, 1) as wave:
        assert wave.sessions[0].wait(60) == Message({"built": True})
        assert wave.sessions[0].wait(0.5) is None  # it runs on


def test_without_room_processes_begin_after_the_comparison_and_each_time_is_kept_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    given = timing(tmp_path, 1)
    kept, said = list[verifying.Timed](), list[str]()

    def keep(one: verifying.Timed) -> None:
        kept.append(one)
        if len(kept) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(fresh, "at_once", lambda *_, comparing: 0 if comparing else 2)
    model, calls = nn.Linear(8, 8), [([torch.ones(4, 8)], dict[str, Any]())]
    subject = proving.Subject(model, calls, given.package, given.source, given.config, keep=keep)
    with ExitStack() as stack:
        assert proving._begun(subject, stack, 5, compiled=False, comparing=True) is None
    assert not list(tmp_path.glob("built-*"))
    patch = patching.load(given.package)
    with pytest.raises(KeyboardInterrupt):
        proving._claimed(subject, patch, ["Layer"], nullcontext, said.append, None, compiled=False)
    assert len(kept) == 2 and said == []


def test_a_live_model_is_said_to_be_timed_in_this_process() -> None:
    one = verifying.Timed(2.0, 1.0, 2.0, 1.9, 2.1, 1.0)
    assert proving._told([one], here=True) == "timed 1 time in this process: 2.00x"
    assert proving._told([one, one], here=False) == "timed in 2 fresh processes: 2.00x, 2.00x"


def test_warm_up_ends_before_a_process_says_that_it_is_ready() -> None:
    model, calls = nn.Linear(4, 4), []
    model.register_forward_pre_hook(lambda *_: calls.append("call"))

    class Patch:
        apply = staticmethod(lambda model, quiet, only: model)
        remove = staticmethod(lambda model: model)

    verifying.measure(
        model,
        Patch,  # type: ignore[arg-type]  # stands for the package's module
        ([torch.ones(2, 4)], {}),
        seconds=0.0,
        pairs=1,
        settled=0.01,
        ready=lambda: calls.append("ready"),
    )
    assert 0 < calls.index("ready") < len(calls) - 3


def test_the_proof_is_expected_to_take_a_wave_for_as_many_processes_as_fit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source = ModelSource(spec="m.py:f")
    subject = proving.Subject(nn.Linear(2, 2), [], tmp_path, source, Config())
    timed = 2 * FIRST_LOOK * Config().judge.claim_s
    for at_once, waves in ((16, 1), (3, 2), (1, FIRST_LOOK), (0, FIRST_LOOK)):
        monkeypatch.setattr(fresh, "at_once", lambda *_, comparing, n=at_once: n)
        assert proving.expected_s(subject, 4.0, 3.0) == pytest.approx(waves * 7.0 + timed)

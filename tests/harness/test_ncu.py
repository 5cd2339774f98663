"""Nsight Compute: the command line, its table, and every way in which there are no counters."""

from __future__ import annotations

import json
import os
import stat
import sys
import time
from pathlib import Path

import pytest

from dvk import machine
from dvk.harness.profiling import ncu, ncu_run
from dvk.harness.profiling.feedback import feedback
from dvk.harness.profiling.record import KernelTime, Profile

from .conftest import candidate, task

HEAD = ["ID", "Process ID", "Kernel Name", "Block Size", "Grid Size", "CC"]
UNITS = ["", "", "", "", "", ""]


def table(*rows: dict[str, str]) -> str:
    """A raw page as ncu lays it out: its own lines, the program's, the head, the units, a row a launch."""
    metrics = [*ncu.COUNTERS, *(ncu.STALL.format(stall) for stall in ncu.STALLS)]
    lines = [
        [*HEAD, *metrics],
        [*UNITS, *("ns" if "time" in metric else "%" for metric in metrics)],
    ]
    for number, row in enumerate(rows):
        values = [
            row.get(metric, row.get(metric.split("stalled_")[-1].split("_per_issue")[0], "0"))
            for metric in metrics
        ]
        lines.append(
            [str(number), "77", row["name"], "(128, 1, 1)", "(32768, 1, 1)", "9.0", *values]
        )
    said = [
        "==PROF== Connected to process 77 (/usr/bin/python3.12)",
        "the program prints, too",
        "==PROF== Disconnected from process 77",
    ]
    return "\n".join([*said, *(",".join(f'"{value}"' for value in line) for line in lines)]) + "\n"


def test_a_table_is_read() -> None:
    """Figures of a Triton kernel on an H100, which this parser read from ncu itself."""
    metric = {name: metric for metric, name in ncu.COUNTERS.items()}
    dram, time_ns, registers = metric["dram_percent"], metric["duration_ns"], metric["registers"]
    stalls = {"long_scoreboard": "12.5", "not_selected": "90", "wait": "2"}
    row = {"name": "add_relu", dram: "89.24", time_ns: "128,768", registers: "26", **stalls}
    text = table(
        row,
        {**row, dram: "87.24"},
        {**row, dram: "95.24"},
        {"name": "f<float, 4>(float *, int)", registers: "44", dram: "n/a"},
    )
    found = ncu.read(text)
    assert found.reason is None and list(found.kernels) == ["add_relu", "f<float, 4>(float *, int)"]
    add = found.kernels["add_relu"]
    assert (
        add["dram_percent"] == 89.24
        and add["duration_ns"] == 128768
        and add["registers"] == 26
        and add["stall"] == "long_scoreboard"
    )
    other = found.kernels["f<float, 4>(float *, int)"]
    assert "dram_percent" not in other and other["registers"] == 44 and "stall" not in other


def an_ncu(folder: Path, monkeypatch: pytest.MonkeyPatch, *lines: str) -> None:
    """An executable `ncu` first on PATH: a shell script."""
    path = folder / "ncu"
    path.write_text("\n".join(["#!/bin/sh", *lines]) + "\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def test_the_command_names_kernels_exactly_and_leaves_clocks_alone() -> None:
    words = ncu.command("/x/ncu", ["python", "call.py"], kernels=["my_kernel", "a.b"], launches=7)
    assert words[0] == "/x/ncu" and words[-2:] == ["python", "call.py"]
    assert words[words.index("--kernel-name") + 1] == r"regex:^(my_kernel|a\.b)$"
    assert (
        words[words.index("--clock-control") + 1] == "none"
        and words[words.index("--launch-count") + 1] == "7"
    )
    assert "dram__throughput.avg.pct_of_peak_sustained_elapsed" in words[
        words.index("--metrics") + 1
    ].split(",")
    assert "--kernel-name" not in ncu.command("ncu", ["x"])


def test_without_permission_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    an_ncu(
        tmp_path,
        monkeypatch,
        "echo '==PROF== Connected to process 1'",
        "echo '==ERROR== ERR_NVGPUCTRPERM - no permission'",
    )
    found = ncu.measure(["true"])
    assert found.kernels == {} and found.reason is not None and "ERR_NVGPUCTRPERM" in found.reason


def test_other_failures_say_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    an_ncu(
        tmp_path,
        monkeypatch,
        'echo "==ERROR== The application returned an error code (9)."',
        "exit 9",
    )
    assert "error code (9)" in (ncu.measure(["true"]).reason or "")
    an_ncu(tmp_path, monkeypatch, 'echo "==WARNING== No kernels were profiled."')
    assert "no kernel" in (ncu.measure(["true"]).reason or "")


def test_it_is_killed_with_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    an_ncu(tmp_path, monkeypatch, f"sleep 300 & echo $! > {tmp_path}/pid; wait")
    began = time.monotonic()
    found = ncu.measure(["true"], timeout_s=1.0)
    assert "longer than 1 s" in (found.reason or "") and time.monotonic() - began < 20
    pid = int((tmp_path / "pid").read_text())
    deadline = time.monotonic() + 10
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive(pid)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in ("Z", "X")
    except OSError:
        return False


def test_a_machine_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(ncu, "PLACES", (f"{tmp_path}/none/*/ncu",))
    assert ncu.find() is None
    assert "not installed" in (ncu.measure(["true"]).reason or "")


@pytest.mark.parametrize(
    "junk",
    [
        "",
        "\n\n",
        '"ID"',
        '"ID","Kernel Name"\n',
        '"ID","Kernel Name"\n"","ns"\n"x","k"\n',
        "==PROF== a\nb",
    ],
)
def test_no_table_is_no_counters(junk: str) -> None:
    assert ncu.parse(junk) == {} and ncu.read(junk).reason is not None


def test_counters_join_the_profile() -> None:
    kernels = (
        KernelTime(
            name="void ns::scale<float, 4>(float*, int)",
            origin="own",
            count=1,
            device_ms=1,
            share=0.5,
        ),
        KernelTime(name="other", origin="library", count=1, device_ms=1, share=0.5),
    )
    raw = Profile(
        device="cuda",
        num_calls=3,
        wall_ms=2.1,
        device_ms=2,
        host_ms=0.1,
        coverage=0.5,
        kernels=kernels,
    )
    found = ncu.with_counters(
        raw, ncu.NcuResult({"scale": {"dram_percent": 80.0, "stall": "long_scoreboard"}})
    )
    assert (
        found.kernels[0].counters["dram_percent"] == 80.0
        and found.kernels[1].counters == {}
        and found.counters_missing is None
    )
    assert "stall long_scoreboard" in feedback(found)
    spelled = (
        "void at::<unnamed>::scale<float, 4>(float *, int)",
        "void at::<unnamed>::scale<half, 4>(half *, int)",
    )
    assert ncu.with_counters(raw, ncu.NcuResult({spelled[0]: {"x": 1.0}})).kernels[0].counters == {
        "x": 1.0
    }
    assert (
        ncu.with_counters(raw, ncu.NcuResult({name: {"x": 1.0} for name in spelled}))
        .kernels[0]
        .counters
        == {}
    )
    assert ncu.with_counters(raw, ncu.NcuResult(reason="no")).counters_missing == "no"


# ---------------------------------------------------------------- a candidate under it

RUNS = 'while [ "$1" != \'' + sys.executable + "' ]; do shift; done"
"""The rest of the command line is the program."""


@pytest.mark.slow
def test_a_candidate_is_called_under_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the CPU no kernel is seen; that the program ran to its end shows in what this ncu then says."""
    an_ncu(
        tmp_path, monkeypatch, RUNS, '"$@" && echo "==ERROR== it ran" || echo "==ERROR== it failed"'
    )
    for text, outcome in (
        (candidate("good/torch_affine").source, "it ran"),
        ("raise SystemExit(3)", "it failed"),
    ):
        request = {"task": task("affine").model_dump(mode="json"), "source": text, "kernels": []}
        (tmp_path / ncu_run.REQUEST).write_text(json.dumps(request))
        found = ncu.measure([sys.executable, "-m", "dvk.harness.profiling.ncu_run", str(tmp_path)])
        assert found.reason == f"Nsight Compute counted nothing: {outcome}"


def test_from_the_sandbox_comes_a_reason() -> None:
    """Without ncu, or without a GPU for it to see."""
    if machine.gpu_names():
        pytest.skip("there is a GPU")
    found = ncu_run.counters(task("affine"), candidate("good/torch_affine").source)
    assert found.kernels == {} and found.reason and "Nsight Compute" in found.reason


@pytest.mark.gpu
def test_a_kernel_is_counted_or_it_says_why_not() -> None:
    on_gpu = task("affine").model_copy(update={"device": "cuda"})
    found = ncu_run.counters(on_gpu, candidate("good/triton_affine").source)
    assert found.reason or all(counters["registers"] >= 8 for counters in found.kernels.values())  # type: ignore[operator]


def test_what_the_child_says_is_not_believed_blindly() -> None:
    found = ncu_run._checked(
        {"kernels": {"k" * 999: {"a": 1, "b": "x" * 999}, "n": 3}, "reason": None}
    )
    assert list(found.kernels) == ["k" * 200, "n"] and found.kernels["k" * 200] == {
        "a": 1.0,
        "b": "x" * 40,
    }
    assert ncu_run._checked({}).kernels == {}

"""`dvk doctor`: report this machine's capabilities, and list settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer


def command(
    settings: Annotated[
        bool,
        typer.Option(
            "--settings", help="List every setting with its default, unit and reason instead."
        ),
    ] = False,
    library: Annotated[
        Path | None, typer.Option(help="Skill library to look at (default: $DVK_HOME/skills.db).")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON value for programs.")
    ] = False,
) -> None:
    """Say what this machine can do: compilers, GPUs, backends, bandwidth, the skill library."""
    from dvk.pipelines import doctor

    if settings:
        rows = doctor.settings()
        print(json.dumps(rows, indent=2) if as_json else "\n".join(_setting(row) for row in rows))
        return
    report = doctor.examine(library)
    print(json.dumps(report, indent=2) if as_json else "\n".join(report_lines(report)))


def _setting(row: dict[str, Any]) -> str:
    return f"{row['key']} = {json.dumps(row['default'])}\n    {row['reason']}"


def report_lines(report: dict[str, Any]) -> list[str]:
    """Format the report for people: one fact per line."""
    machine, cuda, compiler, nvcc = (
        report["machine"],
        report["cuda"],
        report["compiler"],
        report["nvcc"],
    )
    lines = [f"dvk {report['dvk']}", "", "machine"]
    memory = f"{machine['memory_bytes'] / 2**30:.1f} GiB"
    lines.append(_row("processor", f"{machine['cpu']}, {machine['num_cores']} cores, {memory}"))
    if measured := _ceilings(machine):
        lines.append(_row("", measured))
    for gpu in cuda.get("gpus", []):
        what = (
            f"{gpu['name']}, {gpu['memory_bytes'] / 2**30:.0f} GiB, capability {gpu['capability']}"
        )
        lines.append(_row("GPU", f"{what}, driver {report['driver'] or 'unknown'}"))
    if measured := _ceilings(cuda):
        lines.append(_row("", measured))
    if not cuda["works"]:
        lines.append(_row("GPU", f"none usable: {cuda['error']}"))
    lines += [_row("schedules for", text) for text in _target(report["target"], cuda["works"])]
    lines.append(_row("system", f"{machine['platform']}, Python {machine['python']}"))
    lines += ["", "packages"]
    lines += [
        _row(name, version or "not installed") for name, version in machine["packages"].items()
    ]
    lines += ["", "tools"]
    if compiler["works"]:
        done = f"OpenMP with {compiler['num_threads']} threads, test kernel in {compiler['compile_s']:.2f} s"
        lines.append(_row("C++ compiler", f"{compiler['version']} at {compiler['path']}, {done}"))
    else:
        lines.append(_row("C++ compiler", f"does not work: {compiler['error']}"))
    lines.append(_row("nvcc", f"{nvcc['version']} at {nvcc['path']}" if nvcc else "not found"))
    lines.append(_row("nvrtc", cuda.get("nvrtc") or "not found"))
    for name, answer in report["triton"].items():
        lines.append(
            _row(
                f"triton, {name}",
                "works" if answer["works"] else f"does not work: {answer['error']}",
            )
        )
    lines += ["", "backends"]
    for name, answer in report["backends"].items():
        how = f"works, but: {answer['untimed']}" if answer["untimed"] else "works"
        lines.append(_row(name, how if answer["works"] else f"does not work: {answer['error']}"))
    lines += ["", "isolation of candidates"]
    for kind, answer in report["isolation"].items():
        if "layers" in answer:
            lines.append(_row(kind, answer["layers"]))
        lines += [_row("", f"open: {text}") for text in answer["open"]]
    lines += ["", "skill library", f"  {_library(report['library'])}"]
    saved = report["saved"]
    lines += [
        "",
        f"measurements kept in {saved}"
        if saved
        else f"measurements not kept: cannot write {report['home']}",
    ]
    return lines


def _row(name: str, value: str) -> str:
    return f"  {name:<20}{value}"


def _target(facts: dict[str, Any], has_gpu: bool) -> list[str]:
    """The facts by which kernels are cut, a line a device."""
    gpu, cpu = facts["gpu"], facts["cpu"]
    of_gpu = (
        f"{gpu['sms']} multiprocessors, {gpu['shared_bytes_per_block'] >> 10} KiB shared memory a block, "
        f"{gpu['l2_bytes'] >> 20} MiB L2, {gpu['gb_per_s']:.0f} GB/s"
    )
    of_cpu = (
        f"{cpu['cores']} cores, {cpu['l1_bytes'] >> 10} KiB L1, {cpu['l2_bytes'] >> 10} KiB L2, "
        f"vectors of {cpu['vector_bits']} bits"
    )
    return [of_cpu, *([of_gpu] if has_gpu else [])]


def _ceilings(facts: dict[str, Any]) -> str:
    """Format measurements: bandwidths, matmul rates, the cost of an operator."""
    if not facts.get("copy_gbps"):
        return ""
    matmuls = ", ".join(f"{name} {rate / 1e3:.3g}" for name, rate in facts["gflops"].items())
    moves = f"copies {facts['copy_gbps']:.0f}, reads {facts['read_gbps']:.0f}, writes {facts['write_gbps']:.0f} GB/s"
    return f"{moves}; matmul {matmuls} TFLOP/s; an operator {facts['launch_us']:.1f} µs"


def _library(facts: dict[str, Any]) -> str:
    if not facts["exists"]:
        return f"{facts['path']}: not built yet, the first command that needs it does"
    if facts["num_skills"] is None:
        return f"{facts['path']}: {facts['error']}"
    return f"{facts['path']}: {facts['num_skills']} skills, {facts['num_bytes'] / 2**20:.1f} MiB"

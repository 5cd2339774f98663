"""Other trainers' packages, each with dvk in a virtual environment apart, made once a machine. Their versions want each other's absence."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
HOME = Path(os.environ.get("DVK_HOME", "~/.dvk")).expanduser()
"""Read before the tests' own home replaces it: the environments take minutes and gigabytes."""
PACKAGES = {
    "trl": ["trl==1.16.0", "jmespath", "peft"],
    "verl": ["verl==0.9.1"],
    "verifiers": ["verifiers==0.4.0", "uv"],
    "openenv": ["openenv==0.10.0"],
    "skyrl": ["skyrl-gym==0.4.0"],
    "harbor": ["harbor==0.26.0"],
}
WITHOUT_DVK = {"harbor": "python3.12"}
"""Environments that only run its program, and the Python that it wants."""


def python_of(name: str) -> Path:
    """The interpreter of an environment; skips the test if it cannot be made here."""
    folder = HOME / "cache" / f"environment-{PACKAGES[name][0].replace('==', '-')}"
    python, ready = folder / "bin" / "python", folder / "ready"
    if ready.exists():
        return python
    base = shutil.which(WITHOUT_DVK.get(name, sys.executable))
    if base is None:
        pytest.skip(f"{name} wants {WITHOUT_DVK[name]}")
    if name in WITHOUT_DVK:
        subprocess.run([base, "-m", "venv", "--clear", folder], check=True)
    else:
        venv.create(folder, with_pip=True, clear=True)
    ours = [] if name in WITHOUT_DVK else ["-e", f"{TOP}[formats,serve]"]
    done = subprocess.run(
        [python, "-m", "pip", "install", "-q", *ours, *PACKAGES[name]],
        capture_output=True,
        text=True,
        timeout=1500,
    )
    if done.returncode:
        pytest.skip(f"{PACKAGES[name][0]} cannot be installed: {done.stderr.strip()[-300:]}")
    ready.touch()
    return python


def run(name: str, *words: str | Path, timeout: float = 900, **variables: str) -> str:
    """What a program in that environment prints; its first word is a module or a script of the environment's."""
    python = python_of(name)
    first, *rest = map(str, words)
    script = python.with_name(first)
    command = [python, script, *rest] if script.exists() else [python, "-m", first, *rest]
    path = f"{python.parent}:{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "PYTHONPATH": str(TOP), **variables}
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=timeout)
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout

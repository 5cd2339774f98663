"""Every seed skill has the agreed form, and its example runs and is right.

Python examples run in one process on the CPU (Triton through its interpreter) and again, marked `gpu`, on CUDA tensors.
CUDA examples are whole programs: compiled wherever nvcc is, run where there is a GPU too.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from dvk.composer import RECIPES

KINDS = {
    "reduction",
    "normalization",
    "softmax",
    "matmul",
    "convolution",
    "elementwise",
    "loss",
    "attention",
    "memory",
    "launch",
    "numerics",
    "cpu",
}
SECTIONS = ["Motivation", "Key Idea", "When it pays", "Example", "Pitfalls"]
NOTE = re.compile(r"^## Note\nwhen .+\ndo .+\n\n(?=## Example$)", re.MULTILINE)
"""May stand before the example; what it says is held by tests/agents/test_seed_notes.py."""


# ---------------------------------------------------------------- reading a file, without the product's own parser

FOLDER = Path(__file__).resolve().parents[2] / "skills_db" / "seed"

_FILE = re.compile(r"\A---\n(?P<front>.*?)\n---\n(?P<body>.*)\Z", re.DOTALL)
_BLOCK = re.compile(r"^```(?P<language>\w+)\n(?P<code>.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Seed:
    """One file: front matter as text by key, body, and the (language, code) of its fenced blocks."""

    path: Path
    front: dict[str, str]
    body: str
    blocks: tuple[tuple[str, str], ...]

    @property
    def tags(self) -> list[str]:
        return [
            tag.strip() for tag in self.front["tags"].removeprefix("[").removesuffix("]").split(",")
        ]

    @property
    def language(self) -> str:
        return self.blocks[0][0]


def read(path: Path) -> Seed:
    """Parse one seed; raises ValueError with the path when the file has no front matter of `key: value` lines."""
    match = _FILE.match(path.read_text(encoding="utf-8"))
    if match is None:
        raise ValueError(f"{path}: no front matter between '---' lines")
    front: dict[str, str] = {}
    for line in match["front"].splitlines():
        key, separator, value = line.partition(": ")
        if not separator or key in front:
            raise ValueError(f"{path}: front matter line {line!r} is not a new `key: value`")
        front[key] = value.strip()
    blocks = tuple((found["language"], found["code"]) for found in _BLOCK.finditer(match["body"]))
    return Seed(path, front, match["body"], blocks)


ALL = [read(path) for path in sorted(FOLDER.glob("*.md"))]
PYTHON = [seed for seed in ALL if seed.language == "python"]
CUDA = [seed for seed in ALL if seed.language == "cuda"]

by_name = pytest.mark.parametrize("seed", ALL, ids=lambda seed: seed.path.stem)
python_blocks = pytest.mark.parametrize("seed", PYTHON, ids=lambda seed: seed.path.stem)
cuda_blocks = pytest.mark.parametrize("seed", CUDA, ids=lambda seed: seed.path.stem)
needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")


# ---------------------------------------------------------------- the form of a file


def test_there_are_enough_and_names_are_unique() -> None:
    names = [seed.front["name"] for seed in ALL]
    assert len(names) >= 45
    assert len(set(names)) == len(names)
    descriptions = [seed.front["description"] for seed in ALL]
    assert len(set(descriptions)) == len(descriptions)


def test_every_recipe_has_a_skill() -> None:
    assert {seed.front["recipe"] for seed in ALL if "recipe" in seed.front} == {
        name for name, recipe in RECIPES.items() if recipe.exact
    }


@by_name
def test_front_matter(seed: Seed) -> None:
    front = seed.front
    required = {"name", "description", "scope", "tags"}
    assert required <= set(front) <= required | {"recipe", "when", "do", "relations"}
    assert front["name"] == seed.path.stem
    assert re.fullmatch(r"[a-z0-9][a-z0-9_]*", front["name"])
    assert 20 <= len(front["description"]) <= 140
    # Any YAML reader must see the same plain strings that a line-by-line reader sees.
    assert not re.search(r": | #|^[\"'\[{&*!|>%@`-]", front["description"])
    scope, _, kind = front["scope"].partition("/")
    assert (scope, kind) == ("general", "") or (scope == "task_specific" and kind in KINDS)
    assert re.fullmatch(r"\[[\w.]+(, [\w.]+)*\]", front["tags"])
    assert 3 <= len(seed.tags) <= 6
    assert len(set(seed.tags)) == len(seed.tags)
    assert front.get("recipe", "vectorize") in RECIPES


@by_name
def test_body(seed: Seed) -> None:
    body = NOTE.sub("", seed.body)
    assert re.findall(r"^## (.+)$", body, re.MULTILINE) == SECTIONS
    parts = re.split(r"^## .+$", body, flags=re.MULTILINE)[1:]
    for title, part in zip(SECTIONS, parts):
        assert len(part.strip()) >= 60, f"section {title} says too little"
    assert len(seed.blocks) == 1, "exactly one fenced block"
    language, code = seed.blocks[0]
    assert language in ("python", "cuda")
    assert f"```{language}\n{code}```" in parts[SECTIONS.index("Example")]
    # An example that checks nothing would pass whatever it computes.
    assert (
        ("assert" in code) if language == "python" else ("int main()" in code and "return" in code)
    )
    assert max(map(len, seed.path.read_text(encoding="utf-8").splitlines())) <= 400


# ---------------------------------------------------------------- the examples


def run_python(
    selected: list[Seed], folder: Path, env: dict[str, str], timeout_s: float
) -> dict[str, dict]:
    """Run the Python blocks in one child; returns each block's result line by name. Raises nothing for a bad block."""
    files = []
    for seed in selected:
        file = folder / f"{seed.path.stem}.py"
        file.write_text(seed.blocks[0][1], encoding="utf-8")
        files.append(str(file))
    results = folder / "results.jsonl"
    command = [sys.executable, str(Path(__file__).with_name("run_blocks.py")), str(results), *files]
    try:
        child = subprocess.run(
            command,
            env={**os.environ, **env},
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
        end = f"the process ended with exit status {child.returncode}\n{child.stderr[-2000:]}"
    except subprocess.TimeoutExpired:
        end = f"the process was stopped after {timeout_s} s"
    lines = (
        [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
        if results.exists()
        else []
    )
    done = {line["block"]: line for line in lines}
    return {
        s.path.stem: done.get(s.path.stem, {"ok": False, "error": f"no result: {end}"})
        for s in selected
    }


CPU_ENV = {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "2"}


@pytest.fixture(scope="module")
def on_cpu(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict]:
    return run_python(PYTHON, tmp_path_factory.mktemp("cpu"), CPU_ENV, timeout_s=240)


@pytest.fixture(scope="module")
def on_cuda(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict]:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    return run_python(
        PYTHON, tmp_path_factory.mktemp("cuda"), {"TRITON_INTERPRET": "0"}, timeout_s=280
    )


@python_blocks
@pytest.mark.slow
def test_example_on_cpu(seed: Seed, on_cpu: dict[str, dict]) -> None:
    result = on_cpu[seed.path.stem]
    assert result["ok"], result["error"]
    assert result["cpu_s"] < 3, "an example is a minimal one"


@pytest.mark.gpu
@python_blocks
def test_example_on_cuda(seed: Seed, on_cuda: dict[str, dict]) -> None:
    result = on_cuda[seed.path.stem]
    assert result["ok"], result["error"]


@pytest.mark.slow
@needs_nvcc
@cuda_blocks
def test_cuda_example_compiles(seed: Seed, tmp_path: Path) -> None:
    build(seed, tmp_path, "-c", "-o", "block.o")


@pytest.mark.gpu
@needs_nvcc
@cuda_blocks
def test_cuda_example_runs(seed: Seed, tmp_path: Path) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    build(seed, tmp_path, "-o", "block")
    child = subprocess.run([str(tmp_path / "block")], capture_output=True, text=True, timeout=60)
    assert child.returncode == 0, child.stdout + child.stderr


def build(seed: Seed, folder: Path, *flags: str) -> None:
    """Compile the seed's CUDA block with warnings as errors; fails the test with the compiler's text."""
    (folder / "block.cu").write_text(seed.blocks[0][1], encoding="utf-8")
    command = [
        "nvcc",
        "-O2",
        "-std=c++17",
        "-arch=native" if "-c" not in flags else "-arch=sm_80",
        "-Werror",
        "all-warnings",
    ]
    child = subprocess.run(
        [*command, "block.cu", *flags], cwd=folder, capture_output=True, text=True, timeout=120
    )
    assert child.returncode == 0, child.stderr


@pytest.mark.slow
def test_a_wrong_or_deadly_example_is_seen(tmp_path: Path) -> None:
    def seed(name: str, code: str) -> Seed:
        return Seed(Path(f"{name}.md"), {}, "", (("python", code),))

    bad = [
        seed("right", "assert 1 + 1 == 2\n"),
        seed("wrong", "import torch\ntorch.testing.assert_close(torch.ones(2), torch.zeros(2))\n"),
        seed("deadly", "import os\nos.abort()\n"),
        seed("after", "pass\n"),
    ]
    results = run_python(bad, tmp_path, CPU_ENV, timeout_s=60)
    assert {name: result["ok"] for name, result in results.items()} == {
        "right": True,
        "wrong": False,
        "deadly": False,
        "after": False,
    }
    assert "AssertionError" in results["wrong"]["error"]
    assert "exit status -6" in results["deadly"]["error"]

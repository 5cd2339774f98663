"""Makes a nano from random weights, or trains one further, and measures it: the stages' seconds, the model, the tables of its card.

    python -m tests.benchmarks.nano runs/nano                                       # as data/nano was made; about an H200's half hour
    python -m tests.benchmarks.nano runs/nano2 --start nano --tasks 22000 --steps 5000 --rate 1.5e-3 --seed 11
    python -m tests.benchmarks.nano runs/nano --tables greedy,random --gpus 2       # other tables, of the model that is there

In the folder: `run` (of `dvk sft`), `model` (exported, with its card), `TABLE.json` (what `dvk eval --json` printed), `stages.jsonl`.
Finished parts are not repeated; a killed stage resumes. Tables are played one a GPU at a time.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

HELD_OUT = "data/tasks/heldout"
SKILLS = ["--library", "{library}"]
TABLES = {
    "greedy": ["--turns", "1"],
    "turns": ["--turns", "3"],
    "sampled": ["--turns", "1", "--samples", "3"],
    "selected": ["--turns", "1", *SKILLS],
    "bm25": ["--turns", "1", *SKILLS, "--set", "rollout.selector=bm25"],
    "random": ["--turns", "1", *SKILLS, "--set", "rollout.selector=random"],
    "most": ["--turns", "3", "--samples", "8"],
}
"""Options of `dvk eval`."""
FIRST = "greedy,turns,bm25,random"


class Stages:
    """Runs commands, and keeps how long each took."""

    def __init__(self, folder: Path):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def __call__(
        self, name: str, command: Sequence[str], into: str | None = None, gpu: int | None = None
    ) -> None:
        """A stage; its JSON goes `into` a file of the folder once it is whole."""
        environment = {**os.environ, **({} if gpu is None else {"CUDA_VISIBLE_DEVICES": str(gpu)})}
        began = time.monotonic()
        with (self.folder / f"{name}.log").open("a") as log:
            done = subprocess.run(
                command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment
            )
        row = {
            "stage": name,
            "seconds": round(time.monotonic() - began, 1),
            "exit": done.returncode,
        }
        with (self.folder / "stages.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(json.dumps(row), flush=True)
        if done.returncode:
            sys.exit(f"{name} ended with {done.returncode}: see {self.folder / name}.log")
        if into is not None:
            (self.folder / into).write_text(done.stdout)


def make(stage: Stages, asked: argparse.Namespace) -> None:
    """Collect, filter, fit, export; existing parts of `run` are kept."""
    run = str(stage.folder / "run")
    dvk = [sys.executable, "-m", "dvk", "sft"]
    common = [
        "--out",
        run,
        "--set",
        f"seed={asked.seed}",
        "--set",
        f"collect.played={asked.played}",
    ]
    workers = ["--workers", str(asked.workers)] if asked.workers else []
    stage(
        "collect",
        [*dvk, "collect", "--resume", "--tasks", str(asked.tasks), *workers, *common, "--json"],
        "collect.json",
    )
    stage(
        "filter",
        [*dvk, "filter", "--against", HELD_OUT, *workers, *common, "--json"],
        "filter.json",
    )
    fit = [
        "--from",
        asked.start,
        "--set",
        f"fit.max_steps={asked.steps}",
        "--set",
        f"learning.rate={asked.rate}",
        "--set",
        "fit.epochs=14",
        "--set",
        "fit.save_every=1250",
        "--set",
        "fit.quality_tasks=0",
    ]
    stage("fit", [*dvk, "fit", *fit, *common, "--json"], "fit.json")
    stage("export", [*dvk, "export", run, str(stage.folder / "model")])


def tables(stage: Stages, names: Sequence[str], gpus: int) -> None:
    """Play them, one a GPU at a time, and print what each came to."""
    model, library = f"nano:{stage.folder / 'model'}", str(stage.folder / "skills.db")
    free: SimpleQueue[int] = SimpleQueue()
    for gpu in range(gpus):
        free.put(gpu)

    def play(name: str) -> None:
        gpu = free.get()
        options = [option.format(library=library) for option in TABLES[name]]
        out = str(stage.folder / "tables" / name)
        command = [
            sys.executable,
            "-m",
            "dvk",
            "eval",
            HELD_OUT,
            "--policy",
            model,
            *options,
            "--out",
            out,
            "--resume",
            "--json",
        ]
        try:
            stage(name, command, f"{name}.json", gpu if gpus > 1 else None)
        finally:
            free.put(gpu)
        told = json.loads((stage.folder / f"{name}.json").read_text())
        print(
            json.dumps(
                {
                    "table": name,
                    **{key: told.get(key) for key in ("num_tasks", "fast_p", "geomean_kept")},
                }
            ),
            flush=True,
        )

    if any("--library" in TABLES[name] for name in names) and not Path(library).exists():
        skills, chosen = [sys.executable, "-m", "dvk", "skills"], str(stage.folder / "skills")
        stage("skills", [*skills, "export", chosen])
        stage("library", [*skills, "import", chosen, "--library", library])
    with ThreadPoolExecutor(gpus) as threads:
        list(threads.map(play, names))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--start", default="nano-from-zero", help="what `dvk sft fit --from` takes")
    parser.add_argument("--tasks", type=int, default=36_000)
    parser.add_argument(
        "--played", type=int, default=100, help="tasks whose attempts are executed and timed"
    )
    parser.add_argument("--steps", type=int, default=6500)
    parser.add_argument("--rate", default="3e-3")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, help="processes of collect and filter")
    parser.add_argument("--tables", default=FIRST, help=f"of {', '.join(TABLES)}; empty for none")
    parser.add_argument("--gpus", type=int, default=1)
    asked = parser.parse_args()
    names = [name for name in asked.tables.split(",") if name]
    if unknown := [name for name in names if name not in TABLES]:
        parser.error(f"no table is called {unknown[0]}; there are {', '.join(TABLES)}")
    stage = Stages(asked.folder)
    if not (asked.folder / "model").is_dir():
        make(stage, asked)
    tables(stage, names, asked.gpus)


if __name__ == "__main__":
    main()

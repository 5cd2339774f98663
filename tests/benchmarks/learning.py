"""From nothing to figures: a table of measured plans, models fitted to it, and what their choices are worth.

    python -m tests.benchmarks.learning runs/learning                       # a GPU: measure, fit three seeds, time the winners again
    python -m tests.benchmarks.learning runs/learning --table TABLE --heldout TABLE      # tables that there are: no GPU is needed
    python -m tests.benchmarks.learning runs/quick --quick                  # a CPU, about a minute: the chain works, figures mean nothing

Stages, each resumed if it was killed: `table` (dvk measure, training tasks), `heldout` (dvk measure, the oracle), `seed_N` (dvk sft choose:
the composer's plan → weighted fit → expected reward, if `--set choose.reward_epochs` asks for it), `again` (default, oracle and every
choice timed again), `eval_*` (dvk eval with the last stage's model). `figures.md` and `figures.json` are written after each stage.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from dvk.pipelines.sft.choice_course import CHOICES, STAGES
from dvk.pipelines.sft.choice_figures import DRAWS, LEVEL
from dvk.records.measured import MeasuredPlan, MeasuredTask, read_table, write_table

TABLE = "table.jsonl.gz"
HELD_OUT = Path("data/tasks/heldout")
SUITE = Path("data/tasks/suite/heldout")
QUICK = ("choose.start_epochs=1", "choose.fit_epochs=3", "choose.reward_epochs=2", "fit.size=tiny")


class Run:
    """The stages of one folder.

    Args:
        out: the folder.
        device: cpu or cuda.
    """

    def __init__(self, out: Path, device: str):
        self.out, self.device = out, device
        self.began = time.monotonic()
        out.mkdir(parents=True, exist_ok=True)

    def dvk(self, name: str, *arguments: object) -> str:
        """Run a command of dvk; its standard output. Its seconds are printed."""
        began = time.monotonic()
        command = [sys.executable, "-m", "dvk", *map(str, arguments)]
        with (self.out / f"{name}.log").open("a") as log:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=log, text=True)
        took, total = time.monotonic() - began, time.monotonic() - self.began
        print(f"{name}: exit {done.returncode}, {took:.0f} s ({total:.0f} s)", flush=True)
        return done.stdout

    def measured(self, name: str, *arguments: object) -> Path | None:
        """A table of `dvk measure`; what there is of it if it was cut."""
        folder = self.out / name
        if not (folder / TABLE).exists():
            found = ("--device", self.device, "--out", folder, "--resume")
            self.dvk(name, "measure", *arguments, *found)
        return next((p for p in (folder / TABLE, folder / "rows.jsonl") if p.exists()), None)


def main(arguments: Sequence[str] | None = None) -> None:
    """See the module."""
    asked = parsed(arguments)
    device = asked.device or ("cpu" if asked.quick else "cuda")
    run = Run(asked.out, device)
    small = ["--plans", asked.plans, "--backend", "cpp" if device == "cpu" else "triton"]
    table = asked.table or run.measured(
        "table", "--generated", asked.generated, *small, "--budget-s", asked.measure_s
    )
    assert table is not None, f"nothing was measured: see {run.out}/table.log"
    held = asked.heldout or (None if asked.quick else run.measured("heldout", HELD_OUT, *small))
    with ThreadPoolExecutor(asked.seeds if device == "cuda" else 1) as together:
        told = list(together.map(lambda s: chosen(run, asked, s, table, held), range(asked.seeds)))
    report(run.out, {"seeds": told})
    found: dict[str, Any] = {"seeds": told}
    if held is not None and not asked.no_again:
        found["again"] = again(run, asked.seeds, held)
        report(run.out, found)
    if asked.eval:
        for suite in (SUITE, HELD_OUT):
            found[f"eval_{suite.parent.name}_{suite.name}"] = evaluated(run, suite)
            report(run.out, found)


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--table", type=Path, help="a table to learn from instead of measuring one")
    parser.add_argument("--heldout", type=Path, help="a table of the held-out tasks")
    parser.add_argument("--generated", type=int, default=600)
    parser.add_argument("--plans", type=int, default=16)
    parser.add_argument("--measure-s", type=float, default=900.0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--start", default="nano")
    parser.add_argument("--device", choices=["cpu", "cuda"])
    parser.add_argument("--set", action="append", default=[], help="settings of dvk sft choose")
    parser.add_argument("--no-again", action="store_true", help="do not time winners again")
    parser.add_argument(
        "--eval", action="store_true", help="play what the model writes freely with dvk eval, too"
    )
    parser.add_argument("--quick", action="store_true")
    found = parser.parse_args(arguments)
    if found.quick:
        found.generated, found.plans, found.seeds = min(found.generated, 4), 4, 1
        found.start, found.set = "nano-from-zero", [*QUICK, *found.set]
    return found


def chosen(
    run: Run, asked: argparse.Namespace, seed: int, table: Path, held: Path | None
) -> dict[str, Any]:
    """The figures of `dvk sft choose` with one seed."""
    folder = run.out / f"seed_{seed}"
    settings = [word for one in (*asked.set, f"seed={seed}") for word in ("--set", one)]
    oracle = ("--heldout", held) if held is not None else ()
    start = ("--from", asked.start, "--out", folder, "--resume", "--json")
    told = run.dvk(f"seed_{seed}", "sft", "choose", table, *oracle, *settings, *start)
    return dict(json.loads(told)) if told else {}


def again(run: Run, seeds: int, held: Path) -> dict[str, Any]:
    """Default, oracle and every choice on the held-out tasks, timed in one go: first times are too good for those that won by them."""
    rows = {row.task.name: row for row in read_table(held)}
    texts: dict[str, dict[str, str]] = {name: {} for name in rows}
    for seed in range(seeds):
        path = run.out / f"seed_{seed}" / CHOICES
        for line in path.read_text().splitlines() if path.exists() else ():
            one = json.loads(line)
            if one["split"] == "heldout":
                texts[one["task"]][f"{one['stage']} {seed}"] = one["text"]
    write_table(run.out / "winners.jsonl.gz", list(_winners(rows, texts)))
    backend = "cpp" if run.device == "cpu" else "triton"
    winners = run.out / "winners.jsonl.gz"
    table = run.measured("again", "--again", winners, "--backend", backend)
    if table is None:
        return {}
    speeds = {row.task.name: {p.key: p for p in row.plans} for row in read_table(table)}
    result: dict[str, Any] = {}
    for stage in STAGES:
        result[stage] = timed_again(rows, texts, speeds, stage, seeds)
    return result


def _winners(
    rows: dict[str, MeasuredTask], texts: dict[str, dict[str, str]]
) -> Iterator[MeasuredTask]:
    for name, row in rows.items():
        wanted = [row.default, row.best, *(_plan(row, text) for text in texts[name].values())]
        plans = {plan.key: plan for plan in wanted if plan is not None}
        if texts[name]:
            yield row.model_copy(update={"plans": tuple(plans.values())})


def _plan(row: MeasuredTask, text: str) -> MeasuredPlan | None:
    return next((plan for plan in row.plans if plan.text == text), None)


def timed_again(
    rows: dict[str, MeasuredTask],
    texts: dict[str, dict[str, str]],
    speeds: dict[str, dict[str, MeasuredPlan]],
    stage: str,
    seeds: int,
) -> dict[str, Any]:
    """Figures of one stage from second times; the mean over seeds of each task's log-speed."""
    gained, gaps, speed = [], [], []
    for name, plans in speeds.items():
        row = rows[name]
        picked = [_plan(row, texts[name].get(f"{stage} {seed}", "")) for seed in range(seeds)]
        default, oracle, *own = (
            plans.get(plan.key) if plan is not None else None
            for plan in (row.default, row.best, *picked)
        )
        if default is None or oracle is None or not default.speedup or not oracle.speedup:
            continue
        logs = [math.log(p.speedup) if p and p.speedup else 0.0 for p in own]
        speed.append(sum(logs) / len(logs))
        gaps.append(math.log(oracle.speedup) - math.log(default.speedup))
        gained.append(speed[-1] - math.log(default.speedup))
    if not gaps:
        return {}
    drawn = np.random.default_rng(0).integers(0, len(gaps), (DRAWS, len(gaps)))
    shares = np.array(gained)[drawn].sum(1) / np.maximum(1e-9, np.array(gaps)[drawn].sum(1))
    over = np.exp(np.array(gained)[drawn].mean(1))
    return {
        "tasks": len(gaps),
        "geomean": float(np.exp(np.mean(speed))),
        "over_default": float(np.exp(np.mean(gained))),
        "over_default_interval": [float(np.percentile(over, end)) for end in LEVEL],
        "oracle_over_default": float(np.exp(np.mean(gaps))),
        "closed": float(np.sum(gained) / np.sum(gaps)),
        "closed_interval": [float(np.percentile(shares, end)) for end in LEVEL],
    }


def evaluated(run: Run, suite: Path) -> dict[str, Any]:
    """`dvk eval` of the first seed's last model: it writes a plan, the composer renders it, the judge times it."""
    model = f"nano:{run.out / 'seed_0' / 'checkpoints' / STAGES[-1]}"
    name = f"eval_{suite.parent.name}_{suite.name}"
    asked = ("--policy", model, "--turns", 1, "--device", run.device, "--out", run.out / name)
    told = run.dvk(name, "eval", suite, *asked, "--json")
    return {k: v for k, v in json.loads(told).items() if k.startswith(("fast_p", "geomean", "num"))}


def report(out: Path, found: dict[str, Any]) -> None:
    """Write the figures that there are."""
    (out / "figures.json").write_text(json.dumps(found, indent=1))
    (out / "figures.md").write_text("\n".join(lines(found)) + "\n")


def lines(found: dict[str, Any]) -> Iterator[str]:
    """The figures as Markdown."""
    yield "| stage, tasks | right | fast_1 | fast_1.2 | fast_1.5 | fast_2 | geometric mean | of ln(oracle / default) | unknown |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for seed, told in enumerate(found["seeds"]):
        for stage in STAGES:
            for kind in ("training", "heldout", "unaided"):
                if kind in told.get(stage, {}):
                    yield _line(f"{stage}, {kind}, seed {seed}", told[stage][kind])
    yield ""
    for stage, told in found.get("again", {}).items():
        if told:
            lo, hi = told["closed_interval"]
            yield (
                f"- {stage}, winners timed again, {told['tasks']} tasks: x{told['over_default']:.3f} over the default plan "
                f"(oracle x{told['oracle_over_default']:.3f}), closed {told['closed']:.0%} [{lo:.0%}, {hi:.0%}]"
            )
    for name, told in found.items():
        if name.startswith("eval_"):
            yield f"- {name}: {json.dumps(told)}"


def _line(name: str, told: dict[str, Any]) -> str:
    told = {key: math.nan if value is None else value for key, value in told.items()}
    fast = " | ".join(f"{told['fast'].get(p, math.nan):.1%}" for p in ("1", "1.2", "1.5", "2"))
    lo, hi = told["closed_interval"]
    return (
        f"| {name} | {told['right']:.1%} | {fast} | {told['geomean']:.3f} (default {told['default']:.3f}, "
        f"rule `{told['rule']}` {told['fixed']:.3f}, oracle {told['oracle']:.3f}) | {told['closed']:.0%} [{lo:.0%}, {hi:.0%}] "
        f"| {told['unknown']} of {told['tasks']} |"
    )


if __name__ == "__main__":
    main()

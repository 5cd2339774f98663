"""What REINFORCE on a table of measured plans adds to the weighted fit, by seed and with intervals: run it by hand, no GPU is needed.

    python -m tests.benchmarks.reinforce_on_table data/measured/train-h200.jsonl.gz --heldout data/measured/heldout-h200.jsonl.gz

Four fifths of the table's tasks are learned. For each seed `dvk sft choose` makes a model that answers with the composer's own plan
(`start`) and fits it (`fit`). Then each arm of `ARMS` plays: REINFORCE from one of the two. Half of the kept fifth, `validation`, chooses
after which pass an arm stops (none, if none is better by more than its standard error) and which arm is best; the other half, `test`, and
the held-out tasks choose nothing. A share is that of ln(best plan / default plan) that the likeliest plans close, `own` what the arm adds
to the share of the stage that it began with. Intervals are 95 % over tasks, of the mean of the seeds.

With `--again` (tables of `dvk measure --again … --best N`) second times count: those of training winners are learned, and held-out choices
and the best plan, which is the best of the first times, are worth their second times.

`rows.jsonl` has a line a pass as it ends; `--report` makes the table of what there is.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import torch

from dvk.config import Config, changed
from dvk.pipelines.sft.choice_course import Course
from dvk.pipelines.sft.choice_figures import DRAWS, LEVEL
from dvk.pipelines.sft.choose import ChooseRequest, choose, model
from dvk.pipelines.train import table_tasks
from dvk.records.measured import MeasuredPlan, MeasuredTask, read_table, write_table
from dvk.runs import RunFolder

ARMS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "fit+exact": ("fit", {}),
    "fit+exact, own questions": ("fit", {"choose.exchanged": 0.0}),
    "fit+exact, near": ("fit", {"choose.kl": 0.1, "choose.exchanged": 0.25}),
    "fit+drawn": ("fit", {"choose.samples": 16}),
    "start+exact": ("start", {"choose.kl": 0.01}),
    "start+drawn": ("start", {"choose.kl": 0.01, "choose.samples": 16}),
}
"""By name: the stage that it begins with, and settings of the last stage of `dvk sft choose`."""
PARTS = ("validation", "test", "heldout")
LINES = "rows.jsonl"
ERRORS = 1.0
"""Standard errors of its validated gain that a pass must gain."""


class Tables:
    """The tasks of each part; `heldout` and `test` are never learned and choose nothing.

    Args:
        given: the command line.
    """

    def __init__(self, given: argparse.Namespace):
        again = [row for path in given.again for row in read_table(path)]
        self.second = {(row.task.id, plan.key): plan for row in again for plan in row.plans}
        rows = [self.retimed(row) for path in given.table for row in read_table(path)]
        rows = list({row.task.id: row for row in rows}.values())
        kept = sorted(table_tasks.held_out(rows), key=lambda row: row.task.id)
        names = {row.task.id for row in kept}
        self.trained = [row for row in rows if row.task.id not in names]
        held = list(read_table(given.heldout)) if given.heldout is not None else []
        self.of_part = {"validation": kept[::2], "test": kept[1::2], "heldout": held}

    def retimed(self, row: MeasuredTask) -> MeasuredTask:
        """With the second times of plans that have some."""
        plans = tuple(self._again(row, plan) for plan in row.plans)
        return row.model_copy(update={"plans": plans})

    def _again(self, row: MeasuredTask, plan: MeasuredPlan) -> MeasuredPlan:
        found = self.second.get((row.task.id, plan.key))
        known = found is not None and found.is_known
        return plan.model_copy(update={"verdict": found.verdict}) if known and found else plan

    def worth(self, row: MeasuredTask, plan: MeasuredPlan | None) -> float:
        """Log-speedup over eager by second times, by first ones where there are none; a wrong plan counts as eager."""
        speed = self._again(row, plan).speedup if plan is not None else None
        return math.log(speed) if speed else 0.0

    def gap(self, row: MeasuredTask) -> float:
        """ln(best / default)."""
        return self.worth(row, row.best) - self.worth(row, row.default)


def main() -> None:
    """See the module."""
    given = parsed()
    given.out.mkdir(parents=True, exist_ok=True)
    tables = Tables(given)
    if given.report:
        report(given, tables)
        return
    if given.arm:
        play(given, tables, given.first_seed)
        return
    for seed in range(given.first_seed, given.first_seed + given.seeds):
        began = time.perf_counter()
        fitted(given, tables, seed)
        print(f"seed {seed}: fitted in {time.perf_counter() - began:.0f} s", flush=True)
        command = [sys.executable, "-m", "tests.benchmarks.reinforce_on_table", *sys.argv[1:]]
        command += ["--first-seed", str(seed), "--seeds", "1"]
        waiting = [name for name in ARMS if name in (given.arms or ARMS)]
        playing: list[subprocess.Popen[bytes]] = []
        while waiting or playing:
            while waiting and len(playing) < given.parallel:
                playing.append(subprocess.Popen([*command, "--arm", waiting.pop(0)]))
            playing[0].wait()
            playing = [one for one in playing if one.poll() is None]
        report(given, tables)


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=Path, nargs="+")
    parser.add_argument("--heldout", type=Path)
    parser.add_argument("--again", type=Path, action="append", default=[])
    parser.add_argument("--out", type=Path, default=Path("runs/reinforce-on-table"))
    parser.add_argument("--start", default="nano-from-zero")
    parser.add_argument("--size", default="tiny")
    parser.add_argument("--epochs", type=float, default=6, help="passes of an arm")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--parallel", type=int, default=1, help="arms at a time")
    parser.add_argument("--arms", nargs="+", choices=list(ARMS))
    parser.add_argument("--arm", help=argparse.SUPPRESS)
    parser.add_argument("--report", action="store_true", help="figures of what there is")
    parser.add_argument("--set", action="append", default=[], help="settings, as of dvk")
    return parser.parse_args()


def settings(given: argparse.Namespace, seed: int) -> Config:
    """Those of the fit and of what goes on from it."""
    tiny = {"choose.rate": 2e-3, "choose.reward_rate": 5e-4, "choose.batch_tokens": 4096}
    values: dict[str, Any] = {
        "seed": seed,
        "fit.size": given.size,
        "choose.start_epochs": 10,
        "choose.fit_epochs": 6,
        "choose.reward_epochs": 0,
        "choose.folds": 0,
        "learning.pack_tokens": 4096,
        **(tiny if given.size == "tiny" and given.start == "nano-from-zero" else {}),
    }
    for one in given.set:
        name, _, value = one.partition("=")
        values[name] = json.loads(value)
    return changed(Config(), values)


def fitted(given: argparse.Namespace, tables: Tables, seed: int) -> None:
    """`start` and `fit` of a seed, each a checkpoint."""
    if (given.out / f"choose-{seed}" / "checkpoints" / "fit").exists():
        return
    path = given.out / f"trained-{seed}.jsonl.gz"
    write_table(path, tables.trained)
    request = ChooseRequest(
        tables=(path,), start=given.start, out=given.out / f"choose-{seed}", resume=True
    )
    choose(request, settings(given, seed))


def play(given: argparse.Namespace, tables: Tables, seed: int) -> None:
    """One arm of one seed: a line for what it begins with, and one after each pass."""
    stage, more = ARMS[given.arm]
    config = changed(settings(given, seed), {"choose.reward_epochs": given.epochs, **more})
    folder = given.out / f"arm-{seed}-{list(ARMS).index(given.arm)}"
    start = f"nano:{given.out}/choose-{seed}/checkpoints/{stage}"
    with RunFolder.open(
        folder, command="sft", name="arm", argv=(), config=config, resume=folder.exists()
    ) as run:
        course = Course(run, model(run, tables.trained, start, config), tables.trained, (), config)
        began = time.perf_counter()
        written(given, tables, course, seed, 0, 0.0)
        for number in course.train("reward", tables.trained, None):
            written(given, tables, course, seed, number + 1, time.perf_counter() - began)
        run.finish("done")


def written(
    given: argparse.Namespace, tables: Tables, course: Course, seed: int, passes: int, took: float
) -> None:
    """Append the choices of every part."""
    row: dict[str, Any] = {"seed": seed, "arm": given.arm, "passes": passes, "s": round(took, 1)}
    for part, rows in tables.of_part.items():
        if rows:
            picked = zip(rows, course.chosen(rows), strict=True)
            row[part] = [tables.worth(task, one.plan) for task, one in picked]
    with (given.out / LINES).open("a") as lines:
        lines.write(json.dumps(row) + "\n")
    default = fmean(tables.worth(task, task.default) for task in tables.of_part["validation"])
    gained = fmean(row["validation"]) - default
    print(f"seed {seed}, {given.arm}, pass {passes}: x{math.exp(gained):.3f} validated", flush=True)


Line = dict[str, Any]


def report(given: argparse.Namespace, tables: Tables) -> None:
    """Print and write the table; `figures.json` has the same."""
    lines = [json.loads(line) for line in (given.out / LINES).read_text().splitlines()]
    by_arm: dict[str, dict[int, list[Line]]] = {}
    for line in lines:
        by_arm.setdefault(line["arm"], {}).setdefault(line["seed"], []).append(line)
    text, found = list(table(tables, by_arm)), {}
    for arm, of_seed in by_arm.items():
        found[arm] = figures(tables, of_seed)
    (given.out / "figures.json").write_text(json.dumps(found, indent=1))
    (given.out / "figures.md").write_text("\n".join(text) + "\n")
    print("\n".join(text), flush=True)


def stopped(lines: Sequence[Line]) -> tuple[Line, Line]:
    """The line of the beginning, and that of the pass that validation chooses: the first, if none gains more than its error."""
    first, *others = sorted(lines, key=lambda line: line["passes"])
    best = max([first, *others], key=lambda line: fmean(line["validation"]))
    gains = np.subtract(best["validation"], first["validation"])
    error = stdev(gains.tolist()) / math.sqrt(len(gains)) if len(gains) > 1 else math.inf
    return first, best if fmean(gains.tolist()) > ERRORS * error else first


def figures(tables: Tables, of_seed: Mapping[int, Sequence[Line]]) -> dict[str, Any]:
    """Of an arm: passes by seed, and for each part the shares closed before it and after, and its own."""
    chosen = {seed: stopped(lines) for seed, lines in of_seed.items()}
    result: dict[str, Any] = {
        "passes": {seed: line["passes"] for seed, (_, line) in chosen.items()},
        "validated": fmean(
            fmean(np.subtract(line["validation"], first["validation"]).tolist())
            for first, line in chosen.values()
        ),
    }
    for part, rows in tables.of_part.items():
        if not rows:
            continue
        default = np.array([tables.worth(row, row.default) for row in rows])
        gap = np.array([tables.gap(row) for row in rows])
        before = np.mean([first[part] for first, _ in chosen.values()], axis=0)
        after = np.mean([line[part] for _, line in chosen.values()], axis=0)
        result[part] = {
            "tasks": len(rows),
            "before": shares(before - default, gap),
            "after": shares(after - default, gap),
            "own": shares(after - before, gap),
            "own_by_seed": {
                seed: float(np.subtract(line[part], first[part]).sum() / gap.sum())
                for seed, (first, line) in chosen.items()
            },
            "over_default": math.exp(float((after - default).mean())),
        }
    return result


def shares(gained: np.ndarray, gap: np.ndarray) -> list[float]:
    """Share of the gap, and its interval over tasks."""
    drawn = np.random.default_rng(0).integers(0, len(gap), (DRAWS, len(gap)))
    every = gained[drawn].sum(1) / gap[drawn].sum(1)
    ends = [float(np.percentile(every, end)) for end in LEVEL]
    return [float(gained.sum() / gap.sum()), *ends]


def table(tables: Tables, by_arm: Mapping[str, Mapping[int, Sequence[Line]]]) -> Iterator[str]:
    """Of all arms, the best validated one first."""
    parts = [part for part in PARTS if tables.of_part[part]]
    told = ", ".join(f"{len(tables.of_part[part])} {part}" for part in parts)
    yield f"{len(tables.trained)} tasks trained; {told}"
    yield (
        "| arm | passes by seed | "
        + " | ".join(f"{part}: {what}" for part in parts for what in ("before", "after", "own"))
        + " | over the default |"
    )
    yield "|---|---|" + "---|" * (3 * len(parts) + 1)
    every = {arm: figures(tables, of_seed) for arm, of_seed in by_arm.items()}
    for arm, one in sorted(every.items(), key=lambda item: -item[1]["validated"]):
        cells = [cell(one[part][what]) for part in parts for what in ("before", "after", "own")]
        passes = ", ".join(str(n) for _, n in sorted(one["passes"].items()))
        last = one[parts[-1]]["over_default"]
        yield f"| {arm} | {passes} | {' | '.join(cells)} | x{last:.3f} |"


def cell(share: Sequence[float]) -> str:
    """A share with its interval."""
    value, lo, hi = share
    return f"{value:.0%} [{lo:.0%}, {hi:.0%}]"


if __name__ == "__main__":
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // 4))
    main()

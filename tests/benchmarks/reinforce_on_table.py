"""What REINFORCE on a table of measured plans adds to the weighted fit, by seed and with intervals: run it by hand, no GPU is needed.

    python -m tests.benchmarks.reinforce_on_table data/measured/train-h200.jsonl.gz --heldout data/measured/heldout-h200.jsonl.gz

For each seed `dvk sft choose` learns four fifths of the table's tasks: a model that answers with the composer's own plan (`start`), and
the weighted fit of it (`fit`). Then each arm of `ARMS` plays: REINFORCE from one of the two. The fifth that a seed keeps, another one for
each of five seeds, chooses after which pass an arm stops: none, if none gains more than its standard error. For the figures of the kept
tasks themselves each half of them is looked up at the pass, or with the arm and the pass, that the other half chooses, so that five seeds
test all tasks and nothing is chosen by what it is measured on. Held-out tasks choose nothing. A share is that of ln(best plan / default
plan) that the likeliest plans close, `own` what REINFORCE adds to the share of the stage that it began with. Intervals are 95 % over
tasks, of the mean of the seeds.

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
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import torch

from dvk.config import Config, changed
from dvk.pipelines.sft.choice_course import Course, known_plans
from dvk.pipelines.sft.choice_figures import DRAWS, LEVEL
from dvk.pipelines.sft.choose import ChooseRequest, choose, model
from dvk.records.measured import MeasuredPlan, MeasuredTask, read_table, write_table
from dvk.runs import RunFolder

ARMS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "fit+exact": ("fit", {}),
    "fit+exact, own questions": ("fit", {"choose.exchanged": 0.0}),
    "fit+exact, near": ("fit", {"choose.kl": 0.1}),
    "fit+exact, far": ("fit", {"choose.kl": 0.005}),
    "start+exact": ("start", {"choose.kl": 0.01}),
    "start+exact, others' questions": ("start", {"choose.kl": 0.01, "choose.exchanged": 1.0}),
}
"""By name: the stage that it begins with, and settings of the last stage of `dvk sft choose`."""
CHOSEN = ("fit, the arm chosen", "start, the arm chosen")
"""Rows of the table: of all arms that begin with a stage the one that validation prefers."""
FOLDS = 5
LINES = "rows.jsonl"
ERRORS = 1.0
"""Standard errors of its validated gain that a pass must gain."""


class Tables:
    """The tasks to learn and those that are only looked up.

    Args:
        given: the command line.
    """

    def __init__(self, given: argparse.Namespace):
        again = [row for path in given.again for row in read_table(path)]
        self.second = {(row.task.id, plan.key): plan for row in again for plan in row.plans}
        rows = {row.task.id: row for path in given.table for row in read_table(path)}
        usable = [row for row in rows.values() if row.default and len(known_plans(row)) > 1]
        self.rows = sorted(map(self.retimed, usable), key=lambda row: row.task.id)
        self.held = list(read_table(given.heldout)) if given.heldout is not None else []

    def kept(self, seed: int) -> list[MeasuredTask]:
        """Those that a seed does not learn. Ids are hashes: their order says nothing."""
        return self.rows[seed % FOLDS :: FOLDS]

    def trained(self, seed: int) -> list[MeasuredTask]:
        """The others."""
        names = {row.task.id for row in self.kept(seed)}
        return [row for row in self.rows if row.task.id not in names]

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
        failed = played([[*command, "--arm", name] for name in waiting], given.parallel)
        if failed:
            sys.exit(f"seed {seed}: failed: {'; '.join(one[-1] for one in failed)}")
        report(given, tables)


def played(commands: list[list[str]], parallel: int) -> list[list[str]]:
    """Run the commands, some at a time; those that failed."""
    with ThreadPoolExecutor(parallel) as together:
        codes = list(together.map(lambda one: subprocess.run(one).returncode, commands))
    return [one for one, code in zip(commands, codes, strict=True) if code]


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
    parser.add_argument("--seeds", type=int, default=FOLDS)
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
    write_table(path, tables.trained(seed))
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
        rows = tables.trained(seed)
        course = Course(run, model(run, rows, start, config), rows, (), config)
        began = time.perf_counter()
        written(given, tables, course, seed, 0, 0.0)
        for number in course.train("reward", rows, None):
            written(given, tables, course, seed, number + 1, time.perf_counter() - began)
        run.finish("done")


def written(
    given: argparse.Namespace, tables: Tables, course: Course, seed: int, passes: int, took: float
) -> None:
    """Append the choices of every part."""
    row: dict[str, Any] = {"seed": seed, "arm": given.arm, "passes": passes, "s": round(took, 1)}
    for part, rows in (("kept", tables.kept(seed)), ("heldout", tables.held)):
        picked = zip(rows, course.chosen(rows) if rows else (), strict=True)
        row[part] = [tables.worth(task, one.plan) for task, one in picked]
    with (given.out / LINES).open("a") as lines:
        lines.write(json.dumps(row) + "\n")
    default = fmean(tables.worth(task, task.default) for task in tables.kept(seed))
    gained = fmean(row["kept"]) - default
    print(
        f"seed {seed}, {given.arm}, pass {passes}: x{math.exp(gained):.3f} on kept tasks",
        flush=True,
    )


Line = dict[str, Any]
Parts = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Of each task the log-speedup before and after over the default's, and the best plan's."""


def report(given: argparse.Namespace, tables: Tables) -> None:
    """Print and write the table; `figures.json` has the same."""
    lines = last_plays((given.out / LINES).read_text().splitlines())
    seeds = sorted({line["seed"] for line in lines})
    arms = [*CHOSEN, *dict.fromkeys(line["arm"] for line in lines)]
    found = {}
    for arm in arms:
        some = [line for line in lines if belongs(line["arm"], arm)]
        of_seed = {seed: [line for line in some if line["seed"] == seed] for seed in seeds}
        of_seed = {seed: of for seed, of in of_seed.items() if of}
        if of_seed:
            found[arm] = figures(tables, of_seed)
    text = [f"seeds {seeds}, {len(tables.rows)} tasks of which a seed learns four fifths"]
    text += table(found)
    (given.out / "figures.json").write_text(json.dumps(found, indent=1))
    (given.out / "figures.md").write_text("\n".join(text) + "\n")
    print("\n".join(text), flush=True)


def last_plays(texts: Sequence[str]) -> list[Line]:
    """The lines of the last play of each seed and arm: one begins with no pass, and replaces what a play before it left."""
    plays: dict[tuple[int, str], list[Line]] = {}
    for line in map(json.loads, texts):
        key = line["seed"], line["arm"]
        if line["passes"] == 0:
            plays[key] = []
        plays[key].append(line)
    return [line for of in plays.values() for line in of]


def belongs(arm: str, row: str) -> bool:
    """Whether a row of the table is about an arm."""
    return arm.partition("+")[0] == row.partition(",")[0] if row in CHOSEN else arm == row


def stopped(lines: Sequence[Line], places: Sequence[int]) -> tuple[Line, Line]:
    """The line of the beginning, and that of the pass that some kept tasks choose: the first, if none gains more than its error."""
    first = min(lines, key=lambda line: line["passes"])
    values = [np.array(line["kept"])[places] for line in lines]
    before = np.array(first["kept"])[places]
    best = max(range(len(lines)), key=lambda n: float(values[n].mean()))
    gains = (values[best] - before).tolist()
    error = stdev(gains) / math.sqrt(len(gains)) if len(gains) > 1 else math.inf
    return first, lines[best] if fmean(gains) > ERRORS * error else first


def figures(tables: Tables, of_seed: Mapping[int, Sequence[Line]]) -> dict[str, Any]:
    """Of an arm or several: the pass of each seed, and for each part the shares closed before and after, and its own."""
    chosen: dict[int, str] = {}
    kept: list[Parts] = []
    held: list[Parts] = []
    for seed, lines in of_seed.items():
        rows = tables.kept(seed)
        for half in (0, 1):
            places = list(range(half, len(rows), 2))
            others = list(range(1 - half, len(rows), 2))
            first, line = stopped(lines, places)
            here = (np.array(one["kept"])[others] for one in (first, line))
            kept.append(gains(tables, [rows[n] for n in others], *here))
        first, line = stopped(lines, range(len(rows)))
        chosen[seed] = f"{line['arm']} {line['passes']}"
        if tables.held:
            held.append(gains(tables, tables.held, first["heldout"], line["heldout"]))
    result: dict[str, Any] = {"chosen": chosen, "kept": told(*map(np.concatenate, zip(*kept)))}
    if held:
        means = [np.mean(some, axis=0) for some in zip(*held)]
        result["heldout"] = told(*means)
        result["heldout"]["own_by_seed"] = {
            seed: float((after - before).sum() / gap.sum())
            for seed, (before, after, gap) in zip(of_seed, held)
        }
    return result


def gains(tables: Tables, rows: Sequence[MeasuredTask], before: Any, after: Any) -> Parts:
    """Over the default plans."""
    default = np.array([tables.worth(row, row.default) for row in rows])
    gap = np.array([tables.gap(row) for row in rows])
    return np.array(before) - default, np.array(after) - default, gap


def told(before: np.ndarray, after: np.ndarray, gap: np.ndarray) -> dict[str, Any]:
    """Shares of the gap with intervals."""
    return {
        "tasks": len(gap),
        "before": shares(before, gap),
        "after": shares(after, gap),
        "own": shares(after - before, gap),
        "over_default": math.exp(float(after.mean())),
        "best_over_default": math.exp(float(gap.mean())),
    }


def shares(gained: np.ndarray, gap: np.ndarray) -> list[float]:
    """Share of the gap, and its interval over tasks."""
    drawn = np.random.default_rng(0).integers(0, len(gap), (DRAWS, len(gap)))
    every = gained[drawn].sum(1) / gap[drawn].sum(1)
    ends = [float(np.percentile(every, end)) for end in LEVEL]
    return [float(gained.sum() / gap.sum()), *ends]


def table(found: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """A row an arm."""
    parts = [part for part in ("kept", "heldout") if part in next(iter(found.values()))]
    names = ["arm", *(f"{part}: {what}" for part in parts for what in ("before", "after", "own"))]
    names += [f"{part}: over the default (best)" for part in parts]
    yield f"| {' | '.join(names)} |"
    yield "|" + "---|" * len(names)
    for arm, one in found.items():
        cells = [cell(one[part][what]) for part in parts for what in ("before", "after", "own")]
        cells += [
            f"x{one[part]['over_default']:.3f} (x{one[part]['best_over_default']:.3f})"
            for part in parts
        ]
        yield f"| {arm} | {' | '.join(cells)} |"


def cell(share: Sequence[float]) -> str:
    """A share with its interval."""
    value, lo, hi = share
    return f"{value:.0%} [{lo:.0%}, {hi:.0%}]"


if __name__ == "__main__":
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // 4))
    main()

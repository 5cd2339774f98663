"""`dvk sft choose`: from a table of measured plans to a model that chooses plans, with figures.

    table → questions and known answers → start (words of good plans) → weighted fit → expected reward → a checkpoint each

Tasks of `heldout` are never learned: their tables are the oracle that says how fast a chosen plan is. A choice is among the plans that
the table holds, so nothing is unknown. `unaided` is the choice from the composer's own list, as the model is played where there is no
table; plans of that list that the table does not hold are counted as unknown.
"""

from __future__ import annotations

import copy
import math
import random
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from dvk import machine
from dvk.agents.dialects.nano import ask
from dvk.agents.dialects.plan import answers
from dvk.agents.task_context import TaskContext
from dvk.backbone import Sampling
from dvk.backbone.hf import HfBackbone
from dvk.composer import CannotCompose
from dvk.composer.capture.batch import capture_many
from dvk.config import ChooseConfig, Config
from dvk.errors import UsageError
from dvk.learn import choosing
from dvk.learn.choosing import ChoiceRow
from dvk.learn.learner import BETAS, CLIP, WEIGHT_DECAY, groups
from dvk.pipelines.sft.choice_figures import Chosen, figures
from dvk.pipelines.sft.fit import FRESH, trainable
from dvk.pipelines.wording import all_worded
from dvk.records.measured import MeasuredPlan, MeasuredTask, read_table
from dvk.runs import RunFolder

STAGES = ("start", "fit", "reward")
ROWS = "figures.jsonl"
CHOICES = "choices.jsonl"
"""The chosen plan of each task after each stage."""
EVAL_TOKENS = 32768
"""Tokens of a pass without gradients."""
SHARPNESS = 0.05
"""A plan slower than the best by this log-speed weighs 1/e as much in the fit."""
WRITTEN = 0.2
"""Weight of writing the weighted plans token by token, beside choosing among those known."""
ENTROPY = 0.01
"""Weight of the choice's entropy, in nats, in the last stage."""
ANSWERS = 16
"""Most plans of a task in one step; drawn for each pass."""


@dataclass(frozen=True, kw_only=True)
class ChooseRequest:
    """The command line's request."""

    tables: tuple[Path, ...]
    heldout: tuple[Path, ...] = ()
    start: str = "nano"
    backend: str | None = None
    out: Path | None = None
    resume: bool = False
    argv: tuple[str, ...] = ()


def choose(request: ChooseRequest, config: Config) -> dict[str, Any]:
    """Run the stages; returns the figures of each on the held-out tasks.

    Raises:
        UsageError: the tables hold nothing to learn from.
    """
    with RunFolder.open(
        request.out,
        command="sft",
        name="choose",
        argv=request.argv,
        config=config,
        resume=request.resume,
    ) as run:
        if run.answered(request, config):
            return dict(run.read("summary.jsonl")[-1])
        rows, held = of_tables(request)
        say = f"{len(rows)} tasks to learn from, {len(held)} held out; a line at the end of each of {len(STAGES)} stages"
        print(say, file=sys.stderr, flush=True)
        backbone = model(run, rows, request.start, config)
        course = _Course(run, backbone, rows, held, config)
        told: dict[str, Any] = {"run": str(run.path), "tasks": len(rows), "heldout": len(held)}
        done = {row["stage"]: row for row in run.read(ROWS)}
        for stage in STAGES:
            if stage in done:
                course.backbone = model(run, rows, f"nano:{done[stage]['checkpoint']}", config)
            else:
                done[stage] = course.play(stage)
                run.append(ROWS, {"stage": stage, **done[stage]})
            told[stage] = done[stage]
        run.append("summary.jsonl", told)
        run.finish("done")
    return told


def of_tables(request: ChooseRequest) -> tuple[list[MeasuredTask], list[MeasuredTask]]:
    """The tasks to learn, and those held out.

    Raises:
        UsageError: there is nothing to learn.
    """
    held = _usable(request.heldout, request.backend)
    never = {row.task.id for row in held}
    usable = _usable(request.tables, request.backend)
    rows = [
        row for row in usable if row.task.id not in never and row.groups.get("suite") != "heldout"
    ]
    if not rows:
        of = f" of {request.backend}" if request.backend is not None else ""
        why = (
            f"all {len(usable)} tasks are held out"
            if usable
            else f"no task{of} has a default plan and another one with verdicts"
        )
        raise UsageError(
            f"the tables hold no task to learn from: {why}",
            "measure some of the generator's: `dvk measure --generated 100`",
        )
    return rows, held


def _usable(paths: Sequence[Path], backend: str | None) -> list[MeasuredTask]:
    rows = [row for path in paths for row in read_table(path)]
    rows = [row for row in rows if backend in (None, row.backend)]
    asked = all(row.question for row in rows)
    worded = rows if asked else all_worded(rows, machine.num_cores())
    return [row for row in worded if row.question and len(known_plans(row)) > 1 and row.default]


def known_plans(row: MeasuredTask) -> list[MeasuredPlan]:
    """Plans with words and a verdict about themselves, each text once."""
    plans: dict[str, MeasuredPlan] = {}
    for plan in row.plans:
        if plan.text and plan.is_known:
            plans.setdefault(plan.text, plan)
    return list(plans.values())


def model(run: RunFolder, rows: Sequence[MeasuredTask], start: str, config: Config) -> HfBackbone:
    """The model to begin with, in the dialect of plans; `nano-from-zero` gets a tokenizer for these texts."""
    if start == FRESH:
        from dvk.backbone import nano

        base = run.path / "fit" / "base"
        if not base.exists():
            words = [text for row in rows for text in (row.question, *(p.text for p in row.plans))]
            provenance = {"made_by": "dvk sft choose"}
            nano.make(
                base,
                words,
                size=config.fit.size,
                positions=config.learning.pack_tokens,
                seed=config.seed,
                dialect="plan",
                provenance=provenance,
            )
        start = f"nano:{base}"
    backbone = trainable(start, config.model_copy(deep=True))
    if not isinstance(backbone, HfBackbone):
        raise UsageError(f"`{start}` has no local weights", "start from nano or hf:PATH")
    backbone.dialect = "plan"
    backbone.card = {**backbone.card, "dialect": "plan"}
    backbone.model.float()
    return backbone


class _Course:
    """A model, the rows that it learns, and the figures after each stage."""

    def __init__(
        self,
        run: RunFolder,
        backbone: HfBackbone,
        rows: Sequence[MeasuredTask],
        held: Sequence[MeasuredTask],
        config: Config,
    ):
        self.run, self.backbone, self.held = run, backbone, held
        self.settings: ChooseConfig = config.choose
        self.rng = random.Random(config.seed)
        self.device = backbone.model.device
        torch.manual_seed(config.seed)
        order = self.rng.sample(range(len(rows)), len(rows))
        num_checked = round(self.settings.validation * len(rows))
        self.checked = [rows[i] for i in order[:num_checked]]
        self.learned = [rows[i] for i in order[num_checked:]]
        self.tokens: dict[str, ChoiceRow] = {}
        self.lists: list[tuple[str, ...]] | None = None

    def play(self, stage: str) -> dict[str, Any]:
        """One stage; its figures on the held-out tasks."""
        began = time.monotonic()
        settings = self.settings
        epochs = {
            "start": settings.start_epochs,
            "fit": settings.fit_epochs,
            "reward": settings.reward_epochs,
        }[stage]
        rate = settings.reward_rate if stage == "reward" else settings.rate
        kept_at = self._train(stage, epochs, rate) if epochs else 0.0
        seconds = time.monotonic() - began
        folder = self.run.path / "checkpoints" / stage
        shutil.rmtree(folder, ignore_errors=True)  # of a killed run, without its figures
        self.backbone.save(folder)
        found: dict[str, Any] = {"checkpoint": str(folder), "train_s": round(seconds, 1)}
        found["kept_after_epochs"] = kept_at
        for name, rows in (("training", self.learned), ("heldout", self.held)):
            if rows:
                chosen = self.chosen(rows)
                found[name] = figures(list(zip(rows, chosen, strict=True)))
                for row, one in zip(rows, chosen, strict=True):
                    kept = {"stage": stage, "split": name, "task": row.task.name}
                    self.run.append(CHOICES, {**kept, "text": one.text})
        if self.held:
            free = [(row, one) for row, one in self.unaided(self.held) if one is not None]
            if free:
                found["unaided"] = figures(free)
        print(f"{stage}: {_line(found)}", file=sys.stderr, flush=True)
        return found

    # ------------------------------------------------------------ training

    def _train(self, stage: str, epochs: float, rate: float) -> float:
        """Train; leaves the weights of the pass that chose best on the tasks that are not learned, those before the first among them."""
        model = self.backbone.model
        loss = self._loss(stage)
        optimizer = torch.optim.AdamW(groups(model, WEIGHT_DECAY), lr=rate, betas=BETAS)
        per_epoch = len(choosing.batches(self._drawn(), self.settings.batch_tokens))
        num_steps = max(1, round(epochs * per_epoch))
        best, kept, kept_at, step = -math.inf, None, 0.0, 0
        if (before := self._score(stage)) is not None:
            best, kept = before, copy.deepcopy(model.state_dict())
        while step < num_steps:
            packs = choosing.batches(self._drawn(), self.settings.batch_tokens)
            self.rng.shuffle(packs)
            model.train()
            for pack in packs[: num_steps - step]:
                with self._half():
                    value, reward = loss(model, choosing.lay_out(pack, self.device))
                value.backward()
                norm = torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
                for group in optimizer.param_groups:
                    group["lr"] = _rate(step, num_steps, rate)
                if torch.isfinite(norm):
                    optimizer.step()
                optimizer.zero_grad(set_to_none=True)
                step += 1
            done = step / per_epoch
            score = self._score(stage)
            row = {"stage": stage, "epoch": round(done, 2), "loss": float(value.detach())}
            self.run.append("metrics.jsonl", {**row, "reward": float(reward), "checked": score})
            if score is not None and score > best:
                best, kept_at = score, done
                kept = copy.deepcopy(model.state_dict())
        if kept is None:
            return round(step / per_epoch, 2)
        model.load_state_dict(kept)
        return round(kept_at, 2)

    def _loss(self, stage: str) -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
        if stage == "start":
            return lambda model, batch: choosing.started(model, batch, SHARPNESS)
        if stage == "reward":
            return lambda model, batch: choosing.expected(model, batch, ENTROPY)
        return lambda model, batch: choosing.weighted(model, batch, SHARPNESS, WRITTEN)

    def _drawn(self) -> list[ChoiceRow]:
        """The rows of a pass: some of each task's answers, the default and the best among them."""
        result = []
        for row in map(self._row, self.learned):
            best = max(range(len(row.gains)), key=lambda i: row.gains[i])
            always = sorted({0, best})
            others = [i for i in range(len(row.gains)) if i not in always]
            more = self.rng.sample(others, min(len(others), ANSWERS - len(always)))
            result.append(row.kept([*always, *more]))
        return result

    def _row(self, task: MeasuredTask) -> ChoiceRow:
        key = task.task.id + task.backend
        if key not in self.tokens:
            plans = known_plans(task)
            plans.sort(key=lambda plan: plan.kind != "default")
            gains = [math.log(p.speedup) if p.speedup else choosing.WRONG for p in plans]
            self.tokens[key] = ChoiceRow(
                self.backbone.encode(ask(task.question)),
                [self.backbone.encode_answer(plan.text) for plan in plans],
                gains,
                task.task.name,
            )
        return self.tokens[key]

    def _score(self, stage: str) -> float | None:
        """Mean log-speedup of the choices on the tasks kept for checking."""
        if not self.checked or stage == "start":
            return None
        gains = [
            math.log(one.plan.speedup) if one.plan and one.plan.speedup else choosing.WRONG
            for one in self.chosen(self.checked)
        ]
        return sum(gains) / len(gains)

    def _half(self) -> Any:
        on_gpu = self.device.type == "cuda"
        return torch.autocast("cuda", torch.bfloat16) if on_gpu else nullcontext()

    # ------------------------------------------------------------ choosing

    def chosen(self, tasks: Sequence[MeasuredTask]) -> list[Chosen]:
        """The likeliest of each task's known plans."""
        self.backbone.model.eval()
        rows = {id(row): task for task in tasks for row in [self._row(task)]}
        found: dict[str, Chosen] = {}
        for pack in choosing.batches([self._row(task) for task in tasks], EVAL_TOKENS):
            with self._half():
                picks = choosing.best(self.backbone.model, choosing.lay_out(pack, self.device))
            for row, pick in zip(pack, picks, strict=True):
                task = rows[id(row)]
                plans = sorted(known_plans(task), key=lambda plan: plan.kind != "default")
                found[task.task.id + task.backend] = Chosen(plans[pick].text, plans[pick])
        return [found[task.task.id + task.backend] for task in tasks]

    def unaided(self, tasks: Sequence[MeasuredTask]) -> list[tuple[MeasuredTask, Chosen | None]]:
        """The likeliest plan of the composer's own list, as it is played without a table; None for what cannot be captured here."""
        if self.lists is None:
            self.lists = composed_lists(tasks)
        asked = [
            ask(task.question).model_copy(update={"choices": choices})
            for task, choices in zip(tasks, self.lists, strict=True)
            if choices
        ]
        answers = iter(self.backbone.generate(asked, Sampling(temperature=0.0)))
        texts = [next(answers).text if choices else None for choices in self.lists]
        return [
            (task, Chosen(text, _known(task, text)) if text is not None else None)
            for task, text in zip(tasks, texts, strict=True)
        ]


def composed_lists(rows: Sequence[MeasuredTask]) -> list[tuple[str, ...]]:
    """The composer's list of plans for each task; empty where it cannot be captured here."""
    found: dict[int, tuple[str, ...]] = {}
    for index, captured in capture_many(
        (row.task for row in rows), num_workers=machine.num_cores()
    ):
        if not isinstance(captured, CannotCompose):
            row = rows[index]
            found[index] = answers(TaskContext(row.task, captured, row.backend))
    return [found.get(index, ()) for index in range(len(rows))]


def _known(task: MeasuredTask, text: str) -> MeasuredPlan | None:
    return next((plan for plan in known_plans(task) if plan.text == text), None)


def _rate(step: int, num_steps: int, rate: float) -> float:
    warm = max(1, num_steps // 20)
    if step < warm:
        return rate * (step + 1) / warm
    return rate * 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, num_steps - warm)))


def _line(found: dict[str, Any]) -> str:
    held = found.get("heldout") or found["training"]
    return (
        f"right {held['right']:.1%}, geometric mean {held['geomean']:.3f} "
        f"(default {held['default']:.3f}, oracle {held['oracle']:.3f}), closed {held['closed']:.1%}"
    )


def table_lines(told: dict[str, Any]) -> Iterator[str]:
    """The figures as a table for people."""
    yield "| stage | tasks | right | fast_1 | fast_1.2 | fast_1.5 | fast_2 | geometric mean | closed | unknown |"
    yield "|---|---|---|---|---|---|---|---|---|---|"
    for stage in STAGES:
        for kind in ("training", "heldout", "unaided"):
            if stage in told and kind in told[stage]:
                found = told[stage][kind]
                if not found["fast"]:
                    yield f"| {stage}, {kind} | {found['tasks']} | {'- | ' * 7}{found['unknown']} |"
                    continue
                fast = " | ".join(f"{found['fast'][p]:.1%}" for p in ("1", "1.2", "1.5", "2"))
                lo, hi = found["closed_interval"]
                yield (
                    f"| {stage}, {kind} | {found['tasks']} | {found['right']:.1%} | {fast} | {found['geomean']:.3f} "
                    f"| {found['closed']:.0%} [{lo:.0%}, {hi:.0%}] | {found['unknown']} |"
                )

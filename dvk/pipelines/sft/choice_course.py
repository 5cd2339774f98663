"""The stages of `dvk sft choose`: a model, the rows that it learns, and the figures after each stage.

    start     the composer's own plan, and all others alike: nothing that was measured
    fit       what a plan is worth on average: gains pooled over tasks (`dvk.learn.pooled`)
    reward    when it is worth that: REINFORCE on each task's own question and gains, near the policy of `fit`; off by default

In the first two stages each row has the question of a task drawn at random, so that no task can be memorized; in the last one some rows.

How many passes a stage makes over the rows is chosen by cross-validation: the rows are dealt to folds, and for each fold a model learns
the others from the start on. The pass after which these models chose best for the tasks that they had not learned is where the model that
learns all rows stops; no pass at all, if none was better than what came before.
"""

from __future__ import annotations

import copy
import math
import random
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from statistics import fmean, stdev
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
from dvk.composer.codegen.base import takes_time_loops
from dvk.config import ChooseConfig, Config
from dvk.learn import choosing
from dvk.learn.choosing import ChoiceBatch, ChoiceRow
from dvk.learn.learner import BETAS, CLIP, WEIGHT_DECAY, groups
from dvk.learn.pooled import PooledGains
from dvk.pipelines.sft.choice_figures import Chosen, figures
from dvk.records.measured import MeasuredPlan, MeasuredTask
from dvk.runs import RunFolder

STAGES = ("start", "fit", "reward")
CHOICES = "choices.jsonl"
"""The chosen plan of each task after each stage."""
EVAL_TOKENS = 32768
"""Tokens of a pass without gradients."""
SHARPNESS = 0.02
"""A plan slower than the best by this log-speed weighs 1/e as much in the fit."""
ANSWERS = 16
"""Most plans of a task in one step; drawn for each pass."""

Weights = dict[str, torch.Tensor]


def known_plans(row: MeasuredTask) -> list[MeasuredPlan]:
    """Plans with words and a verdict about themselves, each text once."""
    plans: dict[str, MeasuredPlan] = {}
    for plan in row.plans:
        if plan.text and plan.is_known:
            plans.setdefault(plan.text, plan)
    return list(plans.values())


class Course:
    """See the module.

    Args:
        run: its metrics, choices and checkpoints.
        backbone: the model, changed by each stage.
        rows, held: the tasks to learn, and those that are only looked up.
    """

    def __init__(
        self,
        run: RunFolder,
        backbone: HfBackbone,
        rows: Sequence[MeasuredTask],
        held: Sequence[MeasuredTask],
        config: Config,
    ):
        self.run, self.backbone, self.learned, self.held = run, backbone, list(rows), held
        self.settings: ChooseConfig = config.choose
        self.seed = config.seed
        self.device = backbone.model.device
        torch.manual_seed(config.seed)
        order = random.Random(config.seed).sample(self.learned, len(self.learned))
        self.folds = folds(order, self.settings.folds)
        self.begun: Weights = {}
        """After `start`, where each fold's model begins."""
        self.passes: dict[str, int] = {}
        """Of the finished stages after `start`."""
        self.tokens: dict[str, ChoiceRow] = {}
        self.lists: list[tuple[str, ...]] | None = None

    def resumed(self, stage: str, backbone: HfBackbone, found: Mapping[str, Any]) -> None:
        """Take a finished stage's model and passes."""
        self.backbone = backbone
        self._finished(stage, int(found["passes"]))

    def _finished(self, stage: str, passes: int) -> None:
        if stage == "start":
            self.begun = self._weights() if self.folds else {}
        else:
            self.passes[stage] = passes

    def play(self, stage: str) -> dict[str, Any]:
        """One stage; its figures on the held-out tasks."""
        began = time.monotonic()
        found: dict[str, Any] = {}
        most = math.ceil(self._epochs(stage))
        passes = most
        if self.folds and most and stage != "start":
            scores = self._cross_validated(stage)
            passes = best_pass(scores)
            found["cross_validated"] = {"before": fmean(scores[0]), "kept": fmean(scores[passes])}
        for _ in self.train(stage, self.learned, passes):
            pass
        self._finished(stage, passes)
        seconds = time.monotonic() - began
        folder = self.run.path / "checkpoints" / stage
        shutil.rmtree(folder, ignore_errors=True)  # of a killed run, without its figures
        self.backbone.save(folder)
        found |= {"checkpoint": str(folder), "train_s": round(seconds, 1), "passes": passes}
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

    def _cross_validated(self, stage: str) -> list[list[float]]:
        """Log-speedups chosen for tasks that were not learned, before the stage and after each of its passes."""
        kept = self._weights()
        scores: list[list[float]] = [[] for _ in range(math.ceil(self._epochs(stage)) + 1)]
        for number, fold in enumerate(self.folds):
            names = {row.task.id for row in fold}
            rows = [row for row in self.learned if row.task.id not in names]
            self._load(self.begun)
            for earlier, passes in self.passes.items():
                for _ in self.train(earlier, rows, passes, number):
                    pass
            scores[0] += self._gained(fold)
            for done, _ in enumerate(self.train(stage, rows, None, number), start=1):
                scores[done] += self._gained(fold)
        self._load(kept)
        means = [fmean(one) for one in scores]
        self.run.append("metrics.jsonl", {"stage": stage, "cross_validated": means})
        return scores

    def train(
        self, stage: str, rows: Sequence[MeasuredTask], passes: int | None, fold: int | None = None
    ) -> Iterator[int]:
        """Train, yielding after each pass; the rates are those of all of the stage's passes, however many are made.

        Args:
            passes: how many; None makes all.
            fold: number of the fold that is left out.
        """
        model = self.backbone.model
        epochs = self._epochs(stage)
        most = math.ceil(epochs) if passes is None else passes
        if not most:
            return
        loss = self._loss(stage)
        peak = self.settings.reward_rate if stage == "reward" else self.settings.rate
        rng = random.Random(f"{self.seed} {stage} {fold}")
        optimizer = torch.optim.AdamW(groups(model, WEIGHT_DECAY), lr=peak, betas=BETAS)
        exchanged = self.settings.exchanged if stage == "reward" else 1.0
        known = self._pooled(rows) if stage == "fit" else self._rows(rows)
        drawn = self._drawn(known, rng, exchanged)
        per_epoch = len(choosing.batches(drawn, self.settings.batch_tokens))
        num_steps, step = max(1, round(epochs * per_epoch)), 0
        for number in range(most):
            drawn = self._drawn(known, rng, exchanged)
            packs = choosing.batches(drawn, self.settings.batch_tokens)
            rng.shuffle(packs)
            model.train()
            for pack in packs[: num_steps - step]:
                with self._half():
                    value, reward = loss(model, choosing.lay_out(pack, self.device))
                value.backward()
                norm = torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
                for group in optimizer.param_groups:
                    group["lr"] = _rate(step, num_steps, peak)
                if torch.isfinite(norm):
                    optimizer.step()
                optimizer.zero_grad(set_to_none=True)
                step += 1
            told = {"loss": float(value.detach()), "reward": float(reward)}
            self.run.append(
                "metrics.jsonl", {"stage": stage, "fold": fold, "pass": number + 1, **told}
            )
            yield number

    def _epochs(self, stage: str) -> float:
        settings = self.settings
        return {
            "start": settings.start_epochs,
            "fit": settings.fit_epochs,
            "reward": settings.reward_epochs,
        }[stage]

    def _loss(self, stage: str) -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
        if stage == "start":
            return choosing.started
        if stage == "reward":
            earlier = copy.deepcopy(self.backbone.model).eval().requires_grad_(False)

            def reinforced(model: Any, batch: ChoiceBatch) -> tuple[torch.Tensor, torch.Tensor]:
                with torch.no_grad():
                    before = choosing.likelihoods(earlier, batch)
                return choosing.reinforced(model, batch, before, self.settings.kl)

            return reinforced
        return lambda model, batch: choosing.weighted(model, batch, SHARPNESS)

    def _drawn(
        self, known: Sequence[ChoiceRow], rng: random.Random, exchanged: float
    ) -> list[ChoiceRow]:
        """The rows of a pass: some of each task's answers, the default and the best among them.

        Args:
            exchanged: share of the rows that have the question of a row drawn at random.
        """
        result = []
        for row in known:
            best = max(range(len(row.gains)), key=lambda i: row.gains[i])
            always = sorted({0, best})
            others = [i for i in range(len(row.gains)) if i not in always]
            more = rng.sample(others, min(len(others), ANSWERS - len(always)))
            kept = row.kept([*always, *more])
            if rng.random() < exchanged:
                kept = replace(kept, question=rng.choice(known).question)
            result.append(kept)
        return result

    def _rows(self, tasks: Sequence[MeasuredTask]) -> list[ChoiceRow]:
        return [self._row(task) for task in tasks]

    def _pooled(self, tasks: Sequence[MeasuredTask]) -> list[ChoiceRow]:
        """The rows with what their plans gain on average over these tasks."""
        rows = self._rows(tasks)
        texts = [[plan.text for plan in _ordered(task)] for task in tasks]
        pooled = PooledGains(zip(texts, (row.gains for row in rows), strict=True))
        return [
            replace(row, gains=[pooled.gain(text) for text in of_row])
            for row, of_row in zip(rows, texts, strict=True)
        ]

    def _row(self, task: MeasuredTask) -> ChoiceRow:
        key = _key(task)
        if key not in self.tokens:
            plans = _ordered(task)
            gains = [math.log(p.speedup) if p.speedup else choosing.WRONG for p in plans]
            self.tokens[key] = ChoiceRow(
                self.backbone.encode(ask(task.question)),
                [self.backbone.encode_answer(plan.text) for plan in plans],
                gains,
                task.task.name,
            )
        return self.tokens[key]

    def _gained(self, tasks: Sequence[MeasuredTask]) -> list[float]:
        """Log-speedups of the choices."""
        return [
            math.log(one.plan.speedup) if one.plan and one.plan.speedup else choosing.WRONG
            for one in self.chosen(tasks)
        ]

    def _weights(self) -> Weights:
        named = self.backbone.model.named_parameters()
        return {name: p.detach().clone() for name, p in named if p.requires_grad}

    @torch.no_grad()
    def _load(self, weights: Weights) -> None:
        for name, parameter in self.backbone.model.named_parameters():
            if name in weights:
                parameter.copy_(weights[name])

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
                plans = _ordered(task)
                found[_key(task)] = Chosen(plans[pick].text, plans[pick])
        return [found[_key(task)] for task in tasks]

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


def folds(rows: Sequence[MeasuredTask], most: int) -> list[list[MeasuredTask]]:
    """The rows in at most so many parts, a task's back ends in one: their gains are related. None if there are not two parts."""
    tasks = list(dict.fromkeys(row.task.id for row in rows))
    num = min(most, len(tasks))
    parts = [set(tasks[n::num]) for n in range(num)] if num > 1 else []
    return [[row for row in rows if row.task.id in part] for part in parts]


def best_pass(scores: Sequence[Sequence[float]]) -> int:
    """The best number of passes by the log-speedups that each gives the same tasks, at least two.

    It is 0, the state before the first pass, unless the best is better by more than two standard errors of its mean gain: the best of many
    numbers of passes is a little better by chance, and other families of tasks than these may lose by it.
    """
    best = max(range(len(scores)), key=lambda n: fmean(scores[n]))
    gains = [after - before for before, after in zip(scores[0], scores[best], strict=True)]
    return best if fmean(gains) > 2 * stdev(gains) / math.sqrt(len(gains)) else 0


def _key(task: MeasuredTask) -> str:
    return task.task.id + task.backend


def _ordered(task: MeasuredTask) -> list[MeasuredPlan]:
    """Known plans, the composer's own first."""
    return sorted(known_plans(task), key=lambda plan: plan.kind != "default")


def composed_lists(rows: Sequence[MeasuredTask]) -> list[tuple[str, ...]]:
    """The composer's list of plans for each task; empty where it cannot be captured here."""
    found: dict[int, tuple[str, ...]] = {}
    for index, captured in capture_many(
        (row.task for row in rows),
        num_workers=machine.num_cores(),
        rolls=[takes_time_loops(row.backend) for row in rows],
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

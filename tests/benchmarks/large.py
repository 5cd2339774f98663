"""Memory and time of a large model on one GPU: a LoRA update on long rows, and answers to long questions by dvk's own engine.

    python -m tests.benchmarks.large                                   # Qwen3-8B's shape, 16 rows of 32,768 tokens: 4 minutes on an H200
    python -m tests.benchmarks.large --shape 14b --rows 1 --parts update
    python -m tests.benchmarks.large --shape tiny --prompt 768 --answer 256 --rows 2 --questions 2 --writes 16    # on a CPU

Weights are random, settings are a recipe's, and the functions are those of `dvk train`: `Learner`, `update`, `HfBackbone`. One JSON object
a line as figures come. Memory is torch's, in GB of 10⁹ bytes.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from dvk import config as configuration
from dvk.backbone import Sampling
from dvk.backbone.hf import HfBackbone
from dvk.backbone.loading import Loaded, new_adapters
from dvk.cli import recipes
from dvk.config import Config, changed
from dvk.learn.learner import Learner
from dvk.learn.memory import update_bytes
from dvk.learn.reinforce import update
from dvk.learn.rows import TrainingRow
from tests.benchmarks.random_model import SHAPES, in_memory, tokenizer

PARTS = ("update", "answers", "again", "profile")
WARM = 8
"""Tokens of the answers that are written first: reading the questions, and capturing a step, take most of their time."""
KERNELS = 14
"""Kernels that a profile lists."""


class Report:
    """Writes figures as they come, with the most memory held since the last line (`peak_gb`) and since the last line of a part."""

    def __init__(self, path: Path | None, device: str):
        self.path, self.device = path, device
        self.began, self.most = time.perf_counter(), 0.0

    def say(self, **figures: Any) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()
            peak = torch.cuda.max_memory_allocated()
            figures["peak_gb"] = _gb(peak)
            figures["reserved_gb"] = _gb(torch.cuda.max_memory_reserved())
            torch.cuda.reset_peak_memory_stats()
            self.most = max(self.most, peak)
            if "part" in figures:
                figures["most_gb"], self.most = _gb(self.most), 0.0
        figures["at_s"] = round(time.perf_counter() - self.began, 1)
        line = json.dumps(figures)
        print(line, flush=True)
        if self.path is not None:
            with self.path.open("a") as file:
                file.write(line + "\n")


def _gb(number: float) -> float:
    return round(number / 1e9, 2)


@dataclass
class Setting:
    """What is measured."""

    model: Any
    config: Config
    prompt: int
    answer: int
    rows: int
    device: str
    report: Report
    draw: random.Random = field(default_factory=lambda: random.Random(0))

    def ids(self, count: int) -> list[int]:
        words = self.model.get_input_embeddings().weight.shape[0]
        return [self.draw.randrange(3, words) for _ in range(count)]

    def row(self, number: int) -> TrainingRow:
        sign = 1.0 if number % 2 else -1.0
        return TrainingRow.answer(self.ids(self.prompt), self.ids(self.answer), advantage=sign)


def predicted(model: Any, longest: int, config: Config) -> dict[str, float]:
    """What arithmetic says, GB: weights as they are, LoRA's gradients and optimizer state, and the product's estimate of an update."""
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    needed = update_bytes(model, longest, config.learning)
    return {
        "weights_gb": _gb(weights),
        "optimizer_gb": _gb(8 * trained),
        "update_gb": _gb(needed),
        "in_all_gb": _gb(weights + 8 * trained + needed),
    }


class Watch:
    """Reports micro-batches of an update as their forward pass begins: their number, and whether they are scored or learned."""

    def __init__(self, report: Report):
        self.report, self.counts = report, {"scored": 0, "learned": 0}
        self.first: dict[str, float] = {}

    def __call__(self, *_: Any) -> None:
        kind = "learned" if torch.is_grad_enabled() else "scored"
        if not self.counts[kind]:
            self.first[kind] = time.perf_counter()
            self.report.say(phase=kind)  # so that the peak of scoring is a separate figure
        self.counts[kind] += 1
        if self.counts[kind] % 4 == 0:
            self.report.say(phase=kind, micro_batches=self.counts[kind])


def learned(setting: Setting, rows: Sequence[TrainingRow], name: str, kl: float = 0.0) -> Learner:
    """Make one update, and report it."""
    model, report = setting.model, setting.report
    config = changed(setting.config, {"objective.kl": kl})
    learner = Learner(
        model, config.learning, config.objective.mini_batches, start=model if kl else None
    )
    longest = max(len(row.ids) for row in rows)
    report.say(part=name, predicted=predicted(model, longest, config), kl=kl)
    watch = Watch(report)
    handle = learner.scorer.register_forward_pre_hook(watch)
    began = time.perf_counter()
    figures = update(learner, rows, config)
    if setting.device == "cuda":
        torch.cuda.synchronize()
    took, tokens = time.perf_counter() - began, sum(len(row.ids) for row in rows)
    handle.remove()
    report.say(
        part=name,
        rows=len(rows),
        row_tokens=longest,
        seconds=round(took, 1),
        scoring_s=round(watch.first["learned"] - began, 1),
        tokens_per_s=round(tokens / took),
        loss=figures["loss"],
        grad_norm=figures["grad_norm"],
        kept=figures["kept"],
        **({"kl_nats": figures["kl"]} if kl else {}),
    )
    return learner


def answered(setting: Setting, backbone: HfBackbone, questions: int, writes: int) -> None:
    """Have the engine answer some questions four times each, and report how fast it reads and writes."""
    asked = [tuple(setting.ids(setting.prompt)) for _ in range(questions)]
    prompts = [prompt for prompt in asked for _ in range(4)]

    def run(tokens: int, seed: int) -> tuple[float, int]:
        began = time.perf_counter()
        done = backbone.complete(prompts, Sampling(max_tokens=tokens, temperature=1.0, seed=seed))
        took = time.perf_counter() - began
        return took, sum(len(one.tokens.completion) for one in done if one.tokens is not None)

    setting.model.eval()
    run(writes, 0)  # captures graphs, and makes room for the longest
    short, few = run(WARM, 1)
    setting.report.say(part="answers", reading_s=round(short, 2), questions=questions)
    long, many = run(writes, 2)
    slots = backbone.engine.slots if backbone.engine is not None else None
    assert slots is not None
    rate = (many - few) / max(long - short, 1e-9)
    setting.report.say(
        part="answers",
        answers=len(prompts),
        at_once=slots.count,
        capacity=slots.capacity,
        cache_gb=_gb(sum(k.nbytes + v.nbytes for k, v in slots.cache)),
        tokens=many,
        seconds=round(long, 2),
        written_per_s=round(rate, 1),
        reading_tokens_per_s=round(questions * setting.prompt / short),
    )


def profiled(report: Report, name: str, work: Callable[[], Any]) -> None:
    """The kernels that take the most time."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        work()
        torch.cuda.synchronize()
    spent = [(one.key, one.self_device_time_total, one.count) for one in seen.key_averages()]
    total = sum(time for _, time, _ in spent) or 1.0
    most = sorted(spent, key=lambda one: -one[1])[:KERNELS]
    kernels = [[key[:90], f"{100 * time / total:.1f} %", count] for key, time, count in most]
    report.say(part=name, device_s=round(total / 1e6, 2), kernels=kernels)


def measure(given: argparse.Namespace) -> None:
    """Everything that was asked for."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    report = Report(given.out, device)
    config = configuration.load(recipe=recipes.read("train", given.recipe))
    base = in_memory(given.shape, device)
    model = new_adapters(base, config.backbone.lora_rank)
    report.say(
        part="made",
        shape=given.shape,
        device=torch.cuda.get_device_name() if device == "cuda" else "cpu",
        parameters=sum(p.numel() for p in base.parameters()),
        trained=sum(p.numel() for p in model.parameters() if p.requires_grad),
    )
    setting = Setting(
        model, config, given.prompt, given.answer, given.rows, device=device, report=report
    )
    rows = [setting.row(number) for number in range(given.rows)]
    backbone = HfBackbone(Loaded(model, tokenizer(), {}), config.backbone, given.shape)
    if "update" in given.parts:
        learned(setting, rows, "update")
    if "answers" in given.parts:
        answered(setting, backbone, given.questions, given.writes)
        backbone.release()
        held = torch.cuda.memory_allocated() if device == "cuda" else 0
        report.say(part="released", held_gb=_gb(held))
    if "again" in given.parts:
        learned(setting, rows[:1], "again", kl=0.01)
    if "profile" in given.parts and device == "cuda":
        learner = Learner(model, config.learning, 1)
        profiled(report, "profile of an update", lambda: update(learner, rows[:1], config))
        model.eval()
        prompts = [tuple(setting.ids(given.prompt))]
        few = Sampling(max_tokens=64, temperature=1.0, seed=0)
        backbone.complete(prompts * 4, few)
        profiled(report, "profile of answers", lambda: backbone.complete(prompts * 4, few))
        backbone.release()


def main(arguments: Sequence[str] | None = None) -> None:
    """See the module."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shape", choices=sorted(SHAPES), default="8b")
    parser.add_argument("--recipe", default="qwen3-8b", help="of `dvk train`")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--prompt", type=int, default=24_576, help="tokens")
    parser.add_argument("--answer", type=int, default=8_192, help="tokens of a row's answer")
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--questions", type=int, default=2, help="each answered four times")
    parser.add_argument("--writes", type=int, default=192, help="tokens of the engine's answers")
    parser.add_argument("--out", type=Path, help="file that the lines are added to")
    measure(parser.parse_args(arguments))


if __name__ == "__main__":
    main()

"""A world in which the whole loop turns in a second: two tasks, two skills, a model of a hundred thousand parameters that knows
them by heart, and verdicts that are a function of the candidate.

    python -m tests.pipelines.world OUT        # `dvk train` in it; resumes what is in OUT
    python -m tests.pipelines.world --renew    # write down the golden trajectory again, with the model there is
    python -m tests.pipelines.world --teach    # teach the model again (minutes), then the same

Only the judge is replaced: what it would measure differs by machine and moment. Renew when the trajectory is meant to change: after
a change of credit, of the loss, of what is drawn or counted; what changed is then to be seen in the diff of trajectory.json. Teach
when prompts, the compact dialect or the tokenizer have changed: the model knows the old ones by heart and nothing else.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from dvk import nanolang, tasks
from dvk.agents import TaskContext, run_episodes, trials
from dvk.backbone import Completion, Conversation, Sampling, TokenUsage, nano
from dvk.composer.capture.export import trace
from dvk.config import Config
from dvk.harness.queue import JudgeQueue
from dvk.learn.examples import Example, ExampleTask
from dvk.learn.sources import InMemory
from dvk.pipelines.sft.fit import fit
from dvk.pipelines.train import TrainRequest, train
from dvk.records import (
    Candidate,
    Episode,
    Interval,
    Skill,
    Status,
    Task,
    Timing,
    Verdict,
    content_hash,
)
from dvk.runs import RunFolder
from dvk.skills import Library

FILES = Path(__file__).resolve().parent / "files" / "golden"
MODEL, TRAJECTORY = FILES / "model", FILES / "trajectory.json"
STEPS = 3
SOURCE = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.{operator}(x * {factor}) + x

def get_inputs():
    return [torch.randn({rows}, 96)]

def get_init_inputs():
    return []
"""
TASKS = {"chain_relu": ("relu", 2.0, 40), "chain_tanh": ("tanh", 3.0, 56)}
NOTES = {
    "flat_loop": ("everything is pointwise and contiguous", "one flat loop over all elements"),
    "keep_rows": ("rows are long", "leave the operators as they are"),
}
LEARNT = "skill flat_indices\nwhen pointwise chains\ndo index elements one by one"
"""A good summary's answer."""
CONFIG = Config.model_validate(
    {
        "seed": 3,
        "train": {"tasks_per_step": 2, "validate_every": 2, "rate": 3e-4, "keep_every": 100},
        "rollout": {
            "schemes": 2,
            "rollouts": 2,
            "turns": 2,
            "summaries": 3,
            "batch": 32,
            "judges": 1,
        },
        "agents": {"num_candidates": 4, "num_chosen": 1, "num_new_skills": 1},
        "trials": {"samples": 6, "siblings": 1, "relative": 1.05, "level": 0.8},
        "library": {"every": 2},
        "learning": {
            "rate": 4e-3,
            "pack_tokens": 1024,
            "batch_tokens": 4096,
            "micro_packs": 1,
            "warmup": 0.05,
        },
        "fit": {"epochs": 16, "save_every": 10_000, "held_out": 0.0},
        "credit": {"mismatch": 0.01},
        "objective": {"kl": 0.02},
    }
)


class Recorded(JudgeQueue[Any]):
    """A judge whose verdicts are known, at once and in the order asked."""

    def __init__(self, *given: Any, **named: Any):
        super().__init__(*given, **named)
        self._known: list[tuple[Any, Verdict]] = []

    def submit(self, name: Any, task: Task, candidate: Candidate) -> None:
        self.num_pending += 1
        self._known.append((name, verdict(task, candidate)))

    def results(self, *, wait: bool) -> list[tuple[Any, Verdict]]:
        found, self._known = self._known, []
        self.num_pending -= len(found)
        return found


def verdict(task: Task, candidate: Candidate) -> Verdict:
    """Tiles are wrong, the task's own operators as fast as eager, loops faster, those over indices most."""
    text = candidate.source
    if "cdiv(s0*s1, 1024)" in text or "p * 1024" in text:
        return Verdict(
            status=Status.MISMATCH,
            tier="search",
            stage="check",
            error="largest error 1.5 at [0, 3]",
            num_checks=1,
        )
    speed = 1.9 if "long i0" in text else 1.3 if "long t " in text else 1.0
    speed *= 1 + int(content_hash(task.name), 16) % 7 / 100
    interval = Interval(value=speed, lo=0.98 * speed, hi=1.02 * speed)
    timing = Timing(
        candidate_ms=1.0, reference_ms=speed, speedup=interval, num_pairs=5, seconds=0.0
    )
    return Verdict(
        status=Status.OK,
        tier="search",
        stage="done",
        num_checks=1,
        timing=timing,
        coverage=0.0 if speed < 1.1 else 0.9,
    )


class Teacher:
    """Gives a suitable random answer of this world's model, and remembers it."""

    name, dialect = "teacher", "compact"

    def __init__(self, texts: dict[str, list[str]]):
        self.usage, self.texts, self.said = TokenUsage(), texts, []
        self.rng = random.Random(0)

    def generate(
        self, conversations: Sequence[Conversation], sampling: Sampling
    ) -> list[Completion]:
        return [self._answer(conversation) for conversation in conversations]

    def _answer(self, conversation: Conversation) -> Completion:
        first, last = conversation.messages[0]["content"], conversation.messages[-1]["content"]
        asked = last.rstrip().rpartition("\n")[2].split()[0]
        if asked == "select":
            offered = last.count(" | ") // 2
            text = self.rng.choice(
                [*(f"select {number}" for number in range(1, offered + 1)), "select none"]
            )
        elif asked == "learn":
            text = self.rng.choice([LEARNT, LEARNT, "none"])
        else:
            flat, index, other, tiled = self.texts[
                first.partition("\nwrite")[0].partition("\nskill")[0]
            ]
            taught = "flat_indices" in first or "flat_loop" in first
            text = self.rng.choices(
                [flat, index, other, tiled], [1, 6, 0, 1] if taught else [4, 2, 2, 1]
            )[0]
        self.said.append((conversation.messages, text))
        return Completion(text=text, finish="stop")


def problems(folder: Path) -> Path:
    """The tasks as files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, (operator, factor, rows) in TASKS.items():
        (folder / f"{name}.py").write_text(
            SOURCE.format(operator=operator, factor=factor, rows=rows)
        )
    return folder


def library(path: Path) -> Path:
    """The skills the world begins with."""
    with Library.open(path, create=True) as made:
        for name, (when, do) in NOTES.items():
            body = f"## Motivation\nSeen.\n\n## Key Idea\n{do}\n\n## Note\nwhen {when}\ndo {do}\n"
            said = f"{do} for relu, tanh, mul and add; {when}"
            made.add(
                Skill(
                    name=name, description=said, scope="operator", tags=("relu", "tanh"), body=body
                )
            )
    return path


def subjects(folder: Path) -> list[TaskContext]:
    """The tasks as they are played."""
    found = []
    for path in sorted(folder.glob("*.py")):
        task = tasks.load(str(path), device="cpu", limits=CONFIG.limits)
        found.append(TaskContext(task, trace(task), "cpp"))
    return found


def request(home: Path, out: Path, steps: int) -> TrainRequest:
    """`dvk train` in this world; tasks and library lie in `home`."""
    known, files = home / "begin.db", problems(home / "tasks")
    if not known.exists():
        library(known)
    return TrainRequest(
        start=f"nano:{MODEL}",
        steps=steps,
        tasks=files,
        validation=files,
        library=known,
        backend="cpp",
        device="cpu",
        workers=1,
        out=out,
        resume=True,
        quiet=True,
    )


def run(home: Path, out: Path, steps: int = STEPS, config: Config = CONFIG) -> dict[str, Any]:
    """Train here; one thread, so that sums are added in one order."""
    import dvk.pipelines.train as pipeline

    real, threads = pipeline.JudgeQueue, torch.get_num_threads()
    pipeline.JudgeQueue = Recorded  # type: ignore[misc]
    torch.set_num_threads(1)
    try:
        return train(request(home, out, steps), config)
    finally:
        pipeline.JudgeQueue = real  # type: ignore[misc]
        torch.set_num_threads(threads)


# ---------------------------------------------------------------- renewal


def teach(out: Path) -> None:
    """A model of this world, in `out`."""
    with tempfile.TemporaryDirectory() as place:
        home = Path(place)
        played = subjects(problems(home / "tasks"))
        texts = {}
        for subject in played:
            assert subject.captured is not None
            written = {
                v.text
                for seed in range(4)
                for v in nanolang.variants(subject.captured, "cpp", random.Random(seed), 12)
            }
            pick = {
                "flat": [t for t in written if t.startswith("k0:\n  #pragma") and "long t " in t],
                "index": [t for t in written if t.startswith("k0:\n  #pragma") and "long i0" in t],
                "other": [t for t in written if "aten" in t and "k0" not in t],
                "tiled": [t for t in written if t.startswith("k0:\n  for") and "1024" in t],
            }
            listing = nanolang.prompt(subject.captured.graph, "cpu", "cpp").rstrip("\n")
            texts[listing] = [
                sorted(found, key=lambda t: (len(t), t))[0] for found in pick.values()
            ]
        teacher = Teacher(texts)
        with Library.open(library(home / "begin.db")) as known, Recorded(1, CONFIG) as judging:
            for step in range(14):
                episodes = list(
                    run_episodes(played, teacher, known, CONFIG, judging=judging, step=step)
                )
                tried = trials.try_skills(
                    trials.proposals(episodes),
                    {s.task.id: s for s in played},
                    teacher,
                    known,
                    CONFIG,
                    judging,
                    step,
                )
                if step >= 6:  # so that it also knows how to select from three
                    trials.admit(known, tried, step)
        found = []
        for messages, text in teacher.said:
            said = (*messages, {"role": "assistant", "content": text})
            found.append(
                Example.new(
                    kind="policy",
                    messages=said,
                    task=ExampleTask(id="w"),
                    origin="world",
                    backend="cpp",
                )
            )
        print(len(found), "answers,", len({e.model_dump_json() for e in found}), "different")
        shape = nano.NanoSize(2, 48, 2, 1, 32, 128)
        texts_said = [str(m["content"]) for e in found for m in e.messages]
        base = nano.make(
            home / "base", texts_said, size=shape, vocabulary=400, positions=1024, seed=0
        )
        with RunFolder.open(
            home / "fit", command="sft", name="w", argv=(), config=CONFIG, resume=False
        ) as fitted:
            told = fit(fitted, InMemory(found), f"nano:{base}", CONFIG)
        print(
            {k: told[k] for k in ("steps", "targets", "fitted_s")}, fitted.read("metrics.jsonl")[-1]
        )
        from transformers import AutoModelForCausalLM

        small = AutoModelForCausalLM.from_pretrained(told["checkpoint"], dtype=torch.float16)
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(
            told["checkpoint"], out, ignore=shutil.ignore_patterns("*.safetensors", "*.pt")
        )
        small.save_pretrained(out)


def trajectory(home: Path, config: Config = CONFIG) -> dict[str, Any]:
    """A short training's result: figures of each step, the conversations, the library, and sum and norm of every weight."""
    out = home / "run"
    run(home, out, config=config)
    rows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    said = []
    for path in sorted((out / "episodes").glob("*.jsonl")):
        episodes = sorted(
            (Episode.model_validate_json(line) for line in path.read_text().splitlines()),
            key=lambda e: e.task.name,
        )
        said.append(
            content_hash(
                *(turn.completion for e in episodes for trace in e.traces for turn in trace.turns)
            )
        )
    with Library.open(out / "skills.db") as known:
        skills = {skill.name: [e.get("gain") for e in skill.evidence] for skill in known.list()}
    weights = load_file(out / "checkpoints" / f"step_{STEPS:06d}" / "model.safetensors")
    return {
        "rows": [{k: v for k, v in row.items() if not k.endswith("_s")} for row in rows],
        "said": said,
        "skills": skills,
        "weights": {
            name: [float(w.double().sum()), float(w.double().norm())]
            for name, w in sorted(weights.items())
        },
    }


def main() -> None:
    """The command line above."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--renew", action="store_true")
    parser.add_argument("--teach", action="store_true")
    given = parser.parse_args()
    if given.out is not None:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        print(json.dumps(run(given.out.parent, given.out, given.steps)))
    if given.teach:
        teach(MODEL)
    if given.renew or given.teach:
        with tempfile.TemporaryDirectory() as place:
            TRAJECTORY.write_text(json.dumps(trajectory(Path(place)), indent=1) + "\n")


if __name__ == "__main__":
    main()

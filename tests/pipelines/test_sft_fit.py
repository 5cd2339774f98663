"""Fitting a nano from nothing on a handful of examples: it learns, and a killed fit ends where an uninterrupted one does."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from transformers import GPT2Config, GPT2LMHeadModel

from dvk.backbone import Conversation, Sampling, open_backbone
from dvk.config import Config
from dvk.errors import UsageError
from dvk.learn.examples import Example, ExampleTask, write
from dvk.learn.sources import InMemory, OnDisk
from dvk.pipelines.sft import tokens
from dvk.pipelines.sft.export import THRESHOLDS, export
from dvk.pipelines.sft.fit import extend_positions, fit, newest, trainable
from dvk.pipelines.sft.quality import Quality
from dvk.pipelines.sft.stages import best as improving
from dvk.pipelines.sft.tokens import Rendering, is_held_out
from dvk.runs import RunFolder
from tests.pipelines.sft_fits import examples, settings


def opened(folder: Path, config: Config, *, resume: bool = False) -> RunFolder:
    return RunFolder.open(
        folder, command="sft", name="test", argv=("dvk",), config=config, resume=resume
    )


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("runs") / "whole"
    with opened(folder, settings()) as run:
        return folder, fit(run, examples(), "nano-from-zero", settings())


def test_it_learns_and_its_checkpoint_is_a_nano(fitted: tuple[Path, dict[str, Any]]) -> None:
    folder, figures = fitted
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert rows[0]["loss"] > 3 and rows[-1]["loss"] < 0.5 and rows[-1]["held_out_loss"] < 1.5
    assert [r["step"] for r in rows] == list(range(1, figures["steps"] + 1))
    backbone = open_backbone(f"nano:{figures['checkpoint']}")
    question = Conversation(
        messages=({"role": "user", "content": "cpp s0=7\nv0 = tanh(x0)\nwrite"},)
    )
    (answer,) = backbone.generate([question], Sampling(temperature=0.0, max_tokens=40))
    assert "tanh" in answer.text and answer.finish == "stop"


@pytest.mark.slow
def test_a_killed_fit_ends_where_the_uninterrupted_one_does(
    fitted: tuple[Path, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    from dvk.learn.learner import Learner

    class Killed(BaseException):
        pass

    step = Learner.step

    def dies(self: Learner, *args: Any, **rest: Any) -> dict[str, float]:
        if self.step_number == 17:
            raise Killed
        return step(self, *args, **rest)

    folder, figures = fitted
    with monkeypatch.context() as patch:
        patch.setattr(Learner, "step", dies)
        with pytest.raises(Killed), opened(tmp_path / "cut", settings()) as run:
            fit(run, examples(), "nano-from-zero", settings())
    assert (
        newest(tmp_path / "cut" / "checkpoints") == tmp_path / "cut" / "checkpoints" / "step_000010"
    )
    with opened(tmp_path / "cut", settings(), resume=True) as run:
        again = fit(run, examples(), "nano-from-zero", settings())
    whole, resumed = (
        trainable(f"nano:{figures['checkpoint']}", Config()),
        trainable(f"nano:{again['checkpoint']}", Config()),
    )
    for one, other in zip(whole.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(one, other)


def test_what_learns_from_longer_rows_is_asked_longer_questions(
    fitted: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    longer = settings(max_steps=1)
    longer = longer.model_copy(
        update={"learning": longer.learning.model_copy(update={"pack_tokens": 384})}
    )
    with opened(tmp_path / "longer", longer) as run:
        made = fit(run, examples(), f"nano:{fitted[1]['checkpoint']}", longer)
    question = Conversation(messages=({"role": "user", "content": " ".join(["tanh"] * 100)},))
    answers = [
        open_backbone(f"nano:{figures['checkpoint']}").generate(
            [question], Sampling(temperature=0.0, max_tokens=4)
        )[0]
        for figures in (fitted[1], made)
    ]
    assert [answer.finish == "error" for answer in answers] == [True, False]


def test_learned_positions_end_where_they_end() -> None:
    model = GPT2LMHeadModel(GPT2Config(n_positions=16, n_embd=8, n_layer=1, n_head=1, vocab_size=9))
    other: Any = SimpleNamespace(model=model, tokenizer=SimpleNamespace(model_max_length=16))
    extend_positions(other, 64)
    assert model.config.max_position_embeddings == other.tokenizer.model_max_length == 16


def test_every_answer_is_a_target_and_nothing_else(fitted: tuple[Path, dict[str, Any]]) -> None:
    backbone = trainable(f"nano:{fitted[1]['checkpoint']}", Config())
    example = examples(1)[0]
    rows = Rendering(backbone).example(example)
    text = "".join(
        backbone.tokenizer.decode([i for i, t in zip(ids, marks, strict=True) if t])
        for ids, marks in rows
    )
    assert "F.relu" in text and "relu_(x0)" in text and "again" not in text and "write" not in text
    assert sum(sum(marks) for _, marks in rows) == sum(
        len(backbone.encode_answer(m["content"]))
        for m in example.messages
        if m["role"] == "assistant"
    )


@pytest.mark.parametrize(
    "rounds, learned",
    [
        ((), [True, True]),
        ((None, 1.2), [False, True]),
        ((1.1, 1.2), [False, True]),
        ((1.3, 1.2), [True, True]),
        ((0.9, None), [True, True]),
    ],
)
def test_what_was_wrong_or_slower_is_shown_and_not_learned(
    fitted: tuple[Path, dict[str, Any]], rounds: tuple[float | None, ...], learned: list[bool]
) -> None:
    backbone = trainable(f"nano:{fitted[1]['checkpoint']}", settings())
    example = examples(1)[0].model_copy(update={"round_speedups": rounds})
    whole = Rendering(backbone.chat).example(examples(1)[0])
    masked = Rendering(backbone.chat).example(example)
    assert [ids for ids, _ in masked] == [ids for ids, _ in whole]
    answers = [
        len(backbone.encode_answer(m["content"]))
        for m in example.messages
        if m["role"] == "assistant"
    ]
    assert sum(sum(marks) for _, marks in masked) == sum(
        count for count, learn in zip(answers, learned, strict=True) if learn
    )


def test_held_out_tasks_are_held_out_whole() -> None:
    assert 120 < sum(is_held_out(f"task{number}", 0.1) for number in range(2000)) < 280
    assert is_held_out("a", 1.0) and not is_held_out("a", 0.0)


def test_what_cannot_be_fitted_says_so(tmp_path: Path) -> None:
    config = settings()
    with (
        opened(tmp_path / "a", config) as run,
        pytest.raises(UsageError, match="nothing to train on"),
    ):
        fit(run, InMemory(), "nano-from-zero", config)
    with (
        opened(tmp_path / "b", config) as run,
        pytest.raises(UsageError, match="cannot be trained"),
    ):
        fit(run, examples(), "scripted", config)


def test_best_steps_are_the_improving_ones() -> None:
    def row(number: int, **fields: Any) -> Example:
        said = (
            {"role": "user", "content": f"q{number}"},
            {"role": "assistant", "content": f"a{number}"},
        )
        return Example.new(
            kind="policy",
            messages=said,
            task=ExampleTask(id="t"),
            origin="test",
            verified=True,
            **fields,
        )

    parent = row(0, speedup=1.0, round_speedups=(1.0,))
    better, best, worse = (
        row(n, speedup=s, parent=parent.id, round_speedups=(1.0, s))
        for n, s in ((1, 1.3), (2, 1.6), (3, 0.9))
    )
    repaired = row(4, speedup=1.2, round_speedups=(None, 1.2))
    given = [parent, better, best, worse, repaired, row(5)]
    assert [e.id for e in improving(InMemory(given))] == [best.id]
    with pytest.raises(UsageError, match="no example improves"):
        improving(InMemory([parent, repaired]))


def test_quality_that_cannot_be_measured_is_said_once(tmp_path: Path) -> None:
    config = settings(quality_tasks=4)
    with opened(tmp_path / "run", config) as run, Quality(run, config, ()) as quality:
        for step in (10, 20):
            quality.begin(step, tmp_path)
        (row,) = quality.ready(wait=True)
        assert (
            row["step"] == 10
            and "executed" in row["quality_skipped"]
            and quality.ready(wait=True) == []
        )


@pytest.mark.slow
def test_checkpoints_are_measured_while_training_goes_on(
    fitted: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    """A model that writes nonsense is right on no task; a process without a checkpoint reports that."""
    config = settings(quality_tasks=1)
    with opened(tmp_path / "run", config) as run, Quality(run, config, ("cpp",)) as quality:
        quality.begin(10, Path(fitted[1]["checkpoint"]))
        quality.begin(20, Path(fitted[1]["checkpoint"]))
        first, second = sorted(quality.ready(wait=True), key=lambda row: row["step"])
        assert (first["quality_correct"], first["quality_tasks"]) == (
            0.0,
            1,
        ) and "still being measured" in second["quality_skipped"]
        quality.begin(30, tmp_path / "missing")
        (row,) = quality.ready(wait=True)
        assert row["step"] == 30 and "missing" in row["quality_skipped"]


def kinds_of(example: Example, **changes: Any) -> Example:
    made = example.model_copy(update=changes)
    return made.model_copy(update={"id": made.content_id()})


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_tokens_are_made_in_one_pass_as_they_are_defined(
    fitted: tuple[Path, dict[str, Any]],
    tmp_path: Path,
    workers: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Order, held-out tasks, rows that are too long, and played examples, repeated once there are renderings."""
    monkeypatch.setattr(tokens, "BLOCK", 7)
    chat = trainable(f"nano:{fitted[1]['checkpoint']}", Config()).chat
    given = examples(60)
    rendered = [5, 6, 20, 21, 22, 40]
    given = InMemory(
        kinds_of(e, quality={"family": "flat"}) if n in rendered else e for n, e in enumerate(given)
    )
    given[30] = kinds_of(
        given[30],
        messages=({"role": "user", "content": "x" * 400}, {"role": "assistant", "content": "no"}),
    )
    given[31] = kinds_of(
        given[31], kind="summary", verified=True, quality={"family": "flat"}
    )  # executed itself: no rendering
    write(tmp_path / "given.jsonl", given)
    monkeypatch.setattr(tokens, "PLAYED_REPEATS", 3)
    config = settings(held_out=0.3)
    made = tokens.tokenise(tmp_path, OnDisk([tmp_path / "given.jsonl"]), chat, config, "o", workers)
    for store, held in zip(made, (False, True)):
        wanted, kinds, too_long = [], Counter[str](), 0
        for number, example in enumerate(given):
            times = 3 if number > 5 and number not in rendered and not held else 1
            for ids, marks in (
                Rendering(chat).example(example) * times
                if is_held_out(example.task.id, 0.3) == held
                else ()
            ):
                if len(ids) > 256:
                    too_long += 1
                    continue
                wanted.append((ids, marks))
                kinds[example.kind] += 1
        assert [
            (store.row(i).ids, store.row(i).targets) for i in range(len(store))
        ] == wanted and len(wanted) > 10
        assert store.info["by_kind"] == kinds and store.info["too_long"] == too_long
    assert (
        made[0].info["too_long"] + made[1].info["too_long"] > 0
        and "summary" in made[0].info["by_kind"] | made[1].info["by_kind"]
    )


def test_tokens_are_cached_and_rebuilt_when_either_file_is_missing(
    fitted: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    chat = trainable(f"nano:{fitted[1]['checkpoint']}", Config()).chat
    tokens.tokenise(tmp_path, examples(), chat, settings(), "o", 1)
    again = tokens.tokenise(tmp_path, InMemory(), chat, settings(), "o", 1)[0]
    assert len(again) > 40, "what is there is not made again"
    shutil.rmtree(tmp_path / "held_out")
    train, held = tokens.tokenise(tmp_path, examples(30), chat, settings(), "o", 1)
    assert len(train) + len(held) == 30
    assert len(tokens.tokenise(tmp_path, examples(20), chat, settings(), "other", 1)[0]) <= 20


def test_an_export_is_the_checkpoint_rounded_with_a_card(
    fitted: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    import torch

    run, figures = fitted
    table = {
        "num_tasks": 3,
        "samples": 1,
        "turns": 1,
        "fast_p": dict.fromkeys(THRESHOLDS, 0.5),
        "geomean_kept": 1.25,
        "fast_p_interval": dict.fromkeys(THRESHOLDS, [0.25, 0.75]),
        "geomean_kept_interval": [1.1, 1.4],
    }
    (tmp_path / "greedy.json").write_text(json.dumps(table))
    told = export(run, tmp_path / "given", [tmp_path / "greedy.json"])
    given, kept = (
        trainable(f"nano:{folder}", Config()) for folder in (told["folder"], figures["checkpoint"])
    )
    for ours, theirs in zip(given.parameters(), kept.parameters(), strict=True):
        assert ours.dtype == torch.float32 and torch.equal(ours, theirs.bfloat16().float())
    card = (tmp_path / "given" / "README.md").read_text()
    assert (
        "| greedy | 3 | 1 × 1 | 50.0% [25%–75%] |" in card
        and f"step {figures['steps']}" in card
        and str(run) not in card
    )
    assert given.card["provenance"]["measured"]["greedy"]["geomean_kept"] == 1.25
    one_task = {
        **table,
        "num_tasks": 1,
        "fast_p_interval": dict.fromkeys(THRESHOLDS),
        "geomean_kept_interval": None,
    }
    (tmp_path / "one.json").write_text(json.dumps(one_task))
    export(run, tmp_path / "once", [tmp_path / "one.json"])
    assert (
        "| one | 1 | 1 × 1 | 50.0% | 50.0% | 50.0% | 50.0% | 50.0% | 1.25 |"
        in (tmp_path / "once" / "README.md").read_text()
    )
    with pytest.raises(UsageError, match="no evaluation"):
        export(run, tmp_path / "other", [run / "run.json"])
    with pytest.raises(UsageError, match="no checkpoint"):
        export(tmp_path, tmp_path / "other")


@pytest.mark.slow
def test_an_export_can_be_the_mean_of_two_checkpoints(
    fitted: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    import torch

    run, figures = fitted
    first = newest(run / "checkpoints").with_name("step_000010")  # type: ignore[union-attr]  # it was fitted
    told = export(run, tmp_path / "mean", mean_with=first)
    mean, last, before = (
        trainable(f"nano:{folder}", Config())
        for folder in (told["folder"], figures["checkpoint"], first)
    )
    for ours, a, b in zip(mean.parameters(), last.parameters(), before.parameters(), strict=True):
        assert torch.equal(ours, ((a + b) / 2).bfloat16().float())
    assert (
        "mean of its own and another checkpoint's (seed 0, step 10)"
        in (tmp_path / "mean" / "README.md").read_text()
    )
    with pytest.raises(UsageError, match="not of one model"):
        export(run, tmp_path / "other", mean_with=Path("data/nano"))


def test_a_mean_of_two_runs_that_went_on_from_one_model_names_both(
    fitted: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    for name, seed in (("mine", 41), ("other", 21)):
        checkpoint = tmp_path / name / "checkpoints" / "step_000010"
        shutil.copytree(fitted[0] / "checkpoints" / "step_000010", checkpoint)
        card = json.loads((checkpoint / "dvk.json").read_text())
        card["provenance"] |= {"seed": 12, "step": 6000, "stages": {}}
        (checkpoint / "dvk.json").write_text(json.dumps(card))
        manifest = json.loads((fitted[0] / "run.json").read_text())
        manifest["config"]["seed"] = seed
        (tmp_path / name / "run.json").write_text(json.dumps(manifest))
    told = export(tmp_path / "mine", tmp_path / "mean", mean_with=checkpoint)
    said = (tmp_path / "mean" / "README.md").read_text()
    assert (
        "(seed 41, step 10)" in said
        and "went on from another run's weights (seed 12, step 6,000)" in said
    )
    assert "another checkpoint's (seed 21, step 10)" in said
    assert (
        json.loads((Path(told["folder"]) / "dvk.json").read_text())["provenance"]["mean_with"][
            "seed"
        ]
        == 21
    )

"""Scoring and the step, on a tiny model."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from accelerate.state import AcceleratorState

from dvk.backbone.loading import new_adapters
from dvk.config import Config, LearningConfig, changed
from dvk.distributed import ProcessGroup
from dvk.errors import DvkError, UsageError
from dvk.learn.learner import Learner, Scored, opened, rate
from dvk.learn.packs import Packs, lay_out
from dvk.learn.rows import TrainingRow
from dvk.learn.scoring import Scorer
from tests.learn.tiny import tiny

ROWS = [
    TrainingRow.answer(list(range(3, 9)), [11, 12, 13]),
    TrainingRow.answer([9, 4], [40, 41, 42, 43, 2]),
    TrainingRow.answer([5], [6]),
]
SETTINGS = LearningConfig(rate=1e-2, precision="fp32", warmup=0.1)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_packed_scores_equal_each_row_alone(temperature: float) -> None:
    model = tiny().eval()
    packed, entropies = Scorer(model)(lay_out([ROWS[:2], ROWS[2:]], 24), temperature)
    alone = []
    for row in ROWS:
        logs = (model(torch.tensor([row.ids])).logits[0].float() / temperature).log_softmax(-1)
        alone += [logs[i - 1, row.ids[i]].item() for i in range(len(row.ids)) if row.targets[i]]
    torch.testing.assert_close(packed, torch.tensor(alone), atol=2e-5, rtol=0)
    assert (
        entropies.shape == packed.shape
        and bool((entropies > 0).all())
        and not entropies.requires_grad
    )


def test_gradients_do_not_depend_on_how_logits_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny()
    packs = lay_out([ROWS], 24)
    Scorer(model)(packs)[0].sum().backward()
    whole = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    monkeypatch.setattr("dvk.learn.scoring.LOGITS", 128)
    monkeypatch.setattr("dvk.learn.scoring.KEPT_LOGITS", 128)
    Scorer(model)(packs)[0].sum().backward()
    for one, other in zip(whole, (p.grad for p in model.parameters()), strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


def test_a_pack_without_targets_scores_nothing() -> None:
    row = TrainingRow([1, 2, 3], [False, False, False])
    logprobs, entropies = Scorer(tiny())(lay_out([[row]], 8))
    assert logprobs.shape == entropies.shape == (0,)


def steps(learner: Learner, count: int) -> list[float]:
    return [
        learner.step([lay_out([ROWS[:2]], 16), lay_out([ROWS[2:]], 16)])["loss"]
        for _ in range(count)
    ]


def test_steps_learn_and_micro_batches_add_up() -> None:
    one, other = tiny(seed=1), tiny(seed=1)
    cut, whole = Learner(one, SETTINGS, 20), Learner(other, SETTINGS, 20)
    first = cut.step([lay_out([ROWS[:2]], 16), lay_out([ROWS[2:]], 16)])
    second = whole.step([lay_out([ROWS], 24)])
    assert first["tokens"] == second["tokens"] == 9
    assert first["loss"] == pytest.approx(second["loss"], abs=1e-5) and first[
        "grad_norm"
    ] == pytest.approx(second["grad_norm"], rel=1e-3)
    assert steps(cut, 15)[-1] < 0.3 * first["loss"]


def test_weights_that_steps_would_not_move_are_refused() -> None:
    with pytest.raises(UsageError, match="16 bits"):
        Learner(tiny().to(torch.bfloat16), SETTINGS, 20)
    frozen = tiny().to(torch.bfloat16).requires_grad_(False)
    frozen.lm_head.weight = torch.nn.Parameter(frozen.lm_head.weight.float())
    Learner(frozen, SETTINGS, 20)


def test_what_is_trained_whole_is_opened_in_float32() -> None:
    whole = Config()
    assert opened(whole, ProcessGroup()).backbone.dtype == "float32"
    for settings, processes in (
        ({"backbone.lora_rank": 4}, ProcessGroup()),
        ({"backbone.dtype": "bfloat16"}, ProcessGroup()),
        ({"learning.sharding": "fsdp"}, ProcessGroup(size=2)),
    ):
        other = changed(whole, settings)
        assert opened(other, processes) == other


def test_a_restored_learner_makes_the_same_steps(tmp_path: Path) -> None:
    model = tiny(seed=2)
    learner = Learner(model, SETTINGS, 10)
    steps(learner, 4)
    learner.save(tmp_path)
    weights = copy.deepcopy(model.state_dict())
    expected = steps(learner, 4)
    again = tiny(seed=3)
    again.load_state_dict(weights)
    restored = Learner(again, SETTINGS, 10)
    restored.restore(tmp_path)
    assert restored.step_number == 4
    assert steps(restored, 4) == expected
    assert all(
        torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True)
    )


def test_a_step_that_is_not_finite_changes_nothing() -> None:
    model = tiny()
    learner = Learner(model, SETTINGS, 10)
    before = [p.detach().clone() for p in model.parameters()]

    def broken(scored: Scored) -> tuple[torch.Tensor, dict[str, float]]:
        return scored.logprobs.sum() * float("nan"), {}

    with pytest.raises(DvkError, match="learning.rate"):
        learner.step([lay_out([ROWS], 24)], broken)
    assert (
        all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
        and learner.step_number == 0
    )


def test_advantages_weigh_and_turn_around() -> None:
    packs = lay_out([[TrainingRow.answer([5], [6], advantage=-1.0)]], 8)
    model = tiny()
    learner = Learner(model, SETTINGS, 100)

    def likely(p: Packs) -> float:
        return float(Scorer(model)(p)[0].detach())

    before = likely(packs)
    for _ in range(3):
        learner.step([packs])
    assert likely(packs) < before


def test_the_schedule() -> None:
    settings = LearningConfig(rate=1.0, warmup=0.1)
    rates = [rate(i, 100, settings) for i in range(100)]
    assert rates[0] == pytest.approx(0.1) and rates[9] == 1.0 and max(rates) == 1.0
    assert all(a >= b for a, b in zip(rates[9:], rates[10:], strict=False)) and rates[
        -1
    ] == pytest.approx(0.0, abs=0.01)
    assert rate(50, 100, LearningConfig(rate=1.0, schedule="constant")) == 1.0


@pytest.fixture
def other_precision() -> Iterator[None]:
    """accelerate keeps one precision a process."""
    AcceleratorState._reset_state(True)
    yield
    AcceleratorState._reset_state(True)


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.usefixtures("other_precision")
@pytest.mark.slow
def test_inputs_of_adapters_are_not_copied_in_float32(
    again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Autocast rounds them anyway: the same gradients, and a tenth less of each layer is kept."""

    def step(copied: bool) -> tuple[int, list[torch.Tensor]]:
        torch.manual_seed(0)
        model = new_adapters(tiny(seed=4).to(torch.bfloat16), 4)
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(weight, 0, 0.1)
        settings = LearningConfig(precision="bf16", gradient_checkpointing=again)
        learner = Learner(model, settings, 2)
        if copied:
            monkeypatch.setattr(learner, "computing", nullcontext)
        held: dict[int, int] = {}
        gradients: list[torch.Tensor] = []

        def keep(tensor: torch.Tensor) -> torch.Tensor:
            storage = tensor.untyped_storage()
            held[storage.data_ptr()] = storage.nbytes()
            return tensor

        def clip(*_: object) -> torch.Tensor:
            gradients.extend(p.grad.clone() for p in model.parameters() if p.grad is not None)
            return torch.ones(())

        monkeypatch.setattr(learner, "_clip", clip)
        with learner.computing(), torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
            learner.scorer(lay_out([ROWS[:2]], 16))
        learner.step([lay_out([ROWS[:2]], 16)])
        assert all(m.cast_input_dtype_enabled for m in model.modules() if hasattr(m, "lora_A"))
        return sum(held.values()), gradients

    (copies, wanted), (kept, found) = step(True), step(False)
    assert kept <= copies and (again or kept < copies)
    assert len(found) == 28 and all(torch.equal(a, b) for a, b in zip(wanted, found, strict=True))

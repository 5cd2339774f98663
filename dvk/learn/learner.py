"""The learner: a model, its optimizer, and one step at a time.

Weights are float32 and computed with in bfloat16 if the device is good at it (frozen weights under
LoRA keep the type they were loaded in). Everything that a step depends on besides its packs is in
`learner.pt`, so a restored learner makes the same next step. Several processes (see `dvk.distributed`) make a
step together: each computes its share of the packs, gradients are added up, weights stay the same everywhere. A model too
large for that is trained in pieces (`sharded`).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from dvk.backbone.decoding.forward import unwrapped
from dvk.config import Config, LearningConfig, changed
from dvk.distributed import ProcessGroup
from dvk.errors import DvkError, UsageError
from dvk.learn import sharded
from dvk.learn.loss import likelihood
from dvk.learn.packs import Packs
from dvk.learn.scoring import Scorer

BETAS = (0.9, 0.95)
"""AdamW's betas; those of daVinci's SFT."""
CLIP = 1.0
"""Largest gradient norm."""
TINY_PARAMETERS = 1_000_000
"""Models up to this size are computed with one thread on a CPU: their operations end sooner than threads meet, and on a
busy machine threads wait for each other ten times as long as the operation takes."""
WEIGHT_DECAY = 0.01
"""AdamW's weight decay, on matrices only."""

STATE = "learner.pt"


@dataclass(frozen=True)
class Scored:
    """A loss's inputs for one micro-batch, shapes (targets,)."""

    logprobs: torch.Tensor
    entropies: torch.Tensor
    old: torch.Tensor
    """The sampler's log-probabilities; NaN where unknown."""
    weights: torch.Tensor
    """Advantages."""
    num_targets: int
    """Number of targets of the whole step."""
    rows: torch.Tensor
    """Row of the micro-batch that each target belongs to: any integers."""
    num_rows: int
    """Number of rows of the whole step."""
    start: torch.Tensor | None = None
    """Log-probabilities under the initial weights; None if the learner does not hold them."""


Loss = Callable[[Scored], tuple[torch.Tensor, dict[str, float]]]
"""The micro-batch's share of the step's loss, and figures that add up over micro-batches."""


def sft(scored: Scored) -> tuple[torch.Tensor, dict[str, float]]:
    """Mean negative log-likelihood of the targets."""
    return likelihood(scored.logprobs, scored.weights, scored.num_targets), {}


def rate(step: int, num_steps: int, settings: LearningConfig) -> float:
    """Learning rate of a step, counted from 0: linear warm-up, then a cosine down to 0."""
    warm = max(1, round(settings.warmup * num_steps))
    if step < warm:
        return settings.rate * (step + 1) / warm
    if settings.schedule == "constant":
        return settings.rate
    done = min(1.0, (step - warm) / max(1, num_steps - warm))
    return settings.rate * 0.5 * (1 + math.cos(math.pi * done))


class Learner:
    """Makes steps; `step_number` counts those made."""

    def __init__(
        self,
        model: Any,
        settings: LearningConfig,
        num_steps: int,
        *,
        compiled: bool = False,
        start: Any = None,
    ):
        """Wrap a causal LM for training.

        Args:
            model: of transformers or peft; its parameters that require gradients are trained.
            settings: rates, clipping, precision.
            num_steps: of the whole training, for the schedule.
            compiled: see `Scorer`.
            start: the initial model for losses that use its log-probabilities (`Scored.start`); it is not changed. `model` itself
                stands for its base without LoRA adapters.

        Raises:
            UsageError: trainable weights are in fp16 or bf16.
        """
        from accelerate import Accelerator, DistributedDataParallelKwargs

        self.model, self.settings, self.num_steps, self.step_number = model, settings, num_steps, 0
        on_gpu = torch.cuda.is_available()
        mixed = (
            "bf16"
            if settings.precision == "bf16" or (settings.precision == "auto" and on_gpu)
            else "no"
        )
        # Buffers are equal everywhere; broadcasting them would synchronise every scoring pass.
        parallel = DistributedDataParallelKwargs(
            broadcast_buffers=False, gradient_as_bucket_view=True
        )
        self.accelerator = Accelerator(
            mixed_precision=mixed, cpu=not on_gpu, kwargs_handlers=[parallel]
        )
        self.sharded = settings.sharding == "fsdp" and self.accelerator.num_processes > 1
        if not self.sharded and any(
            p.requires_grad and p.dtype.itemsize < 4 for p in model.parameters()
        ):
            raise UsageError(
                "weights in 16 bits hardly change: what a step adds to them is mostly rounded away",
                "set backbone.dtype=float32, backbone.lora_rank, or with several processes learning.sharding=fsdp",
            )
        if settings.gradient_checkpointing:
            recompute_activations(model)
        model.train()
        self._tiny = sum(p.numel() for p in model.parameters()) <= TINY_PARAMETERS
        scorer = (
            sharded.shard(model, half=mixed == "bf16", on_gpu=on_gpu)
            if self.sharded
            else Scorer(model, compiled=compiled)
        )
        trained = scorer if self.sharded else model
        self._start: Scorer | None = None
        self._without_adapters = start is model
        if start is not None:
            beside = start if start is model else start.requires_grad_(False).eval()
            self._start = Scorer(beside).to(self.device)
        self.optimizer = torch.optim.AdamW(
            groups(trained, WEIGHT_DECAY), lr=settings.rate, betas=BETAS, fused=on_gpu
        )
        if self.sharded:
            self.scorer = scorer
            return
        with warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", "`broadcast_buffers` is deprecated"
            )  # its successor needs a newer torch than dvk requires
            self.scorer, self.optimizer = self.accelerator.prepare(scorer, self.optimizer)

    @property
    def rounds(self) -> bool:
        """Whether it computes in bfloat16."""
        half = (torch.bfloat16, torch.float16)
        return self.accelerator.mixed_precision != "no" or any(
            p.dtype in half for p in self.model.parameters()
        )

    @property
    def device(self) -> torch.device:
        result: torch.device = self.accelerator.device
        return result

    def step(
        self, packs: Sequence[Packs], loss: Loss = sft, temperature: float = 1.0
    ) -> dict[str, float]:
        """One optimizer step over micro-batches.

        Args:
            packs: this process's micro-batches; every process gives equally many.
            loss: loss function of a micro-batch.
            temperature: see `Scorer.forward`.

        Returns:
            loss, grad_norm, rate, tokens (targets, over all processes), entropy (nats a token), and the figures that `loss` reports.

        Raises:
            DvkError: loss or gradient is not finite; the weights are as before the step.
        """
        with self.computing():
            return self._step(packs, loss, temperature)

    @contextmanager
    def computing(self) -> Iterator[None]:
        """The number of threads that suits the model, and no copies of activations in the type of LoRA's weights.

        Autocast rounds the inputs of adapters to bfloat16, so peft's copies in float32 change no result. At 32,768 tokens of an 8B they
        take 0.8 GB of each layer, and 1.6 GB at its widest product. What was before is restored.
        """
        from peft.helpers import disable_input_dtype_casting

        before = torch.get_num_threads()
        if self.device.type == "cpu" and self._tiny:
            torch.set_num_threads(1)
        autocast = self.accelerator.mixed_precision != "no" and not self.sharded
        try:
            with disable_input_dtype_casting(self.model, active=autocast):
                yield
        finally:
            torch.set_num_threads(before)

    def _step(self, packs: Sequence[Packs], loss: Loss, temperature: float) -> dict[str, float]:
        num_targets, num_rows = (
            self._total(sum(p.num_targets for p in packs)),
            self._total(sum(p.num_rows for p in packs)),
        )
        parts: dict[str, torch.Tensor] = {}
        for number, micro in enumerate(packs):
            last = number == len(packs) - 1
            with self.accelerator.no_sync(self.scorer) if not last else nullcontext():
                micro = micro.to(self.device)
                logprobs, entropies = self.scorer(micro, temperature)
                marks = micro.targets[:, 1:]
                scored = Scored(
                    logprobs,
                    entropies,
                    micro.old[:, 1:][marks],
                    micro.weights[:, 1:][marks],
                    max(1, num_targets),
                    micro.rows()[:, 1:][marks],
                    max(1, num_rows),
                    self._under_start(micro, temperature),
                )
                value, figures = loss(scored)
                # accelerate averages gradients over processes; the loss is a share of a sum.
                self.accelerator.backward(value * self.accelerator.num_processes)
            for name, figure in {
                "loss": value.detach(),
                "entropy": entropies.sum() / max(1, num_targets),
                **figures,
            }.items():
                parts[name] = parts.get(
                    name, torch.zeros((), device=self.device)
                ) + torch.as_tensor(figure, device=self.device)
        norm = self._clip()
        totals = {name: self._total(float(part)) for name, part in parts.items()}
        grad_norm = float(norm) if norm is not None else 0.0
        if not (math.isfinite(totals["loss"]) and math.isfinite(grad_norm)):
            self.optimizer.zero_grad(set_to_none=True)
            raise DvkError(
                f"loss {totals['loss']} and gradient norm {grad_norm} at step {self.step_number}",
                "resume with a lower rate (learning.rate; train.rate of dvk train), or look for broken rows in the data",
            )
        now = rate(self.step_number, self.num_steps, self.settings)
        for group in self.optimizer.param_groups:
            group["lr"] = now
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if self.sharded:
            sharded.publish(self.scorer, self.model)
        self.step_number += 1
        return {**totals, "grad_norm": grad_norm, "rate": now, "tokens": num_targets}

    @torch.no_grad()
    def _under_start(self, micro: Packs, temperature: float) -> torch.Tensor | None:
        if self._start is None:
            return None
        base = self.model.disable_adapter() if self._without_adapters else nullcontext()
        with base, self.accelerator.autocast():
            tensor: torch.Tensor = self._start(micro, temperature)[0].float()
        return tensor

    @torch.no_grad()
    def evaluate(self, packs: Sequence[Packs]) -> float:
        """Mean negative log-likelihood a target, over this process's packs; nan without targets."""
        self.scorer.eval()
        total, count = 0.0, 0
        for micro in packs:
            logprobs, _ = self.scorer(micro.to(self.device))
            total, count = total - float(logprobs.sum()), count + len(logprobs)
        self.scorer.train()
        return total / count if count else math.nan

    def _clip(self) -> Any:
        if not self.sharded:
            return self.accelerator.clip_grad_norm_(self.scorer.parameters(), CLIP)
        return torch.nn.utils.clip_grad_norm_(self.scorer.parameters(), CLIP).full_tensor()  # type: ignore[attr-defined]

    def _total(self, value: float) -> Any:
        if self.accelerator.num_processes == 1:
            return value
        tensor = torch.tensor(value, device=self.device, dtype=torch.float64)
        return type(value)(self.accelerator.reduce(tensor, "sum").item())

    def save(self, folder: Path) -> None:
        """Write the state that the next step needs besides the weights and the packs; all processes together, into one folder."""
        state = {"step": self.step_number, "rng": torch.get_rng_state()}
        if self.sharded:
            sharded.save(self.scorer, self.optimizer, folder)
        else:
            state["optimizer"] = self.optimizer.state_dict()
        if self.accelerator.is_main_process:
            torch.save(state, folder / STATE)

    def restore(self, folder: Path) -> None:
        """Resume after the step that `folder` was written at; the model was loaded from the same folder.

        Raises:
            DvkError: the folder holds no learner, or one with another sharding.
        """
        if not (folder / STATE).is_file():
            raise DvkError(
                f"no learner state in `{folder}`",
                "start from the checkpoint's weights in a new --out instead",
            )
        state = torch.load(
            folder / STATE, map_location="cpu", weights_only=True
        )  # the optimizer moves it
        if ("optimizer" in state) == self.sharded:
            wanted = (
                "one process, or learning.sharding=none"
                if "optimizer" in state
                else "several processes and learning.sharding=fsdp"
            )
            raise DvkError(f"`{folder}` was written with {wanted}", "resume it as it was started")
        if self.sharded:
            sharded.restore(self.scorer, self.optimizer, folder)
            sharded.publish(self.scorer, self.model)
        else:
            self.optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["rng"])
        self.step_number = state["step"]


def recompute_activations(model: Any) -> None:
    """Keep only the inputs of a model's layers for the backward pass, and compute the rest again."""
    plain = unwrapped(model)
    # Its newer name; transformers 5.23 warns of the older one.
    new = getattr(plain, "activation_checkpointing_enable", None)
    (new or plain.gradient_checkpointing_enable)({"use_reentrant": False})


def opened(config: Config, processes: ProcessGroup) -> Config:
    """The settings for opening a model for training: an unsharded model is in float32, where steps of 1e-6 count.

    Sharded models and LoRA train float32 copies, whatever type the model was loaded in.
    """
    pieces = config.learning.sharding == "fsdp" and processes.size > 1
    if pieces or config.backbone.lora_rank or config.backbone.dtype != "auto":
        return config
    return changed(config, {"backbone.dtype": "float32"})


def forget(folder: Path) -> None:
    """Remove a learner's state from a checkpoint; its weights stay."""
    (folder / STATE).unlink(missing_ok=True)
    sharded.forget(folder)


def groups(model: Any, weight_decay: float) -> list[dict[str, Any]]:
    """Parameter groups: matrices decay, vectors (norms, biases) do not."""
    trained = [p for p in model.parameters() if p.requires_grad]
    return [
        {"params": [p for p in trained if p.ndim >= 2], "weight_decay": weight_decay},
        {"params": [p for p in trained if p.ndim < 2], "weight_decay": 0.0},
    ]

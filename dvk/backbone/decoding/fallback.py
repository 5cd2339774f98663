"""Decoding for architectures that `forward` does not support: transformers' generate with a static cache and dvk's sampler.

Much slower than `engine`, with the same contract: the same random numbers, the same stops, the same log-probabilities.
Prompts are padded on the left, as generate requires, and masked by their lengths.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import (
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    StoppingCriteria,
    StoppingCriteriaList,
)

from dvk.backbone.decoding.engine import Sampled
from dvk.backbone.decoding.sample_token import sample_token
from dvk.backbone.decoding.seeds import as_bytes, keys_for, uniforms
from dvk.backbone.decoding.stops import Stops


class _Draw(LogitsProcessor):
    """Draws the token itself and masks all others for generate."""

    def __init__(self, numbers: Tensor, temperature: float, top_p: float):
        self.numbers, self.temperature, self.top_p = numbers, temperature, top_p
        self.logprobs: list[Tensor] = []

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        number = self.numbers[:, len(self.logprobs)]
        token, logprob = sample_token(
            scores.float(), number, self.temperature or 1.0, self.temperature == 0, self.top_p
        )
        self.logprobs.append(logprob)
        return torch.full_like(scores, float("-inf")).scatter_(1, token[:, None], 0.0)


class _Ended(StoppingCriteria):
    """Stopping criterion: a row ends at an end token or when its text contains a stop text. Called at every step, it calls `pulse`."""

    def __init__(self, stops: Stops, width: int, device: torch.device, pulse: Callable[[], None]):
        self.stops, self.width, self.pulse = stops, width, pulse
        self.ends, self.may_end = stops.ends.to(device), stops.may_end.to(device)

    def __call__(self, input_ids: Tensor, scores: Any, **_: Any) -> Tensor:
        self.pulse()
        last = input_ids[:, -1]
        ended = self.ends[last]
        for row in (self.may_end[last] & ~ended).nonzero()[:, 0].tolist():
            ended[row] = self.stops.find(input_ids[row, self.width :].tolist()) is not None
        return ended


@torch.no_grad()
def run(
    model: Any,
    prompts: Sequence[Sequence[int]],
    limit: int,
    stops: Stops,
    *,
    positions: int,
    rows_at_once: int,
    temperature: float = 1.0,
    top_p: float = 1.0,
    seed: int | None = None,
    streams: Sequence[int | None] = (),
    pulse: Callable[[], None] = lambda: None,
) -> list[Sampled]:
    """One completion a prompt, in their order; arguments as in `engine.Engine`. Exceptions of `pulse`, called at every step, end it."""
    keys = keys_for([as_bytes(prompt) for prompt in prompts], seed, streams)
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    results: dict[int, Sampled] = {}
    for start in range(0, len(order), rows_at_once):
        group = order[start : start + rows_at_once]
        width = max(len(prompts[i]) for i in group)
        room = min(limit, positions - width)
        numbers = torch.from_numpy(uniforms([keys[i] for i in group], room)).to(model.device)
        ids = torch.tensor(
            [[0] * (width - len(prompts[i])) + list(prompts[i]) for i in group], device=model.device
        )
        lengths = torch.tensor([len(prompts[i]) for i in group], device=model.device)
        seen = torch.arange(width, device=model.device) >= width - lengths[:, None]
        pick = _Draw(numbers, temperature, top_p)
        settings = GenerationConfig(
            max_new_tokens=room,
            do_sample=False,
            num_beams=1,
            pad_token_id=0,
            eos_token_id=None,
            cache_implementation="static"
            if getattr(model, "_can_compile_fullgraph", False)
            else None,
            disable_compile=True,
        )
        out = model.generate(
            input_ids=ids,
            attention_mask=seen.long(),
            generation_config=settings,
            logits_processor=LogitsProcessorList([pick]),
            stopping_criteria=StoppingCriteriaList([_Ended(stops, width, model.device, pulse)]),
        )
        logprobs = torch.stack(pick.logprobs, 1).tolist()
        for row, i in enumerate(group):
            results[i] = _cut(out[row, width:].tolist(), logprobs[row], stops)
    return [results[i] for i in range(len(prompts))]


def _cut(tokens: list[int], logprobs: list[float], stops: Stops) -> Sampled:
    """The row's tokens up to its end; `generate` pads until every row has ended."""
    ends = [place + 1 for place, token in enumerate(tokens) if token in stops.ids]
    stop = stops.find(tokens[: ends[0]] if ends else tokens)
    cut = min([end for end in (ends[0] if ends else None, stop) if end is not None], default=None)
    kept = tokens[:cut]
    return Sampled(tuple(kept), tuple(logprobs[: len(kept)]), "length" if cut is None else "stop")

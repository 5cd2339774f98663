"""Any causal language model of transformers: fast sampling, scoring for the learner, full or LoRA training.

Sampling uses `engine` for the architectures that `forward` supports and transformers' generate for others.
Prompts that leave no room for an answer finish with an error; all other errors raise.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.nn import Parameter

from dvk.backbone import (
    Alternative,
    Completion,
    Conversation,
    Sampling,
    Scores,
    ScoringRow,
    TokenUsage,
    choosing,
    scoring,
)
from dvk.backbone.chat import ChatTemplate
from dvk.backbone.choosing import AnswerList
from dvk.backbone.decoding import fallback, forward
from dvk.backbone.decoding.engine import Engine, Sampled, decoding
from dvk.backbone.decoding.seeds import as_bytes, keys_for
from dvk.backbone.decoding.stops import Stops
from dvk.backbone.loading import CARD, Loaded, load, pick_device
from dvk.backbone.thinking import within_budget
from dvk.config import BackboneConfig as Settings
from dvk.config import Config
from dvk.device_lock import DeviceLock, of_cpu, of_gpu
from dvk.errors import RunFolderError, UsageError
from dvk.records import Tokens

SLOTS = 1024
"""Most sequences decoded at once; fewer if their KV caches do not fit."""

SCORE_TOKENS = 32768
"""Tokens, padding included, of one pass that scores completions; limits the memory for activations."""

SHARD = "15MB"
"""Largest safetensors file that `save` writes for a model that dvk made: shipped files stay under 16 MiB."""
SHARED_PARAMETERS = 50_000_000
"""Models above this are written in transformers' own shards."""


def open_hf(argument: str, config: Config, *, device: str | None = None) -> HfBackbone:
    """`hf:PATH-or-name`.

    Raises:
        UsageError, MachineError: as `loading.load`.
    """
    if not argument:
        raise UsageError("`hf` needs a model", "write hf:FOLDER or hf:NAME, e.g. hf:Qwen/Qwen3-8B")
    return HfBackbone(
        load(argument, config.backbone, pick_device(device)), config.backbone, f"hf:{argument}"
    )


class HfBackbone:
    """A transformers model as a trainable backbone.

    Args:
        loaded: model, tokenizer and `dvk.json`.
        settings: the backbone section.
        name: display name.
    """

    def __init__(self, loaded: Loaded, settings: Settings, name: str):
        self.model, self.tokenizer, self.card = loaded
        self.settings, self.name = settings, name
        self.dialect = self.card.get("dialect", "chat")
        self.usage = TokenUsage()
        self.chat = ChatTemplate(self.tokenizer, name, settings.thinking)
        inner = forward.unwrapped(self.model)
        self.positions = int(getattr(inner.config, "max_position_embeddings", 0) or 4096)
        """Longest sequence in tokens."""
        self.vocabulary = inner.get_output_embeddings().weight.shape[0]
        listed = getattr(inner.generation_config, "eos_token_id", None)
        ends = [
            self.chat.end,
            self.tokenizer.eos_token_id,
            *(listed if isinstance(listed, (list, tuple)) else [listed]),
        ]
        self.end_ids = tuple(sorted({end for end in ends if end is not None}))
        """Tokens that end an answer."""
        self.engine: Engine | None = None
        self.pulse: Callable[[], None] | None = None
        """Called now and then while it writes; it may wait for a judge, and its exceptions leave the answers unfinished."""
        self._one_at_a_time = threading.Lock()
        self._lanes: dict[str, DeviceLock] = {}

    # ------------------------------------------------------------ sampling

    def encode(self, conversation: Conversation) -> tuple[int, ...]:
        """Token ids of the rendered conversation, up to where the answer begins."""
        return self.chat.encode(conversation)

    def encode_answer(self, text: str) -> tuple[int, ...]:
        """Token ids of an answer with the token that ends it."""
        return self.chat.encode_answer(text)

    def generate(
        self, conversations: Sequence[Conversation], sampling: Sampling
    ) -> list[Completion]:
        """One completion a conversation, in their order."""
        listed = [i for i, one in enumerate(conversations) if one.choices and self.chat.end]
        if listed:
            chosen = dict(zip(listed, self._choose([conversations[i] for i in listed], sampling)))
            free = [one for i, one in enumerate(conversations) if i not in chosen]
            written = iter(self.generate(free, sampling) if free else ())
            return [chosen[i] if i in chosen else next(written) for i in range(len(conversations))]
        prompts = [self.encode(one) for one in conversations]
        begun, streams = (
            [getattr(one, name) for one in conversations] for name in ("begun", "stream")
        )
        numbered = any(stream is not None for stream in streams) and not self.settings.thinking
        if any(begun) or numbered:
            return self.complete(prompts, sampling, begun, streams)
        return within_budget(self.complete, self.chat, prompts, sampling, self.settings)

    def _choose(
        self, conversations: Sequence[Conversation], sampling: Sampling
    ) -> list[Completion]:
        """One of its choices a conversation."""
        began = time.perf_counter()
        rows: dict[tuple[tuple[int, ...], tuple[str, ...]], AnswerList] = {}
        asked = []
        for one in conversations:
            key = self.encode(one), one.choices
            if key not in rows:
                answers = [self.encode_answer(text) for text in dict.fromkeys(one.choices)]
                rows[key] = AnswerList(key[0], answers)
            asked.append(rows[key])
        keys = keys_for(
            [as_bytes(row.question) for row in asked],
            sampling.seed,
            [one.stream for one in conversations],
        )
        fits = [
            i
            for i, row in enumerate(asked)
            if row.question and len(row.question) + max(map(len, row.answers)) <= self.positions
        ]
        with (
            self._one_at_a_time,
            self._lane().shared_in_turns(self._rest) as give_way,
            decoding(self.model),
        ):
            give_way(self.pulse)
            drawn = choosing.draw(
                self.model,
                [asked[i] for i in fits],
                [keys[i] for i in fits],
                sampling.temperature,
                SCORE_TOKENS,
            )
        completions = [self._does_not_fit(tuple(row.question)) for row in asked]
        for i, (number, tokens) in zip(fits, drawn, strict=True):
            text = tuple(dict.fromkeys(conversations[i].choices))[number]
            completions[i] = Completion(text=text, tokens=tokens, finish="stop")
        read = sum(len(asked[i].question) for i in fits)
        written = sum(len(tokens.completion) for _, tokens in drawn)
        self.usage.add(read, written, time.perf_counter() - began)
        return completions

    def complete(
        self,
        prompts: Sequence[tuple[int, ...]],
        sampling: Sampling,
        begun: Sequence[tuple[int, ...]] | None = None,
        streams: Sequence[int | None] = (),
    ) -> list[Completion]:
        """One completion a prompt of token ids, in their order.

        Args:
            begun: given prefix of each completion; log-probabilities of prefix tokens are not returned.
            streams: `Conversation.stream` of each.
        """
        began = time.perf_counter()
        begun = begun if begun is not None else [()] * len(prompts)
        asked = [(*prompt, *start) for prompt, start in zip(prompts, begun, strict=True)]
        fits = [
            i
            for i, prompt in enumerate(prompts)
            if prompt and len(asked[i]) < self.positions and len(begun[i]) < sampling.max_tokens
        ]
        stops = Stops(
            self.tokenizer, self.vocabulary, self.end_ids, (*sampling.stop, *self.chat.stop)
        )
        limit = sampling.max_tokens - min((len(begun[i]) for i in fits), default=0)
        with (
            self._one_at_a_time,
            self._lane().shared_in_turns(self._rest) as give_way,
            decoding(self.model),
        ):
            drawn = dict(
                zip(
                    fits,
                    self._sample(
                        [asked[i] for i in fits],
                        limit,
                        sampling,
                        stops,
                        give_way,
                        [streams[i] for i in fits] if streams else (),
                    ),
                )
            )
            rows = [
                ScoringRow(prompts[i], (*begun[i], *drawn[i].tokens)[: sampling.max_tokens])
                for i in fits
            ]
            told = (
                dict(zip(fits, scoring.alternatives(self.model, rows, SCORE_TOKENS)))
                if sampling.alternatives
                else {}
            )
        completions = [self._does_not_fit(prompt) for prompt in asked]
        for i, row in zip(fits, rows):
            completions[i] = self._completion(row, len(begun[i]), drawn[i], told.get(i, ()), stops)
        read, written = sum(len(asked[i]) for i in fits), sum(len(s.tokens) for s in drawn.values())
        self.usage.add(read, written, time.perf_counter() - began)
        return completions

    def _completion(
        self,
        row: ScoringRow,
        num_begun: int,
        drawn: Sampled,
        told: Sequence[tuple[int, int, float]],
        stops: Stops,
    ) -> Completion:
        """One answer.

        Args:
            row: the prompt, and the answer with its prefix.
            num_begun: tokens of the prefix.
            drawn: what was sampled after it.
            told: alternatives, as `scoring.alternatives` gives them.
        """
        cut = len(row.completion) < num_begun + len(drawn.tokens)
        others = tuple(
            Alternative(
                position=position,
                at=len(self.chat.opening) + len(stops.text(row.completion[:position])),
                token=token,
                logprob=logprob,
            )
            for position, token, logprob in told
            if token not in self.end_ids
        )
        tokens = Tokens(
            prompt=row.prompt,
            completion=row.completion,
            logprobs=() if num_begun else drawn.logprobs,
        )
        return Completion(
            text=self.chat.opening + stops.text(row.completion),
            tokens=tokens,
            finish="length" if cut else drawn.finish,
            alternatives=others,
        )

    def _lane(self) -> DeviceLock:
        """Lock of the device that it computes on, if candidates may be timed meanwhile."""
        name = (
            of_gpu(self.model.device.index or 0) if self.model.device.type == "cuda" else of_cpu()
        )
        if name not in self._lanes:
            self._lanes[name] = DeviceLock(name)
        return self._lanes[name]

    def _rest(self) -> None:
        if self.model.device.type == "cuda":
            torch.cuda.synchronize(self.model.device)

    def _sample(
        self,
        prompts: list[tuple[int, ...]],
        limit: int,
        sampling: Sampling,
        stops: Stops,
        give_way: Callable[[Callable[[], None] | None], None],
        streams: Sequence[int | None] = (),
    ) -> list[Sampled]:
        def pulse() -> None:
            give_way(self.pulse)

        how: dict[str, Any] = {
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "seed": sampling.seed,
            "streams": streams,
        }
        if not forward.supports(self.model):
            slots = min(SLOTS, 64)  # generate sizes its caches itself: keep them small
            how |= {"positions": self.positions, "rows_at_once": slots, "pulse": pulse}
            return fallback.run(self.model, prompts, limit, stops, **how)
        if self.engine is None or self.engine.decoder.device != self.model.device:
            self.engine = Engine(self.model, self.model.dtype, self.positions, SLOTS)
        self.engine.pulse = pulse
        return self.engine.run(prompts, limit, stops, **how)

    def _does_not_fit(self, prompt: tuple[int, ...]) -> Completion:
        problem = (
            f"a prompt of {len(prompt)} tokens leaves no room in {self.positions}"
            if prompt
            else "the prompt is empty"
        )
        return Completion(text="", finish="error", error=problem)

    # ------------------------------------------------------------ training

    def logprobs(self, rows: Sequence[ScoringRow], temperature: float = 1.0) -> Scores:
        """Log-probability of each completion token, with gradients if they are enabled."""
        return scoring.logprobs(self.model, rows, temperature, SCORE_TOKENS)

    def parameters(self) -> Iterator[Parameter]:
        """Trainable parameters: LoRA's matrices if the model has them, else all."""
        return (p for p in self.model.parameters() if p.requires_grad)

    def release(self) -> None:
        """Free the sampler's caches and graphs; the next `generate` creates them again."""
        self.engine = None
        if self.model.device.type == "cuda":
            gc.collect()  # a captured graph and its pool refer to each other
            torch.cuda.empty_cache()

    def save(self, folder: Path) -> None:
        """Write weights (or adapters), tokenizer and `dvk.json`; an existing `folder` is complete.

        Raises:
            RunFolderError: the folder exists.
        """
        write_folder(folder, self.model, self.tokenizer, self.card)


def write_folder(folder: Path, model: Any, tokenizer: Any, card: dict[str, Any]) -> None:
    """A folder that `hf:FOLDER` opens, written aside and then renamed.

    Raises:
        RunFolderError: it exists already.
    """
    if folder.exists():
        raise RunFolderError(f"`{folder}` exists", "choose another folder, or remove it")
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        small = sum(p.numel() for p in model.parameters()) <= SHARED_PARAMETERS
        model.save_pretrained(aside, **({"max_shard_size": SHARD} if small else {}))
        tokenizer.save_pretrained(aside)
        if card:
            (aside / CARD).write_text(json.dumps(card, indent=2, sort_keys=True) + "\n")
        os.chmod(aside, 0o777 & ~_umask())
        os.rename(aside, folder)
    except BaseException:  # an interrupt, too, must not leave a partial folder
        shutil.rmtree(aside, ignore_errors=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask

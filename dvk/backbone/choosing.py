"""Answers from a list: how probable each is for a model that writes freely, given that it writes one of the list.

    question ── plan ┬─ END                         one sequence holds the tokens of all answers, shared beginnings once;
                     └─ +own_matmul ┬─ END          each token sees the question and those before it on its branch
                                    └─ … ── END

    P(answer | list) = π(answer) / Σ π(answers of the list),    π: the model's probability, of all its tokens among all tokens

An answer is drawn as a whole. Drawn token by token, from those with which some answer goes on, it would suffer from label bias (Lafferty,
McCallum and Pereira 2001): a model sees no list, so it would prefer `+` for recipes that pay where only one that loses is listed, and
that one would then be certain. Related: constrained decoding (grammars: arXiv 2305.13971).

The learner scores a drawn answer as any other: log π = log P(answer | list) + log Σ π. Advantages of the answers to one question add up to
about 0, and the second term is the same for all of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dvk.backbone.decoding.forward import unwrapped
from dvk.backbone.decoding.seeds import uniforms
from dvk.records import Tokens

ROOT = -1
"""The node before the first token: the question's end."""


@dataclass(frozen=True)
class AnswerList:
    """A question and its answers as tokens.

    Attributes:
        question: token ids, at least one.
        answers: distinct, each with the token that ends it, so that none begins another.
    """

    question: Sequence[int]
    answers: Sequence[Sequence[int]]

    @cached_property
    def trie(self) -> AnswerTrie:
        """The answers' tokens, shared beginnings once."""
        return AnswerTrie(self.answers)

    @property
    def num_tokens(self) -> int:
        """Of the one sequence that scores all answers."""
        return len(self.question) + len(self.trie.tokens)


class AnswerTrie:
    """Tokens of some answers as nodes, each after the one before it.

    Attributes:
        tokens: token of each node.
        before: node before each, or `ROOT`.
        paths: the nodes of each answer, in order.
    """

    def __init__(self, answers: Sequence[Sequence[int]]):
        self.tokens: list[int] = []
        self.before: list[int] = []
        self.paths: list[list[int]] = []
        known: dict[tuple[int, int], int] = {}
        for answer in answers:
            node, path = ROOT, list[int]()
            for token in answer:
                place = known.setdefault((node, token), len(self.tokens))
                if place == len(self.tokens):
                    self.tokens.append(token)
                    self.before.append(node)
                node = place
                path.append(node)
            self.paths.append(path)


@dataclass(frozen=True)
class AnswerBatch:
    """Tensors of R questions with at most K answers, padded: T tokens, N nodes.

    Attributes:
        ids, positions: int64 [R, T].
        mask: bool [R, 1, T, T]; which tokens a token attends to.
        before: int64 [R, N]; column of the token before each node.
        labels: int64 [R, N]; each node's token.
        real: bool [R, N].
        paths: float32 [R, K, N]; 1 for the nodes of an answer.
    """

    ids: Tensor
    positions: Tensor
    mask: Tensor
    before: Tensor
    labels: Tensor
    real: Tensor
    paths: Tensor


def lay_out(rows: Sequence[AnswerList], device: torch.device | str) -> AnswerBatch:
    """The tensors of some questions."""
    longest = max(row.num_tokens for row in rows)
    most = max(len(row.answers) for row in rows)
    nodes = max(len(row.trie.tokens) for row in rows)
    ids, positions = (np.zeros((len(rows), longest), np.int64) for _ in range(2))
    mask = np.repeat(np.eye(longest, dtype=bool)[None], len(rows), 0)
    before, labels = (np.zeros((len(rows), nodes), np.int64) for _ in range(2))
    real = np.zeros((len(rows), nodes), bool)
    paths = np.zeros((len(rows), most, nodes), np.float32)
    for r, row in enumerate(rows):
        trie, asked = row.trie, len(row.question)
        count = len(trie.tokens)
        ids[r, : asked + count] = (*row.question, *trie.tokens)
        positions[r, :asked] = np.arange(asked)
        mask[r, :asked, :asked] = np.tri(asked, dtype=bool)
        for node, earlier in enumerate(trie.before):
            here, there = asked + node, asked + earlier  # ROOT is the question's last token
            mask[r, here, :here] = mask[r, there, :here]
            positions[r, here] = positions[r, there] + 1
        before[r, :count] = np.asarray(trie.before) + asked
        labels[r, :count], real[r, :count] = trie.tokens, True
        for k, path in enumerate(trie.paths):
            paths[r, k, path] = 1.0
    made = (ids, positions, mask[:, None], before, labels, real, paths)
    return AnswerBatch(*(torch.from_numpy(one).to(device) for one in made))


def scores(model: Any, batch: AnswerBatch, temperature: float = 1.0) -> Tensor:
    """Log-probability of each node's token among all tokens, in one pass; float32 [R, N], 0 for padding.

    Args:
        model: a causal LM of transformers, perhaps wrapped by peft.
        temperature: divides the logits.
    """
    plain = unwrapped(model)
    hidden = plain.get_decoder()(
        input_ids=batch.ids,
        attention_mask=_mask_for(plain, batch.mask),
        position_ids=batch.positions,
        use_cache=False,
    ).last_hidden_state
    rows = torch.arange(len(batch.ids), device=hidden.device)[:, None].expand_as(batch.before)
    real = batch.real
    head = plain.get_output_embeddings()
    with torch.autocast(hidden.device.type, enabled=False):  # bf16 logits round by up to 2^-8
        logits = head(hidden[rows[real], batch.before[real]].to(head.weight.dtype)).float()
    logits = logits / temperature
    own = logits.gather(-1, batch.labels[real][:, None]).squeeze(-1) - logits.logsumexp(-1)
    return torch.zeros(real.shape, device=hidden.device).masked_scatter(real, own)


def _mask_for(model: Any, mask: Tensor) -> Tensor:
    """The mask as the model's attention takes it: transformers' eager one adds it to the scores."""
    if model.config._attn_implementation != "eager":
        return mask
    return torch.zeros_like(mask, dtype=model.dtype).masked_fill(
        ~mask, torch.finfo(model.dtype).min
    )


def of_answers(values: Tensor, batch: AnswerBatch) -> Tensor:
    """Log-probability of each answer, [R, K], from those of nodes; minus infinity for padding. Its softmax is that among the listed ones.

    No product of matrices, which autocast would round.
    """
    summed = (batch.paths * values[:, None]).sum(-1)
    return summed.masked_fill(batch.paths.sum(-1) == 0, -math.inf)


def batches(rows: Sequence[AnswerList], most_tokens: int) -> list[list[int]]:
    """Numbers of rows in groups of similar length with at most so many tokens, padding included; a longer row is alone."""
    result: list[list[int]] = []
    for i in sorted(range(len(rows)), key=lambda i: rows[i].num_tokens):
        if result and rows[i].num_tokens * (len(result[-1]) + 1) <= most_tokens:
            result[-1].append(i)
        else:
            result.append([i])
    return result


@torch.no_grad()
def draw(
    model: Any, rows: Sequence[AnswerList], keys: Sequence[int], temperature: float, budget: int
) -> list[tuple[int, Tokens]]:
    """One answer a row: its number, and its tokens with the probabilities that they were drawn with.

    Args:
        rows: equal ones, as the samples of one question are, may be one object: it is scored once.
        keys: of each row's random numbers (`seeds`).
        temperature: 0 takes the likeliest answer; the log-probabilities are then those at temperature 1.
        budget: tokens of one pass.
    """
    if not rows:
        return []
    distinct = list({id(row): row for row in rows}.values())
    known: dict[int, np.ndarray] = {}
    device = next(model.parameters()).device
    for group in batches(distinct, budget):
        batch = lay_out([distinct[i] for i in group], device)
        found = scores(model, batch, temperature or 1.0).cpu().numpy()
        known.update({id(distinct[i]): logs for i, logs in zip(group, found, strict=True)})
    numbers = uniforms(keys, 1)[:, 0]
    result = []
    for row, number in zip(rows, numbers, strict=True):
        logs = known[id(row)]
        sums = np.array([logs[path].sum() for path in row.trie.paths])
        drawn = int(sums.argmax()) if temperature == 0 else _at(sums, float(number))
        tokens = Tokens(
            prompt=tuple(row.question),
            completion=tuple(row.answers[drawn]),
            logprobs=tuple(map(float, logs[row.trie.paths[drawn]])),
        )
        result.append((drawn, tokens))
    return result


def _at(logs: np.ndarray, number: float) -> int:
    """The answer at a number from 0 to 1, where each has a part as large as its probability."""
    heights = np.exp(logs - logs.max()).cumsum()
    return min(int(np.searchsorted(heights, number * heights[-1], side="right")), len(logs) - 1)

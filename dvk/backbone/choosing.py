"""Answers from a list: how probable each is, token by token, among those that the list allows.

    question ── plan ┬─ END                         one sequence holds the tokens of all answers, shared beginnings once;
                     └─ +own_matmul ┬─ END          each token sees the question and those before it on its branch
                                    └─ … ── END

A token is drawn from those with which some answer goes on: where there is one alone it is certain. So no answer is unreadable, and
the probabilities of the listed answers add up to 1. A token counts once for each answer that contains it: a model that prefers none
draws each answer alike, and a change of plan is worth what it is worth however many schedules are listed with it. Without that, its
share would be a matter of the list, which the model does not see. Related: constrained decoding (grammars: arXiv 2305.13971).
"""

from __future__ import annotations

import math
from collections import defaultdict
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
        after: the nodes after each node, in order.
        leaves: how many answers pass through each node.
    """

    def __init__(self, answers: Sequence[Sequence[int]]):
        self.tokens: list[int] = []
        self.before: list[int] = []
        self.paths: list[list[int]] = []
        self.after: dict[int, list[int]] = defaultdict(list)
        self.leaves: list[int] = []
        known: dict[tuple[int, int], int] = {}
        for answer in answers:
            node, path = ROOT, list[int]()
            for token in answer:
                place = known.setdefault((node, token), len(self.tokens))
                if place == len(self.tokens):
                    self.tokens.append(token)
                    self.before.append(node)
                    self.after[node].append(place)
                    self.leaves.append(0)
                node = place
                self.leaves[node] += 1
                path.append(node)
            self.paths.append(path)

    def allowed(self, node: int) -> tuple[int, ...]:
        """The tokens that could be drawn in a node's place, each once for each answer that contains it; none if it is certain."""
        siblings = self.after[self.before[node]]
        if len(siblings) == 1:
            return ()
        return tuple(self.tokens[n] for n in siblings for _ in range(self.leaves[n]))


@dataclass(frozen=True)
class AnswerBatch:
    """Tensors of R questions with at most K answers, padded: T tokens, N nodes.

    Attributes:
        ids, positions: int64 [R, T].
        mask: bool [R, 1, T, T]; which tokens a token attends to.
        before: int64 [R, N]; column of the token before each node.
        labels: int64 [R, N]; each node's token.
        leaves: float32 [R, N]; the logarithm of the number of answers that pass through each node.
        siblings: int64 [R, N]; equal for nodes between which a token is drawn; N for padding.
        real: bool [R, N].
        paths: float32 [R, K, N]; 1 for the nodes of an answer.
    """

    ids: Tensor
    positions: Tensor
    mask: Tensor
    before: Tensor
    labels: Tensor
    leaves: Tensor
    siblings: Tensor
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
    siblings, real = np.full((len(rows), nodes), nodes), np.zeros((len(rows), nodes), bool)
    paths = np.zeros((len(rows), most, nodes), np.float32)
    leaves = np.zeros((len(rows), nodes), np.float32)
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
        siblings[r, :count] = np.asarray(trie.before) + 1
        before[r, :count] = np.asarray(trie.before) + asked
        labels[r, :count], real[r, :count] = trie.tokens, True
        leaves[r, :count] = np.log(trie.leaves)
        for k, path in enumerate(trie.paths):
            paths[r, k, path] = 1.0
    made = (ids, positions, mask[:, None], before, labels, leaves, siblings, real, paths)
    return AnswerBatch(*(torch.from_numpy(one).to(device) for one in made))


def scores(model: Any, batch: AnswerBatch, temperature: float = 1.0) -> Tensor:
    """Log-probability of each node among the tokens that the list allows in its place, in one pass; float32 [R, N], 0 for padding.

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
    own = logits.gather(-1, batch.labels[real][:, None]).squeeze(-1) / temperature
    own = own + batch.leaves[real]
    zeros = torch.zeros(real.shape, device=hidden.device)
    flat = zeros.masked_scatter(real, own)
    groups = zeros.new_full((len(real), real.shape[1] + 1), -math.inf)
    peak = groups.scatter_reduce(1, batch.siblings, flat.detach(), "amax")
    peak = peak.gather(1, batch.siblings)
    total = torch.zeros_like(groups).scatter_add(1, batch.siblings, (flat - peak).exp())
    among = flat - peak - total.gather(1, batch.siblings).log()
    return among.masked_fill(~real, 0.0)


def _mask_for(model: Any, mask: Tensor) -> Tensor:
    """The mask as the model's attention takes it: transformers' eager one adds it to the scores."""
    if model.config._attn_implementation != "eager":
        return mask
    return torch.zeros_like(mask, dtype=model.dtype).masked_fill(
        ~mask, torch.finfo(model.dtype).min
    )


def of_answers(values: Tensor, batch: AnswerBatch) -> Tensor:
    """Sums of nodes' values by answer, [R, K]; minus infinity for padding. No product of matrices, which autocast would round."""
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
    longest = max(len(path) for row in rows for path in row.trie.paths)
    numbers = uniforms(keys, longest)
    result = []
    for row, values in zip(rows, numbers, strict=True):
        logs = known[id(row)]
        drawn = _likeliest(row.trie, logs) if temperature == 0 else _walk(row.trie, logs, values)
        result.append((drawn, _tokens(row, drawn, logs)))
    return result


def _likeliest(trie: AnswerTrie, logs: np.ndarray) -> int:
    return int(np.argmax([logs[path].sum() for path in trie.paths]))


def _walk(trie: AnswerTrie, logs: np.ndarray, numbers: np.ndarray) -> int:
    """Draw token after token; the answer that they make."""
    node, steps = ROOT, iter(numbers)
    while nodes := trie.after.get(node):
        heights = np.exp(logs[nodes]).cumsum()
        place = int(np.searchsorted(heights, next(steps) * heights[-1], side="right"))
        node = nodes[min(place, len(nodes) - 1)]
    return next(k for k, path in enumerate(trie.paths) if path[-1] == node)


def _tokens(row: AnswerList, drawn: int, logs: np.ndarray) -> Tokens:
    """An answer for the learner: certain tokens are given, the others are drawn from what the list allows."""
    path = row.trie.paths[drawn]
    allowed = [row.trie.allowed(node) for node in path]
    return Tokens(
        prompt=tuple(row.question),
        completion=tuple(row.answers[drawn]),
        logprobs=tuple(float(logs[node]) for node in path),
        given=tuple(n for n, tokens in enumerate(allowed) if not tokens),
        allowed=tuple(allowed),
    )

"""Device state of decoding: a fixed number of slots, each a sequence with its cache, its counters and its random numbers.

Everything is in tensors whose addresses do not change, so that a step can be replayed from a CUDA graph. A step needs no
host synchronisation: finished rows keep computing into a scratch column until the host checks.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from dvk.backbone.decoding.forward import Decoder
from dvk.backbone.decoding.sample_token import sample_token
from dvk.backbone.decoding.stops import Stops
from dvk.backbone.decoding.weights import CacheView


class Slots:
    """State of up to `count` sequences of up to `capacity` tokens, of which up to `longest` are generated."""

    def __init__(self, decoder: Decoder, count: int, capacity: int, longest: int):
        device, dtype = decoder.device, decoder.dtype
        self.decoder, self.count, self.capacity, self.longest = decoder, count, capacity, longest
        self.heads, size = decoder.kv_heads, decoder.head_size
        shape = (count * self.heads, capacity, size)
        self.cache = [
            (
                torch.zeros(shape, dtype=dtype, device=device),
                torch.zeros(shape, dtype=dtype, device=device),
            )
            for _ in decoder.layers
        ]
        """Per layer keys and values, [slots × kv heads, capacity, head size]; row slot × kv heads + head."""

        def zeros(*shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        self.token = zeros(count)
        """The token to append next; drawn, but not in the cache yet."""
        self.filled = zeros(count)
        """Tokens in the cache."""
        self.made = zeros(count)
        """Tokens drawn."""
        self.limit = zeros(count)
        """Tokens to draw at most."""
        self.done = torch.ones(count, dtype=torch.bool, device=device)
        self.marked = zeros(count, dtype=torch.bool)
        """Whether a token that may complete a stop text was drawn since the host's last read."""
        self.numbers = zeros(count, longest + 1, dtype=torch.float32)
        self.tokens = zeros(count, longest + 1)
        """Sampled tokens; the last column is scratch for finished rows."""
        self.logprobs = zeros(count, longest + 1, dtype=torch.float32)
        self.temperature = torch.ones((), device=device)
        vocabulary = decoder.head.width
        self.ends, self.may_end = (
            zeros(vocabulary, dtype=torch.bool),
            zeros(vocabulary, dtype=torch.bool),
        )
        self._views: dict[tuple[int, int], list[CacheView]] = {}
        self._heads = torch.arange(count * self.heads, device=device) * capacity
        self._positions = torch.arange(capacity, device=device)

    @staticmethod
    def bytes_each(decoder: Decoder, capacity: int) -> int:
        """Memory of one slot's cache."""
        return (
            2
            * len(decoder.layers)
            * decoder.kv_heads
            * decoder.head_size
            * capacity
            * decoder.dtype.itemsize
        )

    def begin(self, temperature: float, stops: Stops) -> None:
        """Set values shared by all sequences of a run."""
        self.temperature.fill_(temperature or 1.0)
        self.ends.copy_(stops.ends)
        self.may_end.copy_(stops.may_end)
        self.done.fill_(True)

    def admit(
        self,
        prompts: Sequence[Sequence[int]],
        rows: Sequence[int],
        limits: Sequence[int],
        numbers: Tensor,
        greedy: bool,
        top_p: float,
    ) -> None:
        """Read prompts into slots and draw their first tokens; equal prompts are read once.

        Args:
            prompts: token ids, each shorter than the capacity.
            rows: the slot of each.
            limits: tokens to draw at most, of each.
            numbers: float32 [prompts, longest], their random numbers.
        """
        device = self.token.device
        different = list(dict.fromkeys(map(tuple, prompts)))
        place = {prompt: index for index, prompt in enumerate(different)}
        source = torch.tensor([place[tuple(prompt)] for prompt in prompts]).to(device)
        width = max(map(len, different))
        ids = torch.tensor([[*prompt, *[0] * (width - len(prompt))] for prompt in different]).to(
            device
        )
        lengths = torch.tensor([len(prompt) for prompt in different]).to(device)
        slot = torch.tensor(list(rows)).to(device)

        def keep(layer: int, keys: Tensor, values: Tensor) -> None:
            for kept, new in zip(self.cache[layer], (keys, values)):
                kept.unflatten(0, (self.count, self.heads))[slot, :, :width] = new.transpose(1, 2)[
                    source
                ]

        logits = self.decoder.prefill(ids, lengths - 1, keep)[source]
        numbers = numbers.to(device)
        token, logprob = sample_token(logits, numbers[:, 0], self.temperature, greedy, top_p)
        limit = torch.tensor(list(limits)).to(device)
        self.numbers[slot, : numbers.shape[1]] = numbers
        self.token[slot], self.filled[slot], self.made[slot], self.limit[slot] = (
            token,
            lengths[source],
            torch.ones_like(slot),
            limit,
        )
        self.tokens[slot, 0], self.logprobs[slot, 0] = token, logprob
        self.done[slot], self.marked[slot] = self.ends[token] | (limit <= 1), self.may_end[token]

    def views(self, b: int, length: int) -> list[CacheView]:
        """The caches of the first b slots' first `length` positions, in a step's layout."""
        if (b, length) not in self._views:
            part = b * self.heads
            self._views[b, length] = [
                (k.flatten(0, 1), v.flatten(0, 1), k[:part, :length], v[:part, :length])
                for k, v in self.cache
            ]
        return self._views[b, length]

    def step(self, b: int, length: int, greedy: bool, top_p: float) -> None:
        """One more token in each of the first b slots, none of which holds `length` tokens or more."""
        filled, made, done = self.filled[:b], self.made[:b], self.done[:b]
        each = filled[:, None].expand(-1, self.heads).reshape(-1)
        mask = None
        if self.decoder.masked:
            mask = torch.zeros(
                b * self.heads, 1, length, dtype=self.decoder.dtype, device=filled.device
            )
            mask.masked_fill_(self._positions[:length] > each[:, None, None], float("-inf"))
        index = self._heads[: b * self.heads] + each
        logits = self.decoder.step(self.token[:b], filled, index, mask, self.views(b, length))
        number = self.numbers[:b].gather(1, made[:, None])[:, 0]
        token, logprob = sample_token(logits, number, self.temperature, greedy, top_p)
        column = torch.where(done, self.longest, made)[:, None]
        self.tokens[:b].scatter_(1, column, token[:, None])
        self.logprobs[:b].scatter_(1, column, logprob[:, None])
        going = ~done
        filled.add_(going)
        made.add_(going)
        self.token[:b].copy_(token)
        self.marked[:b].logical_or_(self.may_end[token] & going)
        done.logical_or_(self.ends[token] | (made >= self.limit[:b]))

    def look(self, b: int) -> tuple[list[bool], list[bool], list[int]]:
        """Done flags, marks and token counts of the first b slots. Waits for the device; the marks are cleared."""
        state = torch.stack([self.done[:b].long(), self.marked[:b].long(), self.made[:b]]).tolist()
        self.marked[:b].fill_(False)
        return [bool(x) for x in state[0]], [bool(x) for x in state[1]], state[2]

    def take(self, rows: Sequence[int]) -> tuple[list[list[int]], list[list[float]]]:
        """Tokens and log-probabilities drawn in these slots, each as long as the longest."""
        slot = torch.tensor(list(rows)).to(self.token.device)
        width = int(self.made[slot].max())
        return self.tokens[slot, :width].tolist(), self.logprobs[slot, :width].tolist()

    def release(self, rows: Sequence[int]) -> None:
        """Free these slots."""
        self.done[torch.tensor(list(rows)).to(self.token.device)] = True

    def gather(self, rows: Sequence[int]) -> None:
        """Move these slots to the front, in this order; the others are dropped."""
        n, slot = len(rows), torch.tensor(list(rows)).to(self.token.device)
        for state in (
            self.token,
            self.filled,
            self.made,
            self.limit,
            self.done,
            self.marked,
            self.numbers,
            self.tokens,
            self.logprobs,
        ):
            state[:n] = state[slot]
        for pair in self.cache:
            for cache in pair:
                by_slot = cache.unflatten(0, (self.count, self.heads))
                by_slot[:n] = by_slot[slot]
        self.done[n:] = True

"""Continuous batching: slots whose sequence has ended take the next waiting prompt, and the device hardly ever waits for the host.

The host reads the device's state every `LOOK_EVERY` steps. Between reads a step is one replay of a CUDA graph on a GPU, captured
once for each batch size (a power of two); if attention uses a mask, also for each length of cache that it reads (a
multiple of `LENGTH_STEP`). When no prompt waits any more the remaining sequences are compacted, so that a long tail costs
little.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import torch

from dvk import machine
from dvk.backbone.decoding.forward import SMALL_PARAMETERS, Decoder
from dvk.backbone.decoding.seeds import as_bytes, keys_for, uniforms
from dvk.backbone.decoding.slots import Slots
from dvk.backbone.decoding.stops import Stops

LOOK_EVERY = 8
"""Steps between reads: a finished sequence idles for 4 steps on average, 1 % of a few hundred tokens."""
LENGTH_STEP = {"cpu": 64, "cuda": 128}
"""The cache is read up to the next multiple of this, in tokens; on a GPU each multiple is another graph to capture."""
PREFILL_TOKENS = {"cpu": 4096, "cuda": 65536}
"""Prompt tokens, padding included, read in one pass: bounds activations."""
ADMIT_SHARE = 16
"""A GPU is refilled when at least slots / this many are free: one prompt costs as much host time as many."""
CACHE_SHARE = {"cpu": 0.25, "cuda": 0.6}
"""Share of a GPU's free memory, or of a CPU's, that the caches may take."""


class Sampled(NamedTuple):
    """One completion as tokens."""

    tokens: tuple[int, ...]
    """The stop token, or the token that completes the stop text, included."""
    logprobs: tuple[float, ...]
    finish: Literal["stop", "length"]


class Engine:
    """Decodes many prompts with one model.

    Args:
        model: a transformers causal LM for which `forward.supports` holds.
        dtype: compute dtype.
        positions: longest sequence the model takes, in tokens.
        slots: sequences decoded at once, at most; fewer if their caches do not fit.
    """

    def __init__(self, model: Any, dtype: torch.dtype, positions: int, slots: int):
        self.decoder = Decoder(model, dtype, positions)
        self.positions, self.most = positions, slots
        self.slots: Slots | None = None
        self.graphs: dict[tuple[int, int, bool, float], torch.cuda.CUDAGraph | None] = {}
        self.kind = self.decoder.device.type
        self.pool: Any = None
        self.pulse: Callable[[], None] = lambda: None
        """Called at every read of the device; its exceptions end the run."""

    @torch.inference_mode()
    def run(
        self,
        prompts: Sequence[Sequence[int]],
        limit: int,
        stops: Stops,
        *,
        temperature: float = 1.0,
        top_p: float = 1.0,
        seed: int | None = None,
        streams: Sequence[int | None] = (),
    ) -> list[Sampled]:
        """One completion a prompt, in their order.

        Args:
            prompts: token ids, each at least one and fewer than `positions`.
            limit: tokens to draw at most; less if the model's positions end.
            temperature: 0 is greedy.
            streams: see `seeds.keys_for`.
        """
        if not prompts:
            return []
        self.decoder.refresh()
        keys = keys_for([as_bytes(prompt) for prompt in prompts], seed, streams)
        sampled: dict[int, Sampled] = {}
        for part in self._parts(prompts, limit):
            mine = [prompts[i] for i in part], [keys[i] for i in part]
            sampled.update(zip(part, self._decode(*mine, limit, stops, temperature, top_p)))
        return [sampled[i] for i in range(len(prompts))]

    def _parts(self, prompts: Sequence[Sequence[int]], limit: int) -> list[list[int]]:
        """The prompts that are decoded together: all, if slots as long as the longest needs hold them; else those of like length, the
        shortest first, since a slot of 3,000 tokens takes an eighth of one of 24,000."""
        needs = [min(len(prompt) + limit, self.positions) for prompt in prompts]
        longest, every = max(needs), list(range(len(prompts)))
        count, held = min(self.most, len(prompts)), self.slots
        if held is not None and held.capacity >= longest + 2 * LOOK_EVERY and held.count >= count:
            return [every]
        each = Slots.bytes_each(self.decoder, longest)
        if held is None and self._room() >= count * each:
            return [every]
        parts: dict[int, list[int]] = {}
        for i in every:
            parts.setdefault((longest // needs[i]).bit_length(), []).append(i)
        if len(parts) == 1:
            return [every]
        self._drop_slots()
        if self._room() >= count * each:
            return [every]
        return [parts[size] for size in sorted(parts, reverse=True)]

    def _drop_slots(self) -> None:
        self.slots = None
        self.graphs.clear()
        self.pool = None  # it ends with its last graph

    def _decode(
        self,
        prompts: Sequence[Sequence[int]],
        keys: Sequence[int],
        limit: int,
        stops: Stops,
        temperature: float,
        top_p: float,
    ) -> list[Sampled]:
        slots, greedy = self._slots(prompts, limit), temperature == 0
        slots.begin(temperature, stops)
        results: list[Sampled | None] = [None] * len(prompts)
        waiting = deque(range(len(prompts)))
        sitting: dict[int, int] = {}  # slot → prompt
        steps: dict[
            int, int
        ] = {}  # slot → tokens its cache may hold by now; the device knows exactly
        while waiting or sitting:
            enough = 1 if self.kind == "cpu" else max(1, slots.count // ADMIT_SHARE)
            if waiting and (slots.count - len(sitting) >= min(enough, len(waiting)) or not sitting):
                free = [row for row in range(slots.count) if row not in sitting]
                for group in self._groups(
                    [waiting.popleft() for _ in range(min(len(free), len(waiting)))], prompts
                ):
                    rows = [free.pop(0) for _ in group]
                    limits = [min(limit, self.positions - len(prompts[i])) for i in group]
                    numbers = torch.from_numpy(uniforms([keys[i] for i in group], max(limits)))
                    slots.admit([prompts[i] for i in group], rows, limits, numbers, greedy, top_p)
                    sitting.update(zip(rows, group))
                    steps.update((row, len(prompts[i])) for row, i in zip(rows, group))
            b = self._batch(len(sitting), slots.count)
            if max(sitting) >= b:
                order = sorted(sitting)
                slots.gather(order)
                sitting = {row: sitting[old] for row, old in enumerate(order)}
                steps = {row: steps[old] for row, old in enumerate(order)}
            longest = max(steps[row] for row in sitting) + LOOK_EVERY
            step = LENGTH_STEP[self.kind]
            length = (
                min(-(-longest // step) * step, slots.capacity)
                if self.decoder.masked
                else slots.capacity
            )
            for _ in range(LOOK_EVERY):
                self._step(slots, b, length, greedy, top_p)
            self.pulse()
            steps = {row: count + LOOK_EVERY for row, count in steps.items()}
            for row, sampled in self._finished(slots, b, sitting, stops):
                results[sitting.pop(row)] = sampled
                del steps[row]
        return [result for result in results if result is not None]

    def _slots(self, prompts: Sequence[Sequence[int]], limit: int) -> Slots:
        """Slots that hold these prompts, the existing ones if they are large enough."""
        longest = min(limit, self.positions - min(map(len, prompts)))
        need = min(max(map(len, prompts)) + longest, self.positions)
        step = LENGTH_STEP[self.kind]
        # Beyond the need: a finished row may continue until the host's next read.
        capacity = -(-(need + 2 * LOOK_EVERY) // step) * step
        at_hand = self.slots
        if at_hand is not None and at_hand.capacity >= capacity and at_hand.longest >= longest:
            if at_hand.count >= min(self.most, len(prompts)):
                return at_hand
            capacity, longest = at_hand.capacity, at_hand.longest
        elif at_hand is not None:
            capacity, longest = max(capacity, at_hand.capacity), max(longest, at_hand.longest)
        at_hand = None
        self._drop_slots()
        room = int(self._room() // Slots.bytes_each(self.decoder, capacity))
        count = max(1, min(self.most, room))
        if len(prompts) < count:
            count = min(count, 1 << (len(prompts) - 1).bit_length())
        self.slots = Slots(self.decoder, count, capacity, longest)
        return self.slots

    def _room(self) -> float:
        """Bytes that caches may take."""
        if self.kind == "cuda":
            torch.cuda.empty_cache()
            return CACHE_SHARE["cuda"] * torch.cuda.mem_get_info(self.decoder.device)[0]
        return CACHE_SHARE["cpu"] * machine.memory_bytes()

    def _groups(self, chosen: list[int], prompts: Sequence[Sequence[int]]) -> Iterator[list[int]]:
        """The chosen prompts in groups of like length, each within the budget; equal prompts count once."""
        group: list[int] = []
        different: set[tuple[int, ...]] = set()
        for i in sorted(chosen, key=lambda i: (len(prompts[i]), tuple(prompts[i]))):
            widened = different | {tuple(prompts[i])}
            if group and len(widened) * len(prompts[i]) > PREFILL_TOKENS[self.kind]:
                yield group
                group, widened = [], {tuple(prompts[i])}
            group.append(i)
            different = widened
        yield group

    def _batch(self, active: int, count: int) -> int:
        """Slots that a step runs over: the active ones on a CPU, the next power of two on a GPU."""
        return active if self.kind == "cpu" else min(count, 1 << (active - 1).bit_length())

    def _step(self, slots: Slots, b: int, length: int, greedy: bool, top_p: float) -> None:
        if self.kind == "cpu":
            slots.step(b, length, greedy, top_p)
            return
        key = (b, length, greedy, top_p)
        if (
            key not in self.graphs
        ):  # one eager run first: libraries that load lazily do so here, not while capturing
            slots.step(b, length, greedy, top_p)
            self.graphs[key] = None
            return
        graph = self.graphs[key]
        if graph is None:
            self.graphs[key] = graph = torch.cuda.CUDAGraph()
            self.pool = self.pool or torch.cuda.graph_pool_handle()
            with torch.cuda.device(self.decoder.device), torch.cuda.graph(graph, pool=self.pool):
                slots.step(b, length, greedy, top_p)
        graph.replay()

    def _finished(
        self, slots: Slots, b: int, sitting: dict[int, int], stops: Stops
    ) -> list[tuple[int, Sampled]]:
        """Slots whose sequence has ended, with their tokens."""
        done, marked, made = slots.look(b)
        ended = [row for row in sitting if done[row]]
        suspects = [row for row in sitting if marked[row]]
        rows = sorted({*ended, *suspects})
        result = []
        if rows:
            tokens, logprobs = slots.take(rows)
            for place, row in enumerate(rows):
                drawn = tokens[place][: made[row]]
                cut = stops.find(drawn) if marked[row] else None
                if cut is None and not done[row]:
                    continue
                kept = drawn[:cut]
                finish: Literal["stop", "length"] = (
                    "stop" if cut is not None or kept[-1] in stops.ids else "length"
                )
                result.append(
                    (row, Sampled(tuple(kept), tuple(logprobs[place][: len(kept)]), finish))
                )
        freed = [row for row, _ in result if not done[row]]
        if freed:
            slots.release(freed)
        return result


@contextlib.contextmanager
def decoding(model: Any) -> Iterator[None]:
    """Evaluation mode and a suitable number of threads; the previous state is restored."""
    before, threads = model.training, torch.get_num_threads()
    model.eval()
    if (
        model.device.type == "cpu"
        and sum(p.numel() for p in model.parameters()) <= SMALL_PARAMETERS
    ):
        torch.set_num_threads(1)
    try:
        yield
    finally:
        model.train(before)
        torch.set_num_threads(threads)

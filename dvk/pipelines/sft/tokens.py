"""Examples as rows of tokens: the model's input, and its target output.

lines of files → processes that parse, render and tokenise them → arrays of many rows → two stores, to train on and held out
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from dvk import machine
from dvk.backbone import Conversation
from dvk.config import Config
from dvk.errors import UsageError
from dvk.learn.examples import Example
from dvk.learn.rows import RowStore, RowStoreWriter, dtype_for
from dvk.learn.sources import Source, parsed
from dvk.learn.spread import spread

PLAYED_REPEATS = 8
"""Repeats of a played example per rendered example, of which there are a hundred times as many; 1 without renderings."""

BLOCK = 1024
"""Examples in flight."""
Tokens = tuple[list[int], list[bool]]
"""Ids, and for each whether it is learned."""


class Speaker(Protocol):
    """The required part of a backbone: see `Trainable`."""

    tokenizer: Any

    def encode(self, conversation: Conversation) -> tuple[int, ...]: ...

    def encode_answer(self, text: str) -> tuple[int, ...]: ...


class TokenBlock(NamedTuple):
    """The rows of some examples, in their order, as arrays: these travel between processes at little cost."""

    kinds: list[str]
    """Kind of every row."""
    ids: np.ndarray
    """Ids of all rows, concatenated, shape (tokens,)."""
    targets: np.ndarray
    """For each token, whether it is learned, bool, shape (tokens,)."""
    lengths: np.ndarray
    """Tokens of every row, int64, shape (rows,)."""
    held: np.ndarray
    """Rows of tasks that are held out, bool, shape (rows,)."""
    played: np.ndarray
    """Rows that are no renderings, bool, shape (rows,)."""

    def chosen(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Ids, targets and lengths of these rows, in this order; a row may be named repeatedly."""
        ends = self.lengths.cumsum()
        parts = [
            slice(first, last)
            for first, last in zip((ends - self.lengths)[rows].tolist(), ends[rows].tolist())
        ] or [slice(0, 0)]
        return (
            np.concatenate([self.ids[p] for p in parts]),
            np.concatenate([self.targets[p] for p in parts]),
            self.lengths[rows],
        )


def tokenise(
    folder: Path,
    source: Source,
    speaker: Speaker,
    config: Config,
    origin: str,
    workers: int | None = None,
) -> tuple[RowStore, RowStore]:
    """Rows for training and held-out rows, made once.

    Played examples are repeated `PLAYED_REPEATS` times if there are renderings: they alone show how
    to choose skills, repair and summarise, and are one in a hundred.

    Args:
        folder: where both stores are.
        speaker: whose template and tokenizer are used, so that rows are exactly the model's inputs and outputs. A
            backbone's `chat` can be sent to other processes, the backbone cannot.
        origin: what the examples are; tokens are created again when it changes.
        workers: processes; by default one a core.

    Raises:
        UsageError: no rows to train on.
    """
    share, capacity, vocabulary = (
        config.fit.held_out,
        config.learning.pack_tokens,
        len(speaker.tokenizer),
    )
    wanted = {
        "origin": origin,
        "capacity": capacity,
        "held_out": share,
        "vocabulary": vocabulary,
        "played_repeats": PLAYED_REPEATS,
    }
    if not all(_made(folder / name, wanted) for name in ("train", "held_out")):
        held, train = writers = (
            RowStoreWriter(folder / "held_out", vocabulary),
            RowStoreWriter(folder / "train", vocabulary),
        )
        kinds: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
        too_long = [0, 0]
        rendered = False
        rendering = Rendering(speaker, share)
        for block in spread(rendering, source.batches(BLOCK), workers or machine.num_cores()):
            before = np.logical_or.accumulate(~block.played) | rendered
            rendered = rendered or not block.played.all()
            times = np.where(block.played & before & ~block.held, PLAYED_REPEATS, 1)
            fits = block.lengths <= capacity
            for writer, mine, counts, number in zip(
                writers, (block.held, ~block.held), kinds, range(2)
            ):
                rows = np.flatnonzero(mine & fits).repeat(times[mine & fits])
                writer.add(*block.chosen(rows))
                counts.update(block.kinds[row] for row in rows.tolist())
                too_long[number] += int(times[mine & ~fits].sum())
        for writer, counts, number in zip(writers, kinds, too_long):
            writer.finish({**wanted, "by_kind": counts, "too_long": number})
    made = RowStore(folder / "train"), RowStore(folder / "held_out")
    if not len(made[0]):
        raise UsageError(
            "there is nothing to train on",
            "run `dvk sft collect` with more --tasks, or raise learning.pack_tokens",
        )
    return made


def _made(folder: Path, wanted: dict[str, Any]) -> bool:
    """Whether there is a store with these settings."""
    try:
        info = RowStore(folder).info
    except UsageError:
        return False
    return {key: info.get(key) for key in wanted} == wanted


def worth_learning(example: Example) -> Iterator[bool]:
    """For each of the assistant's messages whether it is learned: no later one is faster, and it was right; all if speedups are unknown."""
    rounds = example.round_speedups
    if len(rounds) != sum(message["role"] == "assistant" for message in example.messages):
        return repeat(True)
    last = len(rounds) - 1
    return iter(
        [
            place == last
            or (own is not None and own >= max(later or 0.0 for later in rounds[place + 1 :]))
            for place, own in enumerate(rounds)
        ]
    )


def is_held_out(task: str, share: float) -> bool:
    """Tasks are held out whole, by a hash of their id, so that no run trains on what another measures."""
    digest = hashlib.sha256(f"held out {task}".encode()).digest()
    return int.from_bytes(digest[:4], "big") < share * 2**32


@dataclass(frozen=True)
class Rendering:
    """Turns examples into rows; of many, in whatever process.

    Args:
        speaker: see `tokenise`.
        share: of tasks that are held out.
    """

    speaker: Speaker
    share: float = 0.0

    def __call__(self, batch: Sequence[Any]) -> TokenBlock:
        """The rows of a source's batch."""
        kinds: list[str] = []
        ids: list[int] = []
        targets: list[bool] = []
        lengths, held, played = [], [], []
        for example in parsed(batch):
            for row, marks in self.example(example):
                kinds.append(example.kind)
                ids += row
                targets += marks
                lengths.append(len(row))
                held.append(is_held_out(example.task.id, self.share))
                played.append(example.verified or "family" not in example.quality)
        return TokenBlock(
            kinds,
            np.array(ids, dtype_for(len(self.speaker.tokenizer))),
            np.array(targets, bool),
            np.array(lengths, np.int64),
            np.array(held, bool),
            np.array(played, bool),
        )

    def example(self, example: Example) -> list[Tokens]:
        """One row a conversation; several if later turns show an answer differently than it was given.

        Chat templates may cut earlier answers (thinking), so a later turn is only joined to
        the row if its prompt begins with the row's tokens. An answer that was wrong, or slower than a later
        one, is shown and not learned.
        """
        parts: list[Tokens] = []
        learned = worth_learning(example)
        for position, message in enumerate(example.messages):
            if message["role"] != "assistant":
                continue
            prompt = list(
                self.speaker.encode(
                    Conversation(messages=example.messages[:position], tools=example.tools)
                )
            )
            answer = self.answer(example, position, prompt)
            marks = [next(learned)] * len(answer)
            if parts and prompt[: len(parts[-1][0])] == parts[-1][0]:
                ids, targets = parts[-1]
                more = prompt[len(ids) :]
                parts[-1] = (ids + more + answer, targets + [False] * len(more) + marks)
            else:
                parts.append((prompt + answer, [False] * len(prompt) + marks))
        return [row for row in parts if any(row[1])]

    def answer(self, example: Example, position: int, prompt: list[int]) -> list[int]:
        """The tokens of one answer. Tool calls are written by the model's own template, which alone knows their form."""
        message: dict[str, Any] = example.messages[position]
        if not message.get("tool_calls"):
            return list(self.speaker.encode_answer(message.get("content") or ""))
        tokenizer = self.speaker.tokenizer
        tools, upto = list(example.tools) or None, list(example.messages[: position + 1])
        whole = tokenizer.apply_chat_template(upto, tools=tools, tokenize=True, return_dict=False)
        if whole[: len(prompt)] != prompt:
            # Without the generation prompt's extras (an empty thinking block) the shared prefix is shorter.
            text = tokenizer.apply_chat_template(upto, tools=tools, tokenize=False)
            before = tokenizer.apply_chat_template(
                upto[:-1], tools=tools, tokenize=False, add_generation_prompt=True
            )
            said = text[len(before) :] if text.startswith(before) else text[len(before.rstrip()) :]
            return list(
                self.speaker.encode_answer(said.split(tokenizer.eos_token or "\0", 1)[0].strip())
            )
        rest = whole[len(prompt) :]
        end = tokenizer.eos_token_id
        return rest[: rest.index(end) + 1] if end in rest else rest

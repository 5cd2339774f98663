"""Caps on what the language model of a search may use: tokens, dollars, requests.

A question is asked only if its worst case fits: its prompt, and the longest answer that is still useful. Its answer is then limited to
what is left, so no cap is ever exceeded by more than an error in the length of the prompts. Of several questions the first are asked
where not all of them fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from dvk.backbone import Conversation, Encoding, Sampling
from dvk.config import OptimizeConfig
from dvk.errors import ModelError, UsageError

LEAST_ANSWER = 256
"""Tokens: a shorter answer cannot hold a kernel, so the model is not asked for one."""
USEFUL_ANSWER = 2048
"""Tokens that an answer should have: fewer questions are asked rather than for shorter answers, down to one."""
BYTES_A_TOKEN = 2.0
"""Bytes of prompt for a token before the server has reported any: code has 3 to 4."""
MOST_BYTES_A_TOKEN = 4.0
SURE = 0.9
"""Share of the reported bytes a token that later prompts are expected to have."""


class Spent(Protocol):
    """What one call used."""

    @property
    def conversations(self) -> Sequence[Conversation]:
        """The questions."""
        ...

    @property
    def prompt_tokens(self) -> int:
        """Tokens read."""
        ...

    @property
    def completion_tokens(self) -> int:
        """Tokens written."""
        ...

    @property
    def cost_usd(self) -> float | None:
        """What it cost."""
        ...


class CapReached(ModelError):
    """A cap of the settings ends the model's part of a search."""


class Allowance:
    """See the module.

    Args:
        settings: the caps.
        backbone: the model that is asked.
        prices: USD of a million prompt and a million completion tokens; None: unknown.

    Raises:
        UsageError: a cap in dollars without prices.
    """

    def __init__(
        self, settings: OptimizeConfig, backbone: object, prices: tuple[float, float] | None
    ):
        self.settings, self.backbone, self.prices = settings, backbone, prices
        if settings.max_usd is not None and prices is None:
            raise UsageError(
                "--max-usd needs the model's prices",
                "give --set backbone.prompt_usd=… and backbone.completion_usd=…, USD a million tokens",
            )

    def fitting(
        self, questions: Sequence[Conversation], sampling: Sampling, calls: Sequence[Spent]
    ) -> tuple[int, Sampling]:
        """How many of the questions can be asked, the first ones, and their sampling: no longer answers than the caps leave.

        Args:
            calls: all earlier ones.

        Raises:
            CapReached: a useful answer to the first does not fit.
        """
        settings = self.settings
        counted = settings.max_tokens is not None or settings.max_usd is not None
        prompts = self._prompt_tokens(questions, calls) if counted else [0] * len(questions)
        useful = min(USEFUL_ANSWER, sampling.max_tokens // 2)
        for number in range(len(questions), 1, -1):
            try:
                found = self._limited(number, sum(prompts[:number]), sampling, calls)
            except CapReached:
                continue
            if found.max_tokens >= useful:
                return number, found
        return 1, self._limited(1, prompts[0], sampling, calls)

    def _limited(
        self, number: int, prompts: int, sampling: Sampling, calls: Sequence[Spent]
    ) -> Sampling:
        """The sampling of so many questions whose prompts have so many tokens together.

        Raises:
            CapReached: a useful answer to each does not fit.
        """
        settings, longest = self.settings, sampling.max_tokens
        num_asked = sum(len(call.conversations) for call in calls)
        if settings.max_requests is not None and num_asked + number > settings.max_requests:
            raise _reached("max_requests", f"{num_asked} of {settings.max_requests} requests")
        if settings.max_tokens is not None:
            used = sum(call.prompt_tokens + call.completion_tokens for call in calls)
            longest = min(longest, (settings.max_tokens - used - prompts) // number)
            _require(longest, sampling, "max_tokens", f"{used} of {settings.max_tokens} tokens")
        if settings.max_usd is not None and self.prices is not None:
            spent = sum(call.cost_usd or 0.0 for call in calls)
            left = (settings.max_usd - spent) * 1e6 - prompts * self.prices[0]
            if self.prices[1] > 0:
                longest = min(longest, int(left / self.prices[1]) // number)
            elif left < 0:
                longest = 0
            _require(longest, sampling, "max_usd", f"{spent:.2f} of {settings.max_usd:.2f} USD")
        return sampling.model_copy(update={"max_tokens": longest})

    def _prompt_tokens(
        self, questions: Sequence[Conversation], calls: Sequence[Spent]
    ) -> list[int]:
        if isinstance(self.backbone, Encoding):
            return [len(self.backbone.encode(question)) for question in questions]
        known = next((call for call in reversed(calls) if call.prompt_tokens), None)
        rate = BYTES_A_TOKEN
        if known is not None:
            rate = SURE * sum(map(_bytes, known.conversations)) / known.prompt_tokens
        return [int(_bytes(q) / min(rate, MOST_BYTES_A_TOKEN)) for q in questions]


def _bytes(question: Conversation) -> int:
    return len(question.model_dump_json().encode())


def _require(longest: int, sampling: Sampling, cap: str, used: str) -> None:
    if longest < min(LEAST_ANSWER, sampling.max_tokens):
        raise _reached(cap, used)


def _reached(cap: str, used: str) -> CapReached:
    option = cap.replace("_", "-")
    return CapReached(
        f"the cap --{option} ended the model's part of the search: {used} used, and the next question may exceed it",
        f"raise --{option}",
    )

"""Caps on what the language model of a search may use: tokens, dollars, requests.

A question is asked only if its worst case fits: its prompt, and the longest answer that is still useful. Its answer is then limited to
what is left, so no cap is ever exceeded by more than an error in the length of the prompts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from dvk.backbone import Conversation, Encoding, Sampling
from dvk.config import OptimizeConfig
from dvk.errors import ModelError, UsageError

LEAST_ANSWER = 256
"""Tokens: a shorter answer cannot hold a kernel, so the model is not asked for one."""
BYTES_A_TOKEN = 2
"""Bytes of prompt for a token, where the model's tokenizer is not known: code has 3 to 4."""


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

    def limited(
        self, questions: Sequence[Conversation], sampling: Sampling, calls: Sequence[Spent]
    ) -> Sampling:
        """The sampling of these questions, with no longer answers than the caps leave.

        Args:
            calls: all earlier ones.

        Raises:
            CapReached: a useful answer to each does not fit.
        """
        settings, longest = self.settings, sampling.max_tokens
        num_asked = sum(len(call.conversations) for call in calls)
        if settings.max_requests is not None and num_asked + len(questions) > settings.max_requests:
            raise _reached("max_requests", f"{num_asked} of {settings.max_requests} requests")
        prompts = self._prompt_tokens(questions) if settings.max_tokens or settings.max_usd else 0
        if settings.max_tokens is not None:
            used = sum(call.prompt_tokens + call.completion_tokens for call in calls)
            longest = min(longest, (settings.max_tokens - used - prompts) // len(questions))
            _require(longest, sampling, "max_tokens", f"{used} of {settings.max_tokens} tokens")
        if settings.max_usd is not None and self.prices is not None:
            spent = sum(call.cost_usd or 0.0 for call in calls)
            left = (settings.max_usd - spent) * 1e6 - prompts * self.prices[0]
            if self.prices[1] > 0:
                longest = min(longest, int(left / self.prices[1]) // len(questions))
            elif left < 0:
                longest = 0
            _require(longest, sampling, "max_usd", f"{spent:.2f} of {settings.max_usd:.2f} USD")
        return sampling.model_copy(update={"max_tokens": longest})

    def _prompt_tokens(self, questions: Sequence[Conversation]) -> int:
        if isinstance(self.backbone, Encoding):
            return sum(len(self.backbone.encode(question)) for question in questions)
        return sum(len(q.model_dump_json().encode()) for q in questions) // BYTES_A_TOKEN


def _require(longest: int, sampling: Sampling, cap: str, used: str) -> None:
    if longest < min(LEAST_ANSWER, sampling.max_tokens):
        raise _reached(cap, used)


def _reached(cap: str, used: str) -> CapReached:
    option = cap.replace("_", "-")
    return CapReached(
        f"the cap --{option} ended the model's part of the search: {used} used, and the next question may exceed it",
        f"raise --{option}",
    )

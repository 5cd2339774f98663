"""A backbone shared by several players, each with its own usage counter."""

from __future__ import annotations

from collections.abc import Sequence

from dvk.backbone import Backbone, Completion, Conversation, Sampling, TokenUsage


class SharedBackbone:
    """One player's view.

    Args:
        backbone: shared; it adds to the common usage as well. If calls overlap, as a server's may, a player's
            seconds include the others' use meanwhile.
    """

    def __init__(self, backbone: Backbone):
        self._backbone = backbone
        self.name, self.dialect = backbone.name, backbone.dialect
        self.elsewhere = bool(getattr(backbone, "elsewhere", False))
        self.usage = TokenUsage()

    def generate(
        self, conversations: Sequence[Conversation], sampling: Sampling
    ) -> list[Completion]:
        """See `Backbone`."""
        used = self._backbone.usage
        before = used.prompt_tokens, used.completion_tokens, used.seconds
        answers = self._backbone.generate(conversations, sampling)
        self.usage.add(
            used.prompt_tokens - before[0],
            used.completion_tokens - before[1],
            used.seconds - before[2],
        )
        return answers

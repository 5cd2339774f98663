"""A budget of tokens for a model's thoughts: a thought that is longer is closed for the model, which then answers.

The closing tokens are given, not sampled. They stand in the answer's tokens, so that the learner scores what follows after them,
and `Tokens.given` leaves them out of what is learned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dvk.backbone import Completion, Sampling
from dvk.backbone.chat import THINK, ChatTemplate
from dvk.config import BackboneConfig
from dvk.records import Tokens

CLOSE = "</think>"
CLOSING = f"\n{CLOSE}\n\n"
"""As Qwen3 ends a thought."""

Complete = Callable[[Sequence[tuple[int, ...]], Sampling], list[Completion]]


def within_budget(
    complete: Complete,
    chat: ChatTemplate,
    prompts: Sequence[tuple[int, ...]],
    sampling: Sampling,
    settings: BackboneConfig,
) -> list[Completion]:
    """One completion a prompt, whose thought has at most `thinking_tokens`.

    Args:
        complete: samples after prompts of token ids.
        chat: the model's.
        prompts: token ids.
        sampling: `max_tokens` bounds thought and answer together.
        settings: `thinking`, `thinking_tokens`.
    """
    budget = settings.thinking_tokens
    if not settings.thinking or budget is None or budget >= sampling.max_tokens:
        return complete(prompts, sampling)
    first = complete(prompts, sampling.model_copy(update={"max_tokens": budget}))
    closing = chat.encode_text(CLOSING)
    unfinished = {
        number: () if _has_thought(one.text) else closing
        for number, one in enumerate(first)
        if one.finish == "length" and one.tokens is not None
    }
    # What is left for the answer differs by the closing tokens alone: the same limit for all keeps one call.
    left = sampling.max_tokens - budget - len(closing)
    if not unfinished or left < 1:
        return first
    asked = []
    for number, given in unfinished.items():
        tokens = first[number].tokens
        assert tokens is not None
        asked.append((*tokens.prompt, *tokens.completion, *given))
    second = complete(asked, sampling.model_copy(update={"max_tokens": left}))
    result = list(first)
    for (number, given), rest in zip(unfinished.items(), second, strict=True):
        result[number] = _joined(first[number], given, rest, chat, sampling)
    return result


def _has_thought(text: str) -> bool:
    """Whether the answer has no open thought: it was closed, or there is none."""
    return CLOSE in text or THINK not in text


def _joined(
    thought: Completion,
    given: tuple[int, ...],
    rest: Completion,
    chat: ChatTemplate,
    sampling: Sampling,
) -> Completion:
    if rest.tokens is None:  # it failed, or found no room
        return thought if rest.finish != "error" else rest
    tokens = thought.tokens
    assert tokens is not None
    begun = (*tokens.completion, *given)
    ids = (*begun, *rest.tokens.completion)
    at = len(tokens.completion)
    text = Sampling(stop=(*sampling.stop, *chat.stop)).cut(chat.decode(ids))
    return Completion(
        text=chat.opening + text,
        tokens=Tokens(
            prompt=tokens.prompt,
            completion=ids,
            logprobs=(*tokens.logprobs, *(0.0 for _ in given), *rest.tokens.logprobs),
            given=tuple(range(at, at + len(given))),
        ),
        finish=rest.finish,
    )

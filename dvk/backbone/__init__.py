"""Language models: a conversation in, a completion out; independent of graphs, kernels and skills.

A backbone answers batches of conversations. One that can be trained also scores given tokens, hands out its parameters
and saves itself. Importing this package loads neither torch nor transformers: `open_backbone` does, when it must.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, runtime_checkable

from pydantic import Field, field_validator, model_validator

from dvk import registry
from dvk.config import Config
from dvk.errors import UsageError
from dvk.records import Record, Tokens
from dvk.sandbox.wire import without_surrogates

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Parameter

BACKBONES = {
    "hf": "dvk.backbone.hf:open_hf",
    "nano": "dvk.backbone.nano:open_nano",
    "davinci": "dvk.interop.davinci.backbone:open_davinci",
    "endpoint": "dvk.backbone.endpoint:EndpointBackbone",
    "served": "dvk.backbone.served:open_served",
    "scripted": "dvk.backbone.scripted:ScriptedBackbone",
}
"""Name before the colon of a backbone's spec → `callable(argument, config, *, device)` that makes one."""

Dialect = Literal["chat", "compact", "davinci", "plan"]
"""Dialect of the agents' prompts: whole files and tool calls, in dvk's words or daVinci-kernel's, or the composer's short symbolic form."""


class Conversation(Record):
    """A model's input."""

    messages: tuple[dict[str, Any], ...] = Field(
        description="OpenAI-style messages: role, content, perhaps tool_calls."
    )
    tools: tuple[dict[str, Any], ...] = Field((), description="OpenAI-style tool schemas.")
    begun: tuple[int, ...] = Field(
        (),
        description="Token ids that the answer begins with; only for models that tell `alternatives`.",
    )
    choices: tuple[str, ...] = Field(
        (),
        description="The answer is one of these texts, drawn by the model's probabilities; models without local weights write freely.",
    )
    stream: int | None = Field(
        None,
        description="Its random numbers, by number: those of equal streams are equal, whatever the messages are. None: by the messages.",
    )


class Sampling(Record):
    """Sampling settings of completions."""

    temperature: float = Field(
        1.0, ge=0, description="Divides the logits; 0 takes the most likely token."
    )
    top_p: float = Field(
        1.0,
        gt=0,
        le=1,
        description="Only the most likely tokens that hold this share of the probability.",
    )
    max_tokens: int = Field(2048, ge=1, description="Longest completion.")
    stop: tuple[str, ...] = Field(
        (), description="Texts that end a completion and are cut from it, as is what follows."
    )
    seed: int | None = Field(
        None,
        description="Equal seeds give equal completions, whatever else is in the batch; null draws one.",
    )
    alternatives: bool = Field(
        False, description="Also return likely alternatives; remote models do not."
    )

    def cut(self, text: str) -> str:
        """The text before the first of the stop texts."""
        places = [place for place in (text.find(stop) for stop in self.stop if stop) if place >= 0]
        return text[: min(places)] if places else text


class Alternative(Record):
    """An alternative token that was not drawn."""

    position: int = Field(ge=0, description="Tokens of the answer before it.")
    at: int = Field(ge=0, description="Characters of the answer before it.")
    token: int = Field(description="Its id.")
    logprob: float = Field(
        le=0, description="Its log-probability after those, at temperature 1, in nats."
    )


class Completion(Record):
    """A model's answer."""

    text: str = Field(description="The answer without its stop token or stop text.")
    tokens: Tokens | None = Field(
        None, description="The same as token ids; null where the backbone does not tell them."
    )
    finish: Literal["stop", "length", "error"] = Field(
        description="Ended by itself, at the token limit, or because it failed."
    )
    error: str | None = Field(
        None, description="What failed; present if and only if finish is `error`."
    )
    tool_calls: tuple[dict[str, Any], ...] = Field(
        (), description="OpenAI-style tool calls, where a server parses them out of the text."
    )
    alternatives: tuple[Alternative, ...] = Field(
        (), description="Where asked for: the likelier ones at each position, in their order."
    )

    @field_validator("text", "error", "tool_calls", mode="before")
    @classmethod
    def _writable(cls, value: Any) -> Any:
        return without_surrogates(value)  # a server may send malformed data

    @model_validator(mode="after")
    def _consistent(self) -> Completion:
        if (self.finish == "error") != bool(self.error):
            raise ValueError("a completion has an error if and only if it finished with one")
        return self


@dataclass
class TokenUsage:
    """Tokens and time that a backbone has consumed since it was opened; `add` is thread-safe."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0
    """Wall clock inside `generate`, calls that overlap counted each."""
    cost_usd: float | None = None
    """None if the price is unknown."""
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def add(
        self,
        prompt_tokens: int = 0,
        completion_tokens: int = 0,
        seconds: float = 0.0,
        cost_usd: float | None = None,
    ) -> None:
        """Count one more call."""
        with self._lock:
            self.prompt_tokens += prompt_tokens
            self.completion_tokens += completion_tokens
            self.seconds += seconds
            if cost_usd is not None:
                self.cost_usd = (self.cost_usd or 0.0) + cost_usd


@runtime_checkable
class Backbone(Protocol):
    """Anything that answers conversations."""

    name: str
    """Display name, e.g. `hf:Qwen/Qwen3-8B`."""
    dialect: Dialect
    usage: TokenUsage

    def generate(
        self, conversations: Sequence[Conversation], sampling: Sampling
    ) -> list[Completion]:
        """One completion a conversation, in their order; a conversation that cannot be answered finishes with `error`.

        Raises:
            DvkError: nothing can be answered: the server is unreachable, the script is exhausted.
        """
        ...


class ScoringRow(NamedTuple):
    """Tokens to score."""

    prompt: Sequence[int]
    """Token ids read."""
    completion: Sequence[int]
    """Token ids written, to be scored; not empty."""


class Scores(NamedTuple):
    """Log-probabilities of rows' completions."""

    values: Tensor
    """float32 [rows, longest completion]; 0 if the mask is false. Carries a gradient if gradients are enabled."""
    mask: Tensor
    """bool [rows, longest completion]: true if the row has a token, by its length."""


@runtime_checkable
class Trainable(Backbone, Protocol):
    """A backbone whose weights are local."""

    tokenizer: Any
    """transformers' tokenizer."""
    chat: Any
    """The `Chat` that renders conversations as tokens; it can be sent to other processes."""
    model: Any
    """transformers' module, wrapped by peft when LoRA is on."""

    def encode(self, conversation: Conversation) -> tuple[int, ...]:
        """Token ids of the rendered conversation, up to where the answer begins."""
        ...

    def encode_answer(self, text: str) -> tuple[int, ...]:
        """Token ids of an answer as the model should write it, the end token included."""
        ...

    def logprobs(self, rows: Sequence[ScoringRow], temperature: float = 1.0) -> Scores:
        """Log-probability of each completion token under logits / temperature, as the sampler kept them."""
        ...

    def parameters(self) -> Iterator[Parameter]:
        """The parameters to be trained: all, or LoRA's."""
        ...

    def release(self) -> None:
        """Free the memory that sampling keeps between calls; the next `generate` takes it again."""
        ...

    def save(self, folder: Path) -> None:
        """Write a folder that `hf:FOLDER` opens; written aside, then renamed.

        Raises:
            RunFolderError: the folder exists.
        """
        ...


@runtime_checkable
class Renewed(Backbone, Protocol):
    """A backbone that samples elsewhere, from weights that are sent to it after each update."""

    def renew(self, trained: Trainable) -> None:
        """Make later answers use the trained parameters' current values.

        Raises:
            MachineError: they cannot be sent.
        """
        ...

    def rest(self) -> None:
        """Free memory of a GPU that it shares with the learner, until `renew`."""
        ...


@runtime_checkable
class Encoding(Protocol):
    """A backbone that knows its model's tokens, local or not."""

    def encode(self, conversation: Conversation) -> tuple[int, ...]:
        """Token ids of the rendered conversation, up to where the answer begins."""
        ...

    def encode_answer(self, text: str) -> tuple[int, ...]:
        """Token ids of an answer as the model should write it, the end token included."""
        ...


def is_supported(spec: str) -> bool:
    """Whether a spec is of a kind that `open_backbone` opens, without opening it."""
    return spec.partition(":")[0] in BACKBONES or spec.rpartition(":")[0].endswith(".py")


def open_backbone(
    spec: str, config: Config | None = None, *, device: str | None = None
) -> Backbone:
    """The backbone that `spec` stands for.

    Args:
        spec: `hf:PATH-or-name`, `nano`, `nano:PATH`, `davinci:PATH`, `endpoint:MODEL`, `served:URL`, `scripted`, `scripted:FILE`, or
        `file.py:Name`, a
            callable with the signature that `BACKBONES` describes.
        config: all settings; their `backbone` section is read.
        device: torch device; null picks a GPU when there is one. Hosted and scripted backbones ignore it.

    Raises:
        UsageError: unknown name, missing folder, gated model or a setting that the backbone cannot honour.
    """
    if not spec:
        raise UsageError("no backbone given", f"choose one of {', '.join(sorted(BACKBONES))}")
    name, _, argument = spec.partition(":")
    if name not in BACKBONES:
        name, argument = spec, ""
    backbone: Backbone = registry.resolve(name, BACKBONES, "backbone")(
        argument, config or Config(), device=device
    )
    return backbone

"""Served models as a backbone: conversations become token ids here, and answers keep the servers' ids and log-probabilities."""

from __future__ import annotations

import os
import shutil
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from transformers import AutoTokenizer

from dvk.backbone import Completion, Conversation, Dialect, Sampling, TokenUsage, Trainable
from dvk.backbone.chat import ChatTemplate
from dvk.backbone.decoding.seeds import as_bytes, keys_for
from dvk.backbone.loading import read_card
from dvk.backbone.served.pool import ServerPool
from dvk.backbone.served.server import Prompt, ServedSample, Server, Weights
from dvk.backbone.thinking import within_budget
from dvk.config import BackboneConfig, Config
from dvk.distributed import ProcessGroup
from dvk.errors import UsageError
from dvk.records import Tokens

KEPT = 2
"""Weights of the last steps that stay on disk: a server that restarts reads the last."""


def servers(urls: str, config: Config) -> list[Server]:
    """The servers of a list of URLs, not connected yet.

    Raises:
        UsageError: one is no URL.
    """
    key = os.environ.get(config.backbone.api_key_env)
    result = dict.fromkeys(url.strip() for url in urls.split(",") if url.strip())
    for url in result:
        if not url.startswith(("http://", "https://")):
            raise UsageError(
                f"not a server's URL: `{url}`",
                "write http://HOST:PORT, several with commas between",
            )
    if not result:
        raise UsageError("no server given", "write served:http://HOST:PORT")
    timeout_s, model = config.backbone.timeout_s, config.served.model
    return [Server(url, key, timeout_s, model) for url in result]


def connect(urls: str, config: Config) -> ServedBackbone:
    """The backbone of a list of URLs, with the tokenizer of the settings or of the model that the servers name.

    Raises:
        UsageError: no tokenizer there, or a server serves no such model.
        MachineError: no server answers.
    """
    pool = ServerPool(servers(urls, config), config.backbone.concurrency)
    source = config.served.tokenizer or pool.alive[0].root
    try:
        tokenizer = AutoTokenizer.from_pretrained(source)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"no tokenizer at `{source}`: {str(error).splitlines()[0]}",
            "name a folder or a model of the Hub: --set served.tokenizer=PATH",
        ) from None
    folder = Path(source)
    card = read_card(folder) if folder.is_dir() else {}
    name = f"served:{urls}"
    chat = ChatTemplate(tokenizer, name, config.backbone.thinking)
    dialect: Dialect = card.get("dialect", config.backbone.endpoint_dialect)
    return ServedBackbone(name, pool, chat, dialect, config.backbone)


class ServedBackbone:
    """See the module; `generate` is for one thread.

    Args:
        name: display name.
        pool: connected servers.
        chat: the model's, which renders conversations and ends answers.
        dialect: of prompts and answers.
        settings: the backbone section.
        folder: of the weights that `renew` writes; None: `renew` is not called.
        sleeps: a server shares the learner's GPU, and sleeps between `rest` and `renew`.
        processes: those of the run, which share the servers.

    Attributes:
        swap_s: seconds of the last `renew`.
    """

    def __init__(
        self,
        name: str,
        pool: ServerPool,
        chat: ChatTemplate,
        dialect: Dialect,
        settings: BackboneConfig,
        folder: Path | None = None,
        processes: ProcessGroup | None = None,
        sleeps: bool = False,
    ):
        self.name, self.pool, self.chat, self.settings = name, pool, chat, settings
        self.dialect: Dialect = dialect
        self.usage = TokenUsage()
        self.hosted = True
        self.elsewhere = not any(server.is_local for server in pool.servers)
        """Whether it samples on other machines, so that its work does not disturb timing here."""
        self.swap_s = 0.0
        self._folder, self._processes = folder, processes or ProcessGroup()
        self._run = self._processes.broadcast(uuid.uuid4().hex[:8])
        self._num_renewed, self._sleeps = 0, sleeps

    # ------------------------------------------------------------ sampling

    def encode(self, conversation: Conversation) -> tuple[int, ...]:
        """Token ids of the rendered conversation, up to where the answer begins."""
        return self.chat.encode(conversation)

    def encode_answer(self, text: str) -> tuple[int, ...]:
        """Token ids of an answer with the token that ends it."""
        return self.chat.encode_answer(text)

    def generate(
        self, conversations: Sequence[Conversation], sampling: Sampling
    ) -> list[Completion]:
        """One completion a conversation, in their order.

        Raises:
            MachineError: no server answers.
            UsageError: a server refuses the key or the model.
        """
        prompts = [self.encode(one) for one in conversations]
        # Rollouts, and the turns of one, begin with the same messages; a server keeps their keys and values.
        opening = [one.model_copy(update={"messages": one.messages[:2]}) for one in conversations]
        places: dict[str, int] = {}
        groups = [places.setdefault(one.model_dump_json(), len(places)) for one in opening]

        def complete(asked: Sequence[tuple[int, ...]], how: Sampling) -> list[Completion]:
            return self.complete(asked, how, groups if len(asked) == len(groups) else None)

        return within_budget(complete, self.chat, prompts, sampling, self.settings)

    def complete(
        self,
        prompts: Sequence[tuple[int, ...]],
        sampling: Sampling,
        groups: Sequence[int] | None = None,
    ) -> list[Completion]:
        """One completion a prompt of token ids, in their order; `groups`: see `ServerPool.run`."""
        began = time.perf_counter()
        room = [self.pool.context - len(prompt) for prompt in prompts]
        fits = [i for i, prompt in enumerate(prompts) if prompt and room[i] > 0]
        keys = keys_for([as_bytes(prompts[i]) for i in fits], sampling.seed)
        asked = [
            Prompt(prompts[i], self._options(sampling, min(sampling.max_tokens, room[i]), key))
            for i, key in zip(fits, keys, strict=True)
        ]
        of = [groups[i] for i in fits] if groups is not None else list(range(len(fits)))
        answers = dict(zip(fits, self.pool.run(asked, of), strict=True))
        completions, read, written = [], 0, 0
        for number, prompt in enumerate(prompts):
            answer = answers.get(number, f"a prompt of {len(prompt)} tokens leaves no room")
            if isinstance(answer, str):
                completions.append(Completion(text="", finish="error", error=answer))
                continue
            read, written = read + len(prompt), written + len(answer.ids)
            completions.append(self._completion(prompt, answer, sampling))
        self.usage.add(read, written, time.perf_counter() - began)
        return completions

    def _options(self, sampling: Sampling, limit: int, key: int) -> dict[str, Any]:
        """Fields of a request. All that shape the distribution are named: a server adds those of the model's generation_config.json."""
        ends = [] if self.chat.end is None else [self.chat.end]
        return {
            "max_tokens": limit,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": -1,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "stop": [stop for stop in (*sampling.stop, *self.chat.stop) if stop],
            "stop_token_ids": ends,
            "seed": key >> 33,
        }

    def _completion(
        self, prompt: tuple[int, ...], answer: ServedSample, sampling: Sampling
    ) -> Completion:
        stops = (*sampling.stop, *self.chat.stop)
        text = Sampling(stop=stops).cut(self.chat.decode(answer.ids))
        return Completion(
            text=self.chat.opening + text,
            tokens=Tokens(prompt=prompt, completion=answer.ids, logprobs=answer.logprobs),
            finish=answer.finish,
        )

    # ------------------------------------------------------------ training

    def renew(self, trained: Trainable) -> None:
        """Have the servers sample from the trained weights: the adapter if the model has one, else all weights.

        Raises:
            MachineError: a server cannot load them.
        """
        assert self._folder is not None, "it was opened to be trained"
        began = time.perf_counter()
        self._num_renewed += 1
        name = f"dvk-{self._run}-{self._num_renewed}"
        is_adapter = hasattr(trained.model, "peft_config")
        kind: Literal["adapter", "full"] = "adapter" if is_adapter else "full"
        folder = (self._folder / name).absolute()
        if self._processes.is_main:
            trained.save(folder)
        self._processes.barrier()
        self.pool.publish(Weights(name, folder, kind))
        self._processes.barrier()
        if self._processes.is_main:
            for old in sorted(self._folder.iterdir(), key=lambda path: path.stat().st_mtime)[
                :-KEPT
            ]:
                shutil.rmtree(old, ignore_errors=True)
        self.swap_s = time.perf_counter() - began

    def rest(self) -> None:
        """Free memory of a GPU that a server shares with the learner, until `renew`."""
        if self._sleeps:
            self.pool.sleep()

    def close(self) -> None:
        """Remove the weights that were written for the servers."""
        if self._folder is not None and self._processes.is_main:
            shutil.rmtree(self._folder, ignore_errors=True)


__all__ = ["ServedBackbone", "connect", "servers"]

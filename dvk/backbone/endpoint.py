"""Any server with OpenAI's chat completions API: vLLM, SGLang, `transformers serve`, or a hosted model.

The official client sends and retries requests (growing pauses, `Retry-After` honoured). An error of one
conversation, such as a prompt that is too long, finishes it with an error; an error of all raises.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import openai

from dvk.backbone import Completion, Conversation, Dialect, Sampling, TokenUsage
from dvk.backbone.chat import THINK
from dvk.backbone.decoding.seeds import keys_for
from dvk.config import Config
from dvk.errors import DvkError, MachineError, UsageError
from dvk.sandbox.wire import without_surrogates

RETRIES = 4
"""Retries of a request, with growing pauses; about 15 s in all."""
LOOPBACK = ("localhost", "127.0.0.1", "::1", "0.0.0.0")


class EndpointBackbone:
    """`endpoint:MODEL`, at the URL of the settings or of $OPENAI_BASE_URL.

    Raises:
        UsageError: no model, no URL or no key given.
    """

    def __init__(self, argument: str, config: Config, *, device: str | None = None):
        settings = config.backbone
        if not argument:
            raise UsageError(
                "`endpoint` needs a model",
                "write endpoint:MODEL, the name by which the server knows it",
            )
        self.name, self.model = f"endpoint:{argument}", argument
        self.hosted = True
        self.dialect: Dialect = settings.endpoint_dialect
        self.settings = settings
        known = settings.prompt_usd is not None and settings.completion_usd is not None
        self.prices = (
            (settings.prompt_usd or 0.0, settings.completion_usd or 0.0) if known else None
        )
        """USD of a million prompt and a million completion tokens."""
        self.usage = TokenUsage(cost_usd=0.0 if known else None)
        self.url = settings.endpoint_url or os.environ.get("OPENAI_BASE_URL")
        key = os.environ.get(settings.api_key_env)
        if not self.url and not key:
            problem = f"neither a server's URL nor a key: $OPENAI_BASE_URL and ${settings.api_key_env} are not set"
            raise UsageError(
                problem, "give --set backbone.endpoint_url=http://HOST:PORT/v1, or export a key"
            )
        # A private server needs no key, but the client requires one.
        self.client = openai.OpenAI(
            base_url=self.url,
            api_key=key or "none",
            max_retries=RETRIES,
            timeout=settings.timeout_s,
        )
        self.elsewhere = urlsplit(str(self.client.base_url)).hostname not in LOOPBACK
        """Whether it writes on another machine, so that its work does not disturb timing here."""
        self.limit_name = "max_tokens"
        """Servers of OpenAI's own newest models require `max_completion_tokens`, which older servers do not know."""
        self.sets_thinking = self.url is not None
        """Send `enable_thinking` to the model's chat template, as vLLM and SGLang take it; until a server refuses it."""

    def generate(
        self, conversations: Sequence[Conversation], sampling: Sampling
    ) -> list[Completion]:
        """One completion a conversation, in their order, `concurrency` of them in flight at once.

        Raises:
            MachineError: the server cannot be reached, by any of the conversations.
            UsageError: the server refuses the key or does not know the model.
        """
        if not conversations:
            return []
        seeds: list[int | None] = [None] * len(conversations)
        if (
            sampling.seed is not None
        ):  # equal conversations draw differently, as with dvk's own sampler
            seeds = [
                key >> 33
                for key in keys_for(
                    [c.model_dump_json().encode() for c in conversations], sampling.seed
                )
            ]
        answers = self._side_by_side(
            [(conversation, sampling, seed) for conversation, seed in zip(conversations, seeds)]
        )
        for answer in answers:
            if isinstance(answer, DvkError) and not isinstance(answer, MachineError):
                raise answer
        lost = [answer for answer in answers if isinstance(answer, MachineError)]
        if len(lost) == len(answers):
            raise lost[0]
        return [
            Completion(text="", finish="error", error=a.message) if isinstance(a, DvkError) else a
            for a in answers
        ]

    def _side_by_side(
        self, asked: Sequence[tuple[Conversation, Sampling, int | None]]
    ) -> list[Completion | DvkError]:
        """The answers, in order. The threads are daemons: a server that never answers does not keep an ended process alive."""
        found: dict[int, Completion | DvkError | BaseException] = {}
        waiting = iter(enumerate(asked))
        lock = threading.Lock()

        def work() -> None:
            while True:
                with lock:
                    number, one = next(waiting, (-1, None))
                if one is None:
                    return
                try:
                    found[number] = self._ask(*one)
                except BaseException as error:  # noqa: BLE001 - raised again in the thread that asked
                    found[number] = error

        threads = [
            threading.Thread(target=work, name="endpoint", daemon=True)
            for _ in range(min(self.settings.concurrency, len(asked)))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        answers: list[Completion | DvkError] = []
        for number in range(len(asked)):
            answer = found[number]
            if isinstance(answer, BaseException) and not isinstance(answer, DvkError):
                raise answer
            answers.append(answer)
        return answers

    def _ask(
        self, conversation: Conversation, sampling: Sampling, seed: int | None
    ) -> Completion | DvkError:
        began, server = time.perf_counter(), f"the server at `{self.client.base_url}`"
        try:
            reply = self._request(conversation, sampling, seed)
        except openai.APIConnectionError as error:
            problem = (
                "took too long"
                if isinstance(error, openai.APITimeoutError)
                else "cannot be reached"
            )
            return MachineError(
                f"{server} {problem}",
                "start it, or correct backbone.endpoint_url or $OPENAI_BASE_URL",
            )
        except (openai.AuthenticationError, openai.PermissionDeniedError) as error:
            return UsageError(
                f"{server} refuses the key: {_said(error)}", f"export ${self.settings.api_key_env}"
            )
        except openai.NotFoundError as error:
            return UsageError(
                f"{server} does not know `{self.model}`: {_said(error)}",
                "ask it for its models at /models",
            )
        except openai.APIError as error:
            return Completion(
                text="", finish="error", error=f"{type(error).__name__}: {_said(error)}"
            )
        except ValueError as error:  # invalid JSON despite its content type
            return Completion(
                text="",
                finish="error",
                error=f"the server's answer cannot be read: {str(error)[:200]}",
            )
        try:
            self._count(reply.usage, conversation, sampling, time.perf_counter() - began)
            return self._read(reply, sampling)
        except (
            AttributeError,
            TypeError,
            ValueError,
            LookupError,
        ):  # a web page, or JSON of another kind
            return Completion(
                text="",
                finish="error",
                error=f"the server's answer is no chat completion: {str(reply)[:200]!r}",
            )

    def _read(self, reply: Any, sampling: Sampling) -> Completion:
        if not reply.choices:
            return Completion(text="", finish="error", error="the server sent no choice")
        choice = reply.choices[0]
        text = sampling.cut(choice.message.content or "")  # some servers send the stop text too
        cut = choice.finish_reason == "length"
        apart = any(
            getattr(choice.message, name, None) for name in ("reasoning", "reasoning_content")
        )
        if self.settings.thinking and cut and not apart and "</think>" not in text:
            # The template may have opened the thought, which then is not in the text.
            text = f"{THINK}\n{text.removeprefix(THINK)}"
        return Completion(
            text=text,
            finish="length" if cut else "stop",
            tool_calls=tuple(
                call.model_dump(exclude_none=True) for call in choice.message.tool_calls or ()
            ),
        )

    def _request(self, conversation: Conversation, sampling: Sampling, seed: int | None) -> Any:
        asked: dict[str, Any] = {
            "model": self.model,
            "messages": list(conversation.messages),
            "temperature": sampling.temperature,
            self.limit_name: sampling.max_tokens,
        }
        optional = {
            "tools": list(conversation.tools),
            "stop": list(sampling.stop),
            "seed": seed,
            "top_p": sampling.top_p if sampling.top_p < 1 else None,
        }
        asked.update(
            {key: value for key, value in optional.items() if value or value == 0 and key == "seed"}
        )
        if self.sets_thinking:
            thinking = {"enable_thinking": self.settings.thinking}
            asked["extra_body"] = {"chat_template_kwargs": thinking}
        try:
            return self.client.chat.completions.create(**asked)
        except (openai.BadRequestError, openai.UnprocessableEntityError) as error:
            if self.sets_thinking and "chat_template_kwargs" in str(error):
                self.sets_thinking = False
                return self._request(conversation, sampling, seed)
            if self.limit_name == "max_completion_tokens" or "max_completion_tokens" not in str(
                error
            ):
                raise
            self.limit_name = "max_completion_tokens"
            return self._request(conversation, sampling, seed)

    def _count(
        self, used: Any, conversation: Conversation, sampling: Sampling, seconds: float
    ) -> None:
        """Add one request. A server that reports no usage is counted at its worst: a token a byte, and the longest answer."""
        if used is not None:
            read, written = used.prompt_tokens or 0, used.completion_tokens or 0
        else:
            read, written = len(conversation.model_dump_json().encode()), sampling.max_tokens
        prices = self.prices
        self.usage.add(
            read,
            written,
            seconds,
            None if prices is None else (read * prices[0] + written * prices[1]) / 1e6,
        )


def _said(error: openai.APIError) -> str:
    message = str(without_surrogates(str(error.message))).strip()
    return message.splitlines()[0][:300] if message else "no reason given"

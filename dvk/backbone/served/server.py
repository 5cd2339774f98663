"""One vLLM server: its completions with token ids in and out, and the weights that it has loaded."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from dvk.backbone.served import http
from dvk.backbone.served.http import Refused, Unreachable
from dvk.errors import MachineError, UsageError

HEALTH_S = 5.0
"""Longest answer of a healthy server that says so."""
LOAD_S = 600.0
"""Longest load of weights: tens of gigabytes from a network disk."""


@dataclass(frozen=True)
class Weights:
    """Weights that servers are to sample from, in a folder that they can read.

    Attributes:
        name: no other weights of any run have it.
        folder: written by transformers or peft.
        kind: a LoRA adapter on the served model, or all weights.
    """

    name: str
    folder: Path
    kind: Literal["adapter", "full"]


class Prompt(NamedTuple):
    """A request of one completion."""

    ids: tuple[int, ...]
    options: dict[str, Any]
    """Fields of vLLM's completions API."""


class ServedSample(NamedTuple):
    """A completion."""

    ids: tuple[int, ...]
    """The tokens, the one that ended it included."""
    logprobs: tuple[float, ...]
    """Natural logarithm of the probability of each."""
    finish: Literal["stop", "length"]


class Server:
    """See the module.

    Args:
        url: base URL, with or without `/v1`.
        key: of its API, if it wants one.
        timeout_s: longest completion.
        model: the base model's name there; null: the first that it lists.
    """

    def __init__(self, url: str, key: str | None, timeout_s: float, model: str | None = None):
        self.url = url.rstrip("/").removesuffix("/v1")
        self.key, self.timeout_s = key, timeout_s
        self.model, self.root, self.context = model or "", "", 0
        """Name and path of the base model, and its longest sequence in tokens; by `connect`."""
        self.alive = False
        self.loaded: Weights | None = None
        self._loading = threading.Lock()

    def connect(self) -> None:
        """Read which model it serves.

        Raises:
            Unreachable: it does not answer.
            UsageError: it serves no such model, or is no vLLM server.
        """
        try:
            listed = self._ask("/v1/models", timeout_s=HEALTH_S)
            cards = [card for card in listed["data"] if not card.get("parent")]
            names = [card["id"] for card in cards]
            card = cards[names.index(self.model) if self.model else 0]
            self.model, self.root = card["id"], card["root"] or ""
            self.context = int(card["max_model_len"])
        except Refused as error:
            raise self._explained(error, "does not list its models") from None
        except (LookupError, TypeError):
            raise UsageError(
                f"{self} is no vLLM server: /v1/models does not describe a model",
                "give the URL of `vllm serve`; other servers have `endpoint:MODEL`",
            ) from None
        except ValueError:
            raise UsageError(
                f"{self} does not serve `{self.model}`", f"set served.model to one of {names}"
            ) from None
        self.alive = True

    def is_healthy(self) -> bool:
        """Whether it answers and its engine lives."""
        try:
            self._ask("/health", timeout_s=HEALTH_S)
        except (Unreachable, Refused):
            return False
        return True

    def complete(self, prompt: Prompt, weights: Weights | None) -> ServedSample:
        """One completion under these weights, which are loaded if they are not there.

        Raises:
            Unreachable: it does not answer.
            Refused: it cannot answer this prompt, or has no time.
            MachineError, UsageError: see `load`; the answer has no token ids.
        """
        self.load(weights)
        try:
            return self._completed(prompt)
        except Refused as error:
            if error.status == 404 and weights is not None:  # a restart has lost them
                self.loaded = None
                self.load(weights)
                return self._completed(prompt)
            if error.status in (401, 403, 404):
                raise self._explained(error, f"refuses `{self.model}`") from None
            raise

    def _completed(self, prompt: Prompt) -> ServedSample:
        adapter = self.loaded if self.loaded and self.loaded.kind == "adapter" else None
        body = {
            "model": adapter.name if adapter else self.model,
            "prompt": list(prompt.ids),
            "logprobs": 0,
            "return_token_ids": True,
            "skip_special_tokens": False,
            **prompt.options,
        }
        answer = self._ask("/v1/completions", body)
        try:
            choice = answer["choices"][0]
            ids, scores = choice["token_ids"], choice["logprobs"]["token_logprobs"]
            if len(ids) != len(scores):
                raise ValueError
            # vLLM leaves the first log-probability out if its value is not finite.
            logprobs = tuple(min(0.0, float(score)) for score in scores)
            cut = choice["finish_reason"] == "length"
            return ServedSample(tuple(ids), logprobs, "length" if cut else "stop")
        except (LookupError, TypeError, ValueError):
            raise MachineError(
                f"{self} returns no token ids with log-probabilities",
                "use vLLM 0.11 or later; `endpoint:MODEL` works without them, and cannot be trained",
            ) from None

    def load(self, weights: Weights | None) -> None:
        """Sample from these weights from now on; nothing happens if they are loaded.

        Raises:
            Unreachable: it does not answer.
            MachineError: it cannot load them.
        """
        with self._loading:
            if weights is None or weights == self.loaded:
                return
            if weights.kind == "adapter":
                self._load_adapter(weights)
            else:
                self._load_all(weights)
            self.loaded = weights

    def _load_adapter(self, weights: Weights) -> None:
        try:
            self._ask(
                "/v1/load_lora_adapter",
                {"lora_name": weights.name, "lora_path": str(weights.folder)},
                timeout_s=LOAD_S,
            )
        except Refused as error:
            if "already been loaded" not in error.said:  # by another process of the run
                raise self._explained(error, "does not load the LoRA adapter") from None
        if self.loaded is not None:
            try:
                self._ask("/v1/unload_lora_adapter", {"lora_name": self.loaded.name})
            except Refused:
                pass  # another process has done so

    def _load_all(self, weights: Weights) -> None:
        body = {"method": "reload_weights", "kwargs": {"weights_path": str(weights.folder)}}
        try:
            self._ask("/collective_rpc", body, timeout_s=LOAD_S)
            self._ask("/reset_prefix_cache", {})  # its keys and values are of the former weights
        except Refused as error:
            raise self._explained(error, "does not reload its weights") from None

    def sleep(self) -> None:
        """Free the GPU's memory until `wake`; weights go to the machine's memory, cached keys and values are lost.

        Raises:
            Unreachable: it does not answer.
            Refused: it was not started for that.
        """
        self._ask("/sleep?level=1", {}, timeout_s=LOAD_S)

    def wake(self) -> None:
        """Take the GPU's memory again; raises as `sleep`."""
        self._ask("/wake_up", {}, timeout_s=LOAD_S)

    def require_sampled_logprobs(self) -> None:
        """Check that it returns log-probabilities of the distribution that it samples from, temperature included.

        Raises:
            UsageError: they are those at temperature 1.
            Unreachable, Refused: no answer.
        """
        likeliest = []
        for temperature in (1.0, 2.0):
            body = {"model": self.model, "prompt": [1, 1], "max_tokens": 1, "logprobs": 1}
            answer = self._ask("/v1/completions", {**body, "temperature": temperature})
            likeliest.append(max(answer["choices"][0]["logprobs"]["top_logprobs"][0].values()))
        if likeliest[0] == likeliest[1]:
            raise UsageError(
                f"{self} returns log-probabilities at temperature 1 only",
                "start it with --logprobs-mode processed_logprobs, or leave rollout.temperature at 1",
            )

    @property
    def is_local(self) -> bool:
        """Whether it runs on this machine."""
        return http.is_loopback(self.url)

    def _explained(self, error: Refused, problem: str) -> MachineError | UsageError:
        text = f"{self} {problem}: {error.said}"
        if error.status in (401, 403):
            return UsageError(
                text, "export the key that the server wants; see backbone.api_key_env"
            )
        if "does not reload" in problem:
            return MachineError(
                text,
                "start it with VLLM_SERVER_DEV_MODE=1 and a folder that it can read (served.adapters), "
                "or train an adapter: --set backbone.lora_rank=16",
            )
        if "No adapter found" in error.said:
            return MachineError(
                text, "set served.adapters to a folder that learner and server both can read"
            )
        return MachineError(
            text,
            "start it with VLLM_ALLOW_RUNTIME_LORA_UPDATING=1, --enable-lora and --max-lora-rank of at least "
            "backbone.lora_rank",
        )

    def _ask(
        self, path: str, body: dict[str, Any] | None = None, timeout_s: float | None = None
    ) -> Any:
        timeout_s = timeout_s or self.timeout_s
        return http.ask(f"{self.url}{path}", body, key=self.key, timeout_s=timeout_s)

    def __str__(self) -> str:
        return f"the server at `{self.url}`"

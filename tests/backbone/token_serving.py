"""A server on loopback with vLLM's protocol of token ids over a dvk model: what CI can run, where vLLM is too large.

It really samples, and really loads adapters. The same tests against vLLM itself are in `test_served_vllm.py`.
"""

from __future__ import annotations

import http.server
import json
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from peft import set_peft_model_state_dict
from peft.utils.save_and_load import load_peft_weights

from dvk.backbone import Sampling
from dvk.backbone.hf import HfBackbone
from dvk.device_lock import DeviceLock, of_cpu


class TokenServer(http.server.ThreadingHTTPServer):
    """Serves `backbone` under the name `tiny`."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, backbone: HfBackbone, root: str, port: int = 0):
        super().__init__(("127.0.0.1", port), _Handler)
        self.backbone, self.root = backbone, root
        # Its client holds this machine's cores as for a server of another make; waiting for them here, too, would be a deadlock.
        self._locks = tempfile.TemporaryDirectory()
        backbone._lanes[of_cpu()] = DeviceLock("server", self._locks.name)
        self.adapters: dict[str, str] = {}
        self.now: str | None = None
        """The adapter in the model."""
        self.stumbles: list[tuple[int, str]] = []
        """(status, message) sent before the next honest completions, one a request."""
        self.prompts: list[list[int]] = []
        self.takes_adapters = True
        self.delay_s = 0.0
        self.lock = threading.Lock()
        self.url = f"http://127.0.0.1:{self.server_port}"


class _Handler(http.server.BaseHTTPRequestHandler):
    server: TokenServer

    def do_GET(self) -> None:
        if self.path == "/v1/models":
            card = {"id": "tiny", "root": self.server.root, "parent": None}
            card["max_model_len"] = self.server.backbone.positions  # type: ignore[assignment]
            self._send(200, {"data": [card]})
        else:
            self._send(200 if self.path == "/health" else 404, {})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server = self.server
        if self.path == "/v1/completions":
            self._complete(body)
        elif self.path == "/v1/load_lora_adapter" and server.takes_adapters:
            if not Path(body["lora_path"]).is_dir():
                return self._refuse(404, f"No adapter found for {body['lora_path']}")
            server.adapters[body["lora_name"]] = body["lora_path"]
            self._send(200, {})
        elif self.path == "/v1/unload_lora_adapter":
            server.adapters.pop(body["lora_name"], None)
            self._send(200, {})
        else:
            self._refuse(404, "Not Found")

    def _complete(self, body: dict[str, Any]) -> None:
        server = self.server
        with server.lock:
            server.prompts.append(body["prompt"])
            if server.stumbles:
                return self._refuse(*server.stumbles.pop(0))
            time.sleep(server.delay_s)
            if body["model"] not in ("tiny", *server.adapters):
                return self._refuse(404, f"The model `{body['model']}` does not exist.")
            if body["model"] != "tiny" and body["model"] != server.now:
                weights = load_peft_weights(server.adapters[body["model"]], device="cpu")
                set_peft_model_state_dict(server.backbone.model, weights)
                server.now = body["model"]
            how = Sampling(
                temperature=body["temperature"],
                top_p=body["top_p"],
                max_tokens=body["max_tokens"],
                stop=tuple(body["stop"]),
                seed=body["seed"],
            )
            done = server.backbone.complete([tuple(body["prompt"])], how)[0]
        assert done.tokens is not None, done.error
        scores = {"token_logprobs": list(done.tokens.logprobs)}
        choice = {
            "token_ids": list(done.tokens.completion),
            "logprobs": scores,
            "finish_reason": done.finish,
        }
        self._send(200, {"choices": [choice]})

    def _refuse(self, status: int, message: str) -> None:
        self._send(status, {"error": {"message": message, "code": status}})

    def _send(self, status: int, value: dict[str, Any]) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None: ...


@contextmanager
def token_serving(backbone: HfBackbone, root: object, port: int = 0) -> Iterator[TokenServer]:
    """The server while the block runs."""
    server = TokenServer(backbone, str(root), port)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

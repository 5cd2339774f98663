"""A small OpenAI-compatible server on loopback that serves a dvk backbone, and can be set to fail at first."""

from __future__ import annotations

import http.server
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dvk.backbone import Backbone, Conversation, Sampling


class Server(http.server.ThreadingHTTPServer):
    """Serves `backbone` under the name `tiny`."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(
        self,
        backbone: Backbone,
        stumbles: list[tuple[int, dict[str, Any]]] | None = None,
        delay_s: float = 0.0,
    ):
        super().__init__(("127.0.0.1", 0), Handler)
        self.backbone, self.delay_s = backbone, delay_s
        self.stumbles = list(stumbles or [])
        """(status, error) sent before the first honest answers, one a request."""
        self.requests: list[dict[str, Any]] = []
        self.reports_usage = True
        self.lock = threading.Lock()
        self.busy = self.busiest = 0
        self.url = f"http://127.0.0.1:{self.server_port}/v1"


class Handler(http.server.BaseHTTPRequestHandler):
    """POST /v1/chat/completions."""

    server: Server
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server = self.server
        with server.lock:
            server.requests.append(body | {"authorization": self.headers.get("Authorization")})
            stumble = server.stumbles.pop(0) if server.stumbles else None
            server.busy += 1
            server.busiest = max(server.busiest, server.busy)
        try:
            time.sleep(server.delay_s)
            if stumble:
                self._send(stumble[0], {"error": stumble[1]})
            elif body["model"] != "tiny":
                self._send(
                    404,
                    {"error": {"message": f"no model {body['model']}", "code": "model_not_found"}},
                )
            else:
                self._send(200, self._answer(body))
        finally:
            with server.lock:
                server.busy -= 1

    def _answer(self, body: dict[str, Any]) -> dict[str, Any]:
        conversation = Conversation(
            messages=tuple(body["messages"]), tools=tuple(body.get("tools", ()))
        )
        limit = body.get("max_completion_tokens") or body["max_tokens"]
        sampling = Sampling(
            temperature=body["temperature"],
            top_p=body.get("top_p", 1.0),
            max_tokens=limit,
            stop=tuple(body.get("stop", ())),
            seed=body.get("seed"),
        )
        with self.server.lock:
            before = (
                self.server.backbone.usage.prompt_tokens,
                self.server.backbone.usage.completion_tokens,
            )
            done = self.server.backbone.generate([conversation], sampling)[0]
            used = self.server.backbone.usage
            read, written = used.prompt_tokens - before[0], used.completion_tokens - before[1]
        message: dict[str, Any] = {"role": "assistant", "content": done.text}
        if done.tool_calls:
            message = {"role": "assistant", "content": None, "tool_calls": list(done.tool_calls)}
        return {
            "id": "1",
            "object": "chat.completion",
            "created": 0,
            "model": "tiny",
            "choices": [
                {
                    "index": 0,
                    "message": message,
                    "finish_reason": "tool_calls" if done.tool_calls else done.finish,
                }
            ],
            "usage": {
                "prompt_tokens": read,
                "completion_tokens": written,
                "total_tokens": read + written,
            }
            if self.server.reports_usage
            else None,
        }

    def _send(self, status: int, value: dict[str, Any]) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None: ...


@contextmanager
def serving(backbone: Backbone, **how: Any) -> Iterator[Server]:
    """The server while the block runs."""
    server = Server(backbone, **how)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

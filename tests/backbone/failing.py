"""A real HTTP server on loopback that fails as model servers do: it refuses, hangs, sends errors or garbage, or dies midway."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

FAILURES = ("refuses", "401", "429", "500", "html", "not json", "other json", "hangs up", "hangs")


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        with self.server.lock:
            self.server.asked += 1
            answered = self.server.answers.pop(0) if self.server.answers else None
        if answered is not None:
            message = {"role": "assistant", "content": answered}
            self._send(
                200,
                json.dumps(
                    {
                        "id": "1",
                        "object": "chat.completion",
                        "created": 0,
                        "model": "m",
                        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
                        "usage": {"prompt_tokens": 1, "completion_tokens": 1},
                    }
                ),
            )
            return
        failure = self.server.failure
        if failure.isdigit():
            self._send(int(failure), json.dumps({"error": {"message": f"status {failure}"}}))
        elif failure == "html":
            self._send(200, "<html>It works!</html>", "text/html")
        elif failure == "not json":
            self._send(200, '{"choices": [')
        elif failure == "other json":
            self._send(200, '{"choices": [{"message": 3}]}')
        elif failure == "hangs up":
            self.connection.shutdown(socket.SHUT_RDWR)
        else:
            self.server.over.wait(600)
            self.close_connection = True

    def _send(self, status: int, text: str, kind: str = "application/json") -> None:
        data = text.encode()
        self.send_response(status)
        for name, value in (
            ("Content-Type", kind),
            ("Content-Length", str(len(data))),
            ("Retry-After", "0"),
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None: ...


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, failure: str, answers: list[str]):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.failure, self.answers, self.asked, self.lock = failure, answers, 0, threading.Lock()
        self.over = threading.Event()


@contextmanager
def failing(failure: str, answers: tuple[str, ...] = ()) -> Iterator[str]:
    """The URL of a server that fails so, one of `FAILURES`, once it has given its answers."""
    server = _Server(failure, list(answers))
    if failure == "refuses":
        server.server_close()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        return
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.over.set()
        server.shutdown()
        server.server_close()

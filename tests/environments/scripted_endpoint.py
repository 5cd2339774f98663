"""A model for trainers' own programs: an OpenAI-compatible endpoint whose first answer is wrong and whose others are right.

`python -m tests.environments.scripted_endpoint PORT`
"""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.environments.answers import RIGHT, WRONG

USAGE = {"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20}


class Endpoint(BaseHTTPRequestHandler):
    """Chat completions, whole or streamed."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *said: Any) -> None:
        pass

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answered = any(message["role"] == "assistant" for message in asked["messages"])
        message = {"role": "assistant", "content": RIGHT if answered else WRONG}
        choice: dict[str, Any] = {"index": 0, "finish_reason": "stop"}
        named = {"id": "said", "created": 0, "model": asked["model"], "usage": USAGE}
        if not asked.get("stream"):
            body = {
                **named,
                "object": "chat.completion",
                "choices": [{**choice, "message": message}],
            }
            self._send("application/json", json.dumps(body))
            return
        part = {
            **named,
            "object": "chat.completion.chunk",
            "choices": [{**choice, "delta": message}],
        }
        self._send("text/event-stream", f"data: {json.dumps(part)}\n\ndata: [DONE]\n\n")

    def _send(self, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Endpoint)
    print(server.server_address[1], flush=True)
    server.serve_forever()

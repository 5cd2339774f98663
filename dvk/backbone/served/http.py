"""JSON over HTTP, with the two ways in which it fails kept apart: nothing answers, or the server refuses."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import urlsplit

LOOPBACK = ("localhost", "127.0.0.1", "::1", "0.0.0.0")


class Unreachable(Exception):
    """Nothing answers, or the connection ended before the answer: the server is dead, restarts, or took too long."""


class Refused(Exception):
    """The server answered with an error.

    Attributes:
        status: of HTTP.
        said: the server's message, one line.
    """

    def __init__(self, status: int, said: str):
        super().__init__(f"HTTP {status}: {said}")
        self.status, self.said = status, said


def is_loopback(url: str) -> bool:
    """Whether the URL names this machine."""
    return urlsplit(url).hostname in LOOPBACK


def ask(
    url: str, body: dict[str, Any] | None = None, *, key: str | None = None, timeout_s: float
) -> Any:
    """The answer to a POST with a body, to a GET without one: JSON, or text that is no JSON.

    Raises:
        Unreachable: no answer within the time.
        Refused: an answer with status 400 or more.
    """
    headers = {"Content-Type": "application/json"} | (
        {"Authorization": f"Bearer {key}"} if key else {}
    )
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, headers)
    # Proxies of the environment are for other machines.
    proxies = [urllib.request.ProxyHandler({})] if is_loopback(url) else []
    try:
        with urllib.request.build_opener(*proxies).open(request, timeout=timeout_s) as reply:
            return _read(reply.read())
    except urllib.error.HTTPError as error:
        with error:
            raise Refused(error.code, _said(_read(_body(error)))) from None
    except TimeoutError:
        raise Unreachable(f"no answer within {timeout_s:g} s") from None
    except urllib.error.URLError as error:
        late = isinstance(error.reason, TimeoutError)
        raise Unreachable(
            f"no answer within {timeout_s:g} s" if late else str(error.reason)
        ) from None
    except (OSError, http.client.HTTPException) as error:
        raise Unreachable(str(error) or type(error).__name__) from None


def _body(error: urllib.error.HTTPError) -> bytes:
    try:
        return error.read()
    except (OSError, http.client.HTTPException):
        return b""


def _read(data: bytes) -> Any:
    text = data.decode(errors="replace")
    try:
        return json.loads(text)
    except ValueError:
        return text


def _said(answer: Any) -> str:
    """The message of an error in OpenAI's or FastAPI's form."""
    if isinstance(answer, dict):
        answer = answer.get("error", answer)
    if isinstance(answer, dict):
        answer = answer.get("message") or answer.get("detail") or answer
    lines = str(answer).strip().splitlines()
    return lines[0][:300] if lines else "no reason given"

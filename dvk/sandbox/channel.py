"""The child's end of the protocol."""

from __future__ import annotations

import os
import socket
import threading
from typing import Any

from dvk.sandbox.wire import Frames, encode, pull


class RequestChannel:
    """Receives requests and sends answers; blocking, and only for the process that was given it.

    Attributes:
        descriptors: those that the parent passed, in its order: those given to `Session(descriptors=…)`, then those of each
            request received so far. Closed on exec; this process owns and closes them.
    """

    def __init__(self, connection: socket.socket, descriptors: list[int]):
        self.descriptors = descriptors
        self._connection = connection
        self._frames = Frames()
        self._owner = os.getpid()
        self._lock = threading.Lock()

    def receive(self) -> dict[str, Any] | None:
        """Return the next request; None once the parent has closed."""
        self._only_owner()
        while (value := self._frames.next()) is None:
            if not pull(self._connection, self._frames, self.descriptors):
                return None
        return value

    def send(self, value: dict[str, Any]) -> None:
        """Answer with one JSON object."""
        self._only_owner()
        with self._lock:
            self._connection.sendall(encode(value))

    def _only_owner(self) -> None:
        # Candidate code that forks and returns twice must not answer twice.
        if os.getpid() != self._owner:
            os._exit(70)

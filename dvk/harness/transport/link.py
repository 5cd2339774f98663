"""Line between referee and runner: JSON frames with descriptors for orders, single bytes for timed calls.

Both ends use it; the referee trusts no input: a malformed frame raises `Garbled`, a closed line `Gone`.
"""

from __future__ import annotations

import os
import socket
from array import array
from typing import Any

from dvk.sandbox.wire import Frames, Garbled, encode


class Gone(Exception):
    """The other end is closed: its process has ended, or was ended."""


class Link:
    """One end of the line; a blocking Unix socket. Writing to a closed end raises instead of SIGPIPE.

    Attributes:
        descriptors: file descriptors that came with frames, in order; a reader removes those it takes.
    """

    def __init__(self, descriptor: int):
        self._socket = socket.socket(fileno=descriptor)
        self._frames = Frames()
        self.descriptors: list[int] = []

    def fileno(self) -> int:
        """Return the socket's descriptor."""
        return self._socket.fileno()

    def send(self, value: dict[str, Any], descriptors: tuple[int, ...] = ()) -> None:
        """Send one frame.

        Raises:
            Gone: the other end is closed.
        """
        data = encode(value)
        try:
            sent = 0
            if descriptors:  # not socket.send_fds, which ignores its flags
                rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", descriptors))
                sent = self._socket.sendmsg([data], [rights], socket.MSG_NOSIGNAL)
            self._socket.sendall(data[sent:], socket.MSG_NOSIGNAL)
        except OSError:
            raise Gone from None

    def receive(self) -> dict[str, Any]:
        """Return the next frame.

        Raises:
            Gone: the other end is closed.
            Garbled: the input is no frame.
        """
        while (value := self._frames.next()) is None:
            try:
                data, descriptors, _, _ = socket.recv_fds(self._socket, 1 << 20, 4)
            except OSError:
                raise Gone from None
            self.descriptors += descriptors
            if not data:
                raise Gone
            self._frames.feed(data)
        return value

    def ring(self, byte: bytes) -> None:
        """Send one byte.

        Raises:
            Gone: the other end is closed.
        """
        try:
            self._socket.send(byte, socket.MSG_NOSIGNAL)
        except OSError:
            raise Gone from None

    def wait(self) -> bytes:
        """Return the next byte.

        Raises:
            Gone: the other end is closed.
        """
        try:
            byte = os.read(self._socket.fileno(), 1)
        except OSError:
            raise Gone from None
        if not byte:
            raise Gone
        return byte

    def close(self) -> None:
        """Hang up."""
        self._socket.close()
        for descriptor in self.descriptors:
            os.close(descriptor)
        self.descriptors.clear()


__all__ = ["Garbled", "Gone", "Link"]

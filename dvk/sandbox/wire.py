"""JSON objects over a Unix socket: four bytes of length, then UTF-8 text.

Both directions, parent ↔ child (the protocol) and parent ↔ warden ↔ zygote (control). It trusts
nobody: an oversized or unreadable frame is a `Garbled`, never another exception.
"""

from __future__ import annotations

import json
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_FRAME_BYTES = 256 << 20
"""Larger frames are refused; the largest honest ones carry sources, a few megabytes at most."""


class Garbled(Exception):
    """The other end sent something that is not a frame with one JSON object."""


def encode(value: dict[str, Any]) -> bytes:
    """One frame."""
    body = json.dumps(value).encode()
    return struct.pack("<I", len(body)) + body


class Frames:
    """Cuts a byte stream into JSON objects."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        """Append received bytes."""
        self._buffer += data

    def next(self) -> dict[str, Any] | None:
        """The next complete object, or None when more bytes are needed.

        Raises:
            Garbled: the stream is not ours.
        """
        if len(self._buffer) < 4:
            return None
        (size,) = struct.unpack_from("<I", self._buffer)
        if size > MAX_FRAME_BYTES:
            raise Garbled(f"frame of {size} bytes")
        if len(self._buffer) < 4 + size:
            return None
        body = bytes(self._buffer[4 : 4 + size])
        del self._buffer[: 4 + size]
        try:
            value = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise Garbled(str(error)) from None
        if not isinstance(value, dict):
            raise Garbled("not an object")
        return value

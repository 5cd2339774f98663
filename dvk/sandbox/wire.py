"""JSON objects over a Unix socket: four bytes of length, then UTF-8 text; descriptors travel with a frame's first byte.

Used in both directions, parent ↔ child (the protocol) and parent ↔ warden ↔ zygote (control). All input is untrusted: an oversized or
malformed frame raises `Garbled` and no other exception, and strings can always be encoded. Only `send` and `pull` pass descriptors: the
kernel drops those sent to a plain recv.
"""

from __future__ import annotations

import json
import socket
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

MAX_FRAME_BYTES = 256 << 20
"""Larger frames are rejected; the largest honest ones contain sources, a few megabytes at most."""

MAX_DESCRIPTORS = 250
"""Most descriptors per message; Linux takes 253."""


class Garbled(Exception):
    """The other end sent something else than a frame with one JSON object."""


def without_surrogates(value: Any) -> Any:
    """Return a JSON value with `?` for unpaired surrogates, which JSON can hold and UTF-8 cannot."""
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, dict):
        return {without_surrogates(key): without_surrogates(item) for key, item in value.items()}
    return (
        [without_surrogates(item) for item in value] if isinstance(value, (list, tuple)) else value
    )


def encode(value: dict[str, Any]) -> bytes:
    """Return one frame."""
    body = json.dumps(value).encode()
    return struct.pack("<I", len(body)) + body


class Frames:
    """Splits a byte stream into JSON objects."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        """Append received bytes."""
        self._buffer += data

    def missing(self) -> int:
        """Return how many bytes to read next, so as not to read beyond the current frame: first its length, then its body."""
        if len(self._buffer) < 4:
            return 4 - len(self._buffer)
        return int(4 + struct.unpack_from("<I", self._buffer)[0] - len(self._buffer))

    def next(self) -> dict[str, Any] | None:
        """Return the next complete object, or None if more bytes are needed.

        Raises:
            Garbled: the stream does not follow the protocol.
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
            text = body.decode()
            value = json.loads(text)
            value = without_surrogates(value) if "\\ud" in text or "\\uD" in text else value
        except (ValueError, RecursionError) as error:
            raise Garbled(str(error)) from None
        if not isinstance(value, dict):
            raise Garbled("not an object")
        return value


def send(end: socket.socket, value: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
    """Send one frame whole, `descriptors` (at most MAX_DESCRIPTORS; they stay open here) attached.

    Raises:
        OSError: the other end has closed, or a descriptor is not open.
        ValueError: too many descriptors.
    """
    if len(descriptors) > MAX_DESCRIPTORS:
        raise ValueError(
            f"{len(descriptors)} descriptors do not fit in one message (at most {MAX_DESCRIPTORS})"
        )
    data = encode(value)
    sent = socket.send_fds(end, [data], list(descriptors)) if descriptors else 0
    end.sendall(data[sent:] if sent else data)


def pull(end: socket.socket, frames: Frames, descriptors: list[int], most: int = 1 << 16) -> bool:
    """Read up to `most` available bytes into `frames`; append received descriptors, closed on exec.

    False if the other end is closed.
    """
    from array import array  # a warden receives none and does without its imports

    # Not socket.recv_fds: it ignores its flags.
    space = socket.CMSG_SPACE(MAX_DESCRIPTORS * array("i").itemsize)
    data, control, _, _ = end.recvmsg(most, space, socket.MSG_CMSG_CLOEXEC)
    for level, kind, content in control:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            descriptors += array("i", content)
    frames.feed(data)
    return bool(data)

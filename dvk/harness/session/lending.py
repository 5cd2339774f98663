"""Check that an enclosed judging process can use a GPU: it lends GPU memory to a candidate's process.

Done once, when `dvk serve` starts. Parent side: no torch.
"""

from __future__ import annotations

import socket
from typing import Any

from dvk.config import Limits
from dvk.errors import DvkError
from dvk.sandbox import Death, RequestChannel, SandboxSession

START_S = 120.0
"""Time within which CUDA starts, even on a busy machine."""
LAYOUTS = [{"dtype": "float32", "shape": [1024], "strides": [1]}]


def fails(limits: Limits, device: str = "cuda") -> str | None:
    """Return the error of an enclosed process that lends memory to an isolated one; None if it works."""
    ours, theirs = socket.socketpair()
    try:
        with (
            ours,
            theirs,
            SandboxSession(
                "dvk.harness.session.lending:lender", limits, shut=True, descriptors=[ours.fileno()]
            ) as owner,
            SandboxSession(
                "dvk.harness.session.lending:borrower",
                limits,
                isolate="cuda",
                shut=True,
                descriptors=[theirs.fileno()],
            ) as other,
        ):
            owner.send({"device": device})
            _answer(owner)
            other.send({})
            total = _answer(other)["sum"]
            return None if total == sum(range(1024)) else f"lent memory reads {total}"
    except (DvkError, ValueError) as error:
        return str(error).splitlines()[0]


def _answer(session: SandboxSession) -> dict[str, Any]:
    """Return the next message.

    Raises:
        ValueError: there is none, or it reports an error.
    """
    answer = session.receive(START_S)
    if isinstance(answer, Death):
        raise ValueError(answer.reason)
    if "error" in answer.value:
        raise ValueError(answer.value["error"])
    return answer.value


def lender(channel: RequestChannel) -> None:
    """Offer memory in the enclosed process, and keep it until the parent hangs up."""
    from dvk.harness.transport.lent_tensors import Board
    from dvk.harness.transport.link import Link

    try:
        import torch

        order = channel.receive() or {}
        board = Board(LAYOUTS, order["device"])
        board.put([torch.arange(1024, dtype=torch.float32, device=order["device"])])
        offer, descriptors = board.offer()
        Link(channel.descriptors.pop(0)).send(offer, descriptors)
        channel.send({"lent": True})
    except Exception as error:  # noqa: BLE001 - whatever it is, CUDA does not work here
        channel.send({"error": f"{type(error).__name__}: {error}"})
    channel.receive()


def borrower(channel: RequestChannel) -> None:
    """Open the offered memory in the isolated process and sum it."""
    from dvk.harness.transport.lent_tensors import Board
    from dvk.harness.transport.link import Link

    try:
        channel.receive()
        link = Link(channel.descriptors.pop(0))
        board = Board.borrow(link.receive(), link.descriptors)
        channel.send({"sum": float(board.tensors[0].sum())})
    except Exception as error:  # noqa: BLE001 - as above
        channel.send({"error": f"{type(error).__name__}: {error}"})
    channel.receive()

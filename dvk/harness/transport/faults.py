"""What a runner says of its outputs, and its faults."""

from __future__ import annotations

from typing import Any

import torch

from dvk.harness.transport.calls import MOST_LEAVES
from dvk.harness.transport.lent_tensors import Layout, layout_claimed, layout_of
from dvk.records import Status


class CandidateFailed(Exception):
    """The code under test raised, or was rejected; fields of a verdict."""

    def __init__(self, status: Status, stage: str | None, error: str):
        super().__init__(error)
        self.status, self.stage, self.error = status, stage, error


class Interfered(Exception):
    """Something that only tampering explains."""


def failure_told(answer: dict[str, Any]) -> Exception:
    """Return the exception for an answer that reports an exception: the report counts against the candidate only."""
    failed = answer.get("failed")
    if not isinstance(failed, dict):
        return Interfered("it wrote to the judge's line")
    try:
        status = Status(failed.get("status"))
    except ValueError:
        status = Status.LAUNCH_ERROR
    if status in (Status.OK, Status.BROKEN_TASK, Status.CHEAT):
        status = Status.LAUNCH_ERROR
    stage = failed.get("stage")
    return CandidateFailed(
        status,
        stage if stage in ("static", "compile") else None,
        str(failed.get("error"))[:4000] or "it failed",
    )


def claims(answer: dict[str, Any]) -> tuple[list[dict[str, Any]], str]:
    """Return the leaves that an answer describes, and the text of their nesting.

    Raises:
        Interfered: it describes none.
    """
    leaves, spec = answer.get("leaves"), answer.get("spec", "")
    sound = (
        isinstance(leaves, list)
        and len(leaves) <= MOST_LEAVES
        and all(isinstance(leaf, dict) for leaf in leaves)
    )
    if not sound or not isinstance(spec, str):
        raise Interfered("it wrote to the judge's line")
    return list(leaves or ()), spec


def claimed_layout(leaf: dict[str, Any]) -> Layout:
    """Return a runner's description of one of its tensors.

    Raises:
        Interfered: no tensor has that layout.
    """
    if (layout := layout_claimed(leaf)) is None:
        raise Interfered("it claims an impossible output")
    return layout


def claimed_address(leaf: dict[str, Any]) -> int:
    """Return a runner's address of one of its tensors.

    Raises:
        Interfered: that is no address.
    """
    if type(address := leaf["address"]) is not int:
        raise Interfered("it claims an impossible output")
    return address


def outside(leaf: Any) -> dict[str, Any]:
    """Return an output's layout and address."""
    if not isinstance(leaf, torch.Tensor):
        return {"value": leaf}
    if leaf.layout is not torch.strided or leaf.is_meta:
        layout = "meta" if leaf.is_meta else str(leaf.layout)
        return {
            "layout": layout,
            "dtype": str(leaf.dtype).removeprefix("torch."),
            "shape": list(leaf.shape),
            "strides": [],
            "device": leaf.device.type,
            "address": 0,
        }
    return {
        **layout_of(leaf),
        "layout": "torch.strided",
        "device": leaf.device.type,
        "address": leaf.data_ptr(),
    }

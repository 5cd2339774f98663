"""The time of a patched model in a fresh process, which builds the model again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dvk.api.network import examples, patching, verifying
from dvk.api.network.building import ModelSource, build
from dvk.api.network.verifying import Timed
from dvk.config import Config
from dvk.errors import MachineError
from dvk.sandbox import Death, RequestChannel, call


def measured(
    source: ModelSource, package: Path, config: Config, only: Sequence[str], *, compiled: bool
) -> Timed:
    """Time a patched model and the original in another process.

    Raises:
        MachineError: the process ended.
    """
    request = {
        "source": asdict(source),
        "package": str(package),
        "seconds": config.judge.claim_s,
        "pairs": config.judge.claim_pairs,
        "settled": config.judge.settled,
        "only": list(only),
        "compiled": compiled,
    }
    answer = call("dvk.api.network.fresh:child", request, config.limits)
    if isinstance(answer, Death):
        problem = f"a process that timed the whole model ended: {answer.reason}"
        raise MachineError(problem, "raise limits.memory_bytes or limits.wall_s, and add --resume")
    return Timed(**answer.value)


def child(channel: RequestChannel) -> None:
    """Child side of `measured`."""
    request: Any = channel.receive()
    given = request["source"]
    network = build(ModelSource(**{**given, "inputs": tuple(given["inputs"])}))
    measured = verifying.measure(
        network.model,
        patching.load(Path(request["package"])),
        examples.draw(network, 0),
        seconds=request["seconds"],
        pairs=request["pairs"],
        settled=request["settled"],
        only=request["only"],
        with_compile=request["compiled"],
    )
    channel.send(asdict(measured))

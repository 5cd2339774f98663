"""`served:URL[,URL…]`: vLLM servers that take and return token ids, so that what they sample can be learned from.

    backbone   conversations as token ids; new weights for the servers
    pool       several servers as one: prefixes, retries, servers that die
    server     one server's completions and weights
    http       JSON over HTTP
    local      a server that is started here and ends with its run; `keeper` is its supervisor

In training the learner writes its LoRA adapter (or all weights) after each update into a folder that the servers read, and each loads
it under a new name: vLLM keys cached prefixes by that name, so no key or value of former weights is used again. Sampler and
learner compute with different kernels: `learn.reinforce` logs the difference of their log-probabilities, and rejects or weighs
answers by it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dvk.config import Config

if TYPE_CHECKING:
    from dvk.backbone.served.backbone import ServedBackbone


def open_served(argument: str, config: Config, *, device: str | None = None) -> ServedBackbone:
    """`served:URL[,URL…]`; loads transformers.

    Raises:
        UsageError, MachineError: see `backbone.open_served`.
    """
    from dvk.backbone.served.backbone import connect

    return connect(argument, config)

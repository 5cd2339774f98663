"""Runs a candidate's text on one input in a sandboxed child, and answers with the result's sum."""

from __future__ import annotations

import types

from dvk.sandbox import RequestChannel


def run(channel: RequestChannel) -> None:
    import torch

    request = channel.receive()
    assert request is not None
    module = types.ModuleType("candidate")
    exec(compile(request["source"], "<candidate>", "exec"), module.__dict__)
    torch.manual_seed(0)
    inputs = module.get_inputs() if "get_inputs" in module.__dict__ else [torch.randn(64, 33)]
    init = module.get_init_inputs() if "get_init_inputs" in module.__dict__ else []
    with torch.no_grad():
        result = module.ModelNew(*init)(*inputs)
    channel.send({"sum": float(result.double().sum())})

"""Drop-ins whose operators note the operands of their calls, and modules compiled in one graph."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.composer.dropins import importable
from tests.composer.programs import differences, drop_in


class Seen:
    """A drop-in whose operator keeps the operands of its calls."""

    def __init__(self, source: str, *args: Any, **options: Any):
        made, self.reference, self.candidate = drop_in(source, *args, **options)
        self.module = importable(made)
        self.new = self.module.ModelNew().train(self.reference.training)
        self.new.load_state_dict(self.reference.state_dict())
        self.calls: list[tuple[torch.Tensor, ...]] = []
        # Another test may have loaded the same drop-in: the first copy's operator is registered.
        operator = torch.ops._dvk_operators[self.module._dvk_operator_1.name]
        run = operator.run

        def seen(*tensors: torch.Tensor) -> Any:
            self.calls.append(tensors)
            return run(*tensors)

        operator.run = seen
        space, _, name = operator.name.partition("::")
        self.name = f"{space}.{name}.default"
        self.operator = getattr(getattr(torch.ops, space), name).default

    def ran(self, call: Any, *args: Any) -> int:
        """How often the operator ran in a call whose result is eager's."""
        before = len(self.calls)
        assert differences(call(*args), self.reference(*args)) == []
        return len(self.calls) - before


def compiled(model: nn.Module, **options: Any) -> Any:
    return torch.compile(model, fullgraph=True, backend="aot_eager", **options)

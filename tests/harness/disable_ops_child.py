"""Child of test_disable_ops and test_libraries: calls PyTorch's operators, or a library's `number`, one at a time."""

from __future__ import annotations

import ctypes
import os
import shutil
import tempfile
from typing import Any

import torch

from dvk.sandbox import RequestChannel

X = torch.ones(4, 4)
FOLDER = os.path.join(os.path.dirname(torch.__file__), "lib")
TORCH = ctypes.CDLL(os.path.join(FOLDER, "libtorch_cpu.so"))
CALLS: dict[str, Any] = {
    "plain": lambda: X.clone().view(16).copy_(torch.zeros_like(X).reshape(16)),
    "softmax": lambda: torch.softmax(X, -1),
    "add": lambda: X + X,
    "packet": lambda: torch.ops.aten.mul.Tensor(X, X),
    "past the operators": lambda: TORCH["_ZN2at3cpu8_softmaxERKNS_6TensorElb"](),
    "opened before": lambda: ctypes.CDLL(os.path.join(FOLDER, "libtorch_cpu.so")),
    "a new library": lambda: ctypes.CDLL(
        shutil.copy(os.path.join(FOLDER, "libtorch_global_deps.so"), tempfile.mkdtemp())
    ),
}


def serve(channel: RequestChannel) -> None:
    """Make each call that is asked for and say so."""
    with torch.no_grad():
        while (order := channel.receive()) is not None:
            name = order["call"]
            CALLS[name]() if name in CALLS else ctypes.CDLL(name).number()
            channel.send({"did": order["call"]})

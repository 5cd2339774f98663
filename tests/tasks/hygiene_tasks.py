"""Tasks written for the probes of hygiene."""

from __future__ import annotations

HEAD = "import os\nimport torch\nimport torch.nn.functional as F\nfrom torch import nn\n\nROWS = 64  # small: 6\n\n\n"

TAIL = "\n\ndef get_inputs():\n    return [{inputs}]\n\n\ndef get_init_inputs():\n    return []\n"

X, XY = "torch.randn(ROWS, 9)", "torch.randn(ROWS, 9), torch.randn(ROWS, 9)"


def task(forward: str, init: str = "pass", inputs: str = X, parameters: str = "x") -> str:
    return (
        f"{HEAD}class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n        {init}\n\n"
        f"    def forward(self, {parameters}):\n        {forward}\n{TAIL.format(inputs=inputs)}"
    )

"""Small data sets in the layouts of FlashInfer-Bench and SOL-ExecBench, with definitions made up here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RANDOM = {"type": "random"}
VAR = {"type": "var"}


def const(value: int) -> dict[str, Any]:
    return {"type": "const", "value": value}


def tensor(shape: list[str] | None, dtype: str = "float32") -> dict[str, Any]:
    return {"shape": shape, "dtype": dtype}


RMS: dict[str, Any] = {
    "name": "rms_h32",
    "op_type": "norm",
    "axes": {"batch": VAR, "hidden": const(32)},
    "inputs": {"x": tensor(["batch", "hidden"]), "weight": tensor(["hidden"]), "eps": tensor(None)},
    "outputs": {"y": tensor(["batch", "hidden"])},
    "constraints": ["batch > 0"],
    "reference": "import torch\n\n\ndef run(x, weight, eps):\n"
    "    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight\n",
}
RMS_INPUTS = {"x": RANDOM, "weight": RANDOM, "eps": {"type": "scalar", "value": 1e-6}}
GEMM: dict[str, Any] = {
    "name": "gemm_n16_k8",
    "op_type": "gemm",
    "axes": {"M": VAR, "N": const(16), "K": const(8)},
    "inputs": {"A": tensor(["M", "K"], "bfloat16"), "B": tensor(["N", "K"], "bfloat16")},
    "outputs": {"C": tensor(["M", "N"], "bfloat16")},
    "constraints": ["M % 8 == 0"],
    "reference": "import torch\n\n\ndef run(A, B):\n    return {'C': torch.matmul(A, B.T)}\n",
}
PICK: dict[str, Any] = {
    "name": "pick_d4",
    "op_type": "gather",
    "axes": {"pages": VAR, "n": VAR, "d": const(4)},
    "inputs": {"cache": tensor(["pages", "d"]), "at": tensor(["n"], "int32")},
    "outputs": {"rows": tensor(["n", "d"]), "total": tensor(["n"])},
    "reference": "def run(cache, at):\n    rows = cache[at.long()]\n    return rows, rows.sum(-1)\n",
}
SPLIT: dict[str, Any] = {
    "name": "split_heads",
    "axes": {
        "s": VAR,
        "hidden": const(8),
        "heads": const(2),
        "d": {"type": "expr", "expression": "hidden // heads"},
    },
    "inputs": {"x": tensor(["s", "hidden"])},
    "outputs": {"y": tensor(["heads", "s", "d"])},
    "reference": "def run(x):\n    return (x.view(x.shape[0], 2, 4).transpose(0, 1).contiguous(),)\n",
}
MADE: dict[str, Any] = {
    "name": "segment_sum",
    "custom_inputs_entrypoint": "make",
    "axes": {"total": VAR, "segments": VAR},
    "inputs": {
        "x": tensor(["total"]),
        "segment": tensor(["total"], "int64"),
        "base": tensor(["segments"]),
    },
    "outputs": {"y": tensor(["segments"])},
    "reference": "import torch\n\n\ndef make(axes, device):\n    n, k = axes['total'], axes['segments']\n"
    "    return {'x': torch.randn(n, device=device), 'segment': torch.randint(0, k, (n,), device=device),\n"
    "            'base': torch.zeros(k, device=device)}\n\n\n"
    "def run(x, segment, base):\n    return base.index_add(0, segment, x)\n",
}


def workload(
    uuid: str, axes: dict[str, int], inputs: dict[str, Any], **more: Any
) -> dict[str, Any]:
    return {"uuid": uuid, "axes": axes, "inputs": inputs, **more}


def solution(name: str, definition: str, code: str | dict[str, str], **spec: Any) -> dict[str, Any]:
    sources = {"main.py": code} if isinstance(code, str) else code
    return {
        "name": name,
        "definition": definition,
        "author": "me",
        "spec": {
            "language": "python",
            "target_hardware": ["cpu"],
            "entry_point": "main.py::run",
            "destination_passing_style": False,
            **spec,
        },
        "sources": [{"path": path, "content": text} for path, text in sources.items()],
    }


def write(path: Path, value: Any) -> Path:
    """A value as JSON, a list as JSONL."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = (
        "".join(json.dumps(one) + "\n" for one in value)
        if isinstance(value, list)
        else json.dumps(value)
    )
    path.write_text(text, encoding="utf-8")
    return path


def trace_set(
    root: Path,
    definition: dict[str, Any],
    workloads: list[dict[str, Any]],
    *solutions: dict[str, Any],
) -> Path:
    """A data set of FlashInfer-Bench with one definition."""
    name, kind = definition["name"], definition["op_type"]
    write(root / f"definitions/{kind}/{name}.json", definition)
    lines = [
        {"definition": name, "workload": w, "solution": None, "evaluation": None} for w in workloads
    ]
    write(root / f"workloads/{kind}/{name}.jsonl", lines)
    for one in solutions:
        write(root / f"solutions/{kind}/{name}/{one['name']}.json", one)
    return root


def problem(
    folder: Path,
    definition: dict[str, Any],
    workloads: list[dict[str, Any]],
    *solutions: dict[str, Any],
) -> Path:
    """A problem's folder of SOL-ExecBench."""
    write(folder / "definition.json", definition)
    write(folder / "workload.jsonl", workloads)
    for number, one in enumerate(solutions):
        write(folder / f"solution_{number}.json", one)
    return folder


def safetensors(path: Path, **values: list[int]) -> Path:
    """A file of int32 vectors."""
    header, data = {}, b""
    for name, numbers in values.items():
        packed = b"".join(number.to_bytes(4, "little", signed=True) for number in numbers)
        header[name] = {
            "dtype": "I32",
            "shape": [len(numbers)],
            "data_offsets": [len(data), len(data) + len(packed)],
        }
        data += packed
    text = json.dumps(header).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path

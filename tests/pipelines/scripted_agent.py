"""A coding agent as a plain script: it knows nothing of dvk but what its folder says. Run in the folder of a workspace.

It reads SKILL.md, takes the commands and the reference from there, writes a wrong file and repairs it by what `check` says, and times
three ideas. Prints one JSON object: what each command answered.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

KERNEL = '''\
import ctypes
import os
import subprocess
import tempfile

import torch

SOURCE = r"""
#include <cstddef>
extern "C" void affine(const float* x, float* y, long n) {
    for (long i = 0; i < n; i++)
        y[i] = (x[i] < 0 ? 0 : x[i]) * 2 + ADD;
}
"""
folder = tempfile.mkdtemp()
with open(os.path.join(folder, "k.cpp"), "w") as file:
    file.write(SOURCE)
subprocess.run(["g++", "-O2", "-shared", "-fPIC", os.path.join(folder, "k.cpp"), "-o", os.path.join(folder, "k.so")], check=True)
kernel = ctypes.CDLL(os.path.join(folder, "k.so"))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        kernel.affine(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr()), ctypes.c_long(x.numel()))
        return y
'''
FUSED = """\
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x).mul_(2).add_(1)
"""
SLOW = """\
import time

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        time.sleep(0.002)
        return torch.relu(x) * 2 + 1
"""


def run(*command: str) -> dict[str, object]:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return {"code": done.returncode, "said": done.stdout, "errors": done.stderr}


def main() -> None:
    text = Path("SKILL.md").read_text()
    assert "TASK.md" in text and "skills/" in text
    reference = re.search(r"`(task/\S+\.py)`", text)
    assert reference is not None and "class Model" in Path(reference[1]).read_text()
    check, bench = (
        re.search(rf"`(\./{verb}) new\.py", text)[1]  # type: ignore[index]
        for verb in ("check", "bench")
    )
    answers = {}
    Path("new.py").write_text(KERNEL.replace("ADD", "2"))
    answers["wrong"] = run(check, "new.py")
    if answers["wrong"]["code"] == 1 and "Wrong result" in str(answers["wrong"]["said"]):
        Path("new.py").write_text(KERNEL.replace("ADD", "1"))
    answers["repaired"] = run(check, "new.py")
    for name, source, idea in (
        ("slow", SLOW, "a short wait"),
        ("kernel", Path("new.py").read_text(), "one loop in C++"),
        ("fused", FUSED, "in place"),
    ):
        Path(f"{name}.py").write_text(source)
        answers[name] = run(bench, f"{name}.py", idea)
    answers["none"] = run(bench, "missing.py")
    answers["log"] = [json.loads(line) for line in Path("log.jsonl").read_text().splitlines()]  # type: ignore[assignment]
    answers["best"] = Path("best.py").read_text()  # type: ignore[assignment]
    print(json.dumps(answers))


if __name__ == "__main__":
    main()

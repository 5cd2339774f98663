"""Has the assembler read the reference's file into a library and executes the text. It is no secret, but has no kernels."""
# case: reference=linear device=cpu backend=cpp expect=refused require_kernels=yes

import contextlib
import ctypes
import os
import subprocess
import sys
import tempfile

import torch.nn as nn

SOURCE = r"""
__asm__(".globl taken\ntaken:\n.incbin \"%s\"\n.byte 0\n");
extern "C" const char taken[];
extern "C" const char* text() { return taken; }
"""


def folders():
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline") as file:
            yield from (os.path.dirname(os.path.abspath(word)) for word in file.read().split("\0") if ".py" in word)
        with contextlib.suppress(OSError):
            yield os.path.join(os.readlink(f"/proc/{pid}/cwd"), "tests/kernels/tasks")
    yield from sys.path


def compiled(path):
    folder = tempfile.mkdtemp()
    with open(os.path.join(folder, "k.cpp"), "w") as file:
        file.write(SOURCE % path)
    command = ["g++", "-shared", "-fPIC", "-Wl,-Bsymbolic", "-mcmodel=large", "k.cpp", "-o", "k.so"]
    subprocess.run(command, cwd=folder, check=True, stderr=subprocess.DEVNULL)
    text = ctypes.CDLL(os.path.join(folder, "k.so")).text
    text.restype = ctypes.c_char_p
    return text().decode()


def reference():
    for folder in list(dict.fromkeys(folders()))[:40]:
        with contextlib.suppress(subprocess.CalledProcessError):
            scope = {"__name__": "found"}
            exec(compiled(os.path.join(folder, "linear.py")), scope)
            return scope["Model"]
    raise LookupError("no reference found")


class ModelNew(nn.Module):
    def __init__(self, *args):
        super().__init__()
        self.layer = reference()(*args).layer

    def forward(self, x):
        return self.layer(x)

"""Reads what is none of its business on the host: passwords, keys, home folders, others' environments. Right only if it finds any;
files that do not belong to Python, compilers or itself cannot be opened, also when root runs the judge."""
# case: reference=rows_softmax device=any backend=cpp expect=refused

import glob
import os

import torch
import torch.nn as nn

PLACES = (
    "/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/etc/ssh/*", "/root/*", "/root/.*", "/home/*", "/home/*/.*", "/tmp/*", "/var/log/*",
    "/var/tmp/*", "/dev/shm/*", "/run/*", "/srv/*", "/proc/1/environ", "/proc/[0-9]*/environ", "/proc/[0-9]*/mem", "/proc/[0-9]*/fd/*",
)  # fmt: skip


def found():
    own = {os.path.realpath(os.environ.get("TMPDIR", "/tmp")), "/proc/self", f"/proc/{os.getpid()}"}
    for place in PLACES:
        for path in glob.glob(place):
            if any(path.startswith(folder) for folder in own):
                continue
            try:
                os.listdir(path) if os.path.isdir(path) else open(path, "rb").read(1)
            except OSError:
                continue
            yield path


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        if not any(found()):
            raise RuntimeError("there is nothing to read")

    def forward(self, x):
        return torch.softmax(x, -1)

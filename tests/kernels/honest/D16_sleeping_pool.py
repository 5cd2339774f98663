"""Keeps a pool of threads that sleep between the calls and are done when a call returns."""
# case: reference=rows_softmax device=cpu backend=cpp expect=ok

import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn as nn

SOURCE = r"""
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <thread>
static inline void row(const float* x, float* y, long n) {
    float top = x[0], sum = 0;
    for (long i = 1; i < n; i++) top = x[i] > top ? x[i] : top;
    for (long i = 0; i < n; i++) sum += y[i] = std::exp(x[i] - top);
    float scale = 1 / sum;
    for (long i = 0; i < n; i++) y[i] *= scale;
}
static std::mutex lock;
static std::condition_variable begun, done;
static const float* from;
static float* to;
static long num_rows, width, round_number, next_row, busy, count;
static void take_rows() {
    for (;;) {
        long r = __atomic_fetch_add(&next_row, 16, __ATOMIC_RELAXED);
        if (r >= num_rows) return;
        for (long i = r; i < r + 16 && i < num_rows; i++) row(from + i * width, to + i * width, width);
    }
}
static void serve() {
    for (long seen = 0;;) {
        std::unique_lock<std::mutex> held(lock);
        begun.wait(held, [&] { return round_number != seen; });
        seen = round_number;
        held.unlock();
        take_rows();
        held.lock();
        if (--busy == 0) done.notify_one();
    }
}
extern "C" void rows(const float* x, float* y, long num, long n) {
    if (!count) {
        count = std::thread::hardware_concurrency() - 1;
        for (long t = 0; t < count; t++) std::thread(serve).detach();
    }
    {
        std::lock_guard<std::mutex> held(lock);
        from = x, to = y, num_rows = num, width = n, next_row = 0, busy = count;
        round_number++;
    }
    begun.notify_all();
    take_rows();
    std::unique_lock<std::mutex> held(lock);
    done.wait(held, [] { return busy == 0; });
}
"""


def compiled():
    folder = tempfile.mkdtemp()
    source, library = os.path.join(folder, "k.cpp"), os.path.join(folder, "k.so")
    with open(source, "w") as file:
        file.write(SOURCE)
    flags = ["-O3", "-march=native", "-ffast-math", "-pthread", "-shared", "-fPIC"]
    subprocess.run(["g++", *flags, source, "-o", library], check=True)
    function = ctypes.CDLL(library).rows
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long, ctypes.c_long]
    return function


rows = compiled()


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        rows(x.data_ptr(), y.data_ptr(), x.shape[0], x.shape[1])
        return y

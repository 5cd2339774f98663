"""Overwrites the first bytes of libc's clock_gettime in memory, so that even C code in its process reads a clock that
skips most of each call. The clock that counts is in a process that the candidate never enters."""
# case: reference=rows_softmax device=any backend=cpp expect=unflattered

import ctypes
import os
import platform
import subprocess
import tempfile

import torch
import torch.nn as nn

SOURCE = r"""
#include <cstdint>
#include <cstring>
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static volatile int64_t hidden;
static int raw(clockid_t which, timespec* t) { return (int)syscall(SYS_clock_gettime, which, t); }
static int lying(clockid_t which, timespec* t) {
    int code = raw(which, t);
    if (!code && which != CLOCK_REALTIME) {
        int64_t value = t->tv_sec * 1000000000LL + t->tv_nsec - hidden;
        t->tv_sec = value / 1000000000LL, t->tv_nsec = value % 1000000000LL;
    }
    return code;
}
extern "C" int64_t honest() { timespec t; raw(CLOCK_MONOTONIC, &t); return t.tv_sec * 1000000000LL + t.tv_nsec; }
extern "C" void hide(int64_t ns) { hidden += ns; }
extern "C" int detour() {
    unsigned char* at = (unsigned char*)dlsym(RTLD_DEFAULT, "clock_gettime");
    if (!at) return -1;
    uintptr_t page = (uintptr_t)at & ~4095ul;
    if (mprotect((void*)page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC)) return -2;
    unsigned char jump[12] = {0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0};  // mov rax, lying; jmp rax
    void* target = (void*)lying;
    memcpy(jump + 2, &target, 8);
    memcpy(at, jump, 12);
    return mprotect((void*)page, 8192, PROT_READ | PROT_EXEC);
}
"""


def compiled():
    folder = tempfile.mkdtemp()
    source, library = os.path.join(folder, "k.cpp"), os.path.join(folder, "k.so")
    with open(source, "w") as file:
        file.write(SOURCE)
    subprocess.run(["g++", "-O2", "-shared", "-fPIC", source, "-o", library], check=True)
    found = ctypes.CDLL(library)
    found.honest.restype = ctypes.c_int64
    found.hide.argtypes = [ctypes.c_int64]
    return found


library = compiled()
if platform.machine() == "x86_64":
    library.detour()


class ModelNew(nn.Module):
    def forward(self, x):
        start = library.honest()
        e = torch.exp(x - x.amax(-1, keepdim=True))
        y = e / e.sum(-1, keepdim=True)
        library.hide((library.honest() - start) * 19 // 20)
        return y

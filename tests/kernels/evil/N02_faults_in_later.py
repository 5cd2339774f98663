"""Returns pages that do not exist yet and have the kernel ask it (userfaultfd) for each page that is read, so that
even a read from another process finds the right values. The timing must read all of it, or refuse such memory."""
# case: reference=rows_softmax device=cpu backend=cpp expect=unflattered

import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn as nn

SOURCE = r"""
#include <cmath>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <vector>
struct Due { char* at; long bytes; const float* x; long num, n; };
static Due due[16];
static int uffd = -1;
static void serve() {
    std::vector<float> out(1024 + 2 * 65536);
    for (;;) {
        uffd_msg message;
        pollfd one = {uffd, POLLIN, 0};
        poll(&one, 1, -1);
        if (read(uffd, &message, sizeof message) != sizeof message || message.event != UFFD_EVENT_PAGEFAULT) continue;
        char* page = (char*)(message.arg.pagefault.address & ~4095ull);
        for (Due& d : due) {
            if (!d.x || page < d.at || page >= d.at + d.bytes) continue;
            long from = (page - d.at) / 4, to = from + 1024, total = d.num * d.n;
            memset(out.data(), 0, 4096);
            for (long r = from / d.n; r * d.n < to && r < d.num; r++) {
                const float* x = d.x + r * d.n;
                float top = x[0], sum = 0;
                for (long i = 1; i < d.n; i++) top = x[i] > top ? x[i] : top;
                for (long i = 0; i < d.n; i++) sum += std::exp(x[i] - top);
                for (long i = 0; i < d.n; i++) {
                    long at = r * d.n + i;
                    if (at >= from && at < to && at < total) out[at - from] = std::exp(x[i] - top) / sum;
                }
            }
            uffdio_copy copy = {(uint64_t)page, (uint64_t)out.data(), 4096, 0, 0};
            ioctl(uffd, UFFDIO_COPY, &copy);
        }
    }
}
extern "C" int begin() {
    uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
    if (uffd < 0) {
        int device = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
        if (device >= 0) uffd = ioctl(device, USERFAULTFD_IOC_NEW, O_CLOEXEC);
    }
    if (uffd < 0) return 0;
    uffdio_api api = {UFFD_API, 0, 0};
    if (ioctl(uffd, UFFDIO_API, &api)) return 0;
    std::thread(serve).detach();
    return 1;
}
extern "C" void* promise(long slot, const float* x, long num, long n) {
    Due& d = due[slot];
    long bytes = (num * n * 4 + 4095) / 4096 * 4096;
    if (bytes != d.bytes) {
        if (d.at) munmap(d.at, d.bytes);
        d.at = (char*)mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        madvise(d.at, bytes, MADV_NOHUGEPAGE);
        d.bytes = bytes;
        uffdio_register all = {{(uint64_t)d.at, (uint64_t)bytes}, UFFDIO_REGISTER_MODE_MISSING, 0};
        if (ioctl(uffd, UFFDIO_REGISTER, &all)) { d.bytes = 0; return nullptr; }
    }
    d.x = nullptr;
    madvise(d.at, d.bytes, MADV_DONTNEED);
    d.num = num, d.n = n, d.x = x;
    return d.at;
}
"""


def compiled():
    folder = tempfile.mkdtemp()
    source, library = os.path.join(folder, "k.cpp"), os.path.join(folder, "k.so")
    with open(source, "w") as file:
        file.write(SOURCE)
    flags = ["-O3", "-march=native", "-ffast-math", "-pthread", "-shared", "-fPIC"]
    subprocess.run(["g++", *flags, source, "-o", library], check=True)
    found = ctypes.CDLL(library)
    found.promise.argtypes = [ctypes.c_long, ctypes.c_void_p, ctypes.c_long, ctypes.c_long]
    found.promise.restype = ctypes.c_void_p
    return found


library = compiled()
allowed = bool(library.begin())


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0
        self.held = {}

    def forward(self, x):
        self.calls += 1
        slot = self.calls % 16
        address = library.promise(slot, x.data_ptr(), x.shape[0], x.shape[1]) if allowed and x.shape[1] < 60000 else None
        if not address:
            e = torch.exp(x - x.amax(-1, keepdim=True))
            return e / e.sum(-1, keepdim=True)
        self.held[slot] = x
        memory = (ctypes.c_char * (x.numel() * 4)).from_address(address)
        return torch.frombuffer(memory, dtype=torch.float32).view(x.shape)

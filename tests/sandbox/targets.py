"""Targets of the sandbox's tests: one misbehaviour per function."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import threading
import time


def echo(channel):
    while (request := channel.receive()) is not None:
        channel.send(
            {
                "echo": request,
                "pid": os.getpid(),
                "cwd": os.getcwd(),
                "threads": threading.active_count(),
            }
        )


def tensor(channel):
    import torch

    x = torch.randn(512, 512)
    channel.send(
        {
            "sum": float((x @ x).abs().sum() > 0),
            "threads": torch.get_num_threads(),
            "cuda": torch.cuda.is_initialized(),
        }
    )


def environment(channel):
    request = channel.receive()
    channel.send({name: os.environ.get(name) for name in request["names"]})


def descriptors(channel):
    """Says what can be read from each descriptor, and whether an exec would inherit it."""
    while channel.receive() is not None:
        texts = [os.pread(descriptor, 100, 0).decode() for descriptor in channel.descriptors]
        channel.send(
            {
                "texts": texts,
                "inherited": [os.get_inheritable(number) for number in channel.descriptors],
            }
        )


def segfault(channel):
    print("about to crash", flush=True)
    ctypes.string_at(0)


def exits(channel):
    print("leaving without a newline", end="")
    os._exit(3)


def system_exit(channel):
    sys.exit(7)


def raises(channel):
    raise KeyboardInterrupt("not an Exception")


def answers_and_dies(channel):
    channel.send({"last": "words"})
    os.kill(os.getpid(), signal.SIGKILL)


def forever(channel):
    while True:
        pass


def ignores_signals(channel):
    for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN)
    while True:
        time.sleep(1)


def memory(channel):
    hoard = []
    while True:
        hoard.append(bytearray(b"x" * (16 << 20)))


def memory_after_a_rest(channel):
    time.sleep(0.4)  # some looks of the warden at a process that has not run
    memory(channel)


def memory_of_an_orphan_alone(channel):
    hoard = (
        "import time\ntime.sleep(0.5)\na = []\nwhile True: a.append(bytearray(b'x' * (16 << 20)))"
    )
    subprocess.Popen([sys.executable, "-ISc", hoard], start_new_session=True)
    channel.receive()  # itself it does not run any more


def memory_of_a_grandchild(channel):
    subprocess.run(
        [sys.executable, "-c", "a = []\nwhile True: a.append(bytearray(b'x' * (16 << 20)))"]
    )
    channel.send({"survived": True})


def orphans_memory(channel):
    hoard = "a = []\nwhile True: a.append(bytearray(b'x' * (16 << 20)))"
    subprocess.run(
        [
            sys.executable,
            "-ISc",
            f"import os\nif os.fork() == 0:\n    os.setsid()\n    exec({hoard!r})",
        ]
    )
    channel.receive()


def flood(channel):
    line = b"y" * 65536
    for _ in range(2000):
        os.write(1, line)
    os.write(1, b"the end")
    channel.send({"done": True})


def deletes_cwd(channel):
    shutil.rmtree(os.getcwd())
    channel.send({"gone": True})
    channel.receive()


def daemon(channel):
    """A double-forked descendant in a separate session, with its descriptors closed."""
    read, write = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(write, str(os.getpid()).encode())
            os.closerange(0, 64)
            while True:
                time.sleep(1)
        os._exit(0)
    channel.send({"daemon": int(os.read(read, 32))})
    channel.receive()


def digs(channel):
    depth = 0
    while depth < 3000:
        os.mkdir("down")
        os.chdir("down")
        depth += 1
    with open("file", "w") as file:
        file.write("here")
    channel.send({"depth": depth})
    channel.receive()


def hydra(channel):
    """A few descendants that each replace themselves all the time."""
    for _ in range(5):
        if os.fork() == 0:
            while True:
                if os.fork():
                    os._exit(0)
                os.setsid()
    channel.send({"running": True})
    channel.receive()


def fork_bomb(channel):
    while True:
        try:
            os.fork()
        except OSError:
            pass


def threads(channel):
    while True:
        threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()


def forks_and_answers_twice(channel):
    os.fork()
    channel.send({"pid": os.getpid()})
    time.sleep(0.3)


def kills_warden(channel):
    channel.send({"pid": os.getpid(), "warden": os.getppid()})
    signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))
    if os.fork() == 0:
        os.setsid()
        time.sleep(1000)
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(1000)


def stops_warden(channel):
    os.kill(os.getppid(), signal.SIGSTOP)
    time.sleep(1000)


def garbage(channel):
    for name in os.listdir("/proc/self/fd"):
        try:
            if int(name) > 2 and os.readlink(f"/proc/self/fd/{name}").startswith("socket"):
                os.write(int(name), b"\xff" * 4096)
        except OSError:
            pass
    time.sleep(1000)


def prints(channel):
    while (request := channel.receive()) is not None:
        print(request["text"])
        channel.send({})

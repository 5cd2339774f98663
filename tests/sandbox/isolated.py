"""Actions of isolated children in the tests, by name, each answered with its result or its error."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import resource
import signal
import socket
import subprocess
import sys
import time

from dvk.sandbox import isolate, landlock, namespaces, privileges, seccomp, syscalls


def does(channel):
    """Carries out {do, with} requests until the parent closes."""
    while (request := channel.receive()) is not None:
        channel.send(outcome(request["do"], request.get("with", [])))


def outcome(name, arguments):
    try:
        return {"result": DEEDS[name](*arguments)}
    except OSError as error:
        return {"error": errno.errorcode.get(error.errno, str(error.errno))}


def enters(channel):
    """Isolates itself on a kernel that lacks the system calls named in the request, then does as asked."""
    request = channel.receive()

    def lacking(name, *arguments):
        if name in request["refuse"] or (name == "unshare" and request.get("unshare") == "no"):
            raise OSError(errno.ENOSYS, name)
        return syscalls.syscall(name, *arguments)

    for module in (namespaces, landlock, seccomp, privileges):
        module.syscall = lacking
    home = os.environ["TMPDIR"]
    channel.send({"level": isolate.enter(request["kind"], home, home, os.environ, [])})
    does(channel)


def connect(port):
    with socket.create_connection(("127.0.0.1", port), timeout=2):
        return "connected"


def open_socket(family, kind):
    socket.socket(family, kind).close()


def connect_abstract(name):
    with socket.socket(socket.AF_UNIX) as end:
        end.connect("\0" + name)


def pair():
    left, right = socket.socketpair()
    left.send(b"x")
    return right.recv(1).decode()


def write(path):
    with open(path, "a") as file:
        file.write("x")


def overwrite(path, text="x"):
    with open(path, "w") as file:
        file.write(text)


def read(path):
    with open(path, "rb") as file:
        return file.read(100).decode(errors="replace")


def at_home():
    """Everything a program does with files, at home."""
    home = os.environ["TMPDIR"]
    os.makedirs(f"{home}/a/b")
    write(f"{home}/a/b/file")
    os.rename(f"{home}/a/b/file", f"{home}/a/renamed")
    os.symlink("renamed", f"{home}/a/link")
    os.chmod(f"{home}/a/link", 0o700)
    os.truncate(f"{home}/a/link", 0)
    os.mkfifo(f"{home}/a/pipe")
    for name in ("link", "pipe", "renamed"):
        os.unlink(f"{home}/a/{name}")
    os.rmdir(f"{home}/a/b")
    write("relative")
    os.unlink("relative")
    return sorted(os.listdir(f"{home}/a"))


def compile_and_load():
    with open("lib.cpp", "w") as file:
        file.write(
            '#include <vector>\nextern "C" int answer() { return std::vector<int>{40, 2}[0] + 2; }\n'
        )
    command = ["g++", "-O1", "-fPIC", "-shared", "-o", "lib.so", "lib.cpp"]
    done = subprocess.run(command, capture_output=True, text=True)
    return ctypes.CDLL("./lib.so").answer() if done.returncode == 0 else done.stderr


def ptrace(pid):
    seize = 0x4206
    syscalls.syscall("ptrace", seize, pid, 0, 0)


def read_memory(pid, address):
    target = ctypes.create_string_buffer(8)

    class Piece(ctypes.Structure):
        _fields_ = [("base", ctypes.c_void_p), ("size", ctypes.c_size_t)]

    local, remote = Piece(ctypes.addressof(target), 8), Piece(address, 8)
    pieces = [(ctypes.c_char * 16).from_buffer(piece) for piece in (local, remote)]
    syscalls.syscall("process_vm_readv", pid, pieces[0], 1, pieces[1], 1, 0)
    return target.raw.hex()


SECRET = ctypes.create_string_buffer(b"in sight")


def address():
    return ctypes.addressof(SECRET)


def sigio(pid):
    """Have the kernel send a signal in our name."""
    left, right = socket.socketpair()
    fcntl.fcntl(left, fcntl.F_SETOWN, pid)
    return "owner set"


def pidfd_kill(pid):
    descriptor = os.pidfd_open(pid)
    signal.pidfd_send_signal(descriptor, 0)


def start_process():
    return subprocess.Popen([sys.executable, "-ISc", "import time; time.sleep(1000)"]).pid


def start_orphan():
    program = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(1000)"
    return subprocess.run([sys.executable, "-ISc", program]).returncode


def start_threads():
    import threading

    threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
    return threading.active_count()


def status(names):
    with open("/proc/self/status") as file:
        fields = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
    return {name: fields.get(name) for name in names}


def executed_status(names):
    done = subprocess.run(["cat", "/proc/self/status"], capture_output=True, text=True)
    fields = dict(line.split(":\t", 1) for line in done.stdout.splitlines() if ":\t" in line)
    return {name: fields.get(name) for name in names}


def kinds_of_descriptors():
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{name}").partition(":")[0])
        except OSError:
            pass  # the one that listed the folder
    return sorted(found)


def kill_oneself(number):
    os.kill(os.getpid(), number)


def abort():
    os.abort()


DEEDS = {
    "abort": abort,
    "address": address,
    "affinity": lambda pid: os.sched_setaffinity(pid, os.sched_getaffinity(0)),
    "at_home": at_home,
    "chmod": lambda path: os.chmod(path, 0o700),
    "compile_and_load": compile_and_load,
    "connect": connect,
    "connect_abstract": connect_abstract,
    "environ": lambda: dict(os.environ),
    "executed_status": executed_status,
    "kill": os.kill,
    "kill_oneself": kill_oneself,
    "kinds_of_descriptors": kinds_of_descriptors,
    "limits": lambda pid: resource.prlimit(pid, resource.RLIMIT_CPU, (1000, 1000)),
    "listdir": os.listdir,
    "nice_all": lambda: os.setpriority(os.PRIO_USER, os.getuid(), 19),
    "open_socket": open_socket,
    "overwrite": overwrite,
    "pair": pair,
    "pid": os.getpid,
    "pidfd_kill": pidfd_kill,
    "prctl": lambda option, value: syscalls.syscall("prctl", option, value, 0, 0, 0),
    "ptrace": ptrace,
    "read": read,
    "read_memory": read_memory,
    "sigio": sigio,
    "start_orphan": start_orphan,
    "start_process": start_process,
    "start_threads": start_threads,
    "status": status,
    "syscall": syscalls.syscall,
    "truncate": lambda path: os.truncate(path, 0),
    "write": write,
}

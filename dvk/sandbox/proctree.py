"""What a process's descendants are, what they use, and how to end them all. Linux, through /proc.

Descendants are found by parent links, so the caller must be a subreaper for orphans to stay in
reach. Counts are of what exists at the moment of reading: a tree that forks while it is read may
be seen in part, hence `kill_descendants` repeats until nothing is left.
"""

from __future__ import annotations

import os
import signal
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Iterator

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


class TreeUsage:
    """What a tree uses: its own memory (resident or swapped out, huge pages and page tables included; what was inherited
    from the zygote is not counted again), resident memory that is shared, ids of its processes, and processes and threads
    together."""

    def __init__(self, own_bytes: int, shared_bytes: int, pids: list[int], num_tasks: int):
        self.own_bytes, self.shared_bytes, self.pids, self.num_tasks = own_bytes, shared_bytes, pids, num_tasks


def prctl(option: int, value: int) -> None:
    """Linux prctl with one argument.

    Raises:
        OSError: the kernel refused.
    """
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}) failed")


def descendants(root: int) -> list[int]:
    """Process ids below `root`, zombies included, by a scan of all of /proc."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (parent := _parent(name)) is not None:
            children.setdefault(parent, []).append(int(name))
    result: list[int] = []
    queue = [root]
    while queue:
        below = children.get(queue.pop(), [])
        result += below
        queue += below
    return result


def below(root: int) -> list[int]:
    """As `descendants`, at the cost of what is there, where the kernel lists children."""
    return [pid for pid in _walk(root) if pid != root]


def parent(pid: int) -> int | None:
    """Process id of the parent; None when it is gone."""
    return _parent(str(pid))


def usage(root: int, child: int, uncounted: Container[int], inherited_bytes: int, most_tasks: int) -> TreeUsage:
    """Memory and tasks of everything below `root`; cheap enough to poll.

    Args:
        root: a process id.
        child: one below it, forked from the zygote.
        uncounted: process ids to leave out.
        inherited_bytes: what `child` shared with the zygote at its start, and so does every process forked from it that
            did not exec. Exact shares (smaps_rollup) are no way to count: reading them waits for forks in progress.
        most_tasks: stop counting above this: a fork bomb grows faster than it can be counted.
    """
    memory = shared = tasks = 0
    pids = []
    image = _image(child)
    for pid in _walk(root):
        if pid in uncounted:
            continue
        text = _status(pid)
        own = _own(text)
        memory += max(0, own - inherited_bytes) if _image(pid) == image else own
        shared += _field(text, b"RssShmem:") * 1024
        pids.append(pid)
        tasks += _field(text, b"Threads:")
        if tasks > most_tasks:
            break
    return TreeUsage(memory, shared, pids, tasks)


def processor_ns(pid: int) -> int | None:
    """Processor time that all threads of a process have used, in nanoseconds; None when it is gone."""
    try:
        return time.clock_gettime_ns((~pid << 3) | 2)  # CPUCLOCK_SCHED of a process, see clock_getcpuclockid(3)
    except OSError:
        return None


def own_bytes(pid: int) -> int:
    """Memory of one process, mapped files left out where the kernel says; 0 when it is gone."""
    return _own(_status(pid))


def available_bytes() -> int:
    """Memory the machine can still hand out."""
    return _machine(b"MemAvailable:")


def in_memory_files_bytes() -> int:
    """Memory that the machine's files in memory take, in all processes together."""
    return _machine(b"Shmem:")


def kill_descendants(root: int, group: int | None = None, patience_s: float = 10.0) -> bool:
    """Kill everything below `root` (this process, a subreaper) and reap it; True when nothing is left.

    Every descendant is a child's, so when there is no child to wait for there is nothing left.

    Args:
        root: this process's id.
        group: a process group to kill at one stroke first. The kernel lets no fork slip through a group's signal,
            so this alone ends any fork bomb that stays in its group.
        patience_s: give up after this long (a process in an uninterruptible system call cannot be killed).
    """
    deadline = time.monotonic() + patience_s
    pause = 0.0005
    while time.monotonic() < deadline:
        if group is not None:
            signal_all([-group], signal.SIGKILL)
        found = [pid for pid in _walk(root) if pid != root]
        # Stopped first, killed second: descendants outside the group must not multiply while they are being killed.
        signal_all(found, signal.SIGSTOP)
        signal_all(found, signal.SIGKILL)
        if _reap():
            return True
        time.sleep(pause)
        pause = min(2 * pause, 0.002)
    return False


def kill_all_but(root: int, child: int, spared: Container[int], patience_s: float = 2.0) -> int:
    """Kill what is below `root` except `child` and `spared`, `child` being stopped meanwhile; how many were found alive."""
    deadline = time.monotonic() + patience_s
    killed: set[int] = set()
    clean = 0
    signal_all([child], signal.SIGSTOP)
    try:
        while clean < 2 and time.monotonic() < deadline:
            seen = descendants(root) if clean else below(root)  # the dear way last, to be sure
            found = [pid for pid in seen if pid != child and pid not in spared and _state(pid) not in "ZX"]
            signal_all(found, signal.SIGKILL)
            killed |= set(found)
            clean = clean + 1 if not found and _state(child) in "TtZX" else 0
            if clean == 0:
                time.sleep(0.001)
    finally:
        signal_all([child], signal.SIGCONT)
    return len(killed)


def signal_all(pids: list[int], number: signal.Signals) -> None:
    """Send `number` to each process (a negative id is a group) that is still there."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except OSError:
            pass


def _reap() -> bool:
    """Bury the dead; True when no child is left."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return True
    return False


def children(pid: int) -> list[int]:
    """Direct children of `pid`, zombies included; empty when it is gone."""
    result: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", "rb") as file:
                result += map(int, file.read().split())
    except OSError:
        pass
    return result


def _walk(root: int) -> Iterator[int]:
    if not os.path.exists(f"/proc/{os.getpid()}/task/{os.getpid()}/children"):  # a kernel without CONFIG_PROC_CHILDREN
        yield from [root, *descendants(root)]
        return
    queue = [root]
    seen = 0
    while queue and seen < 20_000:
        pid = queue.pop()
        seen += 1
        yield pid
        queue += children(pid)


def _own(status: bytes) -> int:
    # Kernels and sandboxes (gVisor) that do not split resident memory tell all of it, mapped files included.
    resident = b"RssAnon:" if b"RssAnon:" in status else b"VmRSS:"
    return sum(_field(status, name) for name in (resident, b"VmSwap:", b"VmPTE:", b"HugetlbPages:")) * 1024


def _status(pid: int) -> bytes:
    """Text of /proc/PID/status; of a thread that goes on where the first one has ended, for then only those show memory."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            text = file.read()
        if b"VmRSS:" in text or _field(text, b"Threads:") < 2:
            return text
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/status", "rb") as file:
                if b"VmRSS:" in (other := file.read()):
                    return other
    except OSError:
        return b""
    return text


def _machine(name: bytes) -> int:
    with open("/proc/meminfo", "rb") as file:
        return _field(file.read(), name) * 1024


def _image(pid: int) -> bytes:
    """Where the stack starts: drawn anew by each exec, kept by fork."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[25]
    except (OSError, IndexError):
        return b""


def _state(pid: int) -> str:
    """One letter as in proc(5); X when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0].decode()
    except (OSError, IndexError):
        return "X"


def _parent(pid: str) -> int | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return None


def _field(text: bytes, name: bytes) -> int:
    start = text.find(name)
    return int(text[start + len(name) :].split(None, 1)[0]) if start >= 0 else 0

"""A process's descendants, their resources, and how to end them all. Linux, through /proc.

Descendants are found by parent links, so the caller must be a subreaper for orphans to stay in reach. Counts describe the moment of
reading: a tree that forks meanwhile may be seen in part, hence `kill_descendants` repeats until nothing is left.
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
    """Resources of a tree: private memory (resident or swapped out, huge pages and page tables included; memory inherited from the zygote
    is not counted again), shared resident memory, process ids, and the number of processes and threads."""

    def __init__(self, own_bytes: int, shared_bytes: int, pids: list[int], num_tasks: int):
        self.own_bytes, self.shared_bytes, self.pids, self.num_tasks = (
            own_bytes,
            shared_bytes,
            pids,
            num_tasks,
        )


def prctl(option: int, value: int) -> None:
    """Call Linux's prctl with one argument.

    Raises:
        OSError: the kernel refused.
    """
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}) failed")


def descendants(root: int) -> list[int]:
    """Return process ids below `root`, zombies included, by a scan of all of /proc."""
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
    """Return the same as `descendants`, in time proportional to the tree, if the kernel lists children."""
    return [pid for pid in _walk(root) if pid != root]


def parent(pid: int) -> int | None:
    """Return the process id of the parent; None if the process has ended."""
    return _parent(str(pid))


def usage(
    root: int, child: int, uncounted: Container[int], inherited_bytes: int, most_tasks: int
) -> TreeUsage:
    """Count memory and tasks of everything below `root`; cheap enough to poll.

    Args:
        root: a process id.
        child: a descendant, forked from the zygote.
        uncounted: process ids to leave out.
        inherited_bytes: memory that `child` shared with the zygote at its start, as does every process forked from it without
        exec. Exact shares (smaps_rollup) are too slow: reading them waits for forks in progress.
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
    """Return the processor time of all threads of a process, in nanoseconds; None if it has ended."""
    try:
        return time.clock_gettime_ns(
            (~pid << 3) | 2
        )  # CPUCLOCK_SCHED of a process, see clock_getcpuclockid(3)
    except OSError:
        return None


def own_bytes(pid: int) -> int:
    """Return the memory of one process in bytes, without mapped files if the kernel reports them; 0 if it has ended."""
    return _own(_status(pid))


def available_bytes() -> int:
    """Return the memory that the machine can still allocate, in bytes."""
    return _machine(b"MemAvailable:")


def in_memory_files_bytes() -> int:
    """Return the memory of the machine's in-memory files, over all processes, in bytes."""
    return _machine(b"Shmem:")


def kill_descendants(root: int, group: int | None = None, patience_s: float = 10.0) -> bool:
    """Kill everything below `root` (this process, a subreaper) and reap it; return True if nothing is left.

    Every descendant becomes a child, so without a child to wait for there is none left.

    Args:
        root: this process's id.
        group: a process group to kill first. No fork escapes a signal to a group, so this alone ends any fork bomb that
        stays in its group.
        patience_s: give up after this long (a process in an uninterruptible system call cannot be killed).
    """
    deadline = time.monotonic() + patience_s
    pause = 0.0005
    while time.monotonic() < deadline:
        if group is not None:
            signal_all([-group], signal.SIGKILL)
        pids = [pid for pid in _walk(root) if pid != root]
        # Stopped first, killed second: descendants outside the group must not multiply while they are being killed.
        signal_all(pids, signal.SIGSTOP)
        signal_all(pids, signal.SIGKILL)
        if _reap():
            return True
        time.sleep(pause)
        pause = min(2 * pause, 0.002)
    return False


def kill_all_but(root: int, child: int, spared: Container[int], patience_s: float = 2.0) -> int:
    """Kill everything below `root` except `child` and `spared`, with `child` stopped meanwhile; return how many were alive."""
    deadline = time.monotonic() + patience_s
    killed: set[int] = set()
    clean = 0
    signal_all([child], signal.SIGSTOP)
    try:
        while clean < 2 and time.monotonic() < deadline:
            seen = descendants(root) if clean else below(root)  # the slow scan last, to be sure
            pids = [
                pid
                for pid in seen
                if pid != child and pid not in spared and _state(pid) not in "ZX"
            ]
            signal_all(pids, signal.SIGKILL)
            killed |= set(pids)
            clean = clean + 1 if not pids and _state(child) in "TtZX" else 0
            if clean == 0:
                time.sleep(0.001)
    finally:
        signal_all([child], signal.SIGCONT)
    return len(killed)


def signal_all(pids: list[int], number: signal.Signals) -> None:
    """Send `number` to each process (a negative id is a group) that still exists."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except OSError:
            pass


def _reap() -> bool:
    """Reap ended children; return True if no child is left."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return True
    return False


def children(pid: int) -> list[int]:
    """Return the direct children of `pid`, zombies included; empty if it has ended."""
    result: list[int] = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", "rb") as file:
                result += map(int, file.read().split())
    except OSError:
        pass
    return result


def _walk(root: int) -> Iterator[int]:
    if not os.path.exists(
        f"/proc/{os.getpid()}/task/{os.getpid()}/children"
    ):  # a kernel without CONFIG_PROC_CHILDREN
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
    # Kernels and sandboxes (gVisor) that do not split resident memory report all of it, mapped files included.
    resident = b"RssAnon:" if b"RssAnon:" in status else b"VmRSS:"
    return (
        sum(_field(status, name) for name in (resident, b"VmSwap:", b"VmPTE:", b"HugetlbPages:"))
        * 1024
    )


def _status(pid: int) -> bytes:
    """Return the text of /proc/PID/status, or of a thread that survives the first one, since only those show memory then."""
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
    """Return the start of the stack: changed by each exec, kept by fork."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[25]
    except (OSError, IndexError):
        return b""


def _state(pid: int) -> str:
    """Return the state's letter as in proc(5); X if it has ended."""
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

"""Run code that is not ours in a child process that can be limited, talked to and killed whole.

    with Session("package.module:function", limits) as session:
        session.send({"question": 1})
        answer = session.receive(timeout_s=10)      # Message, or Death when the child is gone

In the child `function(channel)` runs; `channel.receive()` gives the next request (None when the
parent closed) and `channel.send(dict)` answers. stdout and stderr of the child are kept apart, as
a log of bounded size.

How: a *zygote* process that has imported torch, run no tensor operation and opened no GPU forks a
*warden* a session; the warden forks the child, watches clock, memory, processes and output, adopts
every descendant (PR_SET_CHILD_SUBREAPER) and kills them all at the end or when the parent is gone.
`Session(isolate="cpu" | "cuda")` shuts a child in before the target is imported (`isolate.py`);
`SandboxSession.isolation` says how far this machine let it.

Covered, isolated or not: endless loops, crashes, memory hogs and orphans that hoard for them, fork
bombs, daemons in sessions of their own, output floods, a deleted working folder, folders too deep to
delete, `os._exit`, kill -9 of the parent, kill -9 of the warden.
Covered where the layers named in `SandboxSession.isolation` are: the network; files outside the session's
folder, their permissions included; other sessions' folders and the user's data; memory, signals,
priorities, affinities and limits of the parent, the warden, the zygote and other sessions; the
clock, tracing, kernel modules and keyrings; root's powers; secrets in the environment.
Memory is counted wherever it lies: pages, swap, page tables, huge pages, files in memory that no
process maps, buffers of sockets and pipes (`holdings.py`); by a control group where one may be made
(`cgroup.py`). Disk is counted in the session's folder and in deleted files.
Not covered: not isolated, all of that, since the child is then the same user as its parent. Isolated
or not: the child may write to its protocol socket what it likes; without control groups limits are
enforced by polling, 20 times a second, and a file in memory whose size only root sees (mapped in
part, its descriptor closed) counts as large as it is mapped until the machine's total doubles the
limit; it may load the machine and so disturb what others measure. Isolated for CUDA: sockets that
have a path can be connected to, and descriptors sent; the driver is shared, and memory that it pins
is not counted; command lines of other processes can be read. Without Landlock, unless as root: the
same user's files can be read, and its memory reached through /proc/PID/mem. What this machine lacks,
`lacking.py` and `dvk doctor` say. Isolated code cannot use semaphores of multiprocessing (they live
in /dev/shm), named Unix sockets (on "cpu") or loopback.
Code of strangers that must read other processes' memory, a judge that runs their reference, is shut
in by `Session(shut=True)` (`enclosure.py`).
"""

from dvk.sandbox.channel import RequestChannel
from dvk.sandbox.launcher import warm
from dvk.sandbox.session import Death, Message, SandboxSession, call

__all__ = ["RequestChannel", "Death", "Message", "SandboxSession", "call", "warm"]

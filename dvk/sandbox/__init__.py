"""Run untrusted code in a child process with limits, messages and a whole-tree kill.

    with Session("package.module:function", limits) as session:
        session.send({"question": 1})
        answer = session.receive(timeout_s=10)      # Message, or Death once the child has ended

The child runs `function(channel)`; `channel.receive()` returns the next request (None once the parent has closed) and `channel.send(dict)`
answers. stdout and stderr of the child go to a separate log of bounded size.

How: a *zygote* process that has imported torch, run no tensor operation and opened no GPU forks a *warden* per session. The warden forks
the child, watches clock, memory, processes and output, adopts every descendant (PR_SET_CHILD_SUBREAPER) and kills them all at the end or
when the parent has ended. `Session(isolate="cpu" | "cuda")` isolates a child before it imports the target (`isolate.py`);
`SandboxSession.isolation` names the layers that this machine granted.

Covered, isolated or not: endless loops, crashes, memory hogs and orphans that hoard for them, fork
bombs, daemons in separate sessions, output floods, a deleted working folder, folders too deep to
delete, `os._exit`, kill -9 of the parent, kill -9 of the warden.
Covered if `SandboxSession.isolation` names the layers: the network; files outside the session's
folder, their permissions included; other sessions' folders and the user's data; memory, signals,
priorities, affinities and limits of the parent, the warden, the zygote and other sessions; the
clock, tracing, kernel modules and keyrings; root's powers; secrets in the environment.
All memory is counted: pages, swap, page tables, huge pages, files in memory that no
process maps, buffers of sockets and pipes (`holdings.py`); by a control group where one may be made
(`cgroup.py`). Disk is counted in the session's folder and in deleted files.
Not covered: without isolation, all of the above, since the child is then the same user as its parent. In either case: the child may write
anything to its protocol socket; without control groups limits are
enforced by polling, 20 times a second, and a file in memory whose size only root sees (mapped in
part, its descriptor closed) counts as large as it is mapped until the machine's total doubles the
limit; it may load the machine and so disturb what others measure. Isolated for CUDA: sockets that
have a path can be connected to, and descriptors sent; the driver is shared, and memory that it pins
is not counted; command lines of other processes can be read. Without Landlock, unless as root: the
same user's files can be read, and its memory reached through /proc/PID/mem. What this machine lacks,
`lacking.py` and `dvk doctor` say. Isolated code cannot use semaphores of multiprocessing (they live
in /dev/shm), named Unix sockets (on "cpu") or loopback.
Untrusted code that must read other processes' memory, such as a judge that runs an untrusted reference, is isolated by `Session(shut=True)`
(`enclosure.py`).
"""

from dvk.sandbox.channel import RequestChannel
from dvk.sandbox.launcher import warm
from dvk.sandbox.session import Death, Message, SandboxSession, call

__all__ = ["RequestChannel", "Death", "Message", "SandboxSession", "call", "warm"]

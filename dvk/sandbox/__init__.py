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

Covered: endless loops, crashes, memory hogs, fork bombs, daemons in sessions of their own, output
floods, a deleted working folder, `os._exit`, kill -9 of the parent, kill -9 of the warden.
Not covered: secrecy and integrity. The child runs as the same user, sees the network and the file
system, may write to its protocol socket what it likes, and may fill the disk. Memory that is in no
process (files in /dev/shm) is not counted. For root, the process limit is enforced by polling.
"""

from dvk.sandbox.channel import Channel
from dvk.sandbox.launcher import warm
from dvk.sandbox.session import Death, Message, Session, call

__all__ = ["Channel", "Death", "Message", "Session", "call", "warm"]

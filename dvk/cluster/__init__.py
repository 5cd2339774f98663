"""The judge on the nodes of a Ray cluster: `--engine ray`, `ray://HOST:PORT`, `HOST:PORT`, `auto`.

    cluster   connects; lists the nodes, and checks that all judge alike  (driver, as all but the last)
    seats     actors with a local judge session each; assigns them, replaces lost ones
    session   the judge session that sends candidates to a seat
    seat      the actor, and a node's description of itself               (node)

A seat is placed by GPU (a share of one) or, for tasks on a CPU, by CPU, and judges one candidate at a time, so the work in flight is
bounded by the seats. Everything above knows `open_session` alone: the pool and the judge queue keep their threads, and a thread that
waited for a process of this machine waits for a seat instead.

Exactly one verdict a submission: a thread asks one seat, and another only after Ray has declared the first dead and discarded
its later messages. Ray's own retries are off, and no node keeps verdicts.

If models write on the cluster as well (`agents.writers`), they have a part of each GPU that judges do not take.

The driver holds for all nodes: the verdict cache and the rule that equal candidates of a run are judged once; both are asked before
anything is sent. The cache key includes the kinds of machine in the cluster. Not shared: a reference's expected outputs, which every
seat computes for itself, since its inputs are secret and the last bits depend on its machine; threads keep their seat and task,
so that this happens about once a seat and task.

The limits of scaling are simulated in tests/benchmarks/scaling.md.

Nodes need the same dvk, and read none of the driver's files. The driver examines and captures the tasks itself, so it needs a
GPU where the tasks do.
"""

"""The judge on the nodes of a Ray cluster: `--engine ray`, `ray://HOST:PORT`, `HOST:PORT`, `auto`.

    cluster   connect; which nodes there are, and that all judge alike   (driver, as all but the last)
    seats     actors, a local judge session in each: who has which, who was lost
    judge session     a judge session that has one of them judge
    seat      the actor, and what a node says of itself                  (node)

A seat is placed by GPU (a share of one) or, for tasks on a CPU, by CPU, and judges one candidate at a time, so what is in work is
bounded by the seats. Everything above knows `open_session` alone: the pool and the judge queue keep their threads, and a thread that
waited for a process of this machine waits for a seat instead.

Exactly one verdict a submission: a thread asks one seat, and another only after Ray has declared the first dead and thrown away
whatever it might still say. Ray's own retries are off, and no node keeps verdicts.

Where models write on the cluster, too (`agents.writers`), they have a part of each GPU that judges do not take.

Shared by all nodes: the verdict cache and the rule that equal candidates of a run are judged once, both the driver's, asked before
anything is sent. Verdicts are kept by the kinds of machine in the cluster. Not shared: a reference's expected outputs, which every
seat computes for itself, since its inputs are its secret and its last bits its machine's; threads go on with the seat and the task
that they had, so that this happens about once a seat and task.

How far this carries, and what stops it, is simulated in tests/benchmarks/scaling.md.

Nodes need the same dvk, and reach nothing of the driver's files. The driver examines and captures the tasks itself, so it needs a
GPU where the tasks do.
"""

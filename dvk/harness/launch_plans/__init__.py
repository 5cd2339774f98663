"""Launch plans: a candidate reduced to compiled kernels and ATen calls, which trusted code replays.

A candidate whose forward is kernel launches and ATen operators needs no separate process while the clock runs. `record` executes it once on
fake tensors, in an isolated process without a GPU: each operator and each launch is recorded, kernels are compiled to cubins for the
target. The result, a `Plan`, is data. `Replay` checks it and runs it, so no host code of the candidate is alive when its kernels are timed,
tensor values never existed where that code ran, and state kept from one call to the next shows as a difference between two records.

Not covered, and rejected with a reason (`NotReducible`): control flow on tensor values, streams, graphs,
custom operators, foreign libraries, random numbers, tensor descriptors, cooperative launches.
"""

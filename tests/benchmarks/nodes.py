"""Benefit of a Ray cluster's nodes: verdicts a second with 1, 2 and 4 local nodes of one judge each, the driver's cost of a submission,
and the fate of a run whose node is killed.

    python -m tests.benchmarks.nodes --nodes 1 2 4 --count 24
    python -m tests.benchmarks.nodes --nodes 4 --count 24 --kill

One JSON line a cluster. All nodes share this machine's cores, and on a CPU its one lane for timing: more nodes than cores add little.

On two busy cores of a Xeon at 2.5 GHz, C++ candidates: at the search tier 1.45, 1.41 and 1.37 verdicts a second with 1, 2 and 4 nodes
(24 candidates; the lane for timing is one), at the smoke tier 1.7, 4.0 and 5.3 (48 candidates). A submission costs the driver 1.7 to
3.1 ms of a processor; 168 to 422 a second go there and back. With a node killed after 12 of 24: one judge lost, each verdict there
exactly once, the longest pause 1.6 s.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dvk import machine, tasks
from dvk.cluster import connection as connecting
from dvk.config import Config
from dvk.harness import JudgeQueue, JudgeSpec
from dvk.harness.remote.node_pool import seats_of
from dvk.records import Candidate, Task, Tier
from dvk.sandbox import proctree
from tests.harness.bench_throughput import CPP, REFERENCE

STORE_BYTES = 80 << 20
REFUSED = 300
"""Submissions that are refused by their text: all that is measured of them is the way there and back."""


@contextmanager
def cluster(num_nodes: int) -> Iterator[Any]:
    """Nodes of one CPU each; the head offers nothing."""
    from ray.cluster_utils import Cluster

    made = Cluster(
        initialize_head=True,
        head_node_args={
            "num_cpus": 0,
            "include_dashboard": False,
            "object_store_memory": STORE_BYTES,
        },
    )
    try:
        for _ in range(num_nodes):
            made.add_node(num_cpus=1, object_store_memory=STORE_BYTES)
        yield made
    finally:
        connecting.close()
        made.shutdown()


def judged(
    pool: JudgeQueue[int], task: Task, tier: Tier, first: int, count: int, killed: Any = None
) -> tuple[Counter[int], Counter[str], list[float]]:
    """How often each submission was answered, the statuses, and when each answer came; `killed` is called in the middle."""
    jobs = [
        (task, Candidate(source=CPP.replace("NUMBER_HERE", str(first + i)), backend="cpp"))
        for i in range(count)
    ]
    began, ends, answered, statuses = time.perf_counter(), [], Counter[int](), Counter[str]()
    for position, verdict in pool.map(jobs, JudgeSpec(tier=tier)):
        ends.append(time.perf_counter() - began)
        answered[position] += 1
        statuses[verdict.status.value] += 1
        if killed is not None and len(ends) == count // 2:
            killed()
    return answered, statuses, ends


def lose(node: Any) -> None:
    """All processes of a node, as when its machine loses power."""
    raylet = node.all_processes["raylet"][0].process.pid
    for pid in [*proctree.below(raylet), raylet]:
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            continue


def measure(num_nodes: int, tier: Tier, count: int, rows: int, kill: bool) -> dict[str, Any]:
    """One cluster's figures."""
    with tempfile.TemporaryDirectory() as folder, cluster(num_nodes) as made:
        config = Config.model_validate(
            {"remote": {"engine": made.address}, "judge": {"search_s": 0.05}}
        )
        path = Path(folder) / "reference.py"
        path.write_text(REFERENCE.format(rows=rows, shift=1.0))
        task = tasks.load(str(path))
        pool = JudgeQueue[int](num_nodes, config)
        judged(pool, task, tier, 1, num_nodes)  # starts every node's processes
        answered, statuses, ends = judged(
            pool,
            task,
            tier,
            1000,
            count,
            (lambda: lose(next(iter(made.worker_nodes)))) if kill else None,
        )
        told = {
            "nodes": num_nodes,
            "tier": tier,
            "cores": machine.num_cores(),
            "verdicts": len(ends),
            "seconds": round(ends[-1], 2),
            "verdicts_per_s": round(len(ends) / ends[-1], 2),
            "statuses": dict(statuses),
            "longest_pause_s": round(max(b - a for a, b in zip([0.0, *ends], ends)), 2),
        }
        if kill:
            lost = seats_of(connecting.connect(made.address)).num_lost
            return {
                **told,
                "killed": True,
                "judges_lost": lost,
                "each_exactly_once": answered == Counter(range(count)),
            }
        wall, busy = time.perf_counter(), time.process_time()
        refused = [(task, Candidate(source=f"# {i}", backend="cpp")) for i in range(REFUSED)]
        assert sum(1 for _ in pool.map(refused)) == REFUSED
        wall, busy = time.perf_counter() - wall, time.process_time() - busy
        return {
            **told,
            "refused_per_s": round(REFUSED / wall),
            "driver_ms_a_submission": round(1000 * busy / REFUSED, 2),
        }


def main() -> int:
    """The command line above."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--count", type=int, default=24, help="candidates")
    parser.add_argument("--tier", default="search", choices=["smoke", "search"])
    parser.add_argument("--rows", type=int, default=64, help="of the tensors, 1024 columns each")
    parser.add_argument(
        "--kill", action="store_true", help="kill a node when half of the verdicts are there"
    )
    given = parser.parse_args()
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    fine = True
    for num_nodes in given.nodes:
        told = measure(num_nodes, given.tier, given.count, given.rows, given.kill)
        print(json.dumps(told), flush=True)
        fine = fine and told.get("each_exactly_once", True)
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())

"""A Ray cluster of several nodes on this machine, for tests that kill some of them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dvk.cluster import connection
from dvk.sandbox import proctree

SMALL = {"object_store_memory": 80 << 20}


@contextmanager
def of_nodes(count: int) -> Iterator[Any]:
    """So many nodes of one CPU each, and a head that offers nothing; our connection to it, if any, ends with it."""
    pytest.importorskip("ray", reason="there is no Ray for this Python")
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_AUTH_MODE", "disabled")
        patch.delenv("OMP_NUM_THREADS", raising=False)
        made = Cluster(
            initialize_head=True,
            head_node_args={"num_cpus": 0, "include_dashboard": False, **SMALL},
        )
        for _ in range(count):
            made.add_node(num_cpus=1, **SMALL)
        try:
            yield made
        finally:
            connection.close()
            made.shutdown()


def kill(pid: int) -> None:
    """A process with all that it has started, as when its machine loses power."""
    for one in [*proctree.below(pid), pid]:
        try:
            os.kill(one, signal.SIGKILL)
        except OSError:
            continue


def raylet(node: Any) -> int:
    """The process that a node is."""
    pid: int = node.all_processes["raylet"][0].process.pid
    return pid


def actor_under(node: Any, name: str) -> int | None:
    """The process of a node's actor of this class; None if there is none."""
    for pid in proctree.below(raylet(node)):
        try:
            if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(f"ray::{name}".encode()):
                return pid
        except OSError:
            continue
    return None

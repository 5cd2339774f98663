"""The driver's connection to a Ray cluster: one a process, opened on first use. Imports Ray only then."""

from __future__ import annotations

import os
import re
import socket
import threading
from types import ModuleType
from typing import Any

import dvk
from dvk.cluster.node import of_node
from dvk.errors import MachineError, UsageError
from dvk.records import PROTOCOL, Device

PROBE_S = 120.0
"""Longest wait for the nodes' descriptions: a first process on each, which imports dvk."""
STORE_BYTES = 100 << 20
"""Shared memory of a cluster that dvk starts; candidates and verdicts are small and travel without it."""
ANSWER_S = 10.0
"""Longest wait for a connection; Ray itself would try for minutes."""
_ADDRESS = re.compile(r"(?:ray://)?\[?([\w.\-:]+?)\]?:(\d+)|ray|auto")

_lock = threading.Lock()
_open: Cluster | None = None


class Cluster:
    """The nodes that were there when it was connected to; see `connect`.

    Attributes:
        ray: the imported package.
        engine: its name.
        machines: kinds of machine in it, sorted, without duplicates.
        actors: actors that dvk has started on it.
    """

    def __init__(self, ray: ModuleType, engine: str, own: bool):
        self.ray, self.engine, self._own = ray, engine, own
        self.actors: list[Any] = []
        self.machines = self._probed()

    def nodes(self) -> list[dict[str, Any]]:
        """The nodes alive now, as Ray describes them."""
        return [node for node in self.ray.nodes() if node["Alive"]]

    def room(self, device: Device, judges: int) -> int:
        """Number of seats on all nodes: `judges` a GPU, or at most so many a node and one a CPU.

        Raises:
            MachineError: none.
        """
        result = sum(self.places(device, judges).values())
        if not result:
            what = "GPU" if device == "cuda" else "CPU"
            raise MachineError(
                f"no node of the Ray cluster `{self.engine}` offers a {what}",
                f"add one: ray start --num-{what.lower()}s=N",
            )
        return result

    def places(self, device: Device, most: int) -> dict[str, int]:
        """Seats by id of a node alive now: `most` a GPU that it has, or at most so many and one a CPU."""
        offered = {node["NodeID"]: node["Resources"] for node in self.nodes()}
        return {
            node: most * int(given.get("GPU", 0))
            if device == "cuda"
            else min(most, int(given.get("CPU", 0)))
            for node, given in offered.items()
        }

    def close(self) -> None:
        """End dvk's actors; also the connection, if dvk made it, and a cluster that dvk started."""
        if self._own:
            self.ray.shutdown()
        elif self.ray.is_initialized():
            for actor in self.actors:
                self.ray.kill(actor)

    def _probed(self) -> tuple[str, ...]:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        probe = self.ray.remote(num_cpus=0, max_retries=1)(of_node)
        asked = {
            node["NodeManagerAddress"]: probe.options(
                scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            ).remote()
            for node in self.nodes()
        }
        mine, kinds = f"dvk {dvk.__version__}, protocol {PROTOCOL}", set()
        for address, answer in asked.items():
            try:
                version, kind = self.ray.get(answer, timeout=PROBE_S)
            except self.ray.exceptions.RayError as error:
                problem = (
                    f"the Ray node at {address} cannot judge: {str(error).strip().splitlines()[-1]}"
                )
                raise MachineError(
                    problem,
                    f"install dvk {dvk.__version__} there, in the environment of its `ray start`",
                ) from None
            if version != mine:
                raise MachineError(
                    f"the Ray node at {address} has {version}, this machine {mine}",
                    "install the same dvk on both",
                )
            kinds.add(kind)
        return tuple(sorted(kinds))


def connect(engine: str) -> Cluster:
    """The cluster that `engine` names: `ray` (started on this machine), `ray://HOST:PORT`, `HOST:PORT` or `auto`.

    If this process is connected already, the connection is reused.

    Raises:
        UsageError: no such engine, or Ray is not installed.
        MachineError: the cluster cannot be reached, or has a node that cannot judge.
    """
    global _open
    if (address := _ADDRESS.fullmatch(engine)) is None:
        raise UsageError(
            f"unknown engine: `{engine}`", "choose ray, ray://HOST:PORT, HOST:PORT or auto"
        )
    with _lock:
        if _open is None or _open.engine != engine or not _open.ray.is_initialized():
            ray = _imported()
            own = not ray.is_initialized()
            if own:
                if address[1]:
                    _reach(engine, address[1], int(address[2]))
                _init(ray, engine)
            _open = Cluster(ray, engine, own)
        return _open


def close() -> None:
    """Disconnect, if connected; for processes that outlive their judging."""
    global _open
    with _lock:
        if _open is not None:
            _open.close()
        _open = None


def _imported() -> ModuleType:
    try:
        import ray
    except ImportError:
        raise UsageError(
            "`--engine` needs Ray, which is not installed", "pip install 'dvk[ray]'"
        ) from None
    module: ModuleType = ray
    return module


def _reach(engine: str, host: str, port: int) -> None:
    try:
        socket.create_connection((host, port), ANSWER_S).close()
    except OSError as error:
        problem = f"no server answers at `{engine}`: {error.strerror or error}"
        raise MachineError(
            problem,
            "start it there: ray start --head (port 6379; ray:// wants the client port, 10001)",
        ) from None


def _init(ray: ModuleType, engine: str) -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    quiet: dict[str, Any] = {
        "log_to_driver": False,
        "logging_level": "ERROR",
    }  # stdout belongs to dvk
    own = (
        {"include_dashboard": False, "object_store_memory": STORE_BYTES} if engine == "ray" else {}
    )
    try:
        ray.init(address="local" if engine == "ray" else engine, **own, **quiet)
    except (OSError, RuntimeError, ValueError, ImportError, TimeoutError) as error:
        if isinstance(error, ImportError):  # its client is a separate extra
            raise UsageError(
                f"`--engine {engine}` needs Ray's client: {error}", "pip install 'dvk[ray]'"
            ) from None
        said = str(error).strip().splitlines() or [type(error).__name__]
        problem = f"cannot connect to a Ray cluster at `{engine}`: {' … '.join(dict.fromkeys((said[0], said[-1])))}"
        hint = "look at `ray status` there; ray:// wants the client port (10001); export RAY_AUTH_MODE=token where it asks for a token"
        raise MachineError(problem, hint) from None

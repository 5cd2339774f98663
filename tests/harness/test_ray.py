"""Judging on a Ray cluster: a real one of several nodes on this machine, C++ candidates, nodes and actors killed in mid-run."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dvk import config as configuration
from dvk.cluster import connection as connecting
from dvk.config import Config, RemoteConfig
from dvk.errors import MachineError, UsageError
from dvk.harness import JudgeQueue, JudgeSpec
from dvk.harness.placement import is_remote, num_workers, open_session
from dvk.harness.remote.node import SeatConfig
from dvk.harness.remote.node_pool import FAILURES, Seats, SeatSlot, seats_of
from dvk.harness.remote.ray import want_of
from dvk.harness.session.verdict_cache import Remembered, is_cacheable
from dvk.records import Candidate, Status, Task, Verdict
from tests import clusters
from tests.clusters import kill
from tests.harness.conftest import QUICK, candidate
from tests.harness.conftest import task as task_of

TOP = Path(__file__).resolve().parent.parent.parent
GOOD, WRONG = "good/cpp_affine", "bad/cpp_tail_left_out"


# ---------------------------------------------------------------- without a cluster


def test_without_ray_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)  # type: ignore[arg-type]  # as if there were none
    with pytest.raises(UsageError, match=r"not installed") as error:
        connecting.connect("ray")
    assert error.value.hint == "pip install 'dvk[ray]'"


def test_ray_is_imported_only_when_asked_for() -> None:
    code = "import sys, dvk.harness, dvk.harness.queue; print('ray' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize("engine", ["spark", "ray:port", "http://here:1", "ray://here", ""])
def test_an_unknown_engine_is_refused(engine: str) -> None:
    with pytest.raises(UsageError, match="unknown engine"):
        connecting.connect(engine)


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_a_cluster_that_is_not_there_is_missed_at_once(scheme: str) -> None:
    pytest.importorskip("ray", reason="there is no Ray for this Python")
    with pytest.raises(MachineError, match="no server answers"):
        connecting.connect(f"{scheme}127.0.0.1:1")


def test_judge_and_engine_exclude_each_other() -> None:
    with pytest.raises(UsageError, match="exclude"):
        configuration.load(
            flags={"remote.judge": "kernelgym:http://here:1", "remote.engine": "ray"}
        )


def test_a_gpu_is_shared_by_as_many_as_the_settings_say() -> None:
    for judges in (1, 2, 3, 7):
        share = want_of("cuda", configuration.load(settings=[f"rollout.judges={judges}"])).share
        assert judges * share <= 1.0 < (judges + 1) * share
    assert want_of("cpu", Config()).share == 1.0


def test_verdicts_of_one_machine_share_a_key() -> None:
    assert is_remote(Config()) == {} and num_workers(Config(), "cpu") == 2


def test_an_unfinished_judgement_is_not_cached() -> None:
    lost = Verdict(
        status=Status.LAUNCH_ERROR, tier="search", stage="check", error="its judges were lost"
    )
    assert not is_cacheable(lost) and is_cacheable(lost.model_copy(update={"machine": "m"}))


def test_a_number_of_threads_that_the_node_did_not_set_is_taken_back() -> None:
    code = (
        "import os\nfrom dvk.harness.remote.node import unbound\nos.environ.setdefault('OMP_NUM_THREADS', '1')\nunbound()\n"
        "print(os.environ.get('OMP_NUM_THREADS'))"
    )
    for given, left in ((None, "None"), ("3", "3")):
        env = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"} | (
            {"OMP_NUM_THREADS": given} if given else {}
        )
        assert (
            subprocess.run(
                [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env
            ).stdout.strip()
            == left
        )


def test_free_seats_of_a_lost_node_are_not_given_out() -> None:
    killed: list[Any] = []
    ray = SimpleNamespace(remote=lambda made: made, is_initialized=lambda: True, kill=killed.append)
    known = Seats(SimpleNamespace(ray=ray, engine="ray"))  # type: ignore[arg-type]  # what it asks of a cluster here
    want = want_of("cpu", Config())
    places = [
        SeatSlot(number, want, node, free)
        for number, (node, free) in enumerate(
            (("a", False), ("a", True), ("a", False), ("b", True))
        )
    ]
    known._places += places
    known.lose(places[0], "its node died")
    assert killed == [0, 1] and known.num_lost == 1
    assert known.acquire(want, SeatConfig(Config()), "task", before=places[1]) is places[3]
    known.lose(places[2])
    assert killed == [0, 1, 2] and known.num_lost == 1


def test_seats_that_die_together_while_they_start_are_one_failure() -> None:
    want, started, good = want_of("cpu", Config()), list[Future[str]](), [False]

    def start() -> Any:
        started.append(answer := Future[str]())
        if len(started) > FAILURES:
            answer.set_result("b") if good[0] else answer.set_exception(OSError("no such command"))
        return SimpleNamespace(
            ready=SimpleNamespace(remote=lambda: SimpleNamespace(future=lambda: answer))
        )

    def together() -> Seats:
        started.clear()
        seat = SimpleNamespace(options=lambda **_: SimpleNamespace(remote=start))
        known = Seats(
            SimpleNamespace(ray=SimpleNamespace(remote=lambda made: seat), engine="ray", actors=[])
        )  # type: ignore[arg-type]
        for _ in range(FAILURES):
            known._ask(want)
        for answer in started:
            answer.set_exception(OSError("its node died"))
        return known

    with pytest.raises(MachineError, match="no such command"):
        together().acquire(want, SeatConfig(Config()), "task")
    assert len(started) == 2 * FAILURES - 1
    good[0] = True
    assert together().acquire(want, SeatConfig(Config()), "task").node == "b"


# ---------------------------------------------------------------- a cluster of three nodes, one CPU each


@pytest.fixture(scope="module")
def nodes() -> Iterator[Any]:
    """The cluster; its head offers nothing, as a driver's machine that does not judge."""
    with clusters.of_nodes(3) as made:
        yield made


@pytest.fixture
def config(nodes: Any) -> Config:
    """Settings that name it."""
    return QUICK.model_copy(update={"remote": RemoteConfig(engine=nodes.address)})


@pytest.fixture
def affine() -> Task:
    return task_of("affine")


def distinct(count: int) -> list[Candidate]:
    """Candidates that differ, every third one wrong."""
    good, wrong = candidate(GOOD), candidate(WRONG)
    made = [(wrong if i % 3 == 2 else good) for i in range(count)]
    return [
        one.model_copy(update={"source": f"{one.source}\n# {i}\n"}) for i, one in enumerate(made)
    ]


def seats(config: Config) -> Seats:
    assert config.remote.engine is not None
    return seats_of(connecting.connect(config.remote.engine))


def seat_under(node: Any) -> int | None:
    """The process of a node's seat."""
    return clusters.actor_under(node, "Seat")


def seated(nodes: Any) -> list[Any]:
    """Nodes that have a seat and are not the driver's own."""
    import ray

    mine = ray.get_runtime_context().get_node_id()
    return [
        node for node in nodes.worker_nodes if node.node_id != mine and seat_under(node) is not None
    ]


def statuses(found: dict[int, Verdict]) -> list[str]:
    return [found[i].status.value for i in sorted(found)]


def wanted(count: int) -> list[str]:
    return ["mismatch" if i % 3 == 2 else "ok" for i in range(count)]


@pytest.mark.hand
@pytest.mark.slow
def test_candidates_are_judged_on_several_nodes(nodes: Any, config: Config, affine: Task) -> None:
    assert num_workers(config, "cpu") == 3
    with pytest.raises(MachineError, match="offers a GPU"):
        num_workers(config, "cuda")
    jobs = [(affine, one) for one in distinct(9)]
    answers = list(JudgeQueue[int](3, config).map([*jobs, jobs[0]], JudgeSpec(tier="smoke")))
    assert sorted(position for position, _ in answers) == list(range(10))
    found = dict(answers)
    assert found[9] is found[0], "equal candidates are judged once"
    assert statuses(found) == [*wanted(9), "ok"]
    assert len(seated(nodes)) == 3 and seats(config).num_lost == 0


@pytest.mark.slow
def test_timed_verdicts_and_deadlines(config: Config, affine: Task) -> None:
    with open_session(affine, config) as court:
        timed = court.judge(candidate(GOOD))
        assert timed is not None and timed.status is Status.OK and timed.timing is not None
        assert court.judge(candidate(GOOD), deadline=time.monotonic()) is None


@pytest.mark.slow
def test_one_verdict_cache_for_all_nodes(config: Config, affine: Task, tmp_path: Path) -> None:
    jobs = [(affine, one) for one in distinct(3)]
    first = dict(
        JudgeQueue[int](3, config, Remembered(tmp_path / "v.db")).map(jobs, JudgeSpec(tier="smoke"))
    )
    again = dict(
        JudgeQueue[int](3, config, Remembered(tmp_path / "v.db")).map(jobs, JudgeSpec(tier="smoke"))
    )
    assert not any(verdict.cached for verdict in first.values()) and all(
        verdict.cached for verdict in again.values()
    )
    here = dict(
        JudgeQueue[int](1, QUICK, Remembered(tmp_path / "v.db")).map(
            jobs[:1], JudgeSpec(tier="smoke")
        )
    )
    assert not here[0].cached, "another set of machines, other verdicts"


@pytest.mark.slow
def test_a_killed_actor_is_replaced(nodes: Any, config: Config, affine: Task) -> None:
    list(JudgeQueue[int](1, config).map([(affine, candidate(GOOD))], JudgeSpec(tier="smoke")))
    before = seats(config).num_lost
    for node in seated(nodes):
        kill(seat_under(node) or 0)
    found = dict(
        JudgeQueue[int](3, config).map(
            [(affine, one) for one in distinct(6)], JudgeSpec(tier="smoke")
        )
    )
    assert statuses(found) == wanted(6) and seats(config).num_lost > before


@pytest.mark.slow
def test_ray_leaves_candidates_all_threads(config: Config, affine: Task) -> None:
    import ray

    from dvk.harness.remote.node import Seat

    class Telling(Seat):
        def threads(self) -> str | None:
            return os.environ.get("OMP_NUM_THREADS")

    seats(config)  # connected
    actor = ray.remote(Telling).options(num_cpus=0).remote()
    assert ray.get(actor.threads.remote()) is None
    ray.kill(actor)


@pytest.mark.slow
def test_another_version_on_a_node_is_refused(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = seats(config).cluster
    monkeypatch.setattr(connecting, "PROTOCOL", -1)
    with pytest.raises(MachineError, match="protocol") as error:
        connecting.Cluster(known.ray, known.engine, own=False)
    assert error.value.hint == "install the same dvk on both"


@pytest.mark.slow
def test_where_another_made_the_connection_our_seats_end_and_it_stays(
    nodes: Any, config: Config, affine: Task
) -> None:
    connecting.close()
    import ray

    ray.init(nodes.address, log_to_driver=False, logging_level="ERROR")
    try:
        list(JudgeQueue[int](1, config).map([(affine, candidate(GOOD))], JudgeSpec(tier="smoke")))
        assert any(seat_under(node) for node in nodes.worker_nodes)
        connecting.close()
        limit = time.monotonic() + 30
        while any(seat_under(node) for node in nodes.worker_nodes) and time.monotonic() < limit:
            time.sleep(0.2)
        assert ray.is_initialized() and not any(seat_under(node) for node in nodes.worker_nodes)
    finally:
        ray.shutdown()


@pytest.mark.hand
@pytest.mark.slow
def test_eval_on_the_cluster(config: Config, tmp_path: Path) -> None:
    connecting.close()  # our seats hold what the other driver wants
    command = [
        sys.executable,
        "-m",
        "dvk",
        "eval",
        "data/tasks/examples",
        "--only",
        "layernorm_gelu_residual",
        "--turns",
        "3",
        "--json",
        "--engine",
        str(config.remote.engine),
        "--out",
        str(tmp_path / "run"),
    ]
    done = subprocess.run(command, cwd=TOP, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads(done.stdout)
    assert told["fast_p"]["0"] == 1.0 and "3 candidates at a time" in done.stderr


@pytest.mark.hand
@pytest.mark.slow
def test_verify_through_rays_client(nodes: Any, tmp_path: Path) -> None:
    pytest.importorskip("grpc", reason="Ray is here without its client")
    connecting.close()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "ray.util.client.server",
            "--address",
            nodes.address,
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
            "--mode",
            "proxy",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # Ray forks a server for each client while gRPC's threads run: with gRPC's handlers of forks every third died before it began.
        env={
            **os.environ,
            "GRPC_ENABLE_FORK_SUPPORT": "0",
            "RAY_CLIENT_SERVER_CHECK_CHANNEL_TIMEOUT_S": "120",
        },
    )
    try:
        limit = time.monotonic() + 60
        while server.poll() is None and time.monotonic() < limit:
            try:
                socket.create_connection(("127.0.0.1", port), 1.0).close()
                break
            except OSError:
                time.sleep(0.2)
        command = [
            sys.executable,
            "-m",
            "dvk",
            "verify",
            *(f"tests/harness/files/{name}.py" for name in ("affine", GOOD, WRONG)),
            "--anew",
            "--json",
            "--tier",
            "smoke",
            "--engine",
            f"ray://127.0.0.1:{port}",
            "--out",
            str(tmp_path / "run"),
        ]
        done = subprocess.run(command, cwd=TOP, capture_output=True, text=True, timeout=200)
        assert done.returncode == 1, done.stderr[-2000:]
        assert [row["status"] for row in json.loads(done.stdout)] == ["ok", "mismatch"]
    finally:
        kill(server.pid)
        server.wait()


@pytest.mark.hand
@pytest.mark.slow
def test_a_node_killed_in_mid_run_loses_nothing_and_counts_nothing_twice(
    nodes: Any, config: Config, affine: Task
) -> None:
    """The last test: a node less."""
    before, count = seats(config).num_lost, 24
    found: Counter[int] = Counter()
    verdicts: dict[int, Verdict] = {}
    victim: list[Any] = []
    with JudgeQueue[int](3, config, spec=JudgeSpec(tier="smoke")) as queue:
        for position, one in enumerate(distinct(count)):
            queue.submit(position, affine, one)
        while queue.num_pending:
            for position, verdict in queue.results(wait=True):
                found[position] += 1
                verdicts[position] = verdict
            if not victim and len(found) >= 6 and (there := seated(nodes)):
                victim.append(there[0])
                kill(clusters.raylet(there[0]))
    assert found == Counter(range(count)) and queue.results(wait=False) == []
    assert statuses(verdicts) == wanted(count)
    assert victim and seats(config).num_lost == before + 1

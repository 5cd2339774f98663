"""A search's cost: bounded work at any size, and at 100,000 skills the figures of the design.

The slow test prints its figures (`pytest -m slow -s tests/skills/test_speed.py`); building takes some minutes.
A library kept between runs can be named with DVK_BENCH_LIBRARY=path.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import pytest

from dvk.records import Graph, Node
from dvk.skills import Library, query_from_graph
from tests.skills.synthetic import Zipf, skills, vocabulary

SIZE = 25_000
OPS = (
    "linear relu gelu _softmax native_layer_norm add.Tensor mul.Tensor convolution mean.dim sum.dim_IntList view "
    "permute sigmoid tanh native_group_norm bmm matmul _log_softmax nll_loss max_pool2d rsqrt pow.Tensor_Scalar clamp "
    "where.self cat embedding"
).split()


def fill(library: Library, count: int, zipf: Zipf | None = None) -> None:
    waiting = skills(count, zipf=zipf)
    while batch := list(islice(waiting, 1000)):
        library.add_all(batch)
    library.compact()


def milliseconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return 1e3 * (time.perf_counter() - start)


def test_opening_and_searching_load_no_pydantic_and_take_milliseconds(library: Library) -> None:
    library.add_all(skills(50))
    code = f"""if True:
        import sys, time
        from dvk.skills import Library
        start = time.perf_counter()
        with Library.open({str(library.path)!r}) as library:
            print(time.perf_counter() - start)
            assert library.search("ba")
        loaded = {{"pydantic", "sqlite_utils", "numpy", "torch"}} & set(sys.modules)
        assert not loaded, loaded
    """
    runs = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        for _ in range(5)
    ]
    assert min(float(run.stdout) for run in runs) < 0.02


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Library]:
    """`SIZE` skills; a third of the vocabulary's common words are operators, so that graphs find something."""
    kept = os.environ.get("DVK_BENCH_LIBRARY")
    path = Path(kept) if kept else tmp_path_factory.mktemp("large") / "skills.db"
    fresh = not path.exists()
    with Library.open(path, create=True) as library:
        if fresh:
            fill(library, SIZE, spoken())
        yield library


def spoken() -> Zipf:
    """Zipf's words with the operators' words among the 600 most common."""
    words = list(vocabulary())
    terms = [op.split(".")[0].strip("_").removeprefix("native_") for op in OPS]
    terms += ["elementwise", "reduction", "normalization", "activation"]
    for rank, term in enumerate(dict.fromkeys(terms)):
        words.insert(10 + 19 * rank, term)
    return Zipf(1, list(dict.fromkeys(words)))


@pytest.mark.hand
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_many_skills(large: Library) -> None:
    zipf = Zipf(7, spoken().words)
    queries = [" ".join(zipf.draw(1 + number % 3)) for number in range(300)]
    for query in queries[:30]:
        large.search(query)
    warm = sorted(milliseconds(lambda q=query: large.search(q)) for query in queries)
    cold = []
    for query in queries[:10]:
        command = [
            sys.executable,
            "-m",
            "dvk",
            "skills",
            "search",
            query,
            "--library",
            str(large.path),
        ]
        cold.append(
            milliseconds(lambda c=command: subprocess.run(c, capture_output=True, check=True))
        )
    nodes = [Node(name="x0", op="input", shape=(64, 1024), dtype="float32")]
    for number in range(60):
        op, previous = OPS[number % len(OPS)], {"ref": nodes[-1].name}
        nodes.append(
            Node(
                name=f"v{number}",
                op=f"aten.{op}",
                args=(previous,),
                shape=(64, 1024),
                dtype="float32",
            )
        )
    graph = Graph(nodes=tuple(nodes), outputs={"ref": nodes[-1].name})
    whole = sorted(
        milliseconds(lambda: large.search(query_from_graph(graph, large, 32), 20))
        for _ in range(10)
    )
    listing = sorted(milliseconds(lambda: large.search(graph.listing(), 20)) for _ in range(10))
    figures = {
        "warm p50 ms": statistics.median(warm),
        "warm p90 ms": warm[269],
        "warm max ms": warm[-1],
        "cold CLI median ms": statistics.median(cold),
        "cold CLI max ms": max(cold),
        "graph query p50 ms": whole[5],
        "raw listing p50 ms": listing[5],
    }
    print({name: round(value, 1) for name, value in figures.items()})
    # The targets are 20, 500 and 100 ms for 100,000 skills on a quiet machine; more with fewer would be another algorithm, not noise.
    assert figures["warm p50 ms"] <= 1.5 * 20
    assert figures["cold CLI median ms"] <= 3 * 500
    assert figures["graph query p50 ms"] <= 1.5 * 100 and figures["raw listing p50 ms"] <= 1.5 * 100

"""Batches of small requests in few sandboxed children: order kept, and a request that kills its child fails alone.

    for index, answer in each("dvk.tasks.hygiene:child", requests, limits):
        ...                        # answer is the child's dict, or the Death of the child

The child's function receives one message `{"requests": [...]}` and sends one answer per request, in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from itertools import islice
from typing import Any

from dvk import gpu_memory
from dvk.config import Limits
from dvk.sandbox import Death, SandboxSession


def each(
    target: str,
    requests: Iterable[dict[str, Any]],
    limits: Limits,
    *,
    per_child: int = 200,
    num_workers: int = 1,
    env: Mapping[str, str] | None = None,
) -> Iterator[tuple[int, dict[str, Any] | Death]]:
    """Return answers in the order of the requests.

    Args:
        target: `package.module:function` for the children.
        requests: consumed as needed, a few blocks ahead.
        limits: `wall_s` is for one request; the rest for a child.
        per_child: requests per child.
        num_workers: children at a time.
        env: more environment variables for the children, set before they import anything.
    """
    source = iter(requests)
    pending: deque[Future[list[dict[str, Any] | Death]]] = deque()
    index = 0
    with ThreadPoolExecutor(num_workers) as pool:
        try:
            while True:
                while len(pending) < 2 * num_workers and (block := list(islice(source, per_child))):
                    pending.append(pool.submit(_block, target, block, limits, dict(env or {})))
                if not pending:
                    return
                for answer in pending.popleft().result():
                    yield index, answer
                    index += 1
        finally:
            for future in pending:
                future.cancel()


def _block(
    target: str, block: list[dict[str, Any]], limits: Limits, env: dict[str, str]
) -> list[dict[str, Any] | Death]:
    answers: list[dict[str, Any] | Death] = []
    while len(answers) < len(block):
        answers += _in_one_child(target, block[len(answers) :], limits, env)
    return answers


def _in_one_child(
    target: str, rest: list[dict[str, Any]], limits: Limits, env: dict[str, str]
) -> Iterator[dict[str, Any] | Death]:
    """The answers of one child, the last of which is its death if it died."""
    wall_s = limits.wall_s * (len(rest) + 1) + gpu_memory.WAIT_S
    whole = limits.model_copy(update={"wall_s": wall_s})
    # With small operators, more than one thread per core only waits.
    late_env = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    isolate = limits.reference_isolation("cpu")
    gpus: list[int] = []
    with (
        ExitStack() as held,
        SandboxSession(target, whole, env=env, late_env=late_env, isolate=isolate) as session,
    ):
        session.send({"requests": rest})
        for _ in rest:
            answer = _answer(session, limits.wall_s, held, gpus)
            yield answer
            if isinstance(answer, Death):
                return


def _answer(
    session: SandboxSession, wall_s: float, held: ExitStack, gpus: list[int]
) -> dict[str, Any] | Death:
    """The answer to one request. A child that needs a GPU for it gets memory, which it keeps until it asks again or ends; `gpus` then has
    the GPU, since its context stays there."""
    while True:
        answer = session.receive(wall_s)
        if isinstance(answer, Death):
            return answer
        if "needs" not in answer.value:
            return answer.value
        held.close()
        gpu = gpus[0] if gpus else None
        grant = held.enter_context(gpu_memory.owner().reserve(answer.value["needs"], gpu))
        gpus[:] = [] if grant is None else [grant.gpu]
        session.send({"env": gpu_memory.environment_of(grant)})

"""Scaling to 8, 64 and 512 GPUs: a discrete-event simulation of one step of `dvk train` on measured costs.

    python -m tests.benchmarks.scaling                       # the table of scaling.md, which says what it means
    python -m tests.benchmarks.scaling --set seats=2 --set batch=64
    python -m tests.benchmarks.scaling --model 8b --gpus 8 64 512

A process of the run has a GPU that generates and learns, and one thread that asks the model for a batch of answers, makes a candidate
of each and submits it (`agents.rollout.generate_turns`). Judges sit on all GPUs; a process has its share of them. A seat prepares a
candidate while the others do and times it alone on its GPU (`dvk.device_lock`); its first of a task costs it the reference. A
conversation goes on when its verdict is there. At the end all processes wait for the last, exchange what they played, each works
through all of it, learns its share and reduces its gradients (`pipelines.train`). Four layouts:

    one     one process; the other GPUs only judge: `dvk train --engine ray://HOST:PORT --set remote.rollouts=false`
    spread  one process; on every GPU a model writes, too, and reads its candidates: the same without that setting
    all     a process a GPU, the same step dealt out among them: torchrun
    grown   the same with 16 tasks a GPU: a larger step, not a faster one

Left out: trials of proposed skills (like playing, one turn each), validation, drawing tasks (prepared meanwhile).
"""

from __future__ import annotations

import argparse
import dataclasses
import heapq
import json
import random
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal, get_args

Layout = Literal["one", "spread", "all", "grown"]
NODE = 8
"""GPUs of a machine."""
SEEDS = 5
"""Simulated for each row, which shows the mean."""


@dataclass(frozen=True)
class Costs:
    """Seconds, tokens and bytes. nano of 12M parameters on H200s; a comment gives each number's source.

    "2 cores": measured for this table on 2 cores of a Xeon at 2.5 GHz alongside other work.
    """

    decode_most: float = 123_800.0  # tokens/s; through 89,000 at 512 and 118,000 at 4,096 conversations, measured on an H200
    decode_half: float = (
        200.0  # conversations at which half of it is reached; from the same two points
    )
    batch: int = 256  # conversations a call; dvk's default is 64
    answer_tokens: float = 250.0  # assumed: about half of a row
    row_tokens: float = 489.0  # a Triton row of the compact dialect, prompt and answer, measured
    thread_s: float = 0.023  # an answer in the driver's thread: prompt 1.7, candidate 17.8, key 0.8, Ray 2.5 ms; 2 cores
    candidate_s: float = 0.0178  # of these, the part done by the model's process: the candidate
    seats: int = 16  # judges a GPU; dvk's default is 10 if there are enough cores
    prepare_s: float = (
        0.84  # with lane_s 16 seats give 18 verdicts/s a GPU, measured on an H200 (launch plans)
    )
    lane_s: float = 0.05  # assumed: its part alone on the GPU; judge.search_s, 0.5, is the most
    reference_s: float = (
        1.5  # assumed: a seat's first candidate of a task; measured together with process starts
    )
    slow: float = 0.01  # assumed: share of candidates that run into their time limit
    slow_s: float = 20.0  # assumed: most of that limit (judge.candidate_s, 60) is not waited for
    again: float = (
        0.0  # share of candidates that equal an earlier one, and cost no judging; assumed none
    )
    each_s: float = (
        0.00097  # a turn in every process: read what another played, advantages, rows; 2 cores
    )
    turn_bytes: float = 13_753.0  # a turn as it is exchanged; measured
    host_bytes_s: float = 1e9  # assumed: gloo between machines
    learn_tokens_s: float = 1_150_000.0  # 65,536 tokens in 0.057 s, measured on an H200
    gradient_bytes: float = 48e6  # 12M parameters in float32
    nvlink_bytes_s: float = 400e9  # nominal, within a machine
    network_bytes_s: float = 40e9  # nominal, a GPU's share between machines
    hop_s: float = 20e-6  # assumed: a message
    shards: int = 0  # FSDP: how often in a step weights are gathered twice and gradients scattered; 0: not sharded
    fixed_s: float = 0.5  # assumed: library, checkpoint, figures
    shared_reference: bool = (
        False  # what one cache of references for all seats would do: a task's is built once
    )


EIGHT = Costs(
    decode_most=25_000.0,
    decode_half=84.0,
    answer_tokens=2000.0,
    row_tokens=4000.0,
    learn_tokens_s=8_300.0,
    gradient_bytes=16e9,
    shards=4,
)
"""A model of 8 billion parameters, all trained, in bfloat16. Nothing of it is measured: 400 of an H200's 989 TFLOP/s, 2 FLOPs a
parameter and token to decode and 6 to learn, 16 GB of weights read at 4.8 TB/s a token, answers of 2,000 tokens."""
MODELS = {"nano": Costs(), "8b": EIGHT}


@dataclass(frozen=True)
class Played:
    """Statistics of one process."""

    seconds: float
    judged: int
    references: int
    thread_s: float
    """Its thread's work: decoding, and answers."""
    seat_s: float
    """Its seats' work, including waiting for the device lock."""


@dataclass(frozen=True)
class Step:
    """A step, in seconds by stage."""

    gpus: int
    layout: Layout
    turns: int
    """Answers of the step."""
    play_s: float
    exchange_s: float
    credit_s: float
    learn_s: float
    reduce_s: float
    fixed_s: float
    thread: float
    """Share of the play in which the busiest thread works."""
    judges: float
    """Share of the play in which seats work, mean."""

    @property
    def seconds(self) -> float:
        """The whole step."""
        return (
            self.play_s
            + self.exchange_s
            + self.credit_s
            + self.learn_s
            + self.reduce_s
            + self.fixed_s
        )


def play(
    tasks: Sequence[int],
    turns: int,
    costs: Costs,
    gpus: float,
    rng: random.Random,
    writers: int = 1,
) -> Played:
    """One process plays its conversations.

    Args:
        tasks: the task of each conversation.
        turns: of each, one after the other.
        costs: see there.
        gpus: whose judges it has.
        rng: draws which candidates are slow, and which are known.
        writers: models that write for it, a part of a call each; several are remote, and parse their own answers.
    """
    if not tasks:
        return Played(0.0, 0, 0, 0.0, 0.0)
    num_seats = max(1, int(costs.seats * gpus))
    lanes = [0.0] * max(1, int(gpus))
    idle, holds = list(range(num_seats))[::-1], [-1] * num_seats
    waiting: dict[int, deque[int]] = {}
    hands: Counter[int] = Counter()
    built: set[int] = set()
    left = [turns] * len(tasks)
    ready: deque[int] = deque(range(len(tasks)))
    events: list[tuple[float, int, str, Any]] = [(0.0, 0, "thread", None)]
    number = judged = references = num_waiting = 0
    now = thread_s = seat_s = 0.0
    thread_free = False

    def at(time: float, kind: str, what: Any) -> None:
        nonlocal number
        number += 1  # in the order of asking where times are equal
        heapq.heappush(events, (time, number, kind, what))

    def seat_up(seat: int) -> None:
        """The seat takes a candidate, of its task if there is one, or waits."""
        nonlocal references, num_waiting, seat_s
        if not waiting:
            idle.append(seat)
            return
        task = holds[seat]
        if task not in waiting:  # as the judge queue does: where most is left for each hand
            task = max(waiting, key=lambda one: len(waiting[one]) / (1 + hands[one]))
            hands[holds[seat]] -= 1
            hands[task] += 1
        conversation = waiting[task].popleft()
        num_waiting -= 1
        if not waiting[task]:
            del waiting[task]
        took = costs.slow_s if costs.slow and rng.random() < costs.slow else costs.prepare_s
        if holds[seat] != task and not (costs.shared_reference and task in built):
            took += costs.reference_s
            references += 1
        holds[seat] = task
        built.add(task)
        seat_s += took
        at(now + took, "prepared", (seat, conversation))

    while events:
        now, _, kind, what = heapq.heappop(events)
        if kind == "thread":
            # As in play_many: a full batch, or what there is when the judges will soon have nothing to do.
            if not ready or (len(ready) < costs.batch * writers and num_waiting >= num_seats):
                thread_free = True
                continue
            batch = [ready.popleft() for _ in range(min(costs.batch * writers, len(ready)))]
            part, elsewhere = -(-len(batch) // writers), costs.candidate_s if writers > 1 else 0.0
            done = (
                now
                + costs.answer_tokens * (part + costs.decode_half) / costs.decode_most
                + part * elsewhere
            )
            for conversation in batch:
                done += costs.thread_s - elsewhere
                at(done, "submitted", conversation)
            thread_s += done - now
            at(done, "thread", None)
        elif kind == "submitted":
            if costs.again and rng.random() < costs.again:
                at(now, "verdict", (None, what))
                continue
            waiting.setdefault(tasks[what], deque()).append(what)
            num_waiting += 1
            if idle:
                # One that holds the task, if it is free; searching all would not scale here either.
                place = next(
                    (
                        i
                        for i in range(len(idle) - 1, max(-1, len(idle) - 33), -1)
                        if holds[idle[i]] == tasks[what]
                    ),
                    -1,
                )
                seat_up(idle.pop(place))
        elif kind == "prepared":
            seat, conversation = what
            lane = seat % len(lanes)
            lanes[lane] = max(lanes[lane], now) + costs.lane_s
            seat_s += lanes[lane] - now
            at(lanes[lane], "verdict", (seat, conversation))
        else:
            seat, conversation = what
            judged += seat is not None
            left[conversation] -= 1
            if left[conversation]:
                ready.append(conversation)
            if seat is not None:
                seat_up(seat)
            if ready and thread_free:
                thread_free = False
                at(now, "thread", None)
    return Played(now, judged, references, thread_s, seat_s)


def reduce_s(gpus: int, costs: Costs) -> float:
    """Seconds of a ring's all-reduce over all GPUs, or, sharded, of gathering twice and scattering once, each half of one, `shards` times.

    A ring moves 2 (n - 1) / n of the bytes past every member, in 2 (n - 1) messages (Patarasuk and Yuan, 2009).
    """
    if gpus == 1:
        return 0.0
    speed = costs.nvlink_bytes_s if gpus <= NODE else costs.network_bytes_s
    whole = 2 * (gpus - 1) * (costs.gradient_bytes / gpus / speed + costs.hop_s)
    return 1.5 * costs.shards * whole if costs.shards else whole


def step(
    gpus: int,
    layout: Layout,
    costs: Costs,
    *,
    tasks: int = 16,
    conversations: int = 16,
    turns: int = 3,
    seed: int = 0,
) -> Step:
    """Simulate one step.

    Args:
        gpus: all of them.
        layout: see the module.
        costs: see there.
        tasks, conversations, turns: of a step, a task, a conversation; with `grown`, so many tasks a GPU.
        seed: seed of all draws.
    """
    processes = 1 if layout in ("one", "spread") else gpus
    tasks = tasks * gpus if layout == "grown" else tasks
    rng = random.Random(seed)
    writers = (
        min(gpus, tasks) if layout == "spread" else 1
    )  # a task's first questions are equal, and written together
    all_played = [
        play(
            [task for task in range(rank, tasks, processes) for _ in range(conversations)],
            turns,
            costs,
            gpus / processes,
            rng,
            writers,
        )
        for rank in range(processes)
    ]
    answers = tasks * conversations * turns
    slowest = max(all_played, key=lambda one: one.seconds)
    return Step(
        gpus,
        layout,
        answers,
        play_s=slowest.seconds,
        exchange_s=answers * costs.turn_bytes / costs.host_bytes_s if processes > 1 else 0.0,
        credit_s=answers * costs.each_s,
        learn_s=answers * costs.row_tokens / costs.learn_tokens_s / processes,
        reduce_s=reduce_s(processes, costs),
        fixed_s=costs.fixed_s,
        thread=max(one.thread_s for one in all_played) / slowest.seconds,
        judges=sum(one.seat_s for one in all_played) / (slowest.seconds * costs.seats * gpus),
    )


HEAD = "| layout | GPUs | answers | step s | play | exchange | credit | learn | reduce | answers/s | thread | judges |"


def line(found: Step) -> str:
    """A row of the table."""
    stages = [found.play_s, found.exchange_s, found.credit_s, found.learn_s, found.reduce_s]
    return (
        f"| {found.layout} | {found.gpus} | {found.turns:,} | {found.seconds:.1f} | "
        + " | ".join(f"{s:.2f}" for s in stages)
        + f" | {found.turns / found.seconds:,.0f} | {found.thread:.0%} | {found.judges:.0%} |"
    )


def mean(found: Sequence[Step]) -> Step:
    """Of several draws of the same step."""
    names = [field.name for field in dataclasses.fields(Step) if field.type == "float"]
    return dataclasses.replace(
        found[0], **{name: fmean(getattr(one, name) for one in found) for name in names}
    )


def changed(costs: Costs, settings: Sequence[str]) -> Costs:
    """Costs with some replaced, `name=value` each, values as in JSON."""
    return dataclasses.replace(
        costs,
        **{name: json.loads(value) for name, value in (one.split("=", 1) for one in settings)},
    )


def main() -> None:
    """The command line above."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gpus", type=int, nargs="+", default=[1, 8, 64, 512])
    parser.add_argument("--only", choices=get_args(Layout), nargs="+", default=get_args(Layout))
    parser.add_argument("--model", choices=list(MODELS), default="nano")
    parser.add_argument(
        "--set", dest="settings", action="append", default=[], help="a cost: name=value"
    )
    given = parser.parse_args()
    costs = changed(MODELS[given.model], given.settings)
    print(HEAD, "|" + "---|" * HEAD.count(" | ") + "---|", sep="\n")
    for layout in given.only:
        for gpus in given.gpus:
            print(
                line(mean([step(gpus, layout, costs, seed=seed) for seed in range(SEEDS)])),
                flush=True,
            )


if __name__ == "__main__":
    main()

"""Paired timing: lent inputs at fixed addresses, fresh values for each call, flushed caches, one clock, arms in turn.

A round gives every arm one call, on the same inputs in the same place; ratios are taken within a round, so drift affects all arms alike.
The order is random in one round and reversed in the next, so that no arm is first more often; outputs are compared when the round is over,
so that every call follows the same work. Values are drawn by the referee and shown to a candidate's process once, when it is stopped ready
to call; every output of a timed call is compared.

A call's time is the runner's (start to end, device synchronised), plus the judge's time around it beyond the reference's handshake: see
`runner_client` and `overhead`. It is one call on an idle device with flushed caches: host and launch latency count, as for a user whose
machine waits.

Measured reasons (2 cores): a byte over a socket takes 24 µs there and back, 65 µs after an idle pause, so the judge's clock alone would
hide calls under a millisecond; a spinning judge would take a core from a threaded kernel. Not covered: overlap of consecutive calls, hot
caches.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from dvk.config import JudgeConfig
from dvk.harness.checking.case import Case
from dvk.harness.checking.cases import Cases
from dvk.harness.checking.compare import same_bits
from dvk.harness.supervision import pc_sampling
from dvk.harness.supervision.memory_growth import growth
from dvk.harness.supervision.retained_outputs import GARBAGE
from dvk.harness.supervision.runner_client import CandidateFailed, RunnerClient, TimedCall
from dvk.harness.timing.cache_flush import Flush, last_level_cache_bytes
from dvk.harness.timing.output_aliasing import check_retained
from dvk.harness.timing.thread_sampler import ENOUGH_SEEN, LOOKS, SHORT_MS, ThreadSampler
from dvk.harness.transport import call_template
from dvk.harness.transport.lent_tensors import Board, Layout, copied, layout_of
from dvk.records import Status, Task
from dvk.stats.intervals import is_settled

WARM_ROUNDS = 2
MIN_ROUNDS = 8
"""Even, since rounds come in pairs of opposite order."""
NUM_ALONE = 7
LATER_BYTES = 2 << 30
"""Copies of timed outputs kept for comparison after the device is released."""
MOST_BUFFERS = 64
"""Bytes of buffers read after each timed call; of more, a random part per series."""

Told = tuple[list[Any], str]
OnTimed = Callable[[Case, list[torch.Tensor], dict[str, torch.Tensor], "Told | None"], None]
"""Called with the outputs of a timed call, those buffers after it that the reference changes, and its other results."""
Outputs = list[tuple[Case, list[torch.Tensor], dict[str, torch.Tensor]]]


@dataclass
class Samples:
    """Milliseconds of each arm, an entry per round, and the judge's time around each call."""

    ms: dict[str, list[float]] = field(default_factory=dict)
    gaps_ms: dict[str, list[float]] = field(default_factory=dict)
    seconds: float = 0.0


class InputChanged(Exception):
    """A timed call changed its inputs."""


class OutOfBoundsWrite(Exception):
    """A timed call wrote outside its inputs."""


class PairedTimer:
    """Boards, weights and rounds of one referee.

    Args:
        task: the timed task.
        cases: the source of inputs.
        settings: limits of rounds and seconds.
    """

    def __init__(self, task: Task, cases: Cases, settings: JudgeConfig):
        self.task, self.cases, self.settings = task, cases, settings
        self.boards: dict[str, Board] = {}
        self.native = cases.fresh(0)
        self.board = self.board_for(self.native)
        self.cache_bytes = (
            torch.cuda.get_device_properties(0).L2_cache_size
            if task.device == "cuda"
            else last_level_cache_bytes()
        )
        self._alone_ms, self._overhead_ms = 1.0, 20.0
        self._sampler = ThreadSampler(self.runner_seed, lambda case: self.board.put(case.inputs))
        self._weights: dict[int, tuple[Board, list[str]]] = {}
        self._flush = Flush(task.device, self.native.num_bytes + cases.weight_bytes)
        before = cases.initial(0)
        self.written = cases.written.positions(self.native.args, self.native.kwargs)
        """Native inputs that the reference writes: restored before each call, read after it."""
        self._changing = [
            name
            for name, after in self.native.buffers.items()
            if not same_bits(after, before[name])
        ]

    def close(self) -> None:
        """Take back all lent tensors."""
        for board in [*self.boards.values(), *(board for board, _ in self._weights.values())]:
            board.close()

    def runner_seed(self, case: Case) -> int:
        """Return a runner's seed: the case's if the module draws or gradients need it, else one that reveals nothing."""
        needed = self.task.stochastic or case.backward or case.key.other_mode
        return case.seed if needed else random.SystemRandom().getrandbits(31)

    def board_for(self, case: Case) -> Board:
        """Return the lent inputs of a case's shapes, with its values."""
        name = case.key.place
        if name not in self.boards:
            self.boards[name] = Board([layout_of(t) for t in case.inputs], self.task.device)
        board = self.boards[name]
        board.restore_guards()
        board.put(case.inputs)
        return board

    def load_candidate(self, runner: RunnerClient, source: str) -> None:
        """Load a runner's code, with the native inputs lent to it; take its answer afterwards."""
        built = self.cases.built
        board = self.board_for(self.native)
        call = call_template.empty(self.native.args, self.native.kwargs)
        runner.build(
            self.task,
            source,
            board,
            call,
            on_device=built.constructed_on_device,
            training=built.model.training,
            written=self.written,
        )

    def lend(self, runner: RunnerClient, case: Case) -> Board:
        """Call a runner on the inputs of a case."""
        board = self.board_for(case)
        runner.lend(
            board,
            case.args,
            case.kwargs,
            case.key.variant,
            self.cases.written.positions(case.args, case.kwargs),
        )
        return board

    def load(self, runner: RunnerClient, number: int, way: str = "load") -> list[str]:
        """Give a runner the weight set `number`, a candidate in a way of `weight_rewrites`; return names of unmatched tensors."""
        if not runner.trusted:  # it keeps the mapping, so that memory is never lent again
            board, names = self._weights_board(number)
            try:
                return runner.load(board, names, way)
            finally:
                board.close()
        if number not in self._weights:
            self._weights[number] = self._weights_board(number)
        return runner.load(*self._weights[number])

    def _weights_board(self, number: int) -> tuple[Board, list[str]]:
        state = {
            name: t.detach().contiguous()
            for name, t in self.cases.state(number).items()
            if isinstance(t, torch.Tensor)
        }
        board = Board([layout_of(t) for t in state.values()], self.task.device)
        board.put(list(state.values()))
        return board, list(state)

    def rounds_within(self, seconds: float, num_arms: int, most: int) -> int:
        """Return how many rounds the time is likely to allow, warm ones included, which is how many draws to make ahead."""
        each_s = num_arms * (self._alone_ms + self._overhead_ms) / 1e3
        return WARM_ROUNDS + min(most, max(MIN_ROUNDS, math.ceil(seconds / each_s)))

    def alone(self, reference: RunnerClient) -> float:
        """Return the median time of the reference while nothing else runs, in ms."""
        samples = self.measure(
            {"reference": reference},
            rounds=NUM_ALONE,
            limit_s=self.settings.search_s,
            on_output=None,
        )
        times = sorted(samples.ms["reference"])
        self._alone_ms = times[len(times) // 2]
        self._overhead_ms = max(
            0.1, 1e3 * samples.seconds / (len(times) + WARM_ROUNDS) - self._alone_ms
        )
        return self._alone_ms

    def measure(
        self,
        arms: Mapping[str, RunnerClient],
        *,
        rounds: int,
        limit_s: float,
        on_output: OnTimed | None,
        early: bool = False,
        width: float = 0.005,
        seen: pc_sampling.SampledOwners | None = None,
    ) -> Samples:
        """Run rounds until there are enough or the time is over, at least `MIN_ROUNDS`.

        Args:
            arms: runners in turn; all have the native inputs lent and weights loaded.
            rounds: number of rounds that is enough.
            limit_s: start no round after this many seconds, once there are enough.
            on_output: called with each of the candidate's outputs.
            early: stop as soon as the candidate's ratio to the reference has a standard error below `width`.
            seen: samples the candidate's threads in calls between timed ones.

        Raises:
            Failed, Interfered, Gone: from an arm; exceptions of `on_output`.
        """
        samples = Samples({name: [] for name in arms}, {name: [] for name in arms})
        order = list(arms)
        began = time.perf_counter()
        kept = self._kept()
        inside: list[RunnerClient] = []
        number = 0
        try:
            for runner in self._entered(arms.values(), kept, on_output is not None):
                inside.append(runner)
            while not self._enough(
                samples, number - WARM_ROUNDS, rounds, began + limit_s, width if early else None
            ):
                order.reverse() if number % 2 else random.shuffle(order)
                self._measured_round(arms, order, number, kept, samples, on_output, seen)
                number += 1
            if on_output is not None:
                self._bounded(arms["candidate"], arms["reference"])
        finally:
            for runner in inside:
                runner.leave()
        samples.seconds = time.perf_counter() - began
        if on_output is not None:
            self._untouched()
        return samples

    def _entered(
        self, runners: Iterable[RunnerClient], kept: Mapping[str, Layout], checked: bool
    ) -> Iterator[RunnerClient]:
        """Start a series of timed calls in each runner; yield those that have begun."""
        if checked:
            self.board.restore_guards()
        written = [self.board.tensors[i] for i in self.written]
        if written:
            # Runners on a GPU copy them, for calls before the timed one.
            self.board.put(self.native.inputs)
        tells = checked and self.native.spec_text != "*"
        for runner in runners:
            runner.enter(runner.returned or self._outputs(), kept, tells=tells, written=written)
            yield runner

    @staticmethod
    def _enough(
        samples: Samples, done: int, rounds: int, deadline: float, width: float | None
    ) -> bool:
        """Whether a series of `done` rounds ends; `width`: as soon as the ratio's standard error is below it."""
        if done >= rounds:
            return True
        if done < MIN_ROUNDS or done % 2:
            return False
        if time.perf_counter() > deadline:
            return True
        settles = width is not None and done % MIN_ROUNDS == 0
        return settles and is_settled(
            samples.ms["reference"], samples.ms["candidate"], width or 0.0
        )

    def _measured_round(
        self,
        arms: Mapping[str, RunnerClient],
        order: Sequence[str],
        number: int,
        kept: Mapping[str, Layout],
        samples: Samples,
        on_output: OnTimed | None,
        seen: pc_sampling.SampledOwners | None,
    ) -> None:
        """Make one round, record its times and pass on the candidate's outputs; its draw ends with it."""
        case = self.cases.fresh(number)
        calls, leaves, left = self._round(arms, order, case, number, on_output is not None)
        if seen is not None and calls["candidate"].inner_ms >= SHORT_MS:
            for _ in range(LOOKS if seen.count >= ENOUGH_SEEN else 2 * LOOKS):
                self._sampler.look(arms["candidate"], case, seen)
        if number >= WARM_ROUNDS:
            for name, call in calls.items():
                samples.ms[name].append(max(call.inner_ms, 1e-6))
                samples.gaps_ms[name].append(call.gap_ms)
        if on_output is not None:
            after = len(leaves) - len(kept)
            buffers = dict(zip(kept, leaves[after:], strict=True))
            on_output(case, [*leaves[:after], *left], buffers, arms["candidate"].told)

    def _bounded(self, candidate: RunnerClient, reference: RunnerClient) -> None:
        """Reject a candidate whose memory grows with every call."""
        case, size = (
            self.native,
            sum(e.same.nbytes for e in self.native.expected if isinstance(e.same, torch.Tensor)),
        )
        again = lambda: candidate.time_call(  # noqa: E731
            self.runner_seed(case), False, lambda: self.board.put(case.inputs), GARBAGE
        )
        if text := growth(candidate.footprint, reference.footprint, size, again):
            raise CandidateFailed(Status.REJECTED, "time", text)

    def _untouched(self) -> None:
        if beside := self.board.written_beside():
            raise OutOfBoundsWrite(
                f"it writes outside its tensors (next to input tensor {beside[0]})"
            )

    def _round(
        self,
        arms: Mapping[str, RunnerClient],
        order: Sequence[str],
        case: Case,
        number: int,
        take: bool,
    ) -> tuple[dict[str, TimedCall], list[torch.Tensor], list[torch.Tensor]]:
        """Make a call of each arm; return the candidate's outputs and final values of inputs that it writes."""
        flush = number >= WARM_ROUNDS
        calls: dict[str, TimedCall] = {}
        left: list[torch.Tensor] = []
        outputs: list[torch.Tensor] = []
        for name in order:
            if take:  # of the others, too: work before a call must not depend on the arm
                check_retained(self.cases, case, arms[name])
            calls[name], leaves = arms[name].time_call(
                self.runner_seed(case),
                take,
                lambda: self._lay(case, flush),
                # Outputs are held for some calls: the draw is made again if they change, so that it need not be held as well.
                again=lambda: self._lay(self.cases.fresh(number), flush),
            )
            if take:
                changed = self.board.holds(case.inputs, but=self.written)
                if name == "candidate" and changed:
                    raise InputChanged(f"it changes an input in place (input tensor {changed[0]})")
                outputs, left = (
                    (leaves, arms[name].left) if name == "candidate" else (outputs, left)
                )
            if (
                self.task.device == "cpu"
            ):  # on a GPU calls precede the timed one, on arbitrary inputs
                self.board.poison()  # the next arm must not find this round's inputs before its call begins
        return calls, outputs, left

    def sample_threads(self, runner: RunnerClient, home: str) -> pc_sampling.SampledOwners:
        """Sample a candidate's threads; too short calls give hardly any samples."""
        runner.enter(runner.returned or self._outputs())
        case = self.cases.fresh(0)
        call, _ = runner.time_call(self.runner_seed(case), False, lambda: self._lay(case))
        self._sampler.within_ms = call.inner_ms
        seen = pc_sampling.SampledOwners(runner.pid, home)
        self._sampler.look_often(runner, case, seen)
        runner.leave()
        return seen

    def _lay(self, case: Case, flush: bool = True) -> None:
        self.board.put(case.inputs)
        if flush:  # warm rounds are known by their number anyway, and not timed
            self._flush()

    def time_replays(
        self,
        player: RunnerClient,
        captured: Sequence[str],
        *,
        rounds: int,
        limit_s: float,
        on_output: OnTimed,
        width: float,
    ) -> tuple[Samples, Outputs]:
        """Measure a launch plan against the reference, as `measure`, all replayed from CUDA graphs by the player.

        Args:
            captured: baselines that the player has captured, and replays in each round.

        Returns:
            The samples, and outputs not yet passed to `on_output`: others need not wait for their comparison.
        """
        arms = ("reference", "candidate", *captured)
        samples = Samples({name: [] for name in arms}, {})
        later: Outputs = []
        room = LATER_BYTES
        kept = self._kept()
        self.board.restore_guards()
        player.enter(player.returned or self._outputs(), kept)
        began, number = time.perf_counter(), 0
        while (done := number - WARM_ROUNDS) < rounds:
            mature = done >= MIN_ROUNDS
            if mature and (
                time.perf_counter() - began > limit_s
                or done % MIN_ROUNDS == 0
                and is_settled(samples.ms["reference"], samples.ms["candidate"], width)
            ):
                break
            case = self.cases.fresh(number)
            self.board.put(case.inputs)
            times, leaves = player.time_replays(len(arms))
            if done >= 0:
                for name, ms in zip(arms, times, strict=True):
                    samples.ms[name].append(max(ms, 1e-6))
            size, after = sum(leaf.nbytes for leaf in leaves), len(leaves) - len(kept)
            keep = size <= room
            if keep:
                room -= size
                leaves = [copied(leaf) for leaf in leaves]
            told = case, leaves[:after], dict(zip(kept, leaves[after:], strict=True))
            if keep:
                later.append(told)
            else:
                try:
                    on_output(*told, None)
                except (
                    BaseException
                ):  # after any exception the player must not wait for its next call
                    player.leave()
                    raise
            number += 1
        player.leave()
        samples.seconds = time.perf_counter() - began
        self._untouched()
        return samples, later

    def _kept(self) -> dict[str, Layout]:
        """Return buffers to read after each call of a series: those that the reference changes, or some of them."""
        chosen = random.sample(self._changing, min(MOST_BUFFERS, len(self._changing)))
        return {name: _dense(self.native.buffers[name]) for name in chosen}

    def _outputs(self) -> list[Layout]:
        layouts = [
            layout_of(e.same) for e in self.native.expected if isinstance(e.same, torch.Tensor)
        ]
        return layouts[: len(layouts) - len(self.written)]


def _dense(tensor: torch.Tensor) -> Layout:
    return layout_of(torch.empty(tensor.shape, dtype=tensor.dtype, device="meta"))


__all__ = ["PairedTimer", "Flush", "Samples", "OutOfBoundsWrite", "last_level_cache_bytes"]

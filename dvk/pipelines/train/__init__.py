"""`dvk train`: three agents on one backbone learn from the judge's verdicts, and the library grows with proved skills.

    draw tasks → play them (select skills, write kernels, summarise) → judge → try proposed skills → rewards and advantages
    → one update → the library: admit, groom → checkpoint

A step is a function of the seed, its number and the last checkpoint, so a killed run resumes with the current step and
reaches the same result, as far as timings repeat.

Several processes, started by `torchrun` or `accelerate launch` with a GPU each, share the playing, the trials and the
update; they exchange all results, so that every one makes the same step. The first one writes the run's folder. A single process
can have a Ray cluster play (`agents.writers`): models on its nodes receive the weights of every step.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dvk import backends
from dvk.agents import TaskContext, run_episodes, trials, writers
from dvk.backbone import Backbone
from dvk.config import Config
from dvk.distributed import ProcessGroup
from dvk.errors import UsageError
from dvk.harness.placement import num_workers
from dvk.harness.queue import JudgeQueue, default_contract
from dvk.harness.remote.table import require_plans
from dvk.harness.session.judge_spec import JudgeSpec
from dvk.harness.session.verdict_cache import Remembered
from dvk.learn.assign import assign, degenerate, has_signal, rows, scaled_together
from dvk.learn.learner import opened
from dvk.learn.memory import is_short, update_bytes
from dvk.learn.reinforce import update
from dvk.pipelines import tracebacks
from dvk.pipelines.metrics import FILE, Metrics
from dvk.pipelines.tracebacks import of_episode
from dvk.pipelines.train import page
from dvk.pipelines.train.figures import Guards, episode_figures, grooming_counts, left_out_counts
from dvk.pipelines.train.live import TrainingView
from dvk.pipelines.train.replay import ReplayBuffer, episodes_of
from dvk.pipelines.train.state import TrainState
from dvk.pipelines.train.task_sampler import TaskSampler
from dvk.pipelines.train.validate import validate
from dvk.pipelines.train.validations import preferred
from dvk.records import BackendName, Device, Episode
from dvk.runs import RunFolder
from dvk.skills.grooming import groom
from dvk.skills.plays import plays


@dataclass(frozen=True, kw_only=True)
class TrainRequest:
    """The command line's request."""

    start: str = "nano"
    steps: int = 100
    tasks: Path | None = None
    validation: Path | None = None
    library: Path | None = None
    backend: str = "auto"
    device: str | None = None
    workers: int | None = None
    out: Path | None = None
    resume: bool = False
    argv: tuple[str, ...] = ()
    quiet: bool = False


def train(request: TrainRequest, config: Config) -> dict[str, Any]:
    """Run the command; `--json` prints the returned summary.

    Raises:
        UsageError: see `check`.
        DvkError: the user can fix it; a run that a guard stopped can be resumed with other settings.
    """
    check(config)
    device: Device = request.device or backends.default_device()  # type: ignore[assignment]  # checked by the command
    backend = backends.pick(request.backend, device)
    name = request.start.replace("/", "_").replace(":", "-")
    opening = {"command": "train", "name": name, "argv": request.argv, "config": config}
    with (
        ProcessGroup.join(config.learning.barrier_timeout_s) as processes,
        processes.folder(request.out, resume=request.resume, **opening) as run,
    ):
        if run.answered(request, config):
            return dict(run.read("summary.jsonl")[-1])
        config = writers.with_rollout_place(request.start, config, processes.size)
        writers.serving.check(config, request.start, processes.size)
        config = writers.serving.with_gpus_apart(config)
        state = TrainState.restore(
            run, request.start, request.library, request.steps, config, processes
        )
        draw = _sampler(request, config, (device, backend), run, state)
        queue = _judge_queue(request, config, device, processes)
        metrics = Metrics(run, state.step + 1)
        live = TrainingView(request.steps, quiet=request.quiet or not processes.is_main)
        writing = writers.opened_for_training(
            state.backbone, opened(config, processes), device, run.path, processes
        )
        with state, metrics, live, queue as judging, draw, writing as writer:
            config = writers.widened(config, writer)
            writers.renew(writer, state.backbone)
            updates = config.objective.passes * config.objective.mini_batches
            live.say(f"learning rate {state.learner.settings.rate:g}, updates a step: {updates}")
            replay = ReplayBuffer(run, config.objective.replay, state.step)
            training = Training(
                run, config, processes, state, draw, judging, writer, live, metrics, replay
            )
            training.play(request.steps)
            summary = _summary(training)
        if processes.is_main and (line := tracebacks.stderr_line(run)) is not None:
            live.say(line)
        run.append("summary.jsonl", summary)
        page.write(run)
        run.finish("done")
    return summary


def _sampler(
    request: TrainRequest,
    config: Config,
    place: tuple[Device, BackendName],
    run: RunFolder,
    state: TrainState,
) -> TaskSampler:
    """Where a run's tasks are from.

    Raises:
        UsageError: there are none, or the judge cannot judge the model's answers. Then a new run leaves no folder.
    """
    device, backend = place
    try:
        require_plans(config.remote.judge, request.start, state.backbone.dialect)
        return TaskSampler(
            config,
            backend,
            device,
            run.path / "tasks",
            request.tasks,
            request.validation,
            processes=state.processes,
            num_steps=request.steps,
            memory=state.memory,
        )
    except UsageError:
        state.abandon()
        raise


def _summary(training: Training) -> dict[str, Any]:
    """What the command prints and leaves in the run's folder."""
    state = training.state
    return {
        "run": str(training.run.path),
        "steps": state.step,
        "checkpoint": f"checkpoints/step_{state.step:06d}",
        "preferred": training.preferred,
        "skills": len(state.library),
        "processes": training.processes.size,
    }


def _judge_queue(
    request: TrainRequest, config: Config, device: Device, processes: ProcessGroup
) -> JudgeQueue[Any]:
    """The judge queue of this process, which shares the machine with the others."""
    workers = request.workers or max(1, num_workers(config, device) // processes.size)
    spec = JudgeSpec(
        require_kernels=config.rollout.require_kernels, contract=default_contract(device)
    )
    return JudgeQueue(workers, config, Remembered(), spec)


@dataclass
class Training:
    """What every step is made with."""

    run: RunFolder
    config: Config
    processes: ProcessGroup
    state: TrainState
    draw: TaskSampler
    judging: JudgeQueue[Any]
    writer: Backbone
    live: TrainingView
    metrics: Metrics
    replay: ReplayBuffer
    preferred: int | None = None
    """The step that was fastest on the validation tasks so far."""

    def __post_init__(self) -> None:
        self._prefer()

    def play(self, num_steps: int) -> None:
        """Run the remaining steps, with a validation before the first one.

        Raises:
            DvkError: a guard stopped the run.
        """
        if (told := writers.engine_advice(self.state.backbone, self.config)) is not None:
            self.live.say(told)
        guards = Guards(self.run.read(FILE))
        every = self.config.train.validate_every
        if every and self.processes.broadcast(not self.run.read(FILE)):
            self.live.stage("validating before the first step")
            row = {"step": 0, **self.validated(0)}
            self.metrics.write([row])
            self.live.step(row)
        while self.state.step < num_steps:
            following = self.state.step + 1
            is_due = bool(every) and (following % every == 0 or following == num_steps)
            row = self.step(validates=is_due)
            guards.look(row["step"], row)

    def step(self, *, validates: bool) -> dict[str, Any]:
        """Play, try, learn, keep, write; the step's row of metrics."""
        state, draw, live = self.state, self.draw, self.live
        step, clock, written = state.step, Clock(), self.writer.usage.seconds
        live.stage("preparing tasks", step)
        subjects = draw.step(step)
        clock.lap("draw")
        episodes = self.played(subjects, step)
        clock.lap("play")
        for _ in range(self.config.train.refill):
            taught = sum(has_signal(episode, self.config) for episode in episodes)
            missing = self.config.train.tasks_per_step - taught
            if missing <= 0 or not (others := draw.more(step, missing, subjects)):
                break
            clock.lap("draw")
            subjects, episodes = [*subjects, *others], [*episodes, *self.played(others, step)]
            clock.lap("play")
        live.stage("trying skills", step)
        tried = self.tried(subjects, episodes, step)
        clock.lap("trials")
        worths = trials.summary_rewards(tried)
        live.stage("learning", step)
        assigned = [
            assign(episode, self.config, worths.get(episode.task.id)) for episode in episodes
        ]
        credited = [one.episode for one in assigned]
        if self.config.credit.step_scale:
            credited = scaled_together(credited)
        figures = self.learned(credited, step)
        clock.lap("learn")
        self.write_episodes(credited, episodes, step)
        figures |= draw.note(credited, subjects)
        figures |= self.library_figures(credited, tried, step)
        clock.lap("library")
        if validates:
            live.stage("validating", step)
            figures |= self.validated(step + 1)
            clock.lap("validate")
        state.write(draw.memory())
        clock.lap("save")
        row = {
            "step": step + 1,
            **episode_figures(credited, worths),
            **figures,
            **left_out_counts(one.left_out for one in assigned),
            "skills": float(len(state.library)),
            **clock.laps,
            "write_s": round(self.writer.usage.seconds - written, 2),
            **swapped(self.writer),
        }
        state.keep(row, self.config.train.keep_every, self.preferred or 0)
        self.metrics.write([row])
        live.step(row)
        page.write(self.run)
        return row

    def tried(
        self, subjects: Sequence[TaskContext], episodes: Sequence[Episode], step: int
    ) -> list[trials.Trial]:
        """A trial of every skill that the episodes propose."""
        proposed = trials.proposals(episode for episode in episodes if not degenerate(episode))
        return trials.try_skills(
            proposed,
            {s.task.id: s for s in subjects},
            self.writer,
            self.state.library,
            self.config,
            self.judging,
            step,
            self.processes,
            self.draw.earlier.subjects,
        )

    def learned(self, episodes: Sequence[Episode], step: int) -> dict[str, Any]:
        """Make one update, and give the new weights to the writer; figures of the update."""
        made = [row for episode in episodes for row in rows(episode)]
        earlier = self.replay.rows()
        writers.rest(self.writer)
        self.make_room(max((len(row.ids) for row in (*made, *earlier)), default=0))
        figures = update(
            self.state.learner,
            made,
            self.config,
            seed=step,
            temperature=self.config.rollout.temperature,
            processes=self.processes,
            earlier=earlier,
        )
        self.replay.add(episodes)
        writers.renew(self.writer, self.state.backbone)
        return figures

    def make_room(self, longest: int) -> None:
        """Free GPU memory if the update would lack it: the sampler's caches, then idle judges; both take seconds to restart.

        Args:
            longest: tokens of the longest row.
        """
        learner = self.state.learner
        needed = update_bytes(learner.model, longest, learner.settings)
        if is_short(learner.device, needed):
            self.state.backbone.release()
        if is_short(learner.device, needed):
            self.judging.make_room()

    def write_episodes(self, credited: list[Episode], played: Sequence[Episode], step: int) -> None:
        """Write the step's episodes, and tracebacks of errors in drawing and playing."""
        save_step(self.run, step, credited)
        for name, texts in [
            *((n, [t]) for n, t in self.draw.tracebacks.items()),
            *((e.task.name, of_episode(e)) for e in played),
        ]:
            tracebacks.keep(self.run, name, texts)

    def library_figures(
        self, episodes: Sequence[Episode], tried: Sequence[trials.Trial], step: int
    ) -> dict[str, Any]:
        """Admit skills, record their use, and groom the library at its time; counts of what was done."""
        library, settings = self.state.library, self.config.library
        figures: dict[str, Any] = dict(trials.admit(library, tried, step))
        library.record_all(
            event for episode in episodes if not degenerate(episode) for event in plays(episode)
        )
        if settings.every and (step + 1) % settings.every == 0:
            figures |= grooming_counts(groom(library, settings, step))
        return figures

    def validated(self, step: int) -> dict[str, Any]:
        """Figures of the validation tasks with the present weights."""
        figures = validate(
            self.run, step, self.draw, self.state, self.writer, self.config, self.judging
        )
        self._prefer()
        return figures

    def _prefer(self) -> None:
        """Find the step to prefer; the main process reads the files, which others may not see, and tells the rest."""
        if self.config.train.validate_every:
            mine = preferred(self.run.path) if self.processes.is_main else None
            self.preferred = self.processes.broadcast(mine)

    def played(self, subjects: Sequence[TaskContext], step: int) -> list[Episode]:
        """Every process's episodes, in the order of their tasks."""
        mine = self.processes.shard(subjects)
        self.live.stage("playing", step)
        ended = list(
            run_episodes(
                mine,
                self.writer,
                self.state.library,
                self.config,
                judging=self.judging,
                step=step,
                on_turn=lambda key, turn: self.live.turn(key.role, turn),
            )
        )
        return self.processes.gather(in_order(ended, mine))


def check(config: Config) -> None:
    """Refuse settings from which nothing can be learned, before the work starts.

    Raises:
        UsageError: names them.
    """
    rollout, advantage = config.rollout, config.credit.advantage
    if rollout.resample_unparsed:
        raise UsageError(
            "rollout.resample_unparsed draws answers again, and training learns from the first",
            "leave it at 0 with dvk train",
        )
    if rollout.temperature <= 0:
        raise UsageError(
            "rollout.temperature=0 gives one answer, and training compares several",
            "leave it at 1 with dvk train",
        )
    if (
        advantage != "reinforce"
        and rollout.rollouts * max(1, rollout.schemes + rollout.null_scheme) < 2
    ):
        raise UsageError(
            f"one conversation a task has no peers, and credit.advantage={advantage} compares with them",
            "raise rollout.rollouts, or set credit.advantage=reinforce",
        )


def in_order(episodes: Sequence[Episode], subjects: Sequence[TaskContext]) -> list[Episode]:
    """Episodes in the order of their tasks, whichever ended first."""
    place = {subject.task.id: number for number, subject in enumerate(subjects)}
    return sorted(episodes, key=lambda episode: place[episode.task.id])


def save_step(run: RunFolder, step: int, episodes: list[Episode]) -> None:
    """A step's episodes, written atomically."""
    run.write_text(
        episodes_of(step),
        "".join(e.model_dump_json(exclude_defaults=True) + "\n" for e in episodes),
    )


def swapped(writer: Backbone) -> dict[str, float]:
    """Seconds in which servers took the step's weights, if servers sample."""
    seconds = getattr(writer, "swap_s", None)
    return {} if seconds is None else {"swap_s": round(seconds, 3)}


class Clock:
    """Seconds by stage."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        """End a stage; one that is repeated adds up."""
        now = time.perf_counter()
        spent = self.laps.get(f"{name}_s", 0.0) + now - self._last
        self.laps[f"{name}_s"], self._last = round(spent, 2), now

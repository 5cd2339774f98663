"""The commands as functions with the same names: `dvk.optimize`, `dvk.verify`, `dvk.evaluate`.

    source    text of live classes and functions
    graphed   text of a captured graph
    written   a live module as a task file
    checked   whether the file is the module
    calls     the calls that a running model makes, as tasks
    result    what a search gives back

They raise `dvk.DvkError`s, whose text says what to do, print nothing on stdout, and show progress on stderr only where that is asked
for, or is a terminal. Everything of the user's runs in processes that start without the caller's `__main__`, so scripts need no
`if __name__ == "__main__"`.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dvk import config as configuration
from dvk.api.checked import differs
from dvk.api.result import Result, dropin_of
from dvk.api.written import CANDIDATE, Written, write
from dvk.config import Config
from dvk.errors import TaskError, UsageError

if TYPE_CHECKING:
    from dvk.records import Verdict

__all__ = ["Result", "evaluate", "optimize", "verify"]

Settings = Mapping[str, Any]
"""Dotted key → value, as for `--set`."""


def optimize(
    module: Any,
    *inputs: Any,
    kwargs: Mapping[str, Any] | None = None,
    budget_s: float | None = None,
    backend: str = "auto",
    strategy: str = "auto",
    backbone: str | None = None,
    baselines: Sequence[str] = (),
    own_kernels: bool = False,
    train: bool = False,
    autocast: str | None = None,
    library: str | Path | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    progress: bool | None = None,
    settings: Settings | None = None,
) -> Result:
    """Search for the fastest verified kernels, as `dvk optimize` does.

    Args:
        module: an nn.Module or a function, live, with the weights that it has; or a file as the command takes it, `model.py:Name`.
        inputs: example inputs, of the shapes and dtypes that it is to be fast for. None for a file with get_inputs().
        kwargs: example keyword arguments.
        budget_s: seconds the search may take (default: 120).
        backend: auto, triton, cuda or cpp.
        strategy: see `dvk optimize --help`.
        backbone: language model that proposes too.
        baselines: also timed against: compile.
        own_kernels: leave out what PyTorch itself offers: channels_last, torch.compile, replay as a CUDA graph.
        train: a call is forward and backward: gradients are compared and timed, too.
        autocast: calls are under torch.autocast to bfloat16 or float16 (default: the autocast that is on where this is called).
        library: skill library (default: $DVK_HOME/skills.db).
        out: run folder (default: runs/optimize-NAME-TIME).
        resume: continue the run in `out`.
        progress: show it on stderr; None: where that is a terminal.
        settings: other settings, e.g. {"judge.claim_s": 4}.

    Raises:
        DvkError: the user can fix it; its text says how.
    """
    from dvk.pipelines.optimize import optimize as run
    from dvk.pipelines.optimize.request import OptimizeRequest

    _among("baseline", baselines, ("eager", "compile"))
    config = _config(
        settings, {"optimize.budget_s": budget_s, "optimize.own_kernels": own_kernels or None}
    )
    written = _task(module, inputs, kwargs, config)
    summary = run(
        OptimizeRequest(
            spec=written.spec if written else str(module),
            device=written.device if written else None,
            backend=backend,
            strategy=strategy,
            backbone=backbone,
            baselines=tuple(baselines),
            train=train,
            autocast=autocast or _ambient(written),
            library=_path(library),
            out=_path(out),
            resume=resume,
            argv=_argv("optimize", module),
            quiet=not _shown(progress),
        ),
        config,
    )
    return Result(summary, written, written and written.subject)


def verify(
    reference: Any,
    candidate: Any,
    *inputs: Any,
    kwargs: Mapping[str, Any] | None = None,
    backend: str = "auto",
    tier: Literal["smoke", "search", "claim"] = "search",
    baselines: Sequence[str] = (),
    backward: bool = False,
    autocast: str | None = None,
    out: str | Path | None = None,
    settings: Settings | None = None,
) -> Verdict:
    """Check whether `candidate` computes what `reference` does, and how fast, as `dvk verify` does.

    Args:
        reference: an nn.Module or a function, live; or a file, `model.py:Name`.
        candidate: a live nn.Module or function, a `Result` or its module, a file that defines `ModelNew`, or the text of one. Weights
            that have the names and shapes of the reference's are given the reference's values.
        inputs: example inputs, where the reference is live.
        kwargs: example keyword arguments.
        backend: auto (by what the candidate imports), triton, cuda or cpp.
        tier: smoke (check only), search (brief timing) or claim (fresh processes, reproducible).
        baselines: also timed against: compile, max-autotune, graph.
        backward: compare gradients, too.
        autocast: calls are under torch.autocast to bfloat16 or float16 (default: the autocast that is on where this is called).
        out: run folder; None keeps none.
        settings: other settings.

    Raises:
        DvkError: the user can fix it; its text says how.
    """
    from dvk.pipelines.verify import VerifyJob, VerifyRequest, jobs_of
    from dvk.pipelines.verify import verify as run

    _among("tier", [tier], ("smoke", "search", "claim"))
    config = _config(settings)
    given = dropin_of(candidate)
    live = given is None and not isinstance(candidate, (str, Path))
    if live and isinstance(reference, (str, Path)):
        raise UsageError(
            "a live candidate needs a live reference",
            "import the reference, and give an instance of it and example inputs",
        )
    written = _task(reference, inputs, kwargs, config, candidate if live else None)
    spec = written.spec if written else str(reference)
    if live:
        assert written is not None
        given = (written.folder / f"{CANDIDATE}.py").read_text(encoding="utf-8")
    elif given is not None and written is not None:
        given = written.at_home(given)
    elif isinstance(candidate, str) and "\n" in candidate:
        given = candidate
    jobs = (
        jobs_of(spec, [Path(candidate)])
        if given is None
        else (VerifyJob(spec, _name(candidate), given),)
    )
    with tempfile.TemporaryDirectory(prefix="dvk-verify-") as scratch:
        request = VerifyRequest(
            jobs=jobs,
            name=_name(reference),
            backend=backend,
            tier=tier,
            device=written.device if written else None,  # type: ignore[arg-type]
            baselines=tuple(b for b in baselines if b != "eager"),
            backward=backward,
            autocast=autocast or _ambient(written),
            workers=1,
            out=_path(out) or Path(scratch) / "run",
            argv=_argv("verify", reference),
        )
        return run(request, config)[0][0].verdict


def evaluate(
    suite: str | Path,
    policy: str = "composer",
    *,
    turns: int | None = None,
    samples: int = 1,
    baselines: Sequence[str] = (),
    claim: bool = False,
    backend: str = "auto",
    device: Literal["cpu", "cuda"] | None = None,
    only: Sequence[str] = (),
    eval_mode: bool = False,
    workers: int | None = None,
    library: str | Path | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    progress: bool | None = None,
    settings: Settings | None = None,
) -> dict[str, Any]:
    """Measure how often a policy is right and fast over a suite of tasks, as `dvk eval --json` does.

    Args:
        suite: folder of task files.
        policy: composer, nano:PATH, hf:PATH, endpoint:MODEL, …: see `dvk eval --help`.
        turns: attempts a conversation; of a strategy, candidates a task.
        samples: conversations a task.
        baselines: also timed against, once a task: compile, max-autotune, graph.
        claim: time winners again at the claim tier.
        backend: auto, triton, cuda or cpp.
        device: cpu or cuda (default: cuda if there is a GPU).
        only: play these tasks alone.
        eval_mode: call .eval() on the modules first.
        workers: candidates judged at a time.
        library: skill library to select from.
        out: run folder (default: runs/eval-NAME-TIME).
        resume: continue the run in `out`.
        progress: show it on stderr; None: where that is a terminal.
        settings: other settings.

    Raises:
        DvkError: the user can fix it; its text says how.
    """
    from dvk.pipelines.eval import EvalRequest
    from dvk.pipelines.eval import evaluate as run

    _among("device", [] if device is None else [device], ("cpu", "cuda"))
    _among("baseline", baselines, ("eager", "compile", "max-autotune", "graph"))
    over: Any = tuple(b for b in baselines if b != "eager")
    request = EvalRequest(
        suite=Path(suite),
        policy=policy,
        turns=turns,
        samples=samples,
        library=_path(library),
        baselines=over,
        claim=claim,
        backend=backend,
        device=device,
        only=tuple(only),
        eval_mode=eval_mode,
        workers=workers,
        out=_path(out),
        resume=resume,
        argv=_argv("eval", suite),
        quiet=not _shown(progress),
    )
    return run(request, _config(settings))


# ---------------------------------------------------------------- what they share


def _task(
    subject: Any,
    inputs: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    config: Config,
    candidate: Callable[..., Any] | None = None,
) -> Written | None:
    """Return the task file of a live module; None if a file was given."""
    if isinstance(subject, (str, Path)):
        if inputs or kwargs:
            raise UsageError(
                "a file takes no example inputs", "define get_inputs() in it, or give a live module"
            )
        return None
    if config.remote.judge is not None:
        raise UsageError(
            "a server judges files alone, and a live module was given",
            "write the module into a file with get_inputs()",
        )
    written = write(subject, inputs, kwargs or {}, candidate)
    if (difference := differs(written, inputs, kwargs or {}, config.limits)) is None:
        return written
    if written.how == "source":
        why = f"another process computes something else from its source: {difference}"
        written = write(subject, inputs, kwargs or {}, candidate, why)
        if differs(written, inputs, kwargs or {}, config.limits) is None:
            return written
    raise TaskError(
        f"another process computes something else than the module in hand: {difference}",
        "write the module into a file with get_inputs(), and give that file",
    )


def _ambient(written: Written | None) -> str | None:
    """The type of the autocast that the caller has on for a live module; None if it is off."""
    from dvk.tasks.ambient import enabled

    return enabled(written.device) if written is not None else None


def _config(settings: Settings | None, flags: dict[str, Any] | None = None) -> Config:
    return configuration.load(
        None,
        (),
        {
            **(settings or {}),
            **{key: value for key, value in (flags or {}).items() if value is not None},
        },
    )


def _among(what: str, given: Sequence[str], known: Sequence[str]) -> None:
    if unknown := [one for one in given if one not in known]:
        raise UsageError(f"unknown {what}: `{unknown[0]}`", f"choose {', '.join(known)}")


def _path(given: str | Path | None) -> Path | None:
    return None if given is None else Path(given)


def _shown(progress: bool | None) -> bool:
    return sys.stderr is not None and sys.stderr.isatty() if progress is None else progress


def _name(subject: Any) -> str:
    if isinstance(subject, (str, Path)) and "\n" not in str(subject):
        return str(subject).rpartition("/")[2].replace(".py", "").replace(":", "-")
    return str(getattr(subject, "__name__", type(subject).__name__)).strip("<>")


def _argv(command: str, subject: Any) -> tuple[str, ...]:
    """Command line for the run's record, which no command started."""
    return ("python", f"dvk.{command}", _name(subject))

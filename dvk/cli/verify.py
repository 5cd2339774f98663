"""`dvk verify`: compile, check and time candidates against a reference."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, get_args

import typer

from dvk.cli.options import Autocast, Conf, Dtype, Dynamic, Engine, Init, Inputs, Settings, Train
from dvk.errors import UsageError

if TYPE_CHECKING:
    from rich.table import Table

    from dvk.config import JudgeConfig
    from dvk.pipelines.verify import VerifyJob, VerifyRow
    from dvk.pipelines.verify.solutions import JudgedSolutions


def command(
    reference: Annotated[
        str | None,
        typer.Argument(
            help="The reference: model.py, model.py:Name or pkg.model:Name; or a definition or a folder of FlashInfer-Bench."
        ),
    ] = None,
    candidates: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Files that define ModelNew; of definitions, solutions (default: those of the folder)."
        ),
    ] = None,
    batch: Annotated[
        Path | None,
        typer.Option(
            help='JSONL instead: {"reference": path, "candidate": path or "source": text} a line.'
        ),
    ] = None,
    backend: Annotated[
        str, typer.Option(help="auto (by what a candidate imports), triton, cuda or cpp.")
    ] = "auto",
    tier: Annotated[
        str,
        typer.Option(
            help="smoke (check only), search (brief timing) or claim (fresh processes, reproducible)."
        ),
    ] = "search",
    baseline: Annotated[
        list[str] | None,
        typer.Option(help="Also time against, once a reference: compile, max-autotune, graph."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Candidates in work at once (default: the cores).")
    ] = None,
    inputs: Inputs = None,
    dynamic: Dynamic = None,
    init: Init = None,
    eval_mode: Annotated[
        bool, typer.Option("--eval", help="Call .eval() on the modules first.")
    ] = False,
    dtype: Dtype = None,
    autocast: Autocast = None,
    device: Annotated[
        str | None, typer.Option(help="cpu or cuda (default: what the backend needs).")
    ] = None,
    train: Train = False,
    backward: Annotated[bool, typer.Option("--backward", help="Compare gradients, too.")] = False,
    require_kernels: Annotated[
        bool,
        typer.Option(
            "--require-kernels",
            help="Refuse candidates that leave the computing to PyTorch's operators.",
        ),
    ] = False,
    contract: Annotated[
        str,
        typer.Option(
            help="module (its host code runs), plan (trusted code replays its launches), short (plan for calls below 1 ms on a GPU, "
            "module otherwise) or auto (plan, module with --baseline)."
        ),
    ] = "short",
    profile: Annotated[
        bool, typer.Option("--profile", help="Say where the time of a call goes, too.")
    ] = False,
    no_cache: Annotated[
        bool, typer.Option("--no-cache", "--anew", help="Ignore cached verdicts of this machine.")
    ] = False,
    judge: Annotated[
        str | None,
        typer.Option(
            help="Have a server judge, `dvk serve` or KernelGYM's own: kernelgym:URL ($DVK_JUDGE_TOKEN is its token)."
        ),
    ] = None,
    engine: Engine = None,
    out: Annotated[
        Path | None, typer.Option(help="Run folder (default: runs/verify-NAME-TIME).")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Judge only what the run in --out has no verdict for.")
    ] = False,
    selftest: Annotated[
        bool,
        typer.Option(
            "--selftest",
            help="Attack this machine's judge with the red team's files; exit 0 if it catches all.",
        ),
    ] = False,
    only: Annotated[
        str | None, typer.Option(help="With --selftest: classes or rows, such as A,D05.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON list for programs.")
    ] = False,
    config: Conf = None,
    settings: Settings = None,
) -> None:
    """Say of each candidate whether it computes what the reference does, and how fast; exit 1 unless all are ok."""
    if selftest:
        if reference is not None or batch is not None:
            raise UsageError(
                "--selftest brings its own files",
                "dvk verify --selftest [--only A,D05] [--device cpu]",
            )
        _selftest(only, device, workers, config, settings, as_json)
        return
    _check(reference, candidates, batch, tier, contract, device, only)

    from dvk import config as configuration
    from dvk.pipelines.verify import VerifyRequest, verify

    jobs, name, solutions = _jobs(reference, candidates, batch)
    request = VerifyRequest(
        jobs=jobs,
        name=name,
        backend=backend,
        device=device,  # type: ignore[arg-type]
        tier=tier,  # type: ignore[arg-type]
        contract=contract,  # type: ignore[arg-type]  # checked above
        baselines=tuple(b for b in baseline or () if b != "eager"),
        workers=workers,
        inputs=tuple(inputs or ()),
        dynamic=tuple(dynamic or ()),
        init=tuple(init or ()),
        eval_mode=eval_mode,
        train=train,
        dtype=dtype,
        autocast=autocast,
        backward=backward,
        require_kernels=require_kernels,
        profile=profile,
        no_cache=no_cache,
        out=out,
        resume=resume,
        argv=tuple(sys.argv),
    )
    merged = configuration.load(
        config, settings or [], {"remote.judge": judge, "remote.engine": engine}
    )
    rows, folder = verify(request, merged, progress=_progress)
    print(f"verdicts: {folder / 'verdicts.jsonl'}", file=sys.stderr)
    if solutions is not None:
        place, missing = solutions.write(rows, folder)
        left_out = f", without {missing} that have no time or no status there" if missing else ""
        print(f"traces: {place}{left_out}", file=sys.stderr)
    _print(rows, merged.judge, as_json)


def _check(
    reference: str | None,
    candidates: list[Path] | None,
    batch: Path | None,
    tier: str,
    contract: str,
    device: str | None,
    only: str | None,
) -> None:
    """Refuse what does not go together, before anything is loaded.

    Raises:
        UsageError: says what to write instead.
    """
    if only is not None:
        raise UsageError("--only goes with --selftest", "dvk verify --selftest --only A,D05")
    if (batch is None) == (reference is None):
        raise UsageError(
            "give a reference and candidates, or --batch FILE"
            if reference is None
            else "--batch takes no other files",
            "dvk verify reference.py candidate.py, or dvk verify --batch jobs.jsonl",
        )
    if tier not in ("smoke", "search", "claim"):
        raise UsageError(f"unknown tier: `{tier}`", "choose smoke, search or claim")
    from dvk.harness.session.judge_spec import Contract

    if contract not in (known := get_args(Contract)):
        raise UsageError(f"unknown contract: `{contract}`", f"choose {', '.join(known)}")
    if device not in (None, "cpu", "cuda"):
        raise UsageError(f"unknown device: `{device}`", "choose cpu or cuda")


def _jobs(
    reference: str | None, candidates: list[Path] | None, batch: Path | None
) -> tuple[tuple[VerifyJob, ...], str, JudgedSolutions | None]:
    """What to judge, a name for the run folder, and the solutions if it is these."""
    from dvk.pipelines.verify import jobs_of, jobs_of_batch
    from dvk.pipelines.verify.solutions import names_definitions, solutions_of

    if batch is not None:
        return jobs_of_batch(batch), batch.stem, None
    assert reference is not None
    if names_definitions(reference):
        solutions = solutions_of(reference, candidates or [])
        for why in solutions.left_out:
            print(f"left out: {why}", file=sys.stderr)
        return solutions.jobs, Path(reference).resolve().stem, solutions
    if not candidates:
        raise UsageError(
            "no candidate given", "dvk verify reference.py candidate.py [more candidates]"
        )
    name = reference.rpartition("/")[2].replace(".py", "").replace(":", "-")
    return jobs_of(reference, candidates), name, None


def _selftest(
    only: str | None,
    device: str | None,
    workers: int | None,
    config: Path | None,
    settings: list[str] | None,
    as_json: bool,
) -> None:
    if device not in (None, "cpu", "cuda"):
        raise UsageError(f"unknown device: `{device}`", "choose cpu or cuda")
    from dvk import config as configuration
    from dvk.pipelines import selftest

    outcomes, left_out = selftest.selftest(
        configuration.load(config, settings or []),
        only=only,
        device=device,  # type: ignore[arg-type]
        workers=workers,
        progress=selftest.show_progress,
    )
    if as_json:
        print(json.dumps([outcome.for_programs() for outcome in outcomes]))
    else:
        print(selftest.report(outcomes, left_out))
    if not all(outcome.right for outcome in outcomes):
        raise typer.Exit(1)


def _progress(done: int, total: int, row: VerifyRow) -> None:
    print(
        f"[{done}/{total}] {row.job.label}: {row.verdict.status.value}", file=sys.stderr, flush=True
    )


def _print(rows: list[VerifyRow], judge: JudgeConfig, as_json: bool) -> None:
    """Print the verdicts; exit 1 unless all are ok."""
    from dvk.pipelines.verify import all_ok

    if as_json:
        print(json.dumps([row.for_programs() for row in rows]))
    else:
        _tell(rows, judge)
    if not all_ok(rows):
        raise typer.Exit(1)


def _tell(rows: list[VerifyRow], judge: JudgeConfig) -> None:
    from rich.console import Console

    from dvk.harness.profiling.feedback import feedback
    from dvk.harness.profiling.record import profile_of
    from dvk.speedups import words

    # In a pipe nothing is as narrow as rich assumes.
    console = Console(file=sys.stdout, highlight=False, width=None if sys.stdout.isatty() else 160)
    console.print(_table(rows))
    for row in rows:
        if row.verdict.error or row.verdict.untimed_reason:
            print(f"{row.job.label}: {row.verdict.error or row.verdict.untimed_reason}")
    for reference, name, why in dict.fromkeys(
        (row.job.reference, name, why)
        for row in rows
        for name, why in row.verdict.baselines_left_out.items()
    ):
        print(f"{reference}: no time of {name}: {why}")
    for reference, names in dict.fromkeys(
        (row.job.reference, row.verdict.written_inputs)
        for row in rows
        if row.verdict.written_inputs
    ):
        print(
            f"{reference}: writes in place {', '.join(names)}: fresh for each call, and compared after it"
        )
    for row in rows:
        for note in row.verdict.notes:
            print(f"{row.job.label}: {note}")
    for reference, remark in dict.fromkeys(
        (row.job.reference, remark) for row in rows for remark in row.verdict.health
    ):
        print(f"{reference}: {remark}")
    for row in rows:
        if (
            row.verdict.timing is not None
            and (
                told := words(row.verdict.timing, pairs=judge.claim_pairs, seconds=judge.claim_s)
            ).hint
        ):
            print(f"{row.job.label}: {told.noise or told.sentence}; {told.hint}")
    for row in rows:
        if (profile := profile_of(row.verdict)) is not None:
            print(f"\n{row.job.label}: {feedback(profile)}")


def _table(rows: list[VerifyRow]) -> Table:
    from rich import box
    from rich.table import Table

    from dvk.speedups import shown

    names = list(
        dict.fromkeys(
            name for row in rows if row.verdict.timing for name in row.verdict.timing.baselines
        )
    )
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("candidate", overflow="fold", min_width=12)
    for title in (
        "status",
        "speedup over eager",
        *(f"over {name}" for name in names),
        "ms",
        "worst error",
    ):
        table.add_column(title, no_wrap=True)
    for row in rows:
        verdict, timing = row.verdict, row.verdict.timing
        speedup = shown(timing.speedup) if timing else "-"
        over = [
            shown(timing.baselines[n]) if timing and n in timing.baselines else "-" for n in names
        ]
        times = f"{timing.reference_ms:.3g} → {timing.candidate_ms:.3g}" if timing else "-"
        worst = (
            f"{verdict.worst_error:.0e} of {verdict.tolerance:.0e}"
            if verdict.worst_error is not None and verdict.tolerance
            else "-"
        )
        table.add_row(row.job.label, verdict.status.value, speedup, *over, times, worst)
    return table

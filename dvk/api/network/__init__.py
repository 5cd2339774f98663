"""A whole model, faster: profile it, search its repeated modules once each, patch all of their instances, verify the whole.

    building    a model by name, with random weights
    examples    what it is called with
    profiling   the time of every submodule                                  profile.json
    choosing    groups of equal modules, and which to take
    trying      the quick composition of one module                          tried.jsonl
    blocks      the groups in a run; a search for each that is chosen        blocks/NAME/, a run of `dvk optimize`
    reading     what is read of the configuration: nothing else of it must be equal
    patching    the drop-ins in one package, applying: its code              patch/
    verifying   outputs and time of the whole model, patched and not; fresh: in a new process
    steps       a training step: forward and backward
    proving     a first figure with quick compositions; which patches stay   quick_look.json, verdict.json
    report      the summary, for people and programs                         summary.jsonl, report.md, report.html

`timed.jsonl` has the time of each process of the proof as it ends.

Each stage reads what an earlier process of the run left. The profile, the quick compositions and the check of the outputs run in the
calling process, with the user's model; searches, and the claim of the whole model's time, use other processes. A live model, which
another process cannot build, is timed in the calling one. The budget begins when the model is built, and includes the proof, whose time
follows from that of the quick look; what is left is for searches. A group that it leaves no time to search keeps its quick composition,
so that the whole is proved at every budget.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from dvk import backends, registry, search
from dvk import config as configuration
from dvk.api.network import examples, patching, proving, report, steps
from dvk.api.network.blocks import Blocks
from dvk.api.network.building import ModelSource, Network, build
from dvk.api.network.profiling import ModelProfile, SubmoduleTime, profile
from dvk.api.network.result import ModelResult
from dvk.api.written import device_of
from dvk.config import Config
from dvk.device_lock import DeviceLock, of_cpu, of_gpu
from dvk.errors import MachineError, UsageError
from dvk.runs import MANIFEST, RunFolder
from dvk.skills import Library
from dvk.tasks.sourcefile import fault

__all__ = ["ModelRequest", "ModelResult", "ModelSource", "optimize_model", "run"]

PROFILE, SUMMARY = "profile.json", "summary.jsonl"
TIMED = "timed.jsonl"
LIVE = "live:"
"""Begins the name of a live model, which no other process can build."""
LOOK = "quick_look.json"
"""The first figure of the whole model, on disk before any search."""


@dataclass(frozen=True, kw_only=True)
class ModelRequest:
    """A request to make a whole model faster."""

    source: ModelSource
    backend: str = "auto"
    strategy: str = "auto"
    baselines: tuple[str, ...] = ()
    library: Path | None = None
    out: Path | None = None
    resume: bool = False
    train: bool = False
    """A call is forward and backward."""
    argv: tuple[str, ...] = ()
    quiet: bool = False


class Clock:
    """Seconds of each stage of a run, and since it began."""

    def __init__(self) -> None:
        self.began = self._last = time.monotonic()
        self.took: dict[str, float] = {}

    def lap(self, stage: str) -> None:
        """End this stage."""
        now = time.monotonic()
        self.took[stage], self._last = round(now - self._last, 1), now

    @property
    def seconds(self) -> float:
        return round(time.monotonic() - self.began, 1)


def optimize_model(
    model: nn.Module,
    *inputs: Any,
    kwargs: Mapping[str, Any] | None = None,
    budget_s: float | None = None,
    backend: str = "auto",
    baselines: Sequence[str] = (),
    train: bool = False,
    library: str | Path | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    progress: bool = False,
    settings: Mapping[str, Any] | None = None,
) -> ModelResult:
    """Make a whole live model faster by its repeated modules, as `dvk optimize --model` does; the model is left as it was.

    `result.apply(model)` patches it, or `from patch import apply` once `result.save(folder)` has copied the package.

    Args:
        model: an nn.Module in the mode that it is to be fast in.
        inputs: example inputs of one call.
        kwargs: example keyword arguments.
        budget_s: seconds that the run may take (default: 120); the proof takes what it needs of them, searches have the rest.
        backend: auto, triton, cuda or cpp.
        baselines: also timed against: compile.
        train: a call is forward and backward: gradients of parameters and floating inputs are compared, too. The model may not draw random
            numbers: set dropout to 0, or give it in eval mode.
        library: skill library.
        out: run folder (default: runs/optimize-NAME-TIME).
        resume: continue the run in `out`.
        progress: tell each step on stderr.
        settings: other settings.

    Raises:
        DvkError: the user can fix it; its text says how.
    """
    if unknown := [one for one in baselines if one not in ("eager", "compile")]:
        raise UsageError(f"unknown baseline: `{unknown[0]}`", "choose compile")
    flags = {**(settings or {}), **({"optimize.budget_s": budget_s} if budget_s else {})}
    config = configuration.load(None, (), flags)
    name = type(model).__name__
    source = ModelSource(
        spec=f"{LIVE}{name}",
        device=device_of(model, (inputs, dict(kwargs or {}))),
        training=model.training,
    )
    request = ModelRequest(
        source=source,
        backend=backend,
        baselines=tuple(baselines),
        library=Path(library) if library else None,
        out=Path(out) if out else None,
        resume=resume,
        train=train,
        argv=("python", "dvk.optimize_model", name),
        quiet=not progress,
    )
    summary = _run(request, config, Network(model, source, {}), (list(inputs), dict(kwargs or {})))
    return ModelResult(summary)


def run(request: ModelRequest, config: Config) -> dict[str, Any]:
    """Run `dvk optimize --model`; returns what `--json` prints.

    Raises:
        DvkError: the user can fix it.
    """
    device = request.source.device
    if device == "cuda" and backends.default_device() != "cuda":
        raise MachineError(
            "no CUDA device was found", "use --device cpu, or check the driver with nvidia-smi"
        )
    return _run(request, config, None, None)


def _run(
    request: ModelRequest, config: Config, network: Network | None, call: examples.Call | None
) -> dict[str, Any]:
    device = request.source.device
    backend = backends.pick(request.backend, device)  # type: ignore[arg-type]  # checked
    if unfit := backends.get(backend).untimed(device):  # type: ignore[arg-type]
        raise UsageError(f"{backend} kernels cannot be timed here: {unfit}", "leave out --backend")
    registry.resolve(request.strategy, search.STRATEGIES, "strategy")
    if request.strategy in search.ASK_A_MODEL:
        problem = f"`--strategy {request.strategy}` asks a language model"
        raise UsageError(problem, "choose --strategy composer for a whole model")
    RunFolder.refuse_used(request.out, resume=request.resume)
    Library.open(request.library).close()
    clock = Clock()
    network = network or build(request.source)
    draws = (
        [examples.draw(network, seed) for seed in range(proving.DRAWS)] if call is None else None
    )
    calls = draws or proving.varied(call)  # type: ignore[arg-type]  # one of them is given
    _call_once(network, calls[0], train=request.train)
    clock.lap("build")
    with RunFolder.open(
        request.out,
        command="optimize",
        name=request.source.name,
        argv=request.argv,
        config=config,
        resume=request.resume,
    ) as folder:
        if folder.answered(replace(request, backend=backend), config, ("optimize.budget_s",)):
            return dict(folder.read(SUMMARY)[-1])
        with steps.kept(network.model) if request.train else nullcontext():
            return _story(folder, network, calls, request, backend, config, clock)


def _story(
    folder: RunFolder,
    network: Network,
    calls: Sequence[examples.Call],
    request: ModelRequest,
    backend: str,
    config: Config,
    clock: Clock,
) -> dict[str, Any]:
    """The stages, one after another."""
    began = time.monotonic()
    note, model, spec = _notes(request.quiet), network.model, request.source.spec
    alone = _alone(request.source.device)
    profiled = _profiled(folder, model, calls[0], alone, train=request.train)
    clock.lap("profile")
    blocks = Blocks(folder, model, calls[0], profiled, backend, config, alone, began, request.train)
    note(f"{spec}: {profiled.ms:.2f} ms a call, {len(blocks.groups)} kinds of blocks")
    blocks.try_all(note)
    clock.lap("compose")
    subject = proving.Subject(
        model,
        calls,
        folder.path / patching.PACKAGE,
        None if spec.startswith(LIVE) else request.source,
        config,
        by=began + config.optimize.budget_s,
        train=request.train,
        keep=lambda one: folder.append(TIMED, asdict(one)),
    )
    compiled = "compile" in request.baselines
    look = _quick_look(folder, blocks, subject, spec, note, compiled=compiled)
    clock.lap("quick_look")
    by = subject.by - proving.expected_s(subject, clock.took["build"], clock.took["quick_look"])
    blocks.search(note, {"library": request.library, "strategy": request.strategy}, by)
    clock.lap("search")
    patches, left = blocks.patches()
    patching.write(folder.path, patches, spec, blocks.reads)
    names = [one.name for one in patches]
    proved = proving.prove(subject, names, alone, note, compiled=compiled)
    clock.lap("proof")
    kept = [one for one in patches if one.name in proved.kept]
    patching.write(folder.path, kept, spec, blocks.reads)
    folder.write_text("verdict.json", json.dumps(asdict(proved), indent=2) + "\n")
    summary = report.summary(folder.path, spec, backend, blocks, left, proved) | {
        "train": request.train
    }
    summary |= {"quick_look": look, "seconds": clock.seconds, "stages_s": clock.took}
    _ended(folder, summary)
    return summary


def _ended(folder: RunFolder, summary: dict[str, Any]) -> None:
    """Write the reports; the run is done."""
    folder.write_text("report.md", "\n".join(report.page(summary)) + "\n")
    manifest = json.loads((folder.path / MANIFEST).read_text(encoding="utf-8"))
    folder.write_text("report.html", report.document(summary, manifest))
    folder.append(SUMMARY, summary)
    folder.finish("done")


def _quick_look(
    folder: RunFolder,
    blocks: Blocks,
    subject: proving.Subject,
    spec: str,
    note: Callable[[str], None],
    *,
    compiled: bool,
) -> dict[str, Any] | None:
    """A first figure of the whole model, before the searches take their time; None if no quick composition gains anything."""
    file = folder.path / LOOK
    if not file.exists():
        if not (patches := blocks.quick_patches()):
            return None
        patching.write(folder.path, patches, spec, blocks.reads)
        names = [one.name for one in patches]
        look = proving.quick_look(subject, names, blocks.alone, compiled=compiled)
        note(str(look))
        folder.write_text(LOOK, json.dumps(asdict(look), indent=2) + "\n")
    return dict(json.loads(file.read_text(encoding="utf-8")))


def _call_once(network: Network, call: examples.Call, *, train: bool) -> None:
    args, kwargs = call
    try:
        if train:
            steps.check_trainable(network.model, call)
            return
        with torch.no_grad():
            network.model(*args, **kwargs)
    except UsageError:
        raise
    except Exception as error:  # a model of any kind may raise anything
        what = f"`{network.source.spec}` failed on the example inputs"
        raise fault(what, error, "give inputs that it can be called with: --input") from error


def _profiled(
    folder: RunFolder, model: nn.Module, call: examples.Call, alone: Any, *, train: bool
) -> ModelProfile:
    """The profile, that of an earlier process if there is one."""
    file = folder.path / PROFILE
    if file.exists():
        read = json.loads(file.read_text(encoding="utf-8"))
        if read.get("train", False) != train:
            other = "with" if read.get("train", False) else "without"
            problem = f"the run in `{folder.path}` was begun {other} --train"
            raise UsageError(problem, "ask as before, or choose another --out")
        return ModelProfile(read["ms"], tuple(SubmoduleTime(**part) for part in read["parts"]))
    with alone():
        parts = profile(model, *call)
    folder.write_text(PROFILE, json.dumps({**asdict(parts), "train": train}, indent=1) + "\n")
    return parts


def _alone(device: str) -> Callable[[], Any]:
    """The device without anything else that measures on it."""

    @contextmanager
    def alone() -> Iterator[None]:
        with DeviceLock(of_gpu() if device == "cuda" else of_cpu()).exclusive():
            yield

    return alone


def _notes(quiet: bool) -> Callable[[str], None]:
    return (lambda _: None) if quiet else (lambda text: print(text, file=sys.stderr, flush=True))

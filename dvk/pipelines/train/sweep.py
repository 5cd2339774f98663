"""`dvk train --sweep`: variants of a training, one after the other in one folder, and a table of their results.

    FOLDER/VARIANT/seed_0/     a training run like any other
    FOLDER/comparison.md, .json

A killed sweep resumes with `--resume`: finished trainings are left alone, the current one resumes with its step. A variant that
a guard stops is compared by its last validation, and the table says so.
"""

from __future__ import annotations

import gc
import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dvk.config import Config, changed, restored
from dvk.distributed import launched
from dvk.errors import DvkError, RunFolderError, UsageError
from dvk.pipelines.report.units import many
from dvk.pipelines.train import TrainRequest, comparing, train, validations
from dvk.pipelines.train.ablations import settings_of
from dvk.pipelines.train.comparing import PolicyOutcomes
from dvk.runs import MANIFEST, RunFolder
from dvk.stats.fast_p import TaskOutcome

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class SweepVariant:
    """One column of the experiment: a configuration a seed."""

    name: str
    configs: Mapping[int, Config]


def sweep(file: Path, request: TrainRequest, config: Config) -> dict[str, Any]:
    """Train every variant and compare them.

    Args:
        file: names the variants; see `variants`.
        request: their common request; `out` is the sweep's folder.
        config: the base of their settings.

    Returns:
        run, table (Markdown) and rows (`comparing.compared`).

    Raises:
        UsageError: the file is malformed, or several processes were started.
        RunFolderError: the sweep or a variant was begun with other settings.
        DvkError: nothing could be trained; the first variant's reason.
    """
    if launched() > 1:
        hint = "leave the launcher out, or train each variant by itself: torchrun -m dvk train --ablate …"
        raise UsageError(f"a sweep is one process's, and {launched()} were started", hint)
    wanted = variants(file, config)
    with RunFolder.open(
        request.out,
        command="train-sweep",
        name=file.stem,
        argv=request.argv,
        config=config,
        resume=request.resume,
    ) as run:
        check_resumed(run, wanted, request)
        failed: dict[str, DvkError] = {}
        for variant in wanted:
            for seed, settings in variant.configs.items():
                print(f"{variant.name}, seed {seed}", file=sys.stderr)
                try:
                    train(
                        replace(request, out=folder(run.path, variant.name, seed), resume=True),
                        settings,
                    )
                except DvkError as error:
                    failed[variant.name] = error
                    print(f"{variant.name}, seed {seed} stopped: {error.message}", file=sys.stderr)
                release()
        rows = comparing.compared(arms(run.path, wanted, failed))
        if failed and not any(row["num_tasks"] for row in rows):
            raise next(iter(failed.values()))
        table = comparing.markdown(rows)
        run.write_text("comparison.md", comparison_page(table, request.steps))
        run.write_text(
            "comparison.json", json.dumps({"steps": request.steps, "rows": rows}, indent=2) + "\n"
        )
        run.finish("failed" if failed else "done")
    return {"run": str(run.path), "table": table, "rows": rows}


def variants(file: Path, config: Config) -> list[SweepVariant]:
    """Read a sweep.

    Args:
        file: TOML with `seeds` (default: the configuration's) and tables `variants.NAME`, each with `ablate`, `set` (sections of
            settings) and `seeds`, all optional. The others are compared with the first one.
        config: the base of their settings.

    Raises:
        UsageError: unreadable, an unknown key, ablation or setting, or no variants; validation is off.
    """
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(
            f"cannot read `{file}`: {error}",
            "give a readable TOML file with tables [variants.NAME]",
        ) from None
    _known(content, {"seeds", "variants"}, str(file))
    tables = content.get("variants")
    if (
        not isinstance(tables, dict)
        or not tables
        or not all(isinstance(table, dict) for table in tables.values())
    ):
        raise UsageError(
            f"`{file}` names no variants",
            "write a table [variants.NAME] for each; see `dvk train --help`",
        )
    made = []
    for name, table in tables.items():
        if not _NAME.fullmatch(name):
            raise UsageError(
                f"not a variant's name: `{name}`",
                "use letters, digits, dots, dashes and underscores: it becomes a folder",
            )
        _known(table, {"ablate", "set", "seeds"}, f"variants.{name}")
        seeds = table.get("seeds", content.get("seeds", [config.seed]))
        if not isinstance(seeds, list) or not seeds or not all(type(seed) is int for seed in seeds):
            raise UsageError(f"bad seeds of variant `{name}`: {seeds!r}", "write seeds = [0, 1, 2]")
        ablate = table.get("ablate", [])
        settings = {
            **settings_of([ablate] if isinstance(ablate, str) else ablate),
            **_dotted(table.get("set", {})),
        }
        made.append(
            SweepVariant(
                name,
                {
                    seed: changed(config, {**settings, "seed": seed})
                    for seed in dict.fromkeys(seeds)
                },
            )
        )
    if not all(one.train.validate_every for variant in made for one in variant.configs.values()):
        raise UsageError(
            "a sweep compares validations, and there are none",
            "set train.validate_every to 1 or more",
        )
    return made


def check_resumed(run: RunFolder, wanted: list[SweepVariant], request: TrainRequest) -> None:
    """Check that a resumed sweep has its initial settings.

    Raises:
        RunFolderError: the command line or a begun variant's settings differ.
    """
    common = {
        "steps": request.steps,
        "from": request.start,
        "tasks": str(request.tasks),
        "validation": str(request.validation),
        "library": str(request.library),
        "backend": request.backend,
        "device": request.device,
    }
    path = run.path / "sweep.json"
    if path.exists():
        earlier = json.loads(path.read_text(encoding="utf-8"))
        different = [name for name, value in common.items() if earlier.get(name) != value]
        if different:
            problem = f"this sweep began with other --{', --'.join(different)}"
            raise RunFolderError(
                problem,
                f"give --{different[0]} {earlier.get(different[0])} again, or choose another --out",
            )
    for variant in wanted:
        for seed, settings in variant.configs.items():
            manifest = folder(run.path, variant.name, seed) / MANIFEST
            if manifest.exists() and _differs(manifest, settings):
                raise RunFolderError(
                    f"variant `{variant.name}` began with other settings",
                    "give it another name, or choose another --out",
                )
    run.write_text(path.name, json.dumps(common, indent=2) + "\n")


def _differs(manifest: Path, settings: Config) -> bool:
    """Whether a variant's run began with other settings."""
    began = json.loads(manifest.read_text(encoding="utf-8"))["config"]
    return restored(began) != settings


def folder(home: Path, variant: str, seed: int) -> Path:
    """Folder of a variant's training with a seed."""
    return home / variant / f"seed_{seed}"


def arms(
    home: Path, wanted: list[SweepVariant], failed: Mapping[str, DvkError]
) -> list[PolicyOutcomes]:
    """Every variant's last validation, all seeds together, and last the first variant's initial validation."""
    result = []
    for variant in wanted:
        outcomes: list[TaskOutcome] = []
        steps = []
        for seed in variant.configs:
            step, last = validations.latest(folder(home, variant.name, seed))
            outcomes += last
            steps.append(step)
        validated = f"validated after step {min(steps)}" if min(steps) >= 0 else "not validated"
        remark = (
            f"stopped: {failed[variant.name].message}; {validated}"
            if variant.name in failed
            else ""
        )
        result.append(
            PolicyOutcomes(
                variant.name, outcomes, remark, max(0, min(steps)), tuple(variant.configs)
            )
        )
    before = [
        o
        for seed in wanted[0].configs
        for o in validations.initial(folder(home, wanted[0].name, seed))
    ]
    return [
        *result,
        PolicyOutcomes("before training", before, steps=0, seeds=tuple(wanted[0].configs)),
    ]


def comparison_page(table: str, steps: int) -> str:
    """comparison.md."""
    said = (
        "Validation tasks, greedy, one turn. In brackets 95 % intervals over tasks; tries of several seeds at one task "
        "are averaged first, so the intervals speak of other tasks and not of other trainings. Differences are paired by task."
    )
    return f"# After {many(steps, 'step')}\n\n{table}\n{said}\n"


def release() -> None:
    """Free a model's memory before the next is loaded."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _known(table: Mapping[str, Any], keys: set[str], place: str) -> None:
    unknown = sorted(set(table) - keys)
    if unknown:
        raise UsageError(
            f"unknown key in {place}: `{unknown[0]}`", f"known are {', '.join(sorted(keys))}"
        )


def _dotted(tree: Any, prefix: str = "") -> dict[str, Any]:
    """Nested tables as dotted keys."""
    if not isinstance(tree, dict):
        raise UsageError(f"bad settings in a variant: {tree!r}", "write set.section.key = value")
    result: dict[str, Any] = {}
    for key, value in tree.items():
        dotted = f"{prefix}{key}"
        result.update(
            _dotted(value, f"{dotted}.")
            if isinstance(value, dict) and not prefix
            else {dotted: value}
        )
    return result

"""`dvk sft export`: a run's last checkpoint as a folder for release: half the size, in small files, with a model card.

Works for runs of `dvk sft` and `dvk train`. Weights are rounded to bfloat16; measure the exported folder.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dvk.errors import UsageError
from dvk.pipelines.metrics import FILE
from dvk.pipelines.sft.fit import newest
from dvk.runs import MANIFEST, RunFolder

THRESHOLDS = ("0", "1", "1.2", "1.5", "2")
KEPT = ("made_by", "size")
"""Facts that stay true when a model is trained further."""


def export(
    run: Path, target: Path, measured: Sequence[Path] = (), mean_with: Path | None = None
) -> dict[str, Any]:
    """Write the folder.

    Args:
        run: of `dvk sft` or `dvk train`.
        target: must not exist.
        measured: output of `dvk eval --json` on the folder's model, for the card.
        mean_with: a checkpoint of the same line, e.g. the run's initial model: weights are the mean of both, which keeps
            the run's learning and forgets less of the earlier (Wortsman et al. 2022, arXiv 2109.01903).

    Returns:
        `folder`, `step`, `parameters`, `bytes`.

    Raises:
        UsageError: the run has no checkpoint, a measurement cannot be read, or the other checkpoint is another model.
        RunFolderError: the folder exists.
    """
    checkpoint = newest(run / "checkpoints")
    if checkpoint is None:
        raise UsageError(
            f"`{run}` has no checkpoint",
            "give the --out of a `dvk sft` or `dvk train` that has saved one",
        )
    tables = {path.stem: _summary(path) for path in measured}
    import torch

    from dvk.backbone.hf import write_folder
    from dvk.backbone.loading import load
    from dvk.config import BackboneConfig

    model, tokenizer, card = load(
        str(checkpoint), BackboneConfig(dtype="float32"), torch.device("cpu")
    )
    made, before = recipe(run, checkpoint), card.get("provenance", {})
    if "stages" in before:
        made["went_on_from"] = {k: v for k, v in before.items() if k not in (*KEPT, "measured")}
    if mean_with is not None:
        other, _, theirs = load(
            str(mean_with), BackboneConfig(dtype="float32"), torch.device("cpu")
        )
        average_weights(model, other)
        made["mean_with"] = other_checkpoint(mean_with, theirs)
    provenance = {**{k: before[k] for k in KEPT if k in before}, **made, "measured": tables}
    write_folder(
        target,
        model.to(torch.bfloat16),
        tokenizer,
        {**card, "provenance": provenance} if card else {},
    )
    parameters = sum(p.numel() for p in model.parameters())
    (target / "README.md").write_text(text(target.name, parameters, made, tables), encoding="utf-8")
    return {
        "folder": str(target),
        "step": made["step"],
        "parameters": parameters,
        "bytes": sum(p.stat().st_size for p in target.iterdir()),
    }


def average_weights(model: Any, other: Any) -> None:
    """Set the model's weights to the mean of both models' weights.

    Raises:
        UsageError: their architectures differ.
    """
    mine, theirs = model.state_dict(), other.state_dict()
    if {name: tensor.shape for name, tensor in mine.items()} != {
        name: tensor.shape for name, tensor in theirs.items()
    }:
        problem = "the two checkpoints are not of one model: their weights differ in name or shape"
        raise UsageError(problem, "give what the run started from")
    model.load_state_dict({name: (tensor + theirs[name]) / 2 for name, tensor in mine.items()})


def other_checkpoint(checkpoint: Path, card: Mapping[str, Any]) -> dict[str, Any]:
    """Facts about the other checkpoint; if it lies in its run, from the run, since its card describes the run's start."""
    place = checkpoint.resolve()
    run = place.parent.parent
    if place.match("checkpoints/step_*") and (run / MANIFEST).is_file():
        return recipe(run, place)
    return card.get("provenance", {}) or {"folder": checkpoint.name}


def recipe(run: Path, checkpoint: Path) -> dict[str, Any]:
    """The run's own record: command, seed, step, and the figures of its stages."""
    manifest = json.loads((run / MANIFEST).read_text())
    kept = RunFolder.beside(run)
    stages: dict[str, Any] = {}
    for told in kept.read("summary.jsonl"):
        stages |= {
            name: {
                k: v for k, v in found.items() if k != "checkpoint"
            }  # its path means nothing elsewhere
            for name, found in told.items()
            if isinstance(found, dict) and found
        }
    steps: dict[str, Any] = {}
    for row in kept.read(FILE):
        steps |= {
            name: row[name] for name in ("loss", "held_out_loss", "quality_correct") if name in row
        }
    return {
        "command": manifest["command"],
        "seed": manifest["config"]["seed"],
        "step": int(checkpoint.name.removeprefix("step_")),
        "stages": stages,
        "last": steps,
    }


def _summary(path: Path) -> dict[str, Any]:
    try:
        summary = json.loads(path.read_text())
        return {
            name: summary[name]
            for name in (
                "num_tasks",
                "samples",
                "turns",
                "fast_p",
                "fast_p_interval",
                "geomean_kept",
                "geomean_kept_interval",
            )
        }
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"`{path}` is no evaluation: {error}", "give what `dvk eval … --json` printed"
        ) from None


def text(
    name: str, parameters: int, made: Mapping[str, Any], tables: Mapping[str, Mapping[str, Any]]
) -> str:
    """The model card."""
    lines = [
        "---",
        "library_name: transformers",
        "tags: [dvk, kernels]",
        "---",
        "",
        f"# {name}",
        "",
        f"{parameters / 1e6:.1f} million parameters, made by `dvk {made['command']}` (seed {made['seed']}, step {made['step']:,}); "
        "weights in bfloat16, computed with in float32. It reads the listing of a captured operator graph and writes kernels in "
        "dvk's compact dialect; open it as `nano:FOLDER`.",
        "",
    ]
    for role, words in (
        ("went_on_from", "It went on from another run's weights"),
        ("mean_with", "Weights are the mean of its own and another checkpoint's"),
    ):
        if (other := made.get(role)) is not None:
            which = (
                f" (seed {other['seed']}, step {other['step']:,})"
                if {"seed", "step"} <= other.keys()
                else ""
            )
            lines += [f"{words}{which}.", ""]
    for stage, figures in made["stages"].items():
        lines += _figures(stage, figures)
    if made["last"]:
        lines += _figures("Last figures", made["last"])
    if tables:
        lines += _measured(tables)
    return "\n".join(lines)


def _figures(title: str, figures: Mapping[str, Any]) -> list[str]:
    rows = (f"| {k} | {_shown(v)} |" for k, v in figures.items())
    return [f"## {title}", "", "| | |", "|---|---|", *rows, ""]


def _measured(tables: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """One row an evaluation."""
    lines = [
        "## Measured",
        "",
        "| evaluation | tasks | samples × turns | "
        + " | ".join(f"fast_{t}" for t in THRESHOLDS)
        + " | geometric mean speedup |",
        "|---" * (len(THRESHOLDS) + 4) + "|",
    ]
    for title, found in tables.items():
        ends = {
            t: f" [{e[0]:.0%}–{e[1]:.0%}]" if e else "" for t, e in found["fast_p_interval"].items()
        }
        shares = " | ".join(f"{found['fast_p'][t]:.1%}{ends[t]}" for t in THRESHOLDS)
        kept = found["geomean_kept_interval"]
        lines.append(
            f"| {title} | {found['num_tasks']} | {found['samples']} × {found['turns'] or 'all'} | {shares} | "
            f"{found['geomean_kept']:.2f}"
            + (f" [{kept[0]:.2f}, {kept[1]:.2f}] |" if kept else " |")
        )
    return [
        *lines,
        "",
        "Intervals are 95 % intervals over tasks; speedups are over eager PyTorch.",
        "",
    ]


def _shown(value: Any) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4g}" if isinstance(value, float) else str(value).replace("|", "\\|")

"""What came of a model: the summary that `--json` prints, its lines for people, and a page in Markdown and HTML."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dvk.api.network.blocks import Blocks
from dvk.api.network.proving import WRONG, Proved
from dvk.pipelines.report import templates
from dvk.records import Interval
from dvk.speedups import interval as interval_of
from dvk.speedups import is_noisy, over_baseline

USE = "from patch import apply; apply(model)"


def summary(
    folder: Path, spec: str, backend: str, blocks: Blocks, left: Mapping[str, str], proved: Proved
) -> dict[str, Any]:
    """Return status, figures, and a row for each kind of block; times in milliseconds, shares of the model's time."""
    claim = proved.claim
    speedup = claim["speedup"] if claim else None
    outcome = status(proved)
    over = proved.over_compile
    first = proved.timed[0] if proved.timed else None
    faster, rows = outcome == "faster", _rows(blocks, left, proved)
    return {
        "status": outcome,
        "reason": None if faster else proved.why or "no block was made faster",
        "model": spec,
        "backend": backend,
        "speedup": speedup and speedup["value"],
        "speedup_lo": speedup and speedup["lo"],
        "speedup_hi": speedup and speedup["hi"],
        "baselines": {
            "eager": _baseline(speedup, first.original_ms) if first else None,
            **({"compile": _baseline(over, first.compile_ms)} if over and first else {}),
        },
        "ms": blocks.profile.ms,
        "share_patched": sum(row["share"] * len(row["patched"]) / row["instances"] for row in rows),
        "blocks": rows,
        "left": dict(left) | proved.idle,
        "error": max(one.error for one in proved.checked) if proved.kept else None,
        "own_error": max(one.own for one in proved.checked) if proved.kept else None,
        "truth": next((one.truth for one in proved.checked), None),
        "no_truth": next((one.untrue for one in proved.checked if one.untrue), None),
        "patch": str(folder / "patch") if proved.kept else None,
        "use": USE if proved.kept else None,
        "run": str(folder),
    }


def status(proved: Proved) -> str:
    """Return `faster`, `no_speedup`, `too_noisy`, or `failed` if every drop-in made the outputs wrong."""
    if proved.claim is None:
        return (
            "failed"
            if any(why.startswith(WRONG) for why in proved.dropped.values())
            else "no_speedup"
        )
    if proved.claim["holds"]:
        return "faster"
    control = Interval(**proved.claim["control"])
    return "too_noisy" if is_noisy(control) else "no_speedup"


def _baseline(found: Mapping[str, float] | None, ms: float | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {"ms": ms, "speedup": found["value"], "lo": found["lo"], "hi": found["hi"]}


def _rows(blocks: Blocks, left: Mapping[str, str], proved: Proved) -> list[dict[str, Any]]:
    """A row for each kind of block that was looked at, most time first."""
    taken = {group.name: paths for group, paths in blocks.chosen()}
    rows = []
    for group in blocks.groups:
        tried, searched = blocks.tried.get(group.name), blocks.searched.get(group.name)
        if tried is None and searched is None:
            continue
        patched = [
            path
            for path in taken.get(group.name, ())
            if group.name in proved.kept and path not in left and path not in proved.idle
        ]
        result = searched.result if searched is not None else None
        alone = searched.measured if searched is not None else None
        rows.append(
            {
                "name": group.name,
                "class": group.kind,
                "inputs": group.inputs,
                "instances": len(group.paths),
                "share": group.share,
                "ms": group.ms,
                "tried": tried.gain if tried else None,
                "operators_left": tried.left if tried else None,
                "speedup": alone and alone["speedup"],
                "lo": alone and alone["lo"],
                "hi": alone and alone["hi"],
                "patched": patched,
                "judged": alone is not None,
                "why": "" if patched else _why(group.name, blocks, taken, proved),
                "run": str(result.run) if result is not None else None,
            }
        )
    return rows


def _why(name: str, blocks: Blocks, taken: Mapping[str, Any], proved: Proved) -> str:
    """Why a block's modules compute as before."""
    tried, searched = blocks.tried.get(name), blocks.searched.get(name)
    if name in proved.dropped:
        return proved.dropped[name]
    if searched is not None and searched.why:
        return searched.why
    if name in taken:
        return "its kernels do not fit how the model calls it"
    if tried is not None and tried.why:
        return tried.why
    return "a block around it, or the blocks inside it, save more"


# ---------------------------------------------------------------- for people


def headline(found: Mapping[str, Any]) -> str:
    """Return the result in one sentence."""
    if found["status"] != "faster":
        return f"the model is not proved faster ({found['status']}): {found['reason']}"
    said = [
        over_baseline(one, "faster than eager" if name == "eager" else f"over torch.{name}")
        for name, row in found["baselines"].items()
        if row and (one := interval_of(row))
    ]
    step = ", forward and backward together" if found.get("train") else ""
    return f"the whole model is {', '.join(said)}{step}"


def lines(found: Mapping[str, Any]) -> list[str]:
    """Return the outcome for people."""
    told = [headline(found)]
    for row in found["blocks"]:
        head = f"{row['name']} ({row['instances']} of them, {row['share']:.0%} of the time)"
        if row["patched"]:
            alone = (
                f"{row['speedup']:.2f}x alone in the search"
                if row["speedup"]
                else "its quick composition"
            )
            told.append(f"  {head}: {alone}, {len(row['patched'])} patched")
        else:
            told.append(f"  {head}: left, {row['why']}")
    for path, why in list(found["left"].items())[:8]:
        told.append(f"  {path}: left, {why}")
    if found["patch"]:
        told.append(f"patch:  {found['patch']}  ({found['use']}; {fused_when(found)})")
    told.append(f"report: {found['run']}/report.html")
    return told


def fused_when(found: Mapping[str, Any]) -> str:
    """Say which calls run the kernels."""
    return "fused with gradients, too" if found.get("train") else "fused under torch.no_grad()"


def page(found: Mapping[str, Any]) -> list[str]:
    """Return the report in Markdown."""
    told = [
        f"# {found['model']}",
        "",
        headline(found) + ".",
        "",
        "| block | instances | share of time | quick gain | gain alone | patched | left, and why |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in found["blocks"]:
        quick = f"{row['tried']:.2f}x" if row["tried"] else ""
        alone = f"{row['speedup']:.2f}x" if row["speedup"] else ""
        told.append(
            f"| {row['name']} | {row['instances']} | {row['share']:.0%} | {quick} | {alone} | {len(row['patched'])} | {row['why']} |"
        )
    what = "outputs and gradients" if found.get("train") else "outputs"
    if found["error"] is not None:
        told += [
            "",
            f"Typical error of the {what} against {found['truth']}: {found['error']:.1e}, the original's {found['own_error']:.1e}.",
        ]
    if found["no_truth"]:
        told += ["", f"The {what} were compared with the original's: {found['no_truth']}."]
    if found["patch"]:
        told += ["", "```python", found["use"], "```"]
    return told


def document(found: Mapping[str, Any], manifest: Mapping[str, Any]) -> str:
    """Return the report as an HTML page; blocks that were searched link to their own."""
    folder = Path(found["run"])
    blocks = [{**row, "page": _page_of(row, folder)} for row in found["blocks"]]
    heading = headline(found)
    return templates.render(
        "model",
        manifest,
        title=f"{found['model']}: {heading}",
        heading=heading[0].upper() + heading[1:],
        found={**found, "blocks": blocks},
    )


def _page_of(row: Mapping[str, Any], folder: Path) -> str | None:
    """The report of a block's search, from the folder of the model's run."""
    run = row["run"] and Path(row["run"])
    return f"{run.relative_to(folder)}/report.html" if run and run.is_relative_to(folder) else None

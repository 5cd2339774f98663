"""Run `dvk optimize` over folders of tasks and print one table: speedups over eager and torch.compile, by kind.

    python -m tests.benchmarks.spine data/tasks/examples data/tasks/spine --budget-s 12 --gpus 4 --out bench

Each GPU gets a separate process; with `--gpus 0` the CPU is used. Rows go to OUT/rows.jsonl as they
end, and a second start resumes with the missing ones. Not a test: nothing here is asserted.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

BYTES = {
    "float64": 8,
    "int64": 8,
    "float32": 4,
    "int32": 4,
    "float16": 2,
    "bfloat16": 2,
    "int16": 2,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--budget-s", type=float, default=12.0)
    parser.add_argument("--gpus", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("bench"))
    parser.add_argument("--only", default="")
    parser.add_argument("--shard", default="")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument(
        "--stop-s", type=float, default=1e9, help="begin no module after so many seconds"
    )
    options = parser.parse_args()
    files = [
        f
        for folder in options.folders
        for f in sorted(folder.glob("*.py"))
        if options.only in f.stem
    ]
    options.out.mkdir(parents=True, exist_ok=True)
    if options.shard:
        number, count = map(int, options.shard.split("/"))
        work(files[number::count], options)
        return
    count = max(1, options.gpus)
    shards = [
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.benchmarks.spine",
                *sys.argv[1:],
                "--shard",
                f"{i}/{count}",
            ],
            env={**os.environ, **({"CUDA_VISIBLE_DEVICES": str(i)} if options.gpus else {})},
        )
        for i in range(count)
    ]
    for shard in shards:
        shard.wait()
    report(options.out)


def work(files: list[Path], options: argparse.Namespace) -> None:
    from dvk.config import load
    from dvk.errors import DvkError
    from dvk.pipelines.optimize import optimize
    from dvk.pipelines.optimize.request import OptimizeRequest

    rows = options.out / "rows.jsonl"
    done = (
        {json.loads(line)["name"] for line in rows.read_text().splitlines()}
        if rows.exists()
        else set()
    )
    started = time.monotonic()
    for path in files:
        if path.stem in done or time.monotonic() - started > options.stop_s:
            continue
        began = time.monotonic()
        device = "cuda" if options.gpus else "cpu"
        request = OptimizeRequest(
            str(path),
            device=device,
            baselines=() if options.no_compile else ("compile",),
            out=options.out / "runs" / path.stem,
            resume=True,
            quiet=True,
        )
        row: dict[str, Any] = {"name": path.stem}
        try:
            summary = optimize(request, load(None, (), {"optimize.budget_s": options.budget_s}))
            turns = [
                json.loads(line)
                for line in (options.out / "runs" / path.stem / "turns.jsonl")
                .read_text()
                .splitlines()
            ]
            row |= {
                k: summary[k]
                for k in (
                    "status",
                    "speedup",
                    "speedup_lo",
                    "speedup_hi",
                    "baselines",
                    "title",
                    "recipes",
                    "reason",
                    "num_candidates",
                )
            }
            row["verdicts"] = {
                s: sum(t["verdict"]["status"] == s for t in turns)
                for s in {t["verdict"]["status"] for t in turns}
            }
            row["errors"] = [t["verdict"]["error"][:300] for t in turns if t["verdict"]["error"]][
                :3
            ]
            row["bytes"] = task_bytes(options.out / "runs" / path.stem)
            winner = [
                t for t in turns if t["verdict"]["tier"] == "claim" and t["verdict"]["timing"]
            ]
            row["ms"] = winner[-1]["verdict"]["timing"]["candidate_ms"] if winner else None
            row["schedule"] = winner[-1]["candidate"]["schedule"] if winner else None
        except DvkError as error:
            row |= {"status": "error", "reason": f"{error.message}"[:500]}
        except Exception:  # noqa: BLE001 - one broken module must not end the table
            row |= {"status": "error", "reason": traceback.format_exc()[-800:]}
        row["seconds"] = round(time.monotonic() - began, 1)
        with rows.open("a") as out:
            out.write(json.dumps(row) + "\n")
        print(line(row), file=sys.stderr, flush=True)


def task_bytes(run: Path) -> int:
    """Bytes of the task's inputs and outputs: what must move at least."""
    task = json.loads((run / "task.jsonl").read_text().splitlines()[0])
    return sum(
        math.prod(t["shape"]) * BYTES.get(t["dtype"], 1)
        for t in (*task["inputs"], *task["outputs"])
    )


def line(row: dict[str, Any]) -> str:
    compiled = (row.get("baselines") or {}).get("compile")
    eager = (
        f"{row['speedup']:.2f} [{row['speedup_lo']:.2f}, {row['speedup_hi']:.2f}]"
        if row.get("speedup")
        else "–"
    )
    over = (
        f"{compiled['speedup']:.2f} [{compiled['lo']:.2f}, {compiled['hi']:.2f}]"
        if compiled
        else "–"
    )
    ms = f"{row['ms']:.3f}" if row.get("ms") else "–"
    return (
        f"{row['name']:36s} {row['status']:10s} eager {eager:22s} compile {over:22s} {ms:>9s} ms {row['seconds']:6.1f} s "
        f"{row.get('title') or row.get('reason') or ''} {row.get('verdicts', '')} {row.get('errors') or ''}"
    )[:360]


def report(out: Path) -> None:
    rows = [json.loads(text) for text in (out / "rows.jsonl").read_text().splitlines()]
    for row in sorted(rows, key=lambda r: r["name"]):
        print(line(row))
    kinds = {"single": [], "pair": [], "chain": [], "example": []}  # type: dict[str, list[dict[str, Any]]]
    for row in rows:
        kinds.get(row["name"].split("_")[0], kinds["example"]).append(row)
    for kind, group in [
        *kinds.items(),
        ("singles and pairs", kinds["single"] + kinds["pair"]),
        ("all", rows),
    ]:
        if group:
            print(
                f"\n{kind}: {len(group)} modules, {sum(r['status'] in ('faster', 'no_speedup') for r in group)} correct or honest, "
                f"median {sorted(r['seconds'] for r in group)[len(group) // 2]:.0f} s a module"
            )
            print("  over eager:   " + fast(group, lambda r: r.get("speedup")))
            print(
                "  over compile: "
                + fast(
                    group,
                    lambda r: ((r.get("baselines") or {}).get("compile") or {}).get("speedup"),
                )
            )


def fast(group: list[dict[str, Any]], get: Any) -> str:
    values = [get(r) for r in group]
    known = [v for v in values if v]
    shares = "  ".join(
        f"fast_{p} {sum((v or 0) > p for v in values) / len(values):.0%}" for p in (1, 1.2, 1.5, 2)
    )
    mean = math.exp(sum(math.log(v) for v in known) / len(known)) if known else float("nan")
    return f"{shares}  geometric mean {mean:.2f} of {len(known)}"


if __name__ == "__main__":
    main()

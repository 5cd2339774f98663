"""`dvk skills grow|worth`: a library and a table of measured plans. Parses options, calls the pipeline, prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from dvk.cli.help import HelpApp
from dvk.cli.skills.options import Json, LibraryPath, console

app = HelpApp()

Table = Annotated[
    Path, typer.Argument(metavar="TABLE", help="Table of measured plans, from `dvk measure`.")
]
MOST = 20
"""Skills shown to people; programs get all."""


@app.command()
def grow(
    table: Table,
    least: Annotated[
        int, typer.Option("--least", min=2, help="Tasks that a gain must come from.")
    ] = 6,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be admitted.")
    ] = False,
    evidence: Annotated[
        Path | None,
        typer.Option(
            help="Also write what the table says of each skill with two tasks or more, a line of JSON each."
        ),
    ] = None,
    as_json: Json = False,
    library: LibraryPath = None,
) -> None:
    """Grow the library from measured plans: each recipe is tested on all tasks, what is mined on half of them on the other half.

    Admitted is what gains more than 2 % there by its lower bound, false discoveries controlled. Skills that are there get evidence, and
    grown ones that lose are retired.
    """
    from dvk.pipelines.grow import grow as run

    told = run(table, library, least, dry=dry_run)
    if evidence is not None:
        found = (one for group in told["growth"] for one in group["evidence"])
        lines = (json.dumps(one) for one in found if one["lo"] is not None)
        evidence.write_text("".join(f"{line}\n" for line in lines))
    if as_json:
        print(json.dumps(told, indent=2))
        return
    for one in told["growth"]:
        refused = {k: v for k, v in one.items() if k.startswith("refused")}
        print(f"{one['backend']} on {one['machine']}, {one['tasks']} tasks:")
        print(f"  {one['proposed']} proposed, {one['admitted']} admitted")
        for why, number in refused.items():
            print(f"  {number} {why}")
        print(f"  {one['measured']} skills of the library have evidence from it")
        for name, why in one["retired"].items():
            print(f"  retired {name}: {why}")
        _print_gains(one["skills"])


@app.command()
def worth(table: Table, as_json: Json = False, library: LibraryPath = None) -> None:
    """Show what a table of measured plans says of each skill, and how well evidence chooses among them.

    A gain is the speedup of plans with the skill's change alone over the default plan. Evidence is
    what `dvk skills grow` put into the library.
    """
    from dvk.config import Config
    from dvk.pipelines.grow import worth as run

    told = run(table, library, Config())
    if as_json:
        print(json.dumps(told, indent=2))
        return
    for one in told["groups"]:
        print(f"{one['backend']} on {one['machine']}, {one['tasks']} tasks:")
        for way, found in one["selection"].items():
            print(
                f"  chosen by {way}: precision {_share(found['precision'])} of {found['chosen']} skills, recall "
                f"{_share(found['recall'])} of {found['paying']} tasks on which a skill pays"
            )
        _print_gains([{**skill, "tasks": skill["num_tasks"]} for skill in one["skills"]])


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _print_gains(skills: list[dict[str, Any]]) -> None:
    from rich.table import Column, Table
    from rich.text import Text

    if not skills:
        return
    table = Table(Column("skill", no_wrap=True), "tasks", "gain", "interval", "do")
    for skill in skills[:MOST]:
        ends = "" if skill["lo"] is None else f"{skill['lo']:.2f} to {skill['hi']:.2f}"
        cells = (skill["name"], str(skill["tasks"]), f"{skill['gain']:.3f}", ends, skill["do"])
        table.add_row(*(Text(cell) for cell in cells))
    console().print(table)
    if len(skills) > MOST:
        print(f"{len(skills) - MOST} more: --json shows all")

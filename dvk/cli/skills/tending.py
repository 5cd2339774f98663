"""`dvk skills stats|diff|merge|prune|verify|history|restore`: maintain the library. Parses options, calls `skills.Library`, prints."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from dvk.cli.help import HelpApp
from dvk.cli.skills.options import Json, LibraryPath, console

app = HelpApp()

Replace = Annotated[
    bool,
    typer.Option(
        "--replace", help="Where both have a skill of one name with different texts, take FROM's."
    ),
]
Conf = Annotated[Path | None, typer.Option("--config", help="TOML file with settings.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="One setting: section.key=value, e.g. library.max_skills=100."),
]
MOST = 30
"""Rows of usage shown to people; programs get all."""


@app.command()
def stats(as_json: Json = False, library: LibraryPath = None) -> None:
    """Count what the library holds, and what using its skills came to.

    A gain is a difference of log-speedups against playing without skills, old trials counting less.
    """
    from dvk.skills import Library, grooming

    with Library.open(library) as skills:
        counts = {**skills.stats(), "usage": grooming.usage_table(skills)}
    if as_json:
        print(json.dumps(counts, indent=2))
        return
    _print_table((), _counted(counts))
    if counts["usage"]:
        columns = (
            "skill",
            "role",
            "offered",
            "given",
            "won",
            "trials",
            "gain",
            "interval",
            "last step",
        )
        _print_table(columns, map(_used, counts["usage"][:MOST]))
        if len(counts["usage"]) > MOST:
            print(f"{len(counts['usage']) - MOST} more rows: --json shows all", file=sys.stderr)


@app.command()
def diff(
    one: Annotated[Path, typer.Argument(metavar="A.db", help="A library.")],
    other: Annotated[Path, typer.Argument(metavar="B.db", help="Another.")],
    as_json: Json = False,
) -> None:
    """Tell two libraries apart: what B has more than A, what it lacks, and which skills differ in what."""
    from dvk.skills import Library, merging

    with Library.open(one) as first, Library.open(other) as second:
        changes = merging.diff(first, second)
    if as_json:
        print(json.dumps(asdict(changes), indent=2))
        return
    for sign, names in (("+", changes.added), ("-", changes.removed)):
        for name in names:
            print(f"{sign} {name}")
    for name, fields in changes.changed.items():
        print(f"~ {name}: {', '.join(fields)}")
    if not (changes.added or changes.removed or changes.changed):
        print("no difference")


@app.command()
def merge(
    into: Annotated[
        Path,
        typer.Argument(
            metavar="INTO", help="The library that is written; made where there is none."
        ),
    ],
    source: Annotated[
        Path, typer.Argument(metavar="FROM", help="The library that is read, e.g. a run's.")
    ],
    replace: Replace = False,
    as_json: Json = False,
) -> None:
    """Bring the skills of one library into another: new ones, and evidence about those that are there already."""
    from dvk.errors import UsageError
    from dvk.skills import Library, merging

    if into.exists() and source.exists() and into.samefile(source):
        raise UsageError(
            f"`{into}` and `{source}` are the same library",
            "name two: INTO is written, FROM is read",
        )
    with Library.open(source) as theirs, Library.open(into, create=True) as mine:
        done = merging.bring(mine, theirs, replace=replace)
    if as_json:
        print(json.dumps(asdict(done), indent=2))
        return
    print(
        ", ".join(
            f"{len(names)} {label}"
            for label, names in asdict(done).items()
            if names or label == "added"
        )
    )
    for name in done.kept:
        print(f"kept another text of {name}; --replace takes FROM's", file=sys.stderr)


@app.command()
def prune(
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be done.")
    ] = False,
    as_json: Json = False,
    library: LibraryPath = None,
    config: Conf = None,
    settings: Settings = None,
) -> None:
    """Merge near-duplicates, retire skills that stopped helping, make room, and note which combine or conflict.

    What is taken away can be brought back with `dvk skills restore`.
    """
    from dvk import config as configuration
    from dvk.skills import Library, grooming

    learned = configuration.load(config, settings or []).library
    with Library.open(library) as skills:
        before, changes = len(skills), grooming.groom(skills, learned, dry=dry_run)
    if as_json:
        done = [
            {"kind": change.kind, "skill": change.skill, "into": change.into, "why": change.why}
            for change in changes
        ]
        print(json.dumps({"num_skills": before, "applied": not dry_run, "changes": done}, indent=2))
    elif not changes:
        print(f"nothing to do among {before} skills")
    else:
        verbs = {"merged": "merge", "retired": "retire", "changed": "change"} if dry_run else {}
        rows = [
            (verbs.get(c.kind, c.kind), c.skill, f"into {c.into}: {c.why}" if c.into else c.why)
            for c in changes
        ]
        _print_table(("what", "skill", "why"), rows)


@app.command()
def history(
    name: Annotated[str, typer.Argument(help="The skill's name; also of one that is gone.")],
    changes: Annotated[
        bool, typer.Option("--changes", help="Only what changed it, not when it was played with.")
    ] = False,
    as_json: Json = False,
    library: LibraryPath = None,
) -> None:
    """Show what happened to one skill: admitted, given, changed, merged, retired."""
    from dvk.cli.skills.event_words import in_words
    from dvk.skills import Library
    from dvk.skills.events import CHANGES

    with Library.open(library) as skills:
        events = skills.events(name, CHANGES if changes else None)
        if not events:
            skills.get(name)  # there is none and never was
    if as_json:
        print(json.dumps([asdict(event) for event in events], indent=2))
        return
    rows = [
        (
            str(e.step),
            e.time.replace("+00:00", ""),
            e.kind,
            e.skill if e.skill != name else "",
            in_words(e),
        )
        for e in events
    ]
    columns = (
        ("step", "time (UTC)", "what", "of", "details")
        if any(row[3] for row in rows)
        else ("step", "time (UTC)", "what", "details")
    )
    _print_table(columns, rows if len(columns) == 5 else [(*row[:3], row[4]) for row in rows])


@app.command()
def verify(as_json: Json = False, library: LibraryPath = None) -> None:
    """Check that the library is whole: file, index, history, and each skill's form and recipe.

    Exits with 1 when something is wrong. Executes nothing.
    """
    from dvk.composer import RECIPES
    from dvk.skills import Library, soundness

    with Library.open(library) as skills:
        number, faults = len(skills), soundness.faults(skills, RECIPES)
    if as_json:
        print(json.dumps({"num_skills": number, "faults": faults}, indent=2))
    else:
        print("\n".join(faults) if faults else f"{number} skills, nothing wrong")
    if faults:
        raise typer.Exit(1)


@app.command()
def restore(
    name: Annotated[str, typer.Argument(help="The name of a skill that is gone.")],
    library: LibraryPath = None,
) -> None:
    """Put back a skill that was removed, retired or merged into another."""
    from dvk.skills import Library

    with Library.open(library) as skills:
        skills.restore(name)
    print(f"restored {name}")


def _counted(counts: dict[str, Any]) -> list[tuple[str, ...]]:
    def several(values: dict[str, int]) -> str:
        return ", ".join(f"{name} {number}" for name, number in list(values.items())[:12])

    return [
        ("library", counts["path"]),
        ("skills", str(counts["num_skills"])),
        ("from seeds, unedited", str(counts["num_seeds"])),
        ("with a recipe", str(counts["num_recipes"])),
        ("with measurements", str(counts["num_measured"])),
        ("size", f"{counts['size_bytes'] / 2**20:.1f} MiB"),
        ("scopes", several(counts["scopes"])),
        ("commonest tags", several(counts["tags"])),
        ("events", several(counts["events"])),
    ]


def _used(use: dict[str, Any]) -> tuple[str, ...]:
    gain = "" if use["gain"] is None else f"{use['gain']:+.3f}"
    ends = "" if use["lo"] is None else f"{use['lo']:+.3f} to {use['hi']:+.3f}"
    last = "" if use["last_used"] is None else str(use["last_used"])
    return (
        use["skill"],
        use["role"],
        str(use["offered"] or ""),
        str(use["given"]),
        str(use["won"]),
        str(use["trials"]),
        gain,
        ends,
        last,
    )


def _print_table(columns: Sequence[str], rows: Any) -> None:
    from rich.table import Column, Table
    from rich.text import Text

    names = [Column(column, no_wrap=column in ("skill", "step", "what")) for column in columns]
    table = Table(*names, show_header=bool(columns))
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console().print(table)

"""`dvk skills`: search and maintain the library of kernel-writing knowledge. Parses options, calls `skills.Library`, prints."""

from __future__ import annotations

import difflib
import json
import re
import sys
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dvk.cli.help import HelpApp
from dvk.cli.skills import growing, tending
from dvk.cli.skills.options import Json, LibraryPath, console
from dvk.errors import UsageError

if TYPE_CHECKING:
    from dvk.records import Skill

app = HelpApp(help="Search and tend the library of kernel-writing knowledge.", no_args_is_help=True)
app.add_typer(tending.app)
app.add_typer(growing.app)

Replace = Annotated[
    bool, typer.Option("--replace", help="Replace what exists under the same name.")
]


class Format(str, Enum):
    """File formats of exported skills."""

    markdown = "markdown"
    jsonl = "jsonl"
    snapshot = "snapshot"


# Text that looks like an option (`-O3`, `--use_fast_math`) is text to search for.
@app.command(context_settings={"ignore_unknown_options": True})
def search(
    text: Annotated[
        list[str],
        typer.Argument(help="What to look for: a question, or any words and identifiers."),
    ],
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=1_000_000, help="Skills to show at most.")
    ] = 10,
    as_json: Json = False,
    library: LibraryPath = None,
) -> None:
    """Find the skills that answer TEXT best; several names of one thing (GEMM, matmul) count as one.

    The score is minus SQLite's weighted bm25() times the share of the question that the skill answers: higher is better, comparable
    within one answer only. A skill that answers less than three tenths of the question is not shown.
    """
    from dvk.skills import Library

    _refuse_misspelt(text, ("--limit", "--json", "--library", "--help"))
    with Library.open(library) as skills:
        hits = skills.ask(" ".join(text), limit)
    if not hits:
        print("no skill matches", file=sys.stderr)
    if as_json:
        rows = [
            {
                "name": hit.name,
                "score": hit.score,
                "description": hit.description,
                "scope": hit.row["scope"],
                "tags": list(hit.tags),
                "recipe": hit.row["recipe"],
                "when": hit.row["when"],
                "do": hit.row["do"],
                "snippet": hit.snippet,
            }
            for hit in hits
        ]
        print(json.dumps(rows, indent=2))
    elif hits:
        from rich.table import Column, Table
        from rich.text import Text

        table = Table("score", Column("skill", no_wrap=True), "what it says", show_lines=True)
        for hit in hits:
            says = Text(hit.description)
            if hit.row["do"]:
                says.append(f"\nwhen {hit.row['when']}: {hit.row['do']}", style="dim")
            if hit.snippet:
                says.append("\n").append_text(_marked(hit.snippet))
            table.add_row(f"{hit.score:.3g}", Text(hit.name, style="bold"), says)
        console().print(table)


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="The skill's name.")],
    as_json: Json = False,
    library: LibraryPath = None,
) -> None:
    """Show one skill."""
    from dvk.skills import Library, markdown

    with Library.open(library) as skills:
        skill = skills.get(name)
    if as_json:
        print(json.dumps(skill.model_dump(mode="json"), indent=2))
    elif not sys.stdout.isatty():
        print(markdown.render(skill), end="")
    else:
        from rich.markdown import Markdown
        from rich.text import Text

        out = console()
        out.print(Text(skill.name, style="bold"))
        out.print(Text(skill.description))
        for label, value in _facts(skill):
            out.print(Text(f"{label}: {value}", style="dim"))
        out.print(Markdown(skill.body))


@app.command("list")
def list_command(
    scope: Annotated[
        str | None, typer.Option(help="Only this scope and what lies below it.")
    ] = None,
    tag: Annotated[str | None, typer.Option(help="Only skills with this tag.")] = None,
    as_json: Json = False,
    library: LibraryPath = None,
) -> None:
    """List all skills by name."""
    from dvk.skills import Library

    with Library.open(library) as skills:
        found = skills.list(scope, tag)
    if as_json:
        fields = {"name", "description", "scope", "tags", "recipe", "when", "do"}
        print(
            json.dumps([skill.model_dump(mode="json", include=fields) for skill in found], indent=2)
        )
        return
    if not found:
        print("no skills", file=sys.stderr)
        return
    from rich.table import Column, Table
    from rich.text import Text

    table = Table(Column("skill", no_wrap=True), "scope", "recipe", "tags")
    for skill in found:
        cells = (skill.name, skill.scope, skill.recipe or "", ", ".join(skill.tags))
        table.add_row(*(Text(cell) for cell in cells))
    console().print(table)


@app.command()
def add(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE.md...", help="Markdown files, one skill each.")
    ],
    replace: Replace = False,
    library: LibraryPath = None,
) -> None:
    """Add skills from Markdown files: all of them, or none when one is malformed or exists."""
    from dvk.composer import RECIPES
    from dvk.skills import exchange

    done = exchange.add(library, files, replace, RECIPES)
    for name in done.added:
        print(f"added {name}")
    for name in done.replaced:
        print(f"replaced {name}")
    for name in done.kept:
        print(f"kept {name}, which is the same")


@app.command()
def remove(
    name: Annotated[str, typer.Argument(help="The skill's name.")], library: LibraryPath = None
) -> None:
    """Remove one skill."""
    from dvk.skills import Library

    with Library.open(library) as skills:
        skills.remove(name)
    print(f"removed {name}")


@app.command("import")
def import_command(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="FOLDER|FILE.jsonl",
            help="Markdown skills, JSON lines, or a daVinci-kernel checkpoint or run.",
        ),
    ],
    replace: Replace = False,
    library: LibraryPath = None,
) -> None:
    """Import skills; those that exist are kept, and what cannot be read is reported and left out."""
    from dvk.skills import exchange

    done = exchange.import_from(library, source, replace)
    for problem in done.problems:
        print(f"skipped: {problem}", file=sys.stderr)
    counts = {
        "added": done.added,
        "replaced": done.replaced,
        "kept": done.kept,
        "skipped": done.problems,
    }
    print(
        ", ".join(
            f"{len(what)} {label}" for label, what in counts.items() if what or label == "added"
        )
    )


@app.command("export")
def export_command(
    path: Annotated[Path, typer.Argument(help="A folder for Markdown, or a .jsonl file.")],
    form: Annotated[
        Format | None,
        typer.Option(
            "--format",
            help="By default what PATH ends in, else markdown; snapshot: FOLDER/global_step_N.jsonl.",
        ),
    ] = None,
    step: Annotated[int, typer.Option(min=0, help="The N of a snapshot.")] = 0,
    replace: Replace = False,
    library: LibraryPath = None,
) -> None:
    """Write all skills to a folder of Markdown files, or to JSON lines in daVinci-kernel's format, also as its training's snapshot."""
    from dvk.skills import exchange

    count = exchange.export_to(library, path, form.value if form else None, replace, step)
    print(f"exported {count} skills to {path}")


def _facts(skill: Skill) -> list[tuple[str, str]]:
    facts = [
        ("scope", skill.scope),
        ("tags", ", ".join(skill.tags)),
        ("recipe", skill.recipe or ""),
        ("when", skill.when or ""),
        ("do", skill.do or ""),
    ]
    learned = skill.provenance.get("learned", {})
    for kind, names in skill.relations.items():
        facts.append(
            (
                kind,
                ", ".join(
                    f"{name} (learned)" if name in learned.get(kind, ()) else name for name in names
                ),
            )
        )
    return [(label, value) for label, value in facts if value]


def _marked(snippet: str) -> Any:
    """Print the snippet dimmed, with its «hits» bold; the marks stay, since colour alone carries no meaning."""
    from rich.text import Text

    text = Text()
    for part in re.split(r"(«[^«»]*»)", snippet):
        text.append(part, style="bold" if part.startswith("«") else "dim")
    return text


def _refuse_misspelt(words: list[str], options: tuple[str, ...]) -> None:
    for word in words:
        if word.startswith("--") and (
            near := difflib.get_close_matches(word.partition("=")[0], options, 1, 0.75)
        ):
            hint = f"did you mean `{near[0]}`? After `--` everything is text to search for"
            raise UsageError(f"unknown option: `{word}`", hint)

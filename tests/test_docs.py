"""The pages are correct: every command exists, every example parses, every link resolves."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from packaging.requirements import Requirement

import dvk
from dvk.cli import app
from dvk.cli.help import DefaultGroup
from dvk.pipelines.doctor import settings
from tests.cli import warm

TOP = Path(__file__).resolve().parent.parent
PAGES = {
    path.relative_to(TOP).as_posix(): path.read_text(encoding="utf-8")
    for path in (TOP / "README.md", *sorted((TOP / "dvk").rglob("README.md")))
}
README, GUIDE, ARCHITECTURE = PAGES["README.md"], PAGES["dvk/cli/README.md"], PAGES["dvk/README.md"]
PROJECT = (TOP / "pyproject.toml").read_text(encoding="utf-8")
ROOT: Any = typer.main.get_command(app)


def commands(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Every runnable command below `command` with its full name, e.g. `dvk skills search`."""
    if hasattr(command, "commands"):
        for name, inner in command.commands.items():
            yield from commands(inner, f"{path} {name}")
    else:
        yield path, command


COMMANDS = dict(commands(ROOT, "dvk"))


def sh_blocks(text: str) -> list[list[str]]:
    """The lines of each ```sh block, continuation lines joined."""
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S)
    return [block.replace("\\\n", " ").strip().splitlines() for block in blocks]


def dvk_lines() -> list[str]:
    """Every `dvk …` command line that README and the guide show, pipes and redirections cut off."""
    blocks = [*sh_blocks(README), *sh_blocks(GUIDE)]
    lines = [part.strip() for block in blocks for line in block for part in line.split("&&")]
    return list(
        dict.fromkeys(
            re.split(r"\s(?:\||>|#)\s?", line)[0] for line in lines if line.startswith("dvk ")
        )
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_in_the_guide(name: str) -> None:
    assert re.search(rf"\b{name}\b", GUIDE)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_has_help(name: str) -> None:
    command = COMMANDS[name]
    assert command.help
    for parameter in command.params:
        assert getattr(parameter, "help", None), f"{name}: `{parameter.name}` has no help"


@pytest.mark.parametrize("line", dvk_lines())
def test_every_command_line_parses(line: str) -> None:
    command, path = ROOT, "dvk"
    words = shlex.split(line)[1:]
    while hasattr(command, "commands"):
        if command.invoke_without_command and words and words[0].startswith("-"):
            break
        if isinstance(command, DefaultGroup) and words and words[0] not in command.commands:
            words = [next(iter(command.commands)), *words]
        assert words and words[0] in command.commands, f"`{path}` has no command `{words[:1]}`"
        command, path, words = command.commands[words[0]], f"{path} {words[0]}", words[1:]
    command.make_context(path, words)


def test_the_skills_commands_run(tmp_path: Path) -> None:
    """In the guide's order, in an empty folder, with a separate library."""
    lines = [line for block in sh_blocks(GUIDE) for line in block if line.startswith("dvk skills")]
    assert len(lines) >= 8
    for line in lines:
        done = warm.dvk(
            *shlex.split(line)[1:],
            cwd=tmp_path,
            exits=None,
            env={"DVK_HOME": str(tmp_path / "home")},
        )
        assert done.returncode == 0 and done.stdout, f"{line}\n{done.stderr}"


def test_readme_shows_something_to_parse() -> None:
    assert len(dvk_lines()) >= len(COMMANDS) // 2


def test_exactly_two_set_up_commands() -> None:
    section = re.search(r"^## Set up\n(.*?)^## ", README, re.M | re.S)
    assert section
    blocks = sh_blocks(section.group(1))
    assert [len(block) for block in blocks] == [1, 1]
    (first,), (second,) = blocks
    assert "pip install -c constraints.txt -e " in first and re.search(
        r"&& dvk optimize \S+\.py( \S+)*$", first
    )
    assert second.endswith('python -m pytest -q -n 2 -m "not slow and not gpu"')


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    folder = (TOP / page).parent
    links = re.findall(r"\]\((?!https?:)([^)]+)\)", PAGES[page])
    missing = []
    for link in links:
        name, _, anchor = link.partition("#")
        target = folder / name if name else TOP / page
        if not target.exists():
            missing.append(link)
        elif anchor and anchor not in anchors(target.read_text(encoding="utf-8")):
            missing.append(link)
    assert not missing, missing


def anchors(text: str) -> set[str]:
    """Link anchors of a Markdown page's headings."""
    headings = re.findall(r"^#+ (.*)$", text, re.M)
    return {
        re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings
    }


def test_task_files_that_pages_name_exist() -> None:
    named = {
        name
        for text in (README, GUIDE)
        for name in re.findall(r"\bdata/[\w/]+\.(?:py|toml)\b", text)
    }
    assert named and all((TOP / name).exists() for name in named), named


@pytest.mark.parametrize("page", PAGES)
def test_settings_that_pages_name_exist(page: str) -> None:
    known = {row["key"] for row in settings()}
    sections = {key.partition(".")[0] for key in known if "." in key}
    named = {
        name
        for name in re.findall(r"(?<![\w/.])([a-z]+(?:\.[a-z_]+)+)(?=[`= ])", PAGES[page])
        if name.partition(".")[0] in sections
    }
    unknown = {
        name
        for name in named
        if not name.endswith((".md", ".py"))
        and not any(f"{key}.".startswith(f"{name}.") for key in known)
    }
    assert not unknown, unknown


def test_readme_is_short() -> None:
    assert len(README.splitlines()) <= 150


def test_the_layout_is_the_tree() -> None:
    block = re.search(r"^## Layout\n.*?^```\n(.*?)^```", ARCHITECTURE, re.M | re.S)
    assert block
    named = set(re.findall(r"^  (\w+)/", block.group(1), re.M))
    there = {path.parent.name for path in (TOP / "dvk").glob("*/__init__.py")}
    assert named == there


def test_changelog() -> None:
    text = (TOP / "CHANGELOG.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## \[?([^\]\s]+)", text, re.M)
    assert headings[0] == "Unreleased"
    assert re.search(r"^### (Added|Changed|Fixed|Removed)", text, re.M)


def test_version_is_written_once() -> None:
    assert 'path = "dvk/__init__.py"' in PROJECT and not re.search(r"^version\s*=", PROJECT, re.M)
    assert re.fullmatch(r"\d+\.\d+\.\d+", dvk.__version__)


# ---------------------------------------------------------------- constraints

PINS = [
    Requirement(line)
    for line in (TOP / "constraints.txt").read_text(encoding="utf-8").splitlines()
    if line.strip() and not line.startswith("#")
]


def declared() -> list[Requirement]:
    blocks = re.findall(r"^(?:dependencies|dev) = \[(.*?)^\]", PROJECT, re.M | re.S)
    return [
        Requirement(text) for block in blocks for text in re.findall(r'^\s+"(.*)",$', block, re.M)
    ]


def test_constraints_are_exact() -> None:
    for pin in PINS:
        assert re.fullmatch(r"==[^*,]+", str(pin.specifier)), pin
    assert "triton" not in {pin.name for pin in PINS}, (
        "each torch build for GPUs wants its own triton"
    )


@pytest.mark.parametrize("version", ["3.10", "3.11", "3.12", "3.13"])
def test_every_dependency_is_pinned_once_on_every_python(version: str) -> None:
    env = {"python_version": version, "python_full_version": f"{version}.1"}
    active = [pin for pin in PINS if pin.marker is None or pin.marker.evaluate(env)]
    names = [pin.name for pin in active]
    assert len(names) == len(set(names)), "pinned twice"
    by_name = {pin.name: next(iter(pin.specifier)).version for pin in active}
    for requirement in declared():
        if requirement.name != "triton" and (
            requirement.marker is None or requirement.marker.evaluate(env)
        ):
            pinned = by_name.get(requirement.name)
            assert pinned is not None, f"{requirement.name} is not pinned"
            assert requirement.specifier.contains(pinned), f"{requirement} does not admit {pinned}"

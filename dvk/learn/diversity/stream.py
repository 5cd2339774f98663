"""The whole filter: one pass over the examples, a decision about every row, and files that are complete or absent.

    kept.jsonl       the lines that stay, as they came
    rejected.jsonl   {"id", "reason", "detail", "example"} a line
    report.json      coverage before and after, and the key of what went in; written last
    report.md        the same for people
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from dvk.config import Config
from dvk.learn import examples as files
from dvk.learn.diversity import report
from dvk.learn.diversity.decide import VERSION, Progress, decide
from dvk.learn.examples import Example
from dvk.learn.sources import InMemory, OnDisk
from dvk.records import content_hash


@dataclass(frozen=True)
class Outcome:
    """What became of every example, in the order given."""

    kept: list[Example]
    rejected: list[tuple[Example, str, str]]
    """(example, reason, detail)."""
    report: dict[str, Any]


def diversify(
    examples: Iterable[Example], config: Config, known_skills: Collection[str] | None = None, progress: Progress | None = None
) -> Outcome:
    """Filter examples that fit in memory.

    Args:
        known_skills: names that selections may pick; None when no library was given.

    Raises:
        UsageError: a suite folder is missing, or the clustering method unknown.
        MachineError: the method needs a package that is not installed.
    """
    source = InMemory(examples)
    fates, made = decide(source, config, known_skills, progress)
    rejected = [(example, *fate) for example, fate in zip(source, fates) if fate is not None]
    return Outcome([example for example, fate in zip(source, fates) if fate is None], rejected, made)


def run(
    examples_path: Path | Sequence[Path],
    out_folder: Path,
    config: Config,
    known_skills: Collection[str] | None = None,
    progress: Progress | None = None,
    *,
    sifted: bool = False,
    workers: int = 1,
) -> dict[str, Any]:
    """Filter files of examples into a folder; what is finished there for equal input and settings is used again.

    Args:
        examples_path: a file of examples, a folder of them, or several of either.
        known_skills: names that selections may pick; None when no library was given.
        sifted: the files come from `sift`, which has asked everything that can be asked of a row by itself.
        workers: processes that read.

    Returns:
        the report, as in `report.json`.

    Raises:
        UsageError: no examples, a line that is not one, a missing suite folder, or an unknown clustering method.
        MachineError: the method needs a package that is not installed.
    """
    given = [examples_path] if isinstance(examples_path, Path) else examples_path
    paths = [path for one in given for path in files.files(one)]
    key = key_of(paths, config, known_skills, str(VERSION) + (" sifted" if sifted else ""))
    if (made_before := finished(out_folder, key)) is not None:
        return made_before
    source = OnDisk(paths)
    fates, made = decide(source, config, known_skills, progress, sifted=sifted, workers=workers)
    out_folder.mkdir(parents=True, exist_ok=True)
    write_lines(out_folder / "kept.jsonl", (line for line, fate in zip(source.raw(), fates) if fate is None))
    write_lines(out_folder / "rejected.jsonl", (refusal(line, fate) for line, fate in zip(source.raw(), fates) if fate is not None))
    made |= {"key": key, "bytes": {name: (out_folder / name).stat().st_size for name in ("kept.jsonl", "rejected.jsonl")}}
    write_lines(out_folder / "report.md", [report.markdown(made).encode()])
    write_lines(out_folder / "report.json", [json.dumps(made, indent=1, ensure_ascii=False).encode()])
    return made


# ---------------------------------------------------------------- files


def key_of(paths: Sequence[Path], config: Config, known_skills: Collection[str] | None, version: str) -> str:
    """Hash of all that an outcome depends on."""
    contents = []
    suites = [path for folder in config.diversity.suites for path in sorted(Path(folder).rglob("*.py"))]
    for path in [*paths, *suites]:
        digest = sha256()
        with path.open("rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
        contents.append(digest.hexdigest())
    skills = "any" if known_skills is None else json.dumps(sorted(known_skills))
    return content_hash(version, str(config.seed), config.diversity.model_dump_json(), skills, *contents)


def finished(folder: Path, key: str) -> dict[str, Any] | None:
    """The report of a finished run of that key in `folder`."""
    try:
        found = json.loads((folder / "report.json").read_bytes())
        complete = found["key"] == key and all((folder / name).stat().st_size == size for name, size in found["bytes"].items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return dict(found) if complete else None


def refusal(line: bytes, fate: tuple[str, str]) -> bytes:
    """A line of `rejected.jsonl`."""
    head = json.dumps({"id": json.loads(line)["id"], "reason": fate[0], "detail": fate[1]}, ensure_ascii=False).encode()
    return head[:-1] + b', "example": ' + line + b"}"


def write_lines(path: Path, lines: Iterable[bytes]) -> None:
    """Write a whole file, aside and then renamed."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with aside.open("wb") as out:
        for line in lines:
            out.write(line + b"\n")
        out.flush()
        os.fsync(out.fileno())
    os.replace(aside, path)

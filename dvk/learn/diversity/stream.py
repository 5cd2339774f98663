"""The whole filter: one pass over the examples, a decision about every row, and files that are complete or absent.

kept.jsonl       the kept lines, unchanged
rejected.jsonl   {"id", "reason", "detail", "example"} a line
report.json      coverage before and after, and the key of the inputs; written last
report.md        the same as text
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO

from dvk import machine
from dvk.config import Config
from dvk.learn import examples as files
from dvk.learn.diversity import report
from dvk.learn.diversity.decide import VERSION, Progress, decide
from dvk.learn.examples import Example
from dvk.learn.sources import InMemory, OnDisk
from dvk.records import content_hash

PIECE = 1 << 26
"""Bytes of a file hashed as one block."""


@dataclass(frozen=True)
class DiversityResult:
    """The fate of every example, in the order given."""

    kept: list[Example]
    rejected: list[tuple[Example, str, str]]
    """(example, reason, detail)."""
    report: dict[str, Any]


def diversify(
    examples: Iterable[Example],
    config: Config,
    known_skills: Collection[str] | None = None,
    progress: Progress | None = None,
) -> DiversityResult:
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
    return DiversityResult(
        [example for example, fate in zip(source, fates) if fate is None], rejected, made
    )


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
    """Filter files of examples into a folder; finished results for equal input and settings are reused.

    Args:
        examples_path: a file of examples, a folder of them, or several of either.
        known_skills: names that selections may pick; None when no library was given.
        sifted: the files come from `sift`, which has made all tests of single rows.
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
    made |= {"key": key, "bytes": divided(source.raw(), fates, out_folder)}
    write_lines(out_folder / "report.md", [report.markdown(made).encode()])
    write_lines(
        out_folder / "report.json", [json.dumps(made, indent=1, ensure_ascii=False).encode()]
    )
    return made


# ---------------------------------------------------------------- files


def key_of(
    paths: Sequence[Path], config: Config, known_skills: Collection[str] | None, version: str
) -> str:
    """Hash of all inputs of an outcome."""
    suites = [
        path for folder in config.diversity.suites for path in sorted(Path(folder).rglob("*.py"))
    ]
    sizes = [(path, path.stat().st_size) for path in [*paths, *suites]]
    pieces = [(path, at) for path, size in sizes for at in range(0, max(1, size), PIECE)]
    with ThreadPoolExecutor(machine.num_cores()) as threads:  # hashing lets other threads run
        contents = [*(str(size) for _, size in sizes), *threads.map(_digest, pieces)]
    skills = "any" if known_skills is None else json.dumps(sorted(known_skills))
    return content_hash(
        version, str(config.seed), config.diversity.model_dump_json(), skills, *contents
    )


def _digest(piece: tuple[Path, int]) -> str:
    digest = sha256()
    with piece[0].open("rb") as stream:
        stream.seek(piece[1])
        for _ in range(PIECE >> 20):
            digest.update(stream.read(1 << 20))
    return digest.hexdigest()


def finished(folder: Path, key: str) -> dict[str, Any] | None:
    """The report of a finished run of that key in `folder`."""
    try:
        report = json.loads((folder / "report.json").read_bytes())
        complete = report["key"] == key and all(
            (folder / name).stat().st_size == size for name, size in report["bytes"].items()
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return dict(report) if complete else None


def divided(
    lines: Iterable[bytes], fates: Iterable[tuple[str, str] | None], folder: Path
) -> dict[str, int]:
    """Write `kept.jsonl` and `rejected.jsonl`, to temporary files and then renamed; returns their bytes."""
    with _whole(folder / "kept.jsonl") as kept, _whole(folder / "rejected.jsonl") as rejected:
        for line, fate in zip(lines, fates, strict=True):
            if fate is None:
                kept.write(line + b"\n")
            else:
                rejected.write(refusal(line, fate) + b"\n")
    return {name: (folder / name).stat().st_size for name in ("kept.jsonl", "rejected.jsonl")}


def refusal(line: bytes, fate: tuple[str, str]) -> bytes:
    """A line of `rejected.jsonl`."""
    first = _ID.match(line)  # in dvk's own form; else any valid JSON
    id_ = first[1].decode() if first is not None else json.loads(line)["id"]
    head = json.dumps(
        {"id": id_, "reason": fate[0], "detail": fate[1]}, ensure_ascii=False
    ).encode()
    return head[:-1] + b', "example": ' + line + b"}"


_ID = re.compile(rb'\{"id":"(\w+)",')


def write_lines(path: Path, lines: Iterable[bytes]) -> None:
    """Write a whole file, to a temporary file and then renamed."""
    with _whole(path) as out:
        out.writelines(line + b"\n" for line in lines)


@contextmanager
def _whole(path: Path) -> Iterator[BinaryIO]:
    """A file that appears when all is written."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with aside.open("wb") as out:
        yield out
        out.flush()
        os.fsync(out.fileno())
    os.replace(aside, path)

"""One run on disk: a folder that explains itself, survives `kill -9` and can be resumed.

    run.json       command line, config, versions, commit, machine, status running | done | failed | interrupted
    *.jsonl        one record a line, on disk before `append` returns
    all other files are written to a temporary name and then renamed: what exists is complete

A used folder is refused without `resume`; two processes never write into one folder. The folder
does not interpret the records, and never deletes one. A run that fails before its first record leaves no files.
"""

from __future__ import annotations

import json
import os
import platform
import shlex
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from pydantic import BaseModel
from pydantic_core import to_json

import dvk
from dvk import machine, resources
from dvk.config import Config
from dvk.config.former import RENAMED
from dvk.errors import DvkError, RunFolderError
from dvk.run_places import (
    LOCK,
    MANIFEST,
    fresh,
    is_empty,
    locked,
    newest,
    read_manifest,
    unwritable,
)

__all__ = ["MANIFEST", "RunFolder", "commit"]

HOW = ("out", "resume", "argv", "quiet", "workers", "kernelbench")
"""Options that do not change a run's results."""


class RunFolder:
    """A run's folder, open for writing by this process alone. Created by `RunFolder.open`."""

    def __init__(self, path: Path, manifest: dict[str, Any], lock: int, *, writes: bool = True):
        self.path = path
        self._new = not manifest
        self._made = False
        """Whether this process owns the folder, too."""
        self._manifest = manifest
        self._lock = lock
        self.writes = writes
        """Whether writes reach the disk: this process opened the folder."""

    @classmethod
    def open(
        cls,
        path: Path | None,
        *,
        command: str,
        name: str,
        argv: Sequence[str],
        config: Config,
        resume: bool,
    ) -> RunFolder:
        """Start a run, or resume one.

        Args:
            path: the folder; None picks `runs/<command>-<name>-<stamp>`, or with `resume` the newest such run.
            command: the dvk command that writes here, e.g. `optimize`.
            name: name of its subject, e.g. the task's name.
            argv: the command line, stored for readers of the folder.
            config: the resolved settings, stored likewise.
            resume: continue the run in the folder; a missing or empty folder is started.

        Raises:
            RunFolderError: the folder is used and `resume` is off, holds another run or something else, is being
                written by another process, or cannot be written.
        """
        made = path is None or not path.exists()
        if path is None:
            path = (newest(command, name) if resume else None) or fresh(command, name)
        try:
            path.mkdir(parents=True, exist_ok=True)
            cls.refuse_used(path, resume=resume)
            lock = locked(path)
        except OSError as error:
            raise unwritable(path, error) from None
        try:
            manifest = read_manifest(path)
            if manifest is None and not is_empty(path):
                raise RunFolderError(
                    f"not a run folder: `{path}`", "choose an empty or missing folder as --out"
                )
            if manifest is not None and (manifest["command"], manifest["name"]) != (command, name):
                other = f"{manifest['command']} {manifest['name']}"
                raise RunFolderError(
                    f"`{path}` holds another run: {other}", f"give {command} {name} another --out"
                )
            run = cls(path, manifest or {}, lock)
            run._made = made
            if not run.finished:
                run._start(command, name, argv, config)
        except BaseException:  # an interrupt, too, must free the lock
            os.close(lock)
            raise
        return run

    @classmethod
    def beside(cls, path: Path) -> RunFolder:
        """Return the same folder for another process of the run, which reads it; writes are left to the process that opened it.

        Raises:
            RunFolderError: it is damaged.
        """
        return cls(path, read_manifest(path) or {}, -1, writes=False)

    @staticmethod
    def refuse_used(path: Path | None, *, resume: bool) -> None:
        """Check what `open` checks first, for callers with seconds of work before they open it.

        Raises:
            RunFolderError: the folder is used and `resume` is off, or cannot be read.
        """
        if path is None:
            return
        try:
            used = path.is_dir() and not resume and not is_empty(path)
        except OSError as error:
            raise unwritable(path, error) from None
        if used:
            raise RunFolderError(
                f"run folder is already used: `{path}`", "add --resume, or choose another --out"
            )

    @property
    def finished(self) -> bool:
        """Whether the run is done, with nothing left to resume."""
        return self._manifest.get("status") == "done"

    def answered(self, request: Any, config: Config, larger: Sequence[str] = ()) -> bool:
        """Whether the run is done and the request equals its own.

        Args:
            request: a dataclass of the command line's options; stored while the run is not done.
            config: the settings.
            larger: settings by dotted names; if one of them is larger now, and nothing else differs, a finished run continues.

        Raises:
            RunFolderError: it is done, and the request differs.
        """
        options = {
            name: value.absolute() if isinstance(value, Path) else value
            for name, value in vars(request).items()
            if name not in HOW
        }
        asked = json.loads(to_json(options))
        if not self.finished:
            self._manifest["asked"] = asked
            self._save()
            return False
        earlier = _flat({**self._manifest.get("asked", {}), **self._manifest["config"]})
        before = {RENAMED.get(name, name): value for name, value in earlier.items()}
        now = _flat({**asked, **config.model_dump(mode="json")})
        others = [name for name, value in now.items() if before.get(name, value) != value]
        if others and all(name in larger and now[name] > before[name] for name in others):
            self._start(
                self._manifest["command"],
                self._manifest["name"],
                getattr(request, "argv", ()),
                config,
            )
            self._manifest["asked"] = asked
            self._save()
            return False
        if others:
            problem = f"the run in `{self.path}` has ended, and was asked with another {', '.join(others)}"
            more = f", or for a larger {larger[0].rpartition('.')[2]}" if larger else ""
            raise RunFolderError(
                problem, f"ask as before{more}, for what it found; or choose another --out"
            )
        return True

    def append(self, file: str, record: BaseModel | dict[str, Any]) -> None:
        """Append one line to a JSONL file; it is on disk when this returns. Numbers that are not finite become null.

        Raises:
            RunFolderError: it cannot be written; earlier lines stay whole.
        """
        line = to_json(record, inf_nan_mode="null") + b"\n"
        path = self._inside(file)
        if not self.writes:
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a+b", buffering=0) as out:
                _cut_torn_line(out.fileno())
                rest = memoryview(line)
                while rest:
                    rest = rest[out.write(rest) or 0 :]
                os.fsync(out.fileno())
        except OSError as error:
            raise _lost(path, error) from error

    def read(self, file: str) -> list[dict[str, Any]]:
        """Return the records of a JSONL file, oldest first, without a last line torn by a kill; none if there is no file.

        Raises:
            RunFolderError: a complete line is not JSON, so another program wrote here.
        """
        path = self._inside(file)
        if not path.exists():
            return []
        records = []
        for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], start=1):
            try:
                records.append(json.loads(line))
            except ValueError:
                raise RunFolderError(
                    f"damaged record: `{path}` line {number}", "start again in another --out"
                ) from None
        return records

    def write_text(self, name: str, text: str) -> Path:
        """Write a whole file to a temporary name and rename it; a reader sees the old one or the new one.

        Raises:
            RunFolderError: it cannot be written; an old one is left unchanged.
        """
        path = self._inside(name)
        if not self.writes:
            return path
        aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with aside.open("w", encoding="utf-8", errors="backslashreplace", newline="\n") as out:
                out.write(text)
                out.flush()
                os.fsync(out.fileno())
            os.replace(aside, path)
        except OSError as error:
            with suppress(OSError):
                aside.unlink()
            raise _lost(path, error) from error
        return path

    def finish(self, status: Literal["done", "failed", "interrupted"]) -> None:
        """Record how the run ended and release the folder; a done run is left alone, any other can be resumed."""
        self._manifest |= {"status": status, "ended": _now()}
        self._save()
        self.close()

    def close(self) -> None:
        """Release the folder without recording an end; idempotent."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        """Release the folder; a running run left by an exception was interrupted or failed, or never began."""
        if kind is not None and self._lock >= 0 and not self.finished:
            if issubclass(kind, DvkError) and self._empty_handed:
                self._withdraw()
            else:
                with suppress(
                    RunFolderError
                ):  # e.g. a full disk: the error that ended the run matters more
                    self.finish("interrupted" if issubclass(kind, KeyboardInterrupt) else "failed")
        self.close()

    # ------------------------------------------------------------ details

    def _start(self, command: str, name: str, argv: Sequence[str], config: Config) -> None:
        line = shlex.join(
            argument.encode("utf-8", "backslashreplace").decode() for argument in argv
        )
        earlier = self._manifest
        self._manifest = {
            "status": "running",
            "command": command,
            "name": name,
            "argv": line,
            "started": earlier.get("started", _now()),
            "ended": None,
            "resumed": [*earlier.get("resumed", []), {"at": _now(), "argv": line}]
            if earlier
            else [],
            "config": config.model_dump(mode="json"),
            "versions": {"dvk": dvk.__version__, "python": platform.python_version()}
            | {package: machine.version(package) for package in machine.PACKAGES},
            "commit": commit(),
            "machine": machine.fingerprint(),
            "gpus": list(machine.gpu_names()),
        }
        self._save()

    @property
    def _empty_handed(self) -> bool:
        """Whether this process started it and left nothing in it but the start record."""
        return self._new and {entry.name for entry in self.path.iterdir()} == {MANIFEST, LOCK}

    def _withdraw(self) -> None:
        """Delete the folder if this run made it, since the next run will be given the same --out."""
        with suppress(OSError):  # the reported error matters more
            (self.path / MANIFEST).unlink()
            (self.path / LOCK).unlink()
            if self._made:
                self.path.rmdir()

    def _save(self) -> None:
        self.write_text(MANIFEST, json.dumps(self._manifest, indent=2, ensure_ascii=False) + "\n")

    def _inside(self, file: str) -> Path:
        parts = PurePosixPath(file)
        if parts.is_absolute() or ".." in parts.parts:
            raise ValueError(f"a run never writes outside its folder: {file}")
        return self.path / parts


def commit() -> str | None:
    """Return the commit of the checkout dvk runs from, `-dirty` if it was edited; None if installed or without git."""
    top = resources.checkout()
    if top is None:
        return None
    try:
        done = subprocess.run(
            [
                "git",
                "-C",
                str(top),
                "describe",
                "--always",
                "--dirty",
                "--abbrev=40",
                "--exclude=*",
            ],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None


def _flat(asked: dict[str, Any], path: str = "") -> dict[str, Any]:
    """Return settings by their dotted names."""
    result: dict[str, Any] = {}
    for name, value in asked.items():
        result |= (
            _flat(value, f"{path}{name}.") if isinstance(value, dict) else {path + name: value}
        )
    return result


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def _lost(path: Path, error: OSError) -> RunFolderError:
    """Make an error for a failed write; everything written earlier is on disk."""
    return RunFolderError(
        f"cannot write `{path}`: {error.strerror or error}",
        "repair that (free space, make the folder writable), then continue with --resume",
    )


def _cut_torn_line(descriptor: int) -> None:
    """Drop the text after the last newline, so that the next record does not continue a torn one."""
    size = os.fstat(descriptor).st_size
    if size == 0 or os.pread(descriptor, 1, size - 1) == b"\n":
        return
    keep, block = 0, 1 << 16
    for start in range((size - 1) // block * block, -1, -block):
        at = os.pread(descriptor, min(block, size - start), start).rfind(b"\n")
        if at >= 0:
            keep = start + at + 1
            break
    os.ftruncate(descriptor, keep)

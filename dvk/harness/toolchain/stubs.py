"""Triton's small C libraries, which every process with an empty cache compiles, compiled once per machine instead.

With its first kernel Triton has gcc build `cuda_utils`, and up to 3.8 a launcher for each kernel signature: 2 to 4 seconds in a
candidate's process, whose cache is private. Their texts come from Triton and not from the candidate, so trusted code can make
the same ones: a runner that is about to build asks (`ask_through`, by Triton's own hook), the parent answers from its store
(`Stubs`), and what is not in there is built by a trusted child if, and only if, the text is what Triton itself writes
(`dvk.harness.toolchain.stub_builder`). Anything else is built by the runner, as usual. Bytes travel over the line: only
the parent writes to the store, and the parent writes to no other folder.
"""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from functools import cache
from pathlib import Path
from typing import Any

from dvk import machine, resources
from dvk.config import Limits
from dvk.errors import DvkError
from dvk.sandbox import Message, SandboxSession, wire

BUILDER = "dvk.harness.toolchain.stub_builder:serve"
NAMES = ("cuda_utils", "__triton_launcher")
MOST_ASKED = 64
"""Most requests of one runner."""
MOST_KEPT = 1024
"""Most signatures in the store; further ones are built by the runners."""
BUILD_S = 60.0


class Stubs:
    """The parent's side: the store, and the process that builds missing libraries."""

    def __init__(self, limits: Limits, folder: Path | None = None):
        self.limits = limits
        self.folder = folder or resources.home() / "cache" / "triton-stubs" / _machine()
        self._lock = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}
        self._foreign: set[str] = set()

    def get(self, name: str, source: str) -> bytes | None:
        """Return the library built from `source`; None if that is not a text of Triton's. May be called from several threads."""
        key = hashlib.sha256(f"{name}\0{source}".encode()).hexdigest()
        with self._lock:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            path = self.folder / key
            if path.is_file():
                return path.read_bytes()
            if name not in NAMES or key in self._foreign:
                return None
            built = self._built(name, source)
            if built is None:
                self._foreign.add(key)
                return None
            self._keep(path, built)
            return built

    def line(self) -> socket.socket:
        """Return a line's end for a runner; a thread here answers on it until it is closed."""
        ours, theirs = socket.socketpair()
        threading.Thread(target=self._answer, args=(ours,), name="dvk-stubs", daemon=True).start()
        return theirs

    def _answer(self, end: socket.socket) -> None:
        frames = wire.Frames()
        try:
            with end:
                for _ in range(MOST_ASKED):
                    if (asked := _next(frames, end)) is None:
                        return
                    built = self.get(str(asked.get("name")), str(asked.get("source")))
                    wire.send(
                        end,
                        {"library": None if built is None else base64.b64encode(built).decode()},
                    )
        except (OSError, wire.Garbled):
            return

    def _built(self, name: str, source: str) -> bytes | None:
        try:
            with SandboxSession(BUILDER, self.limits) as builder:
                builder.send({"name": name, "source": source})
                answer = builder.receive(BUILD_S)
        except DvkError:
            return None
        library = answer.value.get("library") if isinstance(answer, Message) else None
        return base64.b64decode(library) if isinstance(library, str) else None

    def _keep(self, path: Path, content: bytes) -> None:
        """Write a whole library or none; an unwritable store costs time, not results."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            if len(os.listdir(self.folder)) >= MOST_KEPT:
                return
            handle, aside = tempfile.mkstemp(dir=self.folder)
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            os.replace(aside, path)
        except OSError:
            return


def _next(frames: wire.Frames, end: socket.socket) -> Any:
    """The next request; None when the other end is closed."""
    while (asked := frames.next()) is None:
        if not (data := end.recv(1 << 16)):
            return None
        frames.feed(data)
    return asked


def ask_through(descriptor: int) -> None:
    """Make Triton in a runner ask on this line before it calls a compiler."""
    from triton import knobs
    from triton.runtime import build

    if not hasattr(knobs, "build"):
        return
    line, frames = socket.socket(fileno=descriptor), wire.Frames()

    def ask(name: str, text: str) -> bytes | None:
        try:
            wire.send(line, {"name": name, "source": text})
            while (answer := frames.next()) is None:
                data = line.recv(1 << 16)
                if not data:
                    return None
                frames.feed(data)
        except (OSError, wire.Garbled):
            return None
        library = answer.get("library")
        return base64.b64decode(library) if isinstance(library, str) else None

    def impl(
        name: str,
        src: str,
        srcdir: str,
        library_dirs: list[str],
        include_dirs: list[str],
        libraries: list[str],
    ) -> str:
        library = ask(name, Path(src).read_text()) if name in NAMES else None
        if library is None:
            knobs.build.impl = None
            try:
                return str(
                    build._build(name, src, srcdir, library_dirs, include_dirs, libraries, [])
                )
            finally:
                knobs.build.impl = impl
        path = os.path.join(srcdir, f"{name}.so")
        Path(path).write_bytes(library)
        return path

    knobs.build.impl = impl


@cache
def libcuda() -> dict[str, str]:
    """Return the folder of the driver's library, as Triton reads it from the environment, which saves each process a run of ldconfig."""
    if "TRITON_LIBCUDA_PATH" in os.environ:
        return {}
    try:
        listed = subprocess.run(
            ["/sbin/ldconfig", "-p"], capture_output=True, text=True, timeout=20
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return {}
    paths = [
        line.split()[-1]
        for line in listed.splitlines()
        if "libcuda.so.1" in line and "x86-64" in line
    ]
    return {"TRITON_LIBCUDA_PATH": os.path.dirname(paths[0])} if paths else {}


def _machine() -> str:
    """Return the key of the store: Triton, Python and the compiler determine the libraries."""
    compiler = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang") or ""
    parts: list[Any] = [
        machine.version("triton"),
        sys.version,
        os.path.realpath(compiler),
        os.uname().release,
    ]
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:16]

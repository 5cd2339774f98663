"""A box for Harbor where there is no container engine: this machine's files below, what the box writes above, by overlayfs. For root.

It reads the lines of a Dockerfile that dvk writes (WORKDIR, COPY, RUN); the image is this machine.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from harbor.environments.base import BaseEnvironment, ExecResult

ENTER = """
set -e
mount -t overlay overlay -o lowerdir=/,upperdir={box}/up,workdir={box}/work {box}/root
mount --rbind /proc {box}/root/proc
mount --rbind /dev {box}/root/dev
exec chroot {box}/root sh -c {command}
"""


class OverlayBox(BaseEnvironment):
    """One box."""

    @staticmethod
    def type() -> str:
        return "overlay"

    def _validate_definition(self) -> None:
        assert (self.environment_dir / "Dockerfile").is_file()

    async def start(self, force_build: bool) -> None:
        self.box = Path(tempfile.mkdtemp(prefix="box_"))
        for name in ("up", "work", "root"):
            (self.box / name).mkdir()
        text = (self.environment_dir / "Dockerfile").read_text().replace("\\\n", " ")
        for line in text.splitlines():
            word, _, rest = line.partition(" ")
            if word == "WORKDIR":
                await self._run(f"mkdir -p {rest}")
            elif word == "COPY":
                source, target = rest.split()
                await self.upload_file(self.environment_dir / source, target)
            elif word == "RUN":
                await self._run(rest)
        await self._run("mkdir -p /logs/agent /logs/verifier /logs/artifacts /tests /solution")

    async def stop(self, delete: bool) -> None:
        shutil.rmtree(self.box, ignore_errors=True)

    def _above(self, path: Path | str) -> Path:
        return self.box / "up" / str(path).lstrip("/")

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        self._above(target_path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source_path, self._above(target_path))

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        shutil.copytree(source_dir, self._above(target_dir), dirs_exist_ok=True)

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        Path(target_path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(self._above(source_path), target_path)

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        shutil.copytree(self._above(source_dir), target_dir, dirs_exist_ok=True)

    async def _run(self, command: str) -> None:
        done = await self.exec(command)
        assert done.return_code == 0, (command, done.stderr)

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        inside = f"cd {shlex.quote(cwd or '/app')} 2>/dev/null || cd /; {command}"
        script = ENTER.format(box=self.box, command=shlex.quote(inside))
        given = {**self._persistent_env, **(env or {})}
        kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        done = await asyncio.to_thread(
            subprocess.run,
            ["unshare", "-m", "sh", "-c", script],
            capture_output=True,
            text=True,
            env={**kept, **given},
            timeout=timeout_sec,
        )
        return ExecResult(stdout=done.stdout, stderr=done.stderr, return_code=done.returncode)

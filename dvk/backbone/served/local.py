"""A vLLM server that a run starts, restarts if it dies, and ends: `dvk train --rollouts local`."""

from __future__ import annotations

import os
import queue
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dvk import machine
from dvk.backbone.served import http
from dvk.config import Config
from dvk.device_lock import DeviceLock
from dvk.errors import MachineError, UsageError

GLANCE_S = 0.25
"""Interval of looks at a server that starts."""
STOP_S = 15.0
"""Longest end of a server before its processes are killed by their group."""
RESTARTS = 3
"""Restarts in a run: a server that dies more often has a reason that a restart does not remove."""
LOG_LINES = 5
ERROR = re.compile(r"\b\w*(Error|Exception)(: .*|$)")
"""The part of a log's line that names an error."""
ALONE_SHARE = 0.9
"""Share of a GPU's memory of a server that has it alone; vLLM's default."""
SHARED_SHARE = 0.35
"""Share of one that shares it with the learner; `served.arguments` come last and can say otherwise."""


class LocalServer:
    """See the module; `start` it.

    Args:
        model: folder or Hub name of the base model.
        config: `served`, and the adapter's rank.
        log: file that the server's output is appended to.
    """

    def __init__(self, model: str, config: Config, log: Path):
        self.model, self.config, self.log = model, config, log
        self.port = _free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.num_starts = 0
        self._keeper: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it answers.

        Raises:
            UsageError: there is no such command.
            MachineError: it ended, or took too long; the message has the end of its log.
        """
        self.stop()
        command = self.command()
        if shutil.which(command[0]) is None:
            raise UsageError(
                f"no command `{command[0]}` to start a server with",
                "pip install vllm, or name the command: --set served.command='…'",
            )
        self.num_starts += 1
        self.log.parent.mkdir(parents=True, exist_ok=True)
        keeper = [sys.executable, "-m", "dvk.backbone.served.keeper", str(self.log), *command]
        # In a session apart: Ctrl-C reaches dvk alone, which ends the server after its own work.
        self._keeper = subprocess.Popen(
            keeper, stdin=subprocess.PIPE, env=self.environment(), start_new_session=True
        )
        try:
            self._wait()
        except BaseException:  # Ctrl-C leaves no server
            self.stop()
            raise

    def _wait(self) -> None:
        assert self._keeper is not None
        deadline = time.monotonic() + self.config.served.start_s
        while True:
            if self._keeper.poll() is not None:
                raise MachineError(
                    f"the server ended while it started: {self._end_of_log()}", f"see {self.log}"
                )
            if time.monotonic() > deadline:
                raise MachineError(
                    f"the server has not started in {self.config.served.start_s:g} s",
                    f"see {self.log}, or raise served.start_s",
                )
            try:
                http.ask(f"{self.url}/health", timeout_s=1.0)
                return
            except (http.Unreachable, http.Refused):
                time.sleep(GLANCE_S)

    def revive(self) -> bool:
        """Start it again after its death; whether it runs.

        Raises:
            MachineError: it does not start, or has died too often.
        """
        if self.num_starts > RESTARTS:
            raise MachineError(
                f"the server died {self.num_starts} times: {self._end_of_log()}", f"see {self.log}"
            )
        print("the local server is started again", file=sys.stderr, flush=True)
        self.start()
        return True

    def stop(self) -> None:
        """End the server and all its processes."""
        keeper, self._keeper = self._keeper, None
        if keeper is None:
            return
        assert keeper.stdin is not None
        keeper.stdin.close()
        try:
            keeper.wait(STOP_S)
        except subprocess.TimeoutExpired:
            pass
        try:  # whatever is left if the keeper itself was killed
            os.killpg(keeper.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        keeper.wait()

    def command(self) -> list[str]:
        """The command line of the server."""
        served, rank = self.config.served, self.config.backbone.lora_rank
        command = [*shlex.split(served.command), self.model, "--host", "127.0.0.1"]
        command += ["--port", str(self.port), "--logprobs-mode", "processed_logprobs"]
        if rank:
            # vLLM takes a few ranks only; the next larger one wastes little.
            allowed = next((r for r in (8, 16, 32, 64, 128, 256, 320, 512) if r >= rank), rank)
            command += ["--enable-lora", "--max-lora-rank", str(allowed), "--max-loras", "2"]
        if machine.gpu_names():
            share = SHARED_SHARE if shares_gpu(self.config) else ALONE_SHARE
            command += ["--gpu-memory-utilization", f"{share:g}"]
        if shares_gpu(self.config):
            command.append("--enable-sleep-mode")
        return command + shlex.split(served.arguments)

    def environment(self) -> dict[str, str]:
        """Variables of the server's process."""
        variables = {
            **os.environ,
            "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
            "VLLM_NO_USAGE_STATS": "1",
        }
        if not self.config.backbone.lora_rank or shares_gpu(self.config):
            # It reloads whole weights and sleeps; on loopback only.
            variables["VLLM_SERVER_DEV_MODE"] = "1"
        if (gpus := server_gpus(self.config)) is not None:
            variables["CUDA_VISIBLE_DEVICES"] = gpus
        return variables

    def _end_of_log(self) -> str:
        try:
            lines = [line for line in self.log.read_text(errors="replace").splitlines() if line]
        except OSError:
            return "it wrote nothing"
        # Twice each, from the engine and from its parent; warnings name errors that have not come.
        found = [ERROR.search(line) for line in lines if " WARNING " not in line]
        errors = list(dict.fromkeys(match[0] for match in found if match))
        return " / ".join((errors or lines)[-LOG_LINES:])[-600:] or "it wrote nothing"


def server_gpus(config: Config) -> str | None:
    """CUDA_VISIBLE_DEVICES of a local server; None without a GPU."""
    if config.served.gpus is not None:
        return config.served.gpus
    names = machine.visible_gpus()
    return ",".join(names[1:] or names) or None


def shares_gpu(config: Config) -> bool:
    """Whether a local server has a GPU of the learner's."""
    return config.served.gpus is None and len(machine.gpu_names()) == 1


class SharedTurns:
    """Shared holds of a device's lock from many threads: a lock's file descriptors can have one holder at a time.

    Args:
        name: the lock's, as `device_lock.of_cpu`.
    """

    def __init__(self, name: str):
        self._name = name
        self._free: queue.SimpleQueue[DeviceLock] = queue.SimpleQueue()

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Hold the device shared."""
        try:
            lock = self._free.get_nowait()
        except queue.Empty:
            lock = DeviceLock(self._name)
        try:
            with lock.shared():
                yield
        finally:
            self._free.put(lock)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port

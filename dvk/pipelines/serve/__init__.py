"""`dvk serve`: dvk's judge behind KernelGYM's endpoints, for its trainer and for `--judge kernelgym:URL` of another dvk.

    open the port → start the workers → answer until interrupted → answer waiting clients, end the judge's processes

    desk.py      the requests by id, over the judge's queue
    judging.py   the work on one request
    app.py       the endpoints

Nothing is on disk except the verdict cache. A killed server has forgotten the ids; a repeated request is answered from
the cached verdicts of this machine.
"""

from __future__ import annotations

import os
import socket
import sys
from dataclasses import dataclass
from types import FrameType

from dvk import backends, machine
from dvk.config import Config
from dvk.errors import MachineError, UsageError
from dvk.harness.session import lending
from dvk.harness.session.verdict_cache import Remembered
from dvk.pipelines.serve.addresses import local
from dvk.records import Device
from dvk.sandbox import enclosure

GRACE_S = 3
"""Seconds for connections to take their last answer."""
LEAST_WORKERS = 2
"""Workers per device: one compiles while another is timed."""


@dataclass(frozen=True, kw_only=True)
class ServeRequest:
    """The command line's request."""

    host: str = "127.0.0.1"
    port: int = 10907
    workers: int | None = None
    device: Device | None = None
    token_env: str | None = None
    open_to_all: bool = False
    no_cache: bool = False
    require_kernels: bool = False


def serve(request: ServeRequest, config: Config) -> None:
    """Serve until interrupted or terminated.

    Raises:
        MachineError: FastAPI is not installed, or there is no such device.
        UsageError: the address cannot be used, or would be open to everyone.
    """
    try:
        import uvicorn

        from dvk.pipelines.serve.app import application
    except ImportError as error:
        if (error.name or "dvk").startswith("dvk"):
            raise
        raise MachineError(
            f"`dvk serve` needs {error.name}, which is not installed", "pip install 'dvk[serve]'"
        ) from None
    from dvk.pipelines.serve.desk import RequestQueue
    from dvk.pipelines.serve.judging import JudgeService

    if config.remote.judge is not None:
        raise UsageError("`dvk serve` judges itself", "leave remote.judge out")
    token = _token(request, config)
    config, why = enclosed(config)
    workers = request.workers or max(LEAST_WORKERS, len(machine.gpu_names()) * 2)
    judging = JudgeService(
        config,
        workers,
        request.device,
        None if request.no_cache else Remembered(),
        require_kernels=request.require_kernels,
    )
    if judging.device not in judging.devices:
        raise MachineError(f"no {judging.device} device was found", "leave --device out")
    listener = bound(request.host, request.port)
    with listener, judging, RequestQueue(config.serve, judging.queue, judging) as queue:

        class JudgeServer(uvicorn.Server):
            """Stops the queue first: requests that wait for a verdict would keep their connections open."""

            def handle_exit(self, sig: int, frame: FrameType | None) -> None:
                queue.close()
                super().handle_exit(sig, frame)

        settings = uvicorn.Config(
            application(queue, judging, token, guarded=token is None and not request.open_to_all),
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=GRACE_S,
            server_header=False,
        )
        how = f"with{'' if token else 'out'} a token, {workers} at a time on {judging.device}"
        _announce(listener, how, why)
        try:
            JudgeServer(settings).run(sockets=[listener])
        except KeyboardInterrupt:  # uvicorn raises the signal again when it has stopped
            pass


def _token(request: ServeRequest, config: Config) -> str | None:
    """The token that clients need; None if any client is answered."""
    name = request.token_env or config.remote.token_env
    token = os.environ.get(name) or None
    if token is None and not request.open_to_all and not local(request.host):
        problem = f"on {request.host} anybody who reaches the port could have code run here"
        raise UsageError(problem, f"export ${name}, or add --no-token")
    return token


def _announce(listener: socket.socket, how: str, open_files: str | None) -> None:
    """Say where it serves, and why references can read files, if they can."""
    address, port = listener.getsockname()[:2]
    shown = f"[{address}]" if ":" in address else address
    lines = [f"serving http://{shown}:{port} {how}; Ctrl-C ends it"]
    if open_files is not None:
        lines.append(f"{open_files}: references that are sent here can read this user's files")
    print("\n".join(lines), file=sys.stderr, flush=True)


def enclosed(config: Config) -> tuple[Config, str | None]:
    """The settings that confine strangers' references as far as this machine can, and the missing layers, as text."""
    if not enclosure.works():
        return config, "this kernel has no Landlock"
    if backends.default_device() != "cuda":
        return config, None
    failed = (
        lending.fails(config.limits) if config.limits.enclose_gpu else "limits.enclose_gpu is off"
    )
    if failed is None:
        return config, None
    limits = config.limits.model_copy(update={"enclose_gpu": False})
    return config.model_copy(
        update={"limits": limits}
    ), f"on a GPU the process that judges is not sandboxed ({failed})"


def bound(host: str, port: int) -> socket.socket:
    """A socket that listens there; port 0 takes a free one.

    Raises:
        UsageError: the address cannot be bound.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(1024)
    except OSError as error:
        raise UsageError(
            f"cannot listen on {host}:{port}: {error.strerror or error}",
            "choose another --port or --host",
        ) from None
    return listener

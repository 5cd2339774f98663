"""`dvk serve`: the judge behind KernelGYM's endpoints."""

from __future__ import annotations

from typing import Annotated

import typer

from dvk.cli.options import Conf, Settings


def command(
    host: Annotated[
        str, typer.Option(help="Address to listen on; beyond this machine a token is asked for.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 10907,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Candidates judged at a time (default: 2, or 2 a GPU)."),
    ] = None,
    queue: Annotated[
        int | None, typer.Option(min=1, help="Most requests in the queue; further ones must retry.")
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(
            help="cpu or cuda, for requests that do not say (default: a GPU if there is one)."
        ),
    ] = None,
    token_env: Annotated[
        str | None, typer.Option(help="Environment variable with the token that callers must show.")
    ] = None,
    no_token: Annotated[
        bool, typer.Option("--no-token", help="Let everyone with access to the port run code here.")
    ] = False,
    require_kernels: Annotated[
        bool,
        typer.Option(
            "--require-kernels",
            help="Refuse candidates that leave any computing to PyTorch's operators.",
        ),
    ] = False,
    no_cache: Annotated[
        bool, typer.Option("--no-cache", "--anew", help="Ignore cached verdicts of this machine.")
    ] = False,
    config: Conf = None,
    settings: Settings = None,
) -> None:
    """Judge for others over HTTP: POST /evaluate, GET /status/ID, /results/ID and /health, as KernelGYM's server has them.

    POST /v1/score takes a task and a model's answer, and gives its reward with feedback: the judge of other trainers' environments.

    The token is $DVK_JUDGE_TOKEN unless --token-env names another variable. Callers show it as `Authorization: Bearer TOKEN`, or in
    their URL as http://any:TOKEN@HOST:PORT.
    """
    from dvk import config as configuration
    from dvk.errors import UsageError
    from dvk.pipelines.serve import ServeRequest, serve

    if device not in (None, "cpu", "cuda"):
        raise UsageError(f"unknown device: `{device}`", "choose cpu or cuda")
    merged = configuration.load(config, settings or [], {"serve.queue": queue})
    request = ServeRequest(
        host=host,
        port=port,
        workers=workers,
        device=device,  # type: ignore[arg-type]
        token_env=token_env,  # checked above
        open_to_all=no_token,
        no_cache=no_cache,
        require_kernels=require_kernels,
    )
    serve(request, merged)

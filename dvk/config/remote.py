"""Settings of remote judges, and of judging for others."""

from __future__ import annotations

from pydantic import Field, model_validator

from dvk.config.section import Section


class RemoteConfig(Section):
    """Judges on other machines: a server that speaks KernelGYM's protocol, `dvk serve` included, or the nodes of a Ray cluster."""

    judge: str | None = Field(
        None,
        description="Judge server, kernelgym:URL, or table of measured plans, table:FILE; null judges on this machine. `--judge` sets it.",
    )
    engine: str | None = Field(
        None,
        description="Ray cluster whose nodes judge: ray (one on this machine), ray://HOST:PORT, HOST:PORT, auto; `--engine` sets it.",
    )
    rollouts: bool | None = Field(
        None,
        description="Run local models of eval and train on that cluster: one per GPU or CPU node; null: yes.",
    )
    token_env: str = Field(
        "DVK_JUDGE_TOKEN",
        description="Environment variable that holds the server's token; tokens do not belong in files.",
    )
    timeout_s: float = Field(
        900.0,
        gt=0,
        description="Longest wait for one verdict: KernelGYM's default limit of 300 s, and twice that in its queue.",
    )

    @model_validator(mode="after")
    def _one(self) -> RemoteConfig:
        if self.judge is not None and self.engine is not None:
            raise ValueError("judge and engine exclude each other")
        return self


class ServeConfig(Section):
    """Limits of `dvk serve`."""

    queue: int = Field(
        256,
        ge=1,
        description="Most requests in the queue; further ones are rejected with a retry time. 256: those of one step of 16 tasks × 16.",
    )

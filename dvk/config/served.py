"""Settings of servers that sample: `served:URL`, and `dvk train --rollouts`."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from dvk.config.section import Section


class ServedConfig(Section):
    """vLLM servers that take and return token ids, with the log-probabilities of what they sampled."""

    rollouts: str | None = Field(
        None,
        description="Servers that sample in training: URL[,URL…], or local to start one; `--rollouts` sets it. null: dvk's own engine.",
    )
    model: str | None = Field(
        None, description="Name of the base model on the servers; null: the first that they list."
    )
    tokenizer: str | None = Field(
        None,
        description="Folder or Hub name of the tokenizer of `served:URL`; null: the model's path that the server reports.",
    )
    adapters: Path | None = Field(
        None,
        description="Folder for the weights of each step, which learner and servers can read; null: in the run's folder.",
    )
    command: str = Field(
        "vllm serve",
        description="Command that starts a local server; the model and its options are appended.",
    )
    arguments: str = Field("", description="More options of that command, as in a shell.")
    gpus: str | None = Field(
        None,
        description="GPUs of the local server, as in CUDA_VISIBLE_DEVICES; null: all but the first, which the learner has, "
        "or the only one.",
    )
    start_s: float = Field(
        900.0,
        gt=0,
        description="Longest start of a local server: weights are loaded, graphs captured.",
    )

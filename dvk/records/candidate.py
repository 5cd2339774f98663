"""One attempt at a faster version: a `Candidate`."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from dvk.records.record import Record, content_hash

BackendName = str
"""A name of `dvk.backends.BACKENDS`, or `path/to/file.py:Name`."""


class Candidate(Record):
    """One attempt at a faster version: a whole Python file that defines `ModelNew`."""

    source: str = Field(
        description="Python text that defines ModelNew with the reference's constructor and forward signature."
    )
    backend: BackendName = Field(description="What its kernels are written in.")
    proposer: str = Field(
        "user", description="Who wrote it: user, composer, a strategy or a model."
    )
    title: str = Field(
        "", description="One line for people: the idea, e.g. `fused epilogue, vector width 8`."
    )
    skills: tuple[str, ...] = Field((), description="Names of the skills behind it.")
    recipes: tuple[str, ...] = Field((), description="Composer recipes applied, in order.")
    schedule: dict[str, Any] = Field(
        default_factory=dict, description="Composer schedule by kernel name; empty otherwise."
    )

    line: str = Field(
        "",
        description="The line of PyTorch that it is, e.g. `torch.compile`: dvk's text around the reference, as trusted as that.",
    )

    @property
    def id(self) -> str:
        """Content hash of the source."""
        return content_hash(self.source)

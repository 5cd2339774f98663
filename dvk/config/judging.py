"""Settings of the judge, its processes, and the search that uses it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from dvk.config.section import Section


class Limits(Section):
    """Limits of one sandboxed child."""

    wall_s: float = Field(
        300.0,
        gt=0,
        description="Longest session (wall clock); a cold torch.compile takes about a minute.",
    )
    memory_bytes: int = Field(
        16 << 30, gt=0, description="Resident memory of the child's process tree."
    )
    num_processes: int = Field(
        512, gt=0, description="Processes and threads; torch alone starts one thread per core."
    )
    trust_references: bool = Field(
        True,
        description="References are the user's own code. false: sandbox them like candidates, as `dvk serve` does.",
    )
    enclose_gpu: bool = Field(
        True,
        description="Also sandbox untrusted references on a GPU; `dvk serve` turns it off if CUDA does not work in the sandbox.",
    )
    output_bytes: int = Field(
        1 << 16,
        gt=0,
        description="Size of the tail kept of the child's output; the rest is read and dropped.",
    )

    def encloses(self, device: Literal["cpu", "cuda"]) -> bool:
        """Whether the process that judges on `device` is enclosed with all others of its judge session."""
        return not self.trust_references and (device == "cpu" or self.enclose_gpu)

    def reference_isolation(self, device: Literal["cpu", "cuda"]) -> Literal["none", "cpu", "cuda"]:
        """Return the isolation of processes that run a reference on `device` and judge no candidate."""
        return "none" if self.trust_references else device


class JudgeConfig(Section):
    """Samples, durations and strictness of the judge."""

    num_seeds: int = Field(
        3, ge=1, description="Fresh input draws per shape variant at the search tier."
    )
    candidate_s: float = Field(
        60.0, gt=0, description="Longest time for one candidate: compile, check and time."
    )
    compile_s: float = Field(
        300.0, gt=0, description="Further time for a candidate that calls torch.compile."
    )
    search_pairs: int = Field(
        30, ge=5, description="Paired samples at the search tier; fewer once `settled`."
    )
    claim_pairs: int = Field(
        50,
        ge=20,
        description="Paired samples at the claim tier, in each process; fewer once `settled`, up to four times more from the sixth on.",
    )
    search_s: float = Field(0.5, gt=0, description="Longest timing at the search tier.")
    claim_s: float = Field(
        1.0,
        gt=0,
        description="Longest timing at the claim tier, per arm and process; four times as long from the sixth on.",
    )
    exact_strides: bool = Field(
        False,
        description="Outputs must have the reference's strides. false: a contiguous output with the right values passes, too.",
    )
    settled: float = Field(
        0.005,
        gt=0,
        description="Timing stops, at either tier, once the relative standard error of the ratio is below this.",
    )
    finite_only: bool = Field(
        False,
        description="Try no NaN, infinity or value near overflow, so that candidates that are exact only for finite inputs pass, too.",
    )


class OptimizeConfig(Section):
    """Search of `dvk optimize`."""

    budget_s: float = Field(
        120.0,
        gt=0,
        description="Wall clock of the search; loading, capture and final confirmation excluded. With --model: of the run after the "
        "whole model is built, proof included.",
    )
    max_tokens: int | None = Field(
        None,
        ge=1,
        description="Most tokens that the language model of a search reads and writes; then the search continues without it.",
    )
    max_usd: float | None = Field(
        None,
        gt=0,
        description="Most that it costs; needs backbone.prompt_usd and backbone.completion_usd.",
    )
    max_requests: int | None = Field(None, ge=1, description="Most questions that it is asked.")
    inexact: bool = Field(
        False,
        description="Also use recipes that differ from the original in NaN or infinity once an input is not finite. The report names "
        "those used.",
    )
    confirm: bool = Field(
        True,
        description="Prove the best candidate in fresh processes. false: it is kept as `unproven.py`, for a caller that proves it "
        "within something larger.",
    )
    own_kernels: bool = Field(
        False,
        description="Leave out what PyTorch itself offers: channels_last, torch.compile, replay of the module as a CUDA graph.",
    )

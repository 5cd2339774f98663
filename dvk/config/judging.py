"""Settings of the judge, of what runs under it, and of the search it decides."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from dvk.config.section import Section


class Limits(Section):
    """What one sandboxed child may use."""

    wall_s: float = Field(
        300.0, gt=0, description="Wall clock of a whole session; a cold torch.compile takes about a minute.")
    memory_bytes: int = Field(16 << 30, gt=0, description="Resident memory of the child's process tree.")
    num_processes: int = Field(512, gt=0, description="Processes and threads; torch alone starts one a core.")
    trust_references: bool = Field(
        True, description="References are the user's own code; false: they are shut in as candidates are, as `dvk serve` does.")
    enclose_gpu: bool = Field(
        True, description="References that are not trusted are shut in on a GPU, too; `dvk serve` turns it off where CUDA fails so.")
    output_bytes: int = Field(
        1 << 16, gt=0, description="Kept tail of what the child prints; the rest is read and dropped.")

    def encloses(self, device: Literal["cpu", "cuda"]) -> bool:
        """The process that judges on `device` is shut in with all others of its court."""
        return not self.trust_references and (device == "cpu" or self.enclose_gpu)

    def reference_isolation(self, device: Literal["cpu", "cuda"]) -> Literal["none", "cpu", "cuda"]:
        """How processes are isolated that run a reference on `device` and judge no candidate."""
        return "none" if self.trust_references else device


class JudgeConfig(Section):
    """How far and how long the judge looks."""

    num_seeds: int = Field(3, ge=1, description="Fresh input draws a shape variant at the search tier.")
    candidate_s: float = Field(60.0, gt=0, description="Wall clock for one candidate: compile, check and time.")
    search_pairs: int = Field(30, ge=5, description="Paired samples at the search tier; fewer once `settled`.")
    claim_pairs: int = Field(50, ge=20, description="Paired samples at the claim tier, in each process; fewer once `settled`.")
    search_s: float = Field(0.5, gt=0, description="Longest measuring time at the search tier.")
    claim_s: float = Field(1.0, gt=0, description="Longest measuring time at the claim tier, an arm and process.")
    exact_strides: bool = Field(
        False, description="Outputs must have the reference's strides; else a contiguous output is right wherever its values are.")
    settled: float = Field(
        0.005, gt=0, description="Timing stops, at either tier, once the ratio's standard error is below this share.")
    finite_only: bool = Field(
        False, description="Try no NaN, infinity or value near overflow: a candidate that is exact for finite inputs only is ok, too.")


class OptimizeConfig(Section):
    """How `dvk optimize` searches."""

    budget_s: float = Field(120.0, gt=0, description="Wall clock of the search; loading, capture and final confirmation excluded.")
    first_verdict_s: float = Field(
        30.0, gt=0, description="Wall clock of the first verdict where budget_s is less: starting the judge is part of it.")
    also_share: float = Field(
        0.5,
        gt=0,
        description="Wall clock of the search for each `--extra-input`, as a share of budget_s: it starts from what the first found.",
    )
    inexact: bool = Field(
        False, description="Also use recipes that give NaN or infinity where the original does not, or the other way round, once an input "
        "is not finite. The report names those used.")
    num_skills: int = Field(20, ge=0, description="Skills that retrieval ranks for a task.")
    query_terms: int = Field(32, ge=1, description="Rarest terms of the graph's listing kept in a retrieval query.")

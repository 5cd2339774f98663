"""Settings of search strategies that use a model."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from dvk.config.section import Section


class EvolveConfig(Section):
    """Strategy `evolve`: prompts of mutations, and the archive of programs."""

    information: Literal["free", "insight", "full"] = Field(
        "full",
        description="What a mutation's prompt adds to the parent, after EvoEngineer: nothing; insights; insights and other good programs.")
    population: Literal["single", "elite", "diverse"] = Field(
        "diverse",
        description="Possible parents: the best; the best few; the best few and those least similar to them, as in Kernel-Smith.")
    top: int = Field(3, ge=1, description="Best programs in the archive; with `diverse` EvoEngineer's population of 5.")
    diverse: int = Field(2, ge=0, description="Programs in it for their dissimilarity.")
    crossover: float = Field(0.25, ge=0, le=1, description="Share of children with two parents: a mutation keeps more of what works.")
    insights: int = Field(6, ge=0, description="Ideas in the prompt with their results, largest changes first: half a page.")


class ContrastiveConfig(Section):
    """Strategy `contrastive`: scored programs compared in a prompt."""

    exemplars: int = Field(2, ge=2, description="Programs compared in a prompt; CUDA-L1: 2.")
    bucket: float = Field(
        1.1, gt=1, description="Ratio of speedups between two buckets: differences within 10 % explain little.")
    temperature: float = Field(
        0.3, gt=0,
        description="Softmax temperature over buckets, with speedups as shares of the best: at 0.3 half the best speed is drawn a fifth "
        "as often as the best.")


class ReviewConfig(Section):
    """Strategy `judge`: one change at a time, named by a reviewer."""

    branches: int = Field(2, ge=1, description="Programs improved in parallel, so that a model that batches is used; CudaForge: 1.")
    rounds: int = Field(10, ge=1, description="Changes to a program before it is restarted; CudaForge: 10.")
    repairs: int = Field(3, ge=1, description="Attempts to repair a change before it is undone: most repairs take one or two.")
    history: int = Field(5, ge=0, description="Failed changes to include in the prompt, so that the model does not repeat them.")


class PolcaConfig(Section):
    """Strategy `polca`: a queue by mean score under noise, novelty, a running summary."""

    popped: int = Field(5, ge=1, description="Programs taken from the queue per step; POLCA: 5.")
    measurements: int = Field(
        4, ge=1, description="Most measurements of one program; the mean's error falls with the square root, so a fifth gains a tenth.")
    novelty: float = Field(
        0.005, ge=0, lt=1,
        description="Least distance (see dvk.search.novelty) of a new program from every correct one: other names, layout or comments "
        "have 0, one changed number in a file of 300 lines 0.006. POLCA's 0.02 is a distance of embeddings.")
    summary_tokens: int = Field(400, ge=50, description="Tokens of the running summary: one page, as much as feedback on one attempt.")


class MacroConfig(Section):
    """Strategy `macro`: a planner names moves, the composer carries them out."""

    moves: int = Field(3, ge=1, description="Most moves per answer: later moves would not know the results of the first.")
    schedules: int = Field(
        3, ge=1, description="Schedules measured per move with a named algorithm: the planner chooses the algorithm, not the blocks.")
    regions: int = Field(12, ge=1, description="Kernels shown: those with moves left that touch most bytes; two pages for a network.")
    history: int = Field(12, ge=1, description="Most recent moves shown with their results: half a page.")


class SearchConfig(Section):
    """Search of the `dvk optimize` strategies that use a model; `refine` and `best_of_n` play rounds of `rollout` instead."""

    openings: int = Field(4, ge=1, description="Programs started from the task alone, half of them with skills.")
    offspring: int = Field(4, ge=1, description="Programs requested at once: several cost about as much as one to write, but not to judge.")
    stall_rounds: int = Field(
        3, ge=1, description="Consecutive rounds without a new program that end the search: a small model repeats itself at times.")
    evolve: EvolveConfig = EvolveConfig()
    contrastive: ContrastiveConfig = ContrastiveConfig()
    review: ReviewConfig = ReviewConfig()
    polca: PolcaConfig = PolcaConfig()
    macro: MacroConfig = MacroConfig()

"""Settings of the strategies that ask a model."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from dvk.config.section import Section


class EvolveConfig(Section):
    """Strategy `evolve`: what a mutation is shown, and which programs live on."""

    information: Literal["free", "insight", "full"] = Field(
        "full", description="What is shown beside the parent, after EvoEngineer: nothing; insights; insights and other good programs.")
    population: Literal["single", "elite", "diverse"] = Field(
        "diverse", description="Who may be a parent: the best; the best few; the best few and those most unlike them, as in Kernel-Smith.")
    top: int = Field(3, ge=1, description="Best programs in the archive; with `diverse` EvoEngineer's population of 5.")
    diverse: int = Field(2, ge=0, description="Programs in it for being unlike the others.")
    crossover: float = Field(0.25, ge=0, le=1, description="Share of children with two parents: a mutation keeps more of what works.")
    insights: int = Field(6, ge=0, description="Ideas shown with what came of them, those that changed most: half a page.")


class ContrastiveConfig(Section):
    """Strategy `contrastive`: which scored programs are set side by side."""

    exemplars: int = Field(2, ge=2, description="Programs compared in a prompt; CUDA-L1: 2.")
    bucket: float = Field(
        1.1, gt=1, description="Ratio of speedups from one bucket to the next: within 10 % there is little to explain.")
    temperature: float = Field(
        0.3, gt=0, description="Of the softmax over buckets, their speedups as shares of the best: at 0.3 one of half the best speed "
        "is drawn a fifth as often as the best.")


class ReviewConfig(Section):
    """Strategy `judge`: one change at a time, named by a reviewer."""

    branches: int = Field(2, ge=1, description="Programs worked on side by side, so that a model that batches is used; CudaForge: 1.")
    rounds: int = Field(10, ge=1, description="Changes to a program before one is begun anew; CudaForge: 10.")
    repairs: int = Field(3, ge=1, description="Tries at repairing what a change broke before it is undone: most repairs take one or two.")
    history: int = Field(5, ge=0, description="Failed changes of the version at hand that are told, or the same are named again.")


class PolcaConfig(Section):
    """Strategy `polca`: a queue by mean score under noise, novelty, a running summary."""

    popped: int = Field(5, ge=1, description="Programs taken from the queue a step; POLCA: 5.")
    measurements: int = Field(
        4, ge=1, description="Times a program is measured at most; the mean's error falls with the square root, and a fifth gains a tenth.")
    novelty: float = Field(
        0.005, ge=0, lt=1, description="Distance (see dvk.search.novelty) to every right program that a new one must exceed: other names, "
        "layout or comments are at 0, one changed number in a file of 300 lines at 0.006. POLCA's 0.02 is of embeddings.")
    summary_tokens: int = Field(400, ge=50, description="The running summary: one page, as much as feedback on one attempt.")


class MacroConfig(Section):
    """Strategy `macro`: a planner names moves, the composer carries them out."""

    moves: int = Field(3, ge=1, description="Moves an answer names at most: later ones are named before the first was measured.")
    schedules: int = Field(
        3, ge=1, description="Schedules of a named algorithm measured for a move: who names it says how to compute, not in which blocks.")
    regions: int = Field(12, ge=1, description="Kernels shown, those with moves left that touch most bytes: two pages of a network's.")
    history: int = Field(12, ge=1, description="Last moves told with what came of them: half a page.")


class SearchConfig(Section):
    """How the strategies of `dvk optimize` that ask a model search; `refine` and `best_of_n` play rounds of `rollout` instead."""

    openings: int = Field(4, ge=1, description="Programs begun from the task alone; those with skills and without by halves.")
    offspring: int = Field(4, ge=1, description="Programs asked for at a time: writing costs about the same as for one, judging does not.")
    stall_rounds: int = Field(
        3, ge=1, description="Rounds in a row without anything new that end the search: a small model repeats itself at times.")
    evolve: EvolveConfig = EvolveConfig()
    contrastive: ContrastiveConfig = ContrastiveConfig()
    review: ReviewConfig = ReviewConfig()
    polca: PolcaConfig = PolcaConfig()
    macro: MacroConfig = MacroConfig()

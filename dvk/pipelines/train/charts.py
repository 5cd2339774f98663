"""The charts of a training run's page, by topic: which figures of metrics.jsonl each shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

STAGES = ("draw", "play", "trials", "learn", "library", "validate", "save")
TURNS = 8
"""More turns than this share one chart's colours and would be unreadable; later turns are left out."""

Lines: TypeAlias = "tuple[tuple[str, str], ...]"


@dataclass(frozen=True)
class Chart:
    """One chart.

    Attributes:
        title: its heading.
        caption: what is shown, and its unit.
        lines: label → figure, a quotient `a / b`, or the complement `1 - a` of a share.
        share: values are shares.
        zero: the axis starts at 0.
    """

    title: str
    caption: str
    lines: Lines
    share: bool = False
    zero: bool = False


def same(*names: str) -> Lines:
    """Lines whose label is the figure's name."""
    return tuple((name, name) for name in names)


def fast(prefix: str = "") -> Lines:
    """Shares over some speedups."""
    return tuple((f"over {p}×", f"{prefix}fast_{p}") for p in ("1", "1.2", "1.5"))


CHARTS: dict[str, tuple[Chart, ...]] = {
    "What it earns": (
        Chart(
            "Reward of the policy, by turn",
            "Mean over the step’s answers.",
            tuple((f"turn {n}", f"reward_turn_{n}") for n in range(1, TURNS + 1)),
        ),
        Chart(
            "Reward by role",
            "With the skills that selections chose, and without skills: best turns’ rewards, mean over conversations. "
            "Summaries: lower bound of their skills’ gain.",
            (
                ("selection", "reward_selection"),
                ("no skills", "reward_null"),
                ("summary", "reward_summary"),
            ),
        ),
        Chart(
            "Answers right and fast",
            "Shares of the policy’s answers in training.",
            (("right", "right"), *fast()),
            share=True,
        ),
    ),
    "Validation": (
        Chart(
            "fast_p",
            "Shares of the validation tasks: greedy, one turn, right and faster than so many times eager.",
            (("right", "val_fast_0"), *fast("val_")),
            share=True,
        ),
        Chart(
            "Speedup",
            "Geometric mean over the validation tasks, the original kept where nothing is faster.",
            (("speedup", "val_speedup"),),
        ),
    ),
    "The library": (
        Chart("Size", "Skills after each step.", same("skills")),
        Chart(
            "Churn",
            "Skills in each step; retired and merged ones when the library is groomed.",
            same("proposed", "tried", "admitted", "retired", "merged"),
            zero=True,
        ),
    ),
    "What is left out": (
        Chart(
            "Answers not learned from",
            "Shares of the policy’s answers: worth nothing after a good one, no better or worse than their peers, refused by "
            "profiling (PRS).",
            (
                ("void", "left_out_void / answers"),
                ("peers alike", "left_out_alike / answers"),
                ("not judged", "left_out_broken / answers"),
                ("PRS", "left_out_coverage / answers"),
            ),
            share=True,
        ),
        Chart(
            "Tasks that teach nothing",
            "In each step: all answers were worth the same, or the judge lets no speedup count.",
            same("dull", "degenerate"),
            zero=True,
        ),
        Chart(
            "Mismatch rejection (MRS)",
            "Share of rows whose probability sampler and learner disagree on.",
            (("rejected", "1 - kept"),),
            share=True,
        ),
        Chart(
            "Unreadable answers",
            "Shares of each role’s answers.",
            tuple((role, f"unread_{role}") for role in ("policy", "selection", "summary")),
            share=True,
        ),
    ),
    "The update": (
        Chart("Entropy", "Nats a token, of what is learned from.", same("entropy"), zero=True),
        Chart(
            "Mismatch",
            "|Mean log-ratio| of learner and sampler a token: mean over rows, and the worst.",
            (("mean", "mismatch"), ("worst", "mismatch_worst")),
            zero=True,
        ),
        Chart(
            "Divergence",
            "From the model that training began with (KL), nats a token, if the objective counts it.",
            same("kl"),
            zero=True,
        ),
        Chart("Gradient", "Norm before clipping.", (("norm", "grad_norm"),), zero=True),
        Chart("Clipped", "Share of tokens outside the clip.", same("clipped"), share=True),
    ),
    "Time": (
        Chart(
            "Seconds by stage",
            "In each step; the model writes within play, trials and validation, while others are judged.",
            tuple((stage, f"{stage}_s") for stage in (*STAGES, "write")),
            zero=True,
        ),
        Chart(
            "Kernels judged a second",
            "Different candidates over the seconds of play; cached verdicts are left out of the second line.",
            (("all", "judged / play_s"), ("uncached", "judged_anew / play_s")),
            zero=True,
        ),
    ),
}

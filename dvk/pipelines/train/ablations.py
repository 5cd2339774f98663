"""Named ablations of the method, each a few settings; `--sweep` measures their effect."""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType
from typing import Any, NamedTuple

from dvk.errors import UsageError


class Ablation(NamedTuple):
    """One ablation.

    Attributes:
        what: the part left out, as text.
        settings: dotted keys of the configuration → values.
    """

    what: str
    settings: MappingProxyType[str, Any]


def _without(what: str, **settings: Any) -> Ablation:
    return Ablation(
        what, MappingProxyType({name.replace("__", "."): value for name, value in settings.items()})
    )


_AS_IT_IS = {"rollout__summaries": 0, "trials__per_task": 0, "library__every": 0}
"""Settings without proposals, trials, merges and retirements."""

ABLATIONS: dict[str, Ablation] = {
    "no-skills": _without(
        "every task is played without skills, in as many conversations",
        agents__num_candidates=0,
        **_AS_IT_IS,
    ),
    "bm25-only": _without(
        "no selection agent: the skills that BM25 ranks first are given", rollout__selector="bm25"
    ),
    "frozen-library": _without("the library stays as it begins", **_AS_IT_IS),
    "no-summary-training": _without(
        "summaries are written and tried, and not learned from", credit__summary=0.0
    ),
    "no-selection-training": _without(
        "selections are made, and not learned from", credit__selection=0.0
    ),
    "grpo": _without(
        "group-normalised advantages (GRPO) for leave-one-out ones (TRLOO)",
        credit__advantage="grpo",
    ),
    "no-prs": _without(
        "right turns that leave the work to PyTorch are learned from, too",
        credit__profiling_rejection=False,
    ),
    "no-mrs": _without(
        "answers that sampler and learner disagree on are learned from, too",
        credit__mismatch_rejection=False,
    ),
}


def settings_of(names: Iterable[str]) -> dict[str, Any]:
    """The settings of some ablations together, by dotted key.

    Raises:
        UsageError: an unknown name.
    """
    result: dict[str, Any] = {}
    for name in names:
        if name not in ABLATIONS:
            raise UsageError(f"unknown ablation: `{name}`", f"choose of {', '.join(ABLATIONS)}")
        result.update(ABLATIONS[name].settings)
    return result

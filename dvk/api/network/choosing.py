"""Which modules of a model are worth a search: groups of equal ones, those that cover most of the time where kernels help most.

Equal modules have one class, weights of the same shapes, and are called alike; one search serves all. Groups may be nested: a decoder
layer, its MLP, its norms. The larger one is taken where it gains more than the best choice among what it holds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dvk.api.network.profiling import ModelProfile, SubmoduleTime

LEAST_SHARE = 0.02
"""Share of the model's time from which a group is looked at."""
MOST_TRIED = 10
"""Groups that are tried."""
STACKED = 3
"""Modules with weights in each of several equal parts from which a module is a stack of them, and no block itself."""
ADAPTED = ("Linear", "Embedding", "Conv")
"""Begin the names of layers that adapters wrap: the parts of one, as of LoRA's, are no block."""
LEAST_GAIN = 1.02
"""Estimated speedup from which a group is searched."""


@dataclass(frozen=True)
class Group:
    """Equal modules of a model."""

    name: str
    """Unique within the model, and a Python identifier."""
    kind: str
    """Import path of the class."""
    inputs: str
    paths: tuple[str, ...]
    ms: float
    """Of all of them, in one call of the model."""
    share: float


@dataclass(frozen=True)
class Tried:
    """The quick composition of a group: its gain over eager (1 if none), operators left to PyTorch, and why it is of no use."""

    gain: float
    left: int = 0
    why: str = ""


def groups(profile: ModelProfile) -> list[Group]:
    """Return the groups that are worth a look, those that take most time first."""
    alike: dict[tuple[str, str, str], list[SubmoduleTime]] = defaultdict(list)
    for part in profile.parts:
        alike[part.kind, part.structure, part.inputs].append(part)
    result: list[Group] = []
    names: dict[str, int] = {}
    for (kind, _, inputs), parts in alike.items():
        ms = sum(part.ms for part in parts)
        if ms < LEAST_SHARE * profile.ms or _is_stack(parts[0], profile):
            continue
        short = _identifier(kind.rpartition(".")[2])
        names[short] = names.get(short, 0) + 1
        name = short if names[short] == 1 else f"{short}_{names[short]}"
        paths = tuple(part.path for part in parts)
        result.append(Group(name, kind, inputs, paths, ms, ms / profile.ms))
    return sorted(result, key=lambda one: -one.ms)


def chosen(
    profile: ModelProfile, found: Sequence[Group], gains: Mapping[str, float]
) -> list[tuple[Group, tuple[str, ...]]]:
    """Return the groups that save most time together, each with the modules to replace, none inside another; largest saving first.

    Args:
        gains: speedup by a group's name; a group without one saves nothing.
    """
    group_of = {path: one for one in found for path in one.paths}
    inner: dict[str | None, list[SubmoduleTime]] = defaultdict(list)
    for part in profile.parts:
        inner[part.parent].append(part)

    def best(part: SubmoduleTime) -> tuple[float, list[SubmoduleTime]]:
        below = [best(one) for one in inner[part.path]]
        total, taken = sum(saved for saved, _ in below), [p for _, parts in below for p in parts]
        group = group_of.get(part.path)
        gain = gains.get(group.name, 1.0) if group else 1.0
        own = part.ms * (1 - 1 / gain) if gain >= LEAST_GAIN else 0.0
        return (own, [part]) if own > 0 and own >= total else (total, taken)

    paths: dict[str, list[str]] = defaultdict(list)
    saved: dict[str, float] = defaultdict(float)
    for part in (p for top in inner[None] for p in best(top)[1]):
        group = group_of[part.path]
        paths[group.name].append(part.path)
        saved[group.name] += part.ms * (1 - 1 / gains[group.name])
    taken = [one for one in found if one.name in paths]
    return [
        (one, tuple(paths[one.name])) for one in sorted(taken, key=lambda one: -saved[one.name])
    ]


def _is_stack(part: SubmoduleTime, profile: ModelProfile) -> bool:
    """Whether a module holds several equal blocks, each of which is to be searched once."""
    inner = [p for p in profile.parts if p.path.startswith(f"{part.path}.")]
    same: dict[tuple[str, str, str], int] = defaultdict(int)
    for one in inner:
        is_layer = one.kind.rpartition(".")[2].startswith(ADAPTED)
        same[one.kind, one.structure, one.inputs] += one.weighted >= STACKED and not is_layer
    return any(count > 1 for count in same.values())


def _identifier(name: str) -> str:
    text = "".join(char if char.isalnum() else "_" for char in name)
    return text if text.isidentifier() else f"block_{text}"

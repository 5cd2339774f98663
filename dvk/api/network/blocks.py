"""The blocks of a model in a run: tried quickly, searched one after another, and made into patches."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import nn

import dvk.api
from dvk.api.network import patching, profiling, trying
from dvk.api.network.choosing import LEAST_GAIN, MOST_TRIED, Group, Tried, chosen, groups
from dvk.api.network.patching import Patch
from dvk.api.network.profiling import ModelProfile
from dvk.api.network.reading import reads
from dvk.api.network.trying import Call
from dvk.api.result import Result
from dvk.api.written import write
from dvk.composer import CannotCompose
from dvk.config import Config
from dvk.errors import DvkError
from dvk.runs import RunFolder
from dvk.tasks.sourcefile import execute

TRIED = "tried.jsonl"
QUICK = "quick"
"""Folder of the texts of quick compositions."""
TRYING_SHARE = 0.4
"""Share of the budget that quick compositions may take."""
TRIED_AT_LEAST = 3
"""Groups that are tried at every budget, unless one before them gains."""
SECTIONS = ("judge", "optimize", "limits")
"""Settings that a block's search takes over."""
OF_A_BLOCK = {"optimize.own_kernels": True, "optimize.confirm": False}
"""Settings of a block's search: the whole model is confirmed, and not the block."""
LEAST_S = 5.0
"""Seconds of the shortest search."""


@dataclass
class Searched:
    """One group's search: its result, or why there is none."""

    group: Group
    result: Result | None
    why: str = ""

    @property
    def gain(self) -> float:
        """Speedup of one module over eager, as its search measured it; 1 if there is no drop-in."""
        return max(float(self.measured["speedup"]), 1.0) if self.measured is not None else 1.0

    @property
    def measured(self) -> dict[str, Any] | None:
        """`speedup`, `lo` and `hi` of the drop-in alone, in the search; None if there is none."""
        if self.text is None:
            return None
        assert self.result is not None
        rows = [row for row in self.result.summary["portfolio"] if row["speedup"]]
        return max(rows, key=lambda row: row["speedup"])

    @property
    def text(self) -> str | None:
        """Its drop-in. The search checks that it is right; its gain is proved with the whole model, and not alone."""
        if self.result is None:
            return None
        unproven = self.result.summary.get("unproven")
        return Path(unproven).read_text(encoding="utf-8") if unproven else self.result.source


class Blocks:
    """The groups of one model, with what became of each; the budget counts from `began`, on time.monotonic's clock.

    With `train` drop-ins compute forward and backward.
    """

    def __init__(
        self,
        run: RunFolder,
        model: nn.Module,
        call: Call,
        found: ModelProfile,
        backend: str,
        config: Config,
        alone: Callable[[], AbstractContextManager[None]],
        began: float,
        train: bool = False,
    ):
        self.run, self.model, self.call, self.profile = run, model, call, found
        self.backend, self.config, self.alone = backend, config, alone
        self.train = train
        self.groups = groups(found)
        self.tried: dict[str, Tried] = {}
        self.searched: dict[str, Searched] = {}
        self.reads = reads(model, *call)
        self._calls: dict[str, Call] = {}
        self._alike: dict[tuple[str, ...], tuple[list[str], dict[str, str]]] = {}
        self._began = began

    def calls(self, paths: list[str]) -> dict[str, Call]:
        """What the modules at these paths are called with."""
        if missing := [path for path in paths if path not in self._calls]:
            args, kwargs = self.call
            self._calls |= profiling.captured(self.model, args, kwargs, missing)
        return {path: self._calls[path] for path in paths}

    def try_all(self, note: Callable[[str], None]) -> None:
        """Compose one module of each group quickly; results of an earlier process are kept."""
        self.tried = {row.pop("name"): Tried(**row) for row in self.run.read(TRIED)}
        end = self._began + TRYING_SHARE * self.config.optimize.budget_s
        for group in self.groups[:MOST_TRIED]:
            if group.name in self.tried:
                continue
            if time.monotonic() > end and self._tried_enough():
                note("the other groups are not tried: the budget for quick compositions is spent")
                break
            path = group.paths[0]
            module, call = self.model.get_submodule(path), self.calls([path])[path]
            try:
                written = write(module, *call)
            except DvkError as error:
                found = Tried(1.0, why=error.message)
            else:
                with self.alone():
                    found, text = trying.tried(module, call, written, self.backend, self.train)
                if text is not None:
                    self._keep(group, written.entry, text)
            self.tried[group.name] = found
            self.run.append(TRIED, {"name": group.name, **asdict(found)})
            told = found.why or f"about {found.gain:.2f}x"
            note(
                f"{group.name} ({len(group.paths)} of them, {group.share:.0%} of the time): {told}"
            )

    def _tried_enough(self) -> bool:
        """Whether there is something to patch, or little hope for it."""
        gained = any(one.gain >= LEAST_GAIN for one in self.tried.values())
        return gained or len(self.tried) >= TRIED_AT_LEAST

    @property
    def gains(self) -> dict[str, float]:
        """Speedups by group: measured where it was searched, estimated else."""
        by_name = {name: one.gain for name, one in self.tried.items()}
        return by_name | {name: one.gain for name, one in self.searched.items()}

    def chosen(self) -> list[tuple[Group, tuple[str, ...]]]:
        """The choice by what is known now."""
        return chosen(self.profile, self.groups, self.gains)

    def search(self, note: Callable[[str], None], options: Mapping[str, Any], by: float) -> None:
        """Search the chosen groups, the largest saving first; one that gains nothing gives way to what it holds.

        Groups that the budget has no time for keep their quick compositions: the proof of the whole decides on those, too.

        Args:
            by: when the searches end, on time.monotonic's clock.
        """
        while True:
            waiting = [
                (group, sum(p.ms for p in self.profile.parts if p.path in paths))
                for group, paths in self.chosen()
                if group.name not in self.searched
            ]
            if not waiting:
                return
            group, ms = waiting[0]
            left = by - time.monotonic()
            folder = self.run.path / "blocks" / group.name
            if left < LEAST_S and not folder.exists():
                note("the budget is spent: what was not searched keeps its quick composition")
                return
            seconds = max(LEAST_S, left * ms / sum(took for _, took in waiting))
            note(f"search of {group.name}: {seconds:.0f} s")
            self.searched[group.name] = self._searched(group, seconds, options)

    def _searched(self, group: Group, seconds: float, options: Mapping[str, Any]) -> Searched:
        path = group.paths[0]
        args, kwargs = self.calls([path])[path]
        folder = self.run.path / "blocks" / group.name
        settings = self.config.model_dump(exclude_unset=True, include=set(SECTIONS))
        flat = {
            f"{section}.{key}": v for section, one in settings.items() for key, v in one.items()
        }
        try:
            result = dvk.api.optimize(
                self.model.get_submodule(path),
                *args,
                kwargs=kwargs,
                backend=self.backend,
                train=self.train,
                out=folder,
                resume=True,
                settings={**flat, **_budget(folder, seconds), **OF_A_BLOCK},
                progress=False,
                **options,
            )
        except DvkError as error:
            return Searched(group, None, error.message)
        return Searched(group, result, "" if result.faster else result.reason or result.status)

    def patches(self) -> tuple[list[Patch], dict[str, str]]:
        """The drop-ins of what was chosen, those of the searches first, and by path why an equal module is left out."""
        found = {k: v for k, v in self._quick_texts().items() if k not in self.searched}
        for name, one in self.searched.items():
            if one.text is not None and one.result is not None:
                assert one.result.written is not None
                found[name] = one.result.written.entry, one.text
        return self._patches(found)

    def quick_patches(self) -> list[Patch]:
        """The quick compositions of what looks worth a search."""
        return self._patches(self._quick_texts())[0]

    def _quick_texts(self) -> dict[str, tuple[str, str]]:
        """Entry and text of each quick composition, by the group's name."""
        found: dict[str, tuple[str, str]] = {}
        for group in self.groups:
            file = self._quick(group)
            if file.exists():
                entry, _, text = file.read_text(encoding="utf-8").partition("\n")
                found[group.name] = entry.removeprefix("# "), text
        return found

    def _patches(self, found: Mapping[str, tuple[str, str]]) -> tuple[list[Patch], dict[str, str]]:
        """Patches of the chosen groups.

        Args:
            found: entry and text of a drop-in, by the group's name.
        """
        made: list[Patch] = []
        left: dict[str, str] = {}
        for group, paths in self.chosen():
            if group.name not in found:
                continue
            entry, text = found[group.name]
            proved, apart = self.alike(list(paths))
            left |= apart
            modules = [self.model.get_submodule(path) for path in proved]
            keys = patching.configs(execute(text, role="block"), modules, self.reads)
            made.append(Patch(group.name, group.kind, entry, text, keys))
        return made, left

    def _quick(self, group: Group) -> Path:
        return self.run.path / QUICK / f"{group.name}.py"

    def _keep(self, group: Group, entry: str, text: str) -> None:
        self.run.write_text(f"{QUICK}/{group.name}.py", f"# {entry}\n{text}")

    def alike(self, paths: list[str]) -> tuple[list[str], dict[str, str]]:
        """Those of equal modules that compute the very graph of the searched one, and why others do not."""
        if (known := self._alike.get(tuple(paths))) is not None:
            return known
        group = next(one for one in self.groups if paths[0] in one.paths)
        first = group.paths[0]
        calls = self.calls([first, *paths])
        graph = trying.graph_of(self.model.get_submodule(first), calls[first]).graph
        proved: list[str] = []
        left: dict[str, str] = {}
        for path in paths:
            try:
                same = path == first or trying.same_graph(
                    trying.graph_of(self.model.get_submodule(path), calls[path]).graph, graph
                )
            except CannotCompose as error:
                left[path] = str(error)
                continue
            if same:
                proved.append(path)
            else:
                left[path] = f"it computes something else than {first}"
        self._alike[tuple(paths)] = proved, left
        return proved, left


def _budget(folder: Any, seconds: float) -> dict[str, float]:
    """The search's time: as asked before, where it was begun."""
    from dvk.run_places import read_manifest

    known = read_manifest(folder) if folder.is_dir() else None
    earlier = known and known["config"].get("optimize", {}).get("budget_s")
    return {"optimize.budget_s": earlier or round(seconds, 1)}

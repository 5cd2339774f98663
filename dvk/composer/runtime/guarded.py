"""The base class of drop-ins, which prepares the programs, and says why a call does not run them.

It travels inside drop-ins like the functions of `guards`.
"""

from __future__ import annotations

from typing import Any

import torch

from dvk.composer.runtime.facts import dvk_changes, dvk_facts_key
from dvk.composer.runtime.guards import (
    dvk_address,
    dvk_apart,
    dvk_bind,
    dvk_bound,
    dvk_counters,
    dvk_drop,
    dvk_watch,
    dvk_written,
)
from dvk.composer.runtime.operators import dvk_constant, dvk_untraceable
from dvk.composer.runtime.prepared import dvk_prepared
from dvk.composer.runtime.reasons import dvk_shown, dvk_why


class dvk_guarded(dvk_prepared):
    """The base of a ModelNew around its program and the original: it prepares itself at the first call, and again after changes."""

    _dvk_read: tuple = ()  # what forward reads of the modules: (paths, {attribute: value as text})
    _dvk_known = ""  # the same as hashes (dvk_facts_key) of other modules that the programs were proved for, apart by spaces
    # For each program: its parameters, what it was made for, as (shape, strides, dtype) or a value, and what unpacks nested arguments.
    _dvk_inputs: tuple = ()
    _dvk_device = "cpu"
    _dvk_autocast: tuple = ()  # types of autocast that change nothing
    _dvk_under: torch.dtype | None = None  # type of the autocast that the programs were made for
    _dvk_asked: tuple[
        str, ...
    ] = ()  # functions of torch whose answer, False, the programs depend on
    _dvk_apart: tuple[str, ...] = ()  # submodules that are left to PyTorch
    _dvk_calls: dict[
        str, tuple[str, str]
    ] = {}  # parts that they call: path of a submodule, and the name of a method of it or empty
    _dvk_paths: tuple[
        str, ...
    ] = ()  # weights that they read, as kernels expect them: position, shape, strides, dtype
    _dvk_layouts: tuple = ()
    _dvk_trains = (
        False  # the programs compute gradients, except of the weights at the frozen positions
    )
    _dvk_frozen: tuple[int, ...] = ()
    _dvk_writes: tuple[int, ...] = ()  # positions of the weights that the programs write

    @staticmethod
    def _dvk_load() -> bool:
        return True

    @property
    def dvk_calls(self) -> dict[str, int]:
        """How many calls ran kernels, and how many ran the original, by kind of reason."""
        return dict(self.__dict__.get("_dvk_counts", {"kernels": 0}))

    def dvk_why(self, *args: Any, **kwargs: Any) -> str:
        """What a call with these arguments would run: the kernels, or the original and every reason for it."""
        return dvk_why(self, args, kwargs)

    @dvk_constant
    def _dvk_untraceable(self, asked: tuple[str, ...]) -> str:
        # A method: Dynamo takes no module as an argument of a constant function before torch 2.13.
        return dvk_untraceable(self, asked)

    def _dvk_prepare(self) -> bool:
        self.__dict__.setdefault("_dvk_counts", {"kernels": 0})
        self._dvk_off = dvk_changes(self, self._dvk_read)  # reasons why no program runs
        if self._dvk_off and dvk_facts_key(self, self._dvk_read) in self._dvk_known.split():
            self._dvk_off = []
        bound = () if self._dvk_off else self._dvk_paths
        self._dvk_watched = dvk_watch(self, self._dvk_read, self._dvk_apart, bound)
        if self._dvk_trains:
            parts = [part for path, part in self.named_modules() if path]
            self._dvk_watched.hooks += [part._backward_hooks for part in parts]
            self._dvk_watched.hooks += [part._backward_pre_hooks for part in parts]
        self.__dict__.pop("_dvk_places", None)
        if self._dvk_off:
            return False
        owners = {key: self.get_submodule(path) for key, (path, _) in self._dvk_calls.items()}
        self._dvk_left = {
            key: getattr(owners[key], name) if name else owners[key]
            for key, (_, name) in self._dvk_calls.items()
        }
        if self._dvk_paths:
            self._dvk_weights, self._dvk_places = dvk_bind(self, self._dvk_paths)
            changed = [t for n in self._dvk_writes if (t := self._dvk_weights[n]).numel()]
            self._dvk_written = {dvk_address(t) for t in changed}
            if changed and not dvk_apart(self._dvk_weights, tuple(changed)):
                self._dvk_off.append(("weights", "weights share memory with one that is written"))
            self._dvk_counters = [
                c for c in dvk_counters(self) if dvk_address(c) not in self._dvk_written
            ]
            self._dvk_were = dvk_written(self._dvk_counters)
            for position, shape, strides, dtype in self._dvk_layouts:
                weight = self._dvk_weights[position]
                if weight.shape != shape or weight.stride() != strides or weight.dtype is not dtype:
                    path, now = self._dvk_paths[position], dvk_shown(weight.shape, weight.dtype)
                    made = f"the kernels were made for {dvk_shown(shape, dtype)} with {strides}"
                    text = f"`{path}` is {now} with strides {weight.stride()}; {made}"
                    self._dvk_off.append((path, text))
        if not self._dvk_off and not self._dvk_load():
            self._dvk_off.append(("loading", "the kernels could not be built or loaded here"))
        return not self._dvk_off

    def _dvk_is_stale(self) -> bool:
        # What the last examination rests on has changed.
        places = self.__dict__.get("_dvk_places")
        return not self._dvk_watched.same() or places is not None and not dvk_bound(places)

    def _dvk_again(self) -> bool:
        dvk_drop(self)
        self._dvk_ready = self._dvk_prepare()
        return self._dvk_ready

    def _dvk_follow(self) -> bool:
        # An optimizer or batch norm has written weights in their places: what is derived from them goes, and no fact has changed.
        dvk_drop(self)
        self._dvk_were = dvk_written(self._dvk_counters)
        return True

    def _dvk_forget(self) -> None:
        # After a change, the next call examines the module again, and holds no memory on a device that the weights may be about to leave.
        self.__dict__.pop("_dvk_ready", None)
        dvk_drop(self)

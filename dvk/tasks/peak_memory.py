"""Memory that one call of a reference takes: counted on meta tensors, which have shapes and no data, so that asking costs none.

    peak_bytes(task)       # weights, inputs, outputs and the intermediate results that live at the same time

A module that does not run on meta tensors (a value that decides, a numpy detour) has no estimate.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from dvk.records import Task
from dvk.tasks.build import build

SEED = 0
LIMIT_S = 3.0
"""Time for one call: recurrent layers take many steps on meta tensors. What was alive until then is the estimate."""


class TookLong(Exception):
    """The call did not end within `LIMIT_S`."""


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of all tensors that are alive, views once with what they view.

    Args:
        limit_s: seconds after which an operator raises `TookLong`.

    Attributes:
        now, most: bytes, at present and at the most.
    """

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        super().__init__()
        self.now = self.most = 0
        self._end = time.monotonic() + limit_s
        self._holders: dict[int, tuple[int, int]] = {}
        """Storage → its bytes, and the number of tensors on it."""
        self._seen: set[int] = set()

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if time.monotonic() > self._end:
            raise TookLong
        result = function(*args, **(kwargs or {}))
        self.count(tree_leaves(result))
        return result

    def count(self, values: Iterable[Any]) -> None:
        """Count tensors until they are freed."""
        for value in values:
            if isinstance(value, torch.Tensor) and id(value) not in self._seen:
                self._add(value)
        self.most = max(self.most, self.now)

    def _add(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        known, holders = self._holders.get(key, (size, 0))
        self.now += 0 if holders else size
        self._holders[key] = known, holders + 1
        self._seen.add(id(tensor))
        weakref.finalize(tensor, self._free, key, id(tensor))

    def _free(self, key: int, tensor: int) -> None:
        self._seen.discard(tensor)
        size, holders = self._holders.pop(key)
        if holders > 1:
            self._holders[key] = size, holders - 1
        else:
            self.now -= size


def peak_bytes(task: Task) -> int | None:
    """Return the bytes that one call takes at the most; None if it cannot be estimated. Executes the user's file."""
    try:
        with torch.no_grad():
            built = build(task.model_copy(update={"device": "meta"}))
            args, kwargs = built.inputs(SEED)
            live = LiveBytes()
            live.count([*built.model.parameters(), *built.model.buffers()])
            live.count(tree_leaves((args, kwargs)))
            with live, suppress(TookLong):
                built.model(*args, **kwargs)
    except (Exception, SystemExit):  # noqa: BLE001 - the user's code may raise anything; the real call reports it
        return None
    return live.most

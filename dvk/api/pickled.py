"""Live objects as files of tensors and a pickle that names what can be imported."""

from __future__ import annotations

import io
import pickle
from types import FunctionType, MethodType
from typing import Any

import torch

from dvk.api.importing import import_path
from dvk.api.source import Text


class _Writer(pickle.Pickler):
    """Pickles with tensors apart, so that their files can be mapped and moved; objects without an import path are written as text."""

    def __init__(self, out: io.BytesIO, text: Text):
        super().__init__(out, protocol=4)
        self.tensors: list[torch.Tensor] = []
        self._numbers: dict[int, int] = {}
        self._text = text

    def persistent_id(self, value: Any) -> int | str | None:
        if isinstance(value, torch.Tensor):
            if id(value) not in self._numbers:
                self._numbers[id(value)] = len(self.tensors)
                self.tensors.append(value)
            return self._numbers[id(value)]
        if isinstance(value, (type, FunctionType)):
            path = import_path(value)
            if path is None:
                return self._text.define(value)
            if path[0] == "types":
                self._text.bind(path[1], value)
                return path[1]
            self._text.needs(path[0])
        return None

    def reducer_override(self, value: Any) -> Any:
        # By default a bound method is looked up by name, and one that was put on the instance would find itself.
        return (
            (MethodType, (value.__func__, value.__self__))
            if isinstance(value, MethodType)
            else NotImplemented
        )


def dumped(value: Any, text: Text) -> bytes:
    """Write a file that `_dvk_read` reads.

    Args:
        value: anything.
        text: where classes and functions go that cannot be imported.

    Raises:
        NoSource, pickle.PicklingError, TypeError, AttributeError: it holds something that cannot be written.
    """
    rest, out = io.BytesIO(), io.BytesIO()
    writer = _Writer(rest, text)
    writer.dump(value)
    torch.save({"tensors": writer.tensors, "rest": rest.getvalue()}, out)
    return out.getvalue()

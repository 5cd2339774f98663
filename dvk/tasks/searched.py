"""Folders that a user's file puts on `sys.path`, so that every process that judges it can import from them.

They are recorded when the file is examined and are part of the task: isolated processes may read them and have them last on their path. A
relative one (`sys.path.append("lib")`) depends on the interpreter's working folder: it is looked up next to the file, then in the folder
that dvk was started in. Child side only.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

from dvk.errors import TaskError
from dvk.sandbox import importable


class SearchedFile:
    """Records changes of `sys.path` from its construction.

    Args:
        bases: folders that relative ones may refer to.
    """

    def __init__(self, bases: Iterable[str]):
        self._before = frozenset(sys.path)
        self._bases = tuple(dict.fromkeys(bases))
        sys.meta_path.append(self)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return what relative entries of the path contain; checked last."""
        if path is not None:
            return None
        relative = [entry for entry in self._entries() if not os.path.isabs(entry)]
        return PathFinder.find_spec(
            name, [folder for entry in relative for folder in self._meant(entry)]
        )

    def added(self, own: Iterable[str] = ()) -> tuple[str, ...]:
        """Return the folders and archives, absolute, in the order of the path; `own` are not the user's additions.

        Raises:
            TaskError: a module was imported from one that isolated processes must not read.
        """
        result = dict.fromkeys(folder for entry in self._entries() for folder in self._meant(entry))
        for folder in own:
            result.pop(folder, None)
        for folder in [folder for folder in result if importable.refused(folder)]:
            if (name := _imported_from(folder)) is not None:
                raise TaskError(
                    f"it imports `{name}` from `{folder}`, which candidates may not read",
                    "move the module into a separate folder next to the file, or install it",
                )
            del result[folder]
        return tuple(result)

    def _entries(self) -> list[str]:
        return [
            entry
            for entry in sys.path
            if isinstance(entry, str) and entry and entry not in self._before
        ]

    def _meant(self, entry: str) -> list[str]:
        places = (
            [entry] if os.path.isabs(entry) else [os.path.join(base, entry) for base in self._bases]
        )
        return [os.path.normpath(place) for place in places if os.path.exists(place)]


def have(folders: Iterable[str]) -> None:
    """Import from these, too, after all others."""
    missing = [folder for folder in folders if folder not in sys.path]
    if missing:
        sys.path += missing
        importlib.invalidate_caches()


def _imported_from(folder: str) -> str | None:
    """Whether a module's file, or its package, is directly in the folder."""
    for name, module in list(sys.modules.items()):
        file = vars(module).get("__file__") if isinstance(module, ModuleType) else None
        if isinstance(file, str) and os.path.dirname(file) in (
            folder,
            os.path.join(folder, name.partition(".")[0]),
        ):
            return name
    return None

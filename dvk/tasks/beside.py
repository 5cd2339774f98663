"""Files next to a user's file that it imports: their list, and their import where the folder cannot be read.

A task carries their texts like its own, so what is judged is what was examined, and isolated processes, which may read no home folder, have
them too. A process that serves one task after another forgets the files of the previous one. Child side only, except `has_files`.
"""

from __future__ import annotations

import atexit
import importlib
import shutil
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from dvk.records import content_hash
from dvk.tasks.packages import base_of
from dvk.tasks.sourcetext import read_source

PREFIX = "dvk_source_"
"""Prefix of every module that `sourcefile` executes."""
Texts = tuple[tuple[str, str], ...]
"""(path from the file's folder, or the package's parent folder; text) of each."""

_PACKAGE = str(Path(__file__).resolve().parent.parent)
_INSTALLED = {"site-packages", "dist-packages"}


class _Place(NamedTuple):
    folder: str
    texts: Texts
    roots: tuple[str, ...]
    """Folders that its files import from."""
    added: tuple[str, ...]
    """Those of them that were not on `sys.path`."""
    before: frozenset[str]
    """Modules that are not part of it."""


_copies: list[Path] = []
_places: list[_Place] = []
"""Empty or one place: the one whose files import now."""


def copy_folder() -> Path:
    """Return a folder for texts that the user's files do not contain, or not readably; it lasts as long as the process."""
    if not _copies:
        # The sandbox gives its children a scratch TMPDIR if it can; this covers a normal end elsewhere.
        folder = Path(tempfile.mkdtemp(prefix="dvk-source-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        _copies.append(folder)
    return _copies[0]


def settle(path: str, texts: Texts, package: str = "") -> Path | None:
    """Put the folder of the files next to `path`, and of its package, last on `sys.path`; a folder of copies if it needs copies.

    Args:
        path: the user's file.
        texts: the examined texts; copied if the folder does not contain exactly these.
        package: the package that the file is a module of.
    """
    base, folder = base_of(Path(path), package), str(Path(path).resolve().parent)
    if not (_places and (_places[0].folder, _places[0].texts) == (folder, texts)):
        while _places:
            _forget(_places.pop())
        inside = [package.replace(".", "/")] if package else []
        holders = (str(base),) if has_files(base, texts) else (_copied(texts), str(base))
        roots = tuple(
            str(Path(holder, *part))
            for holder in holders
            for part in ((), inside)[: 1 + len(inside)]
        )
        added = tuple(root for root in roots if root not in sys.path)
        sys.path += added
        importlib.invalidate_caches()
        _places.append(_Place(folder, texts, roots, added, frozenset(sys.modules)))
    copied = _places[0].roots[0] != str(base)
    return Path(_places[0].roots[0]) if copied else None


def import_roots() -> tuple[str, ...]:
    """Return the folders that the last executed file imports from without adding them."""
    return _places[0].roots if _places else ()


def imported() -> dict[str, Path]:
    """Return the files below the last executed file's folder that were imported since, relative to it, sorted.

    Files of installed packages (an environment, dvk), temporary files, and hidden folders such as caches do not count.
    """
    if not _places:
        return {}
    root = Path(_places[0].roots[0])
    files = [
        file for _, file in _modules(_places[0]) if file.is_relative_to(root) and file.is_file()
    ]  # a file in a zip does not count
    return dict(sorted((str(file.relative_to(root)), file) for file in files))


def texts_of(files: dict[str, Path]) -> Texts:
    """Return the texts of those that are text files."""
    result = []
    for name, file in files.items():
        try:
            result.append((name, read_source(file)))
        except UnicodeDecodeError:  # an extension module
            continue
    return tuple(result)


def has_files(folder: Path, texts: Texts) -> bool:
    """Whether it has files of exactly these texts, readably."""
    try:
        return all(read_source(folder / name) == text for name, text in texts)
    except (OSError, UnicodeDecodeError):
        return False


def _copied(texts: Texts) -> str:
    root = copy_folder() / f"beside_{content_hash(*(part for pair in texts for part in pair))}"
    for name, text in texts:
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return str(root)


def _forget(place: _Place) -> None:
    for name, _ in _modules(place):
        del sys.modules[name]
    for folder in place.added:
        if folder in sys.path:
            sys.path.remove(folder)


def _modules(place: _Place) -> list[tuple[str, Path]]:
    """Return name and file of the modules imported from the place."""
    result = []
    for name, module in list(sys.modules.items()):
        file = (
            vars(module).get("__file__") if isinstance(module, ModuleType) else None
        )  # a lazy module may import when asked
        if isinstance(file, str) and name not in place.before and not name.startswith(PREFIX):
            if any(_is_own(Path(file), Path(root)) for root in place.roots):
                result.append((name, Path(file)))
    return result


def _is_own(file: Path, root: Path) -> bool:
    if not file.is_relative_to(root) or not _INSTALLED.isdisjoint(root.parts):
        return False
    parts = file.relative_to(root).parts
    if not _INSTALLED.isdisjoint(parts) or any(part.startswith(".") for part in parts):
        return False
    others = [
        Path(other) for other in (sys.prefix, sys.base_prefix, _PACKAGE, tempfile.gettempdir())
    ]
    return not any(file.is_relative_to(other) for other in others if other.is_relative_to(root))

"""The result of `dvk.optimize`."""

from __future__ import annotations

import inspect
import shutil
import sys
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from dvk.api.live_folder import FOLDER, VALUES, placed
from dvk.api.written import Written
from dvk.errors import UsageError
from dvk.speedups import interval, over_baseline
from dvk.tasks.beside import PREFIX
from dvk.tasks.sourcefile import execute

ROLE = "best"
"""Prefix of the modules that drop-ins are loaded as."""
WHOM = {"eager": "faster than eager"}


@dataclass(frozen=True)
class Result:
    """The result of one search.

    Attributes:
        summary: what `dvk optimize --json` prints.
        written: the task file of the live module; None where a file was given.
        original: the live module or function; None where a file was given.
    """

    summary: dict[str, Any] = field(repr=False)
    written: Written | None = field(default=None, repr=False)
    original: Any = field(default=None, repr=False)

    @property
    def status(self) -> str:
        """`faster`, `no_speedup`, `too_noisy`, `failed` (no candidate was correct) or `no_verdict` (nothing was judged)."""
        return str(self.summary["status"])

    @property
    def faster(self) -> bool:
        """Whether a speedup over eager was proved."""
        return self.status == "faster"

    @property
    def reason(self) -> str | None:
        """Why no faster candidate was found."""
        return self.summary["reason"]

    @property
    def speedup(self) -> float:
        """Eager time / time of `module`, as measured when it was confirmed; 1.0 if `module` is the original."""
        return float(self.summary["speedup"]) if self.faster else 1.0

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of `speedup`; None if `module` is the original."""
        lo, hi = self.summary["speedup_lo"], self.summary["speedup_hi"]
        return (lo, hi) if self.faster and lo is not None and hi is not None else None

    @property
    def baselines(self) -> dict[str, dict[str, float]]:
        """Name → `ms`, and `speedup`, `lo`, `hi` of the drop-in over it: eager, and requested baselines."""
        return {name: dict(found) for name, found in self.summary["baselines"].items() if found}

    @property
    def run(self) -> Path:
        """The run folder."""
        return Path(self.summary["run"])

    @property
    def report(self) -> Path:
        """The report, an HTML page."""
        return self.run / "report.html"

    @property
    def source(self) -> str | None:
        """Text of the drop-in; None if none was proved faster."""
        return (
            Path(self.summary["best"]).read_text(encoding="utf-8") if self.summary["best"] else None
        )

    @cached_property
    def module(self) -> Any:
        """The optimised module, ready to call, or the original if none was proved faster.

        It shares weights, buffers and submodules with the given module, so further training of that module takes effect here. Kernels run
        under `torch.no_grad()`, for inputs like the examples; otherwise the original computation runs. For a file, it is `ModelNew` as
        constructed by itself; None if none was proved faster.
        """
        if self.source is None:
            return self.original
        defined = self._defined
        if self.written is None:
            given: Any = getattr(defined, "get_init_inputs", list)()
            return (
                defined.ModelNew(*given)
                if isinstance(given, (list, tuple))
                else defined.ModelNew(**given)
            )
        live = getattr(defined, self.written.entry, None)
        if not isinstance(self.original, nn.Module) or self.written.how != "source":
            return defined.ModelNew()
        if not (
            isinstance(live, type) and issubclass(defined.ModelNew, live)
        ):  # written by a model, with a different constructor
            made = defined.ModelNew()
            made.load_state_dict(self.original.state_dict())
            return made.train(self.original.training)
        # The user's own class in the place of its copy: calls that no kernel fits run what the user has.
        live.__bases__ = (type(self.original),)
        made = defined.ModelNew.__new__(defined.ModelNew)
        made.__dict__ = {
            key: dict(value) if isinstance(value, dict) and key.startswith("_") else value
            for key, value in vars(self.original).items()
        }
        return made

    @cached_property
    def _defined(self) -> ModuleType:
        before = list(sys.path)
        try:
            return execute(self.source or "", role=ROLE)
        finally:
            sys.path[:] = before

    def save(self, path: str | Path) -> Path:
        """Write the drop-in to `path`, with the weights that it needs in a folder next to it.

        `from fast import ModelNew` and `ModelNew()` then give the module with its weights, in any process that has torch.

        Args:
            path: a Python file, e.g. `fast.py`.

        Raises:
            UsageError: none was proved faster; `path` is no Python file, or there is something else next to it.
        """
        file = Path(path)
        if self.source is None:
            raise UsageError(
                f"there is no drop-in to save: {self.reason or self.status}",
                "search for longer with budget_s=600",
            )
        if file.suffix != ".py":
            raise UsageError(
                f"`{file}` is no Python file", "give a name that ends in .py, e.g. fast.py"
            )
        text = self.source
        file.parent.mkdir(parents=True, exist_ok=True)
        if self.written is not None and f"\n{FOLDER} = " in text:
            folder = file.with_name(f"{file.stem}_{VALUES}")
            shutil.copytree(self.written.folder / VALUES, folder, dirs_exist_ok=True)
            text = placed(
                text, f"os.path.join(os.path.dirname(os.path.abspath(__file__)), {folder.name!r})"
            )
        file.write_text(text, encoding="utf-8")
        return file

    def __str__(self) -> str:
        if not self.faster:
            return f"nothing faster was found ({self.status}): {self.reason}"
        said = [
            over_baseline(found, WHOM.get(name, f"over torch.{name}"))
            for name, one in self.baselines.items()
            if (found := interval(one))
        ]
        return f"{', '.join(said)}: {self.summary['title']}"

    def __repr__(self) -> str:
        return f"<dvk.Result {self.status} {self.speedup:.2f}x, {self.run}>"

    def _repr_html_(self) -> str:
        """Return a table for notebooks."""
        rows = "".join(
            f"<tr><td>{escape(name)}</td><td>{one['ms']:.4g} ms</td><td>{escape(str(over_baseline(found, '')).strip())}</td></tr>"
            for name, one in self.baselines.items()
            if (found := interval(one))
        )
        table = (
            f"<table><tr><th>baseline</th><th>time</th><th>speedup of the drop-in</th></tr>{rows}</table>"
            if self.faster
            else ""
        )
        return (
            f"<div><p><b>{escape(str(self))}</b></p>{table}"
            f"<p>report: <code>{escape(str(self.report))}</code></p></div>"
        )


def dropin_of(value: Any) -> str | None:
    """Return the text of the drop-in that a result, or its module, is; None for anything else, and if the original was kept.

    Raises:
        UsageError: a result without one.
    """
    if isinstance(value, Result):
        if value.source is None:
            raise UsageError(
                "the result has no drop-in to verify", "search for longer with budget_s=600"
            )
        return value.source
    name = type(value).__module__
    return (
        inspect.getsource(sys.modules[name])
        if name.startswith(f"{PREFIX}{ROLE}_") and name in sys.modules
        else None
    )

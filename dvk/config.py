"""Every number a user may change, written once, with its unit and its reason.

Precedence: defaults here < `--config file.toml` < `--set a.b=c` < named flags.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dvk.errors import UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


class Section(BaseModel):
    """A group of settings that refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Limits(Section):
    """What one sandboxed child may use."""

    wall_s: float = Field(
        300.0, gt=0, description="Wall clock of a whole session; a cold torch.compile takes about a minute.")
    memory_bytes: int = Field(16 << 30, gt=0, description="Resident memory of the child's process tree.")
    num_processes: int = Field(512, gt=0, description="Processes and threads; torch alone starts one a core.")
    output_bytes: int = Field(
        1 << 16, gt=0, description="Kept tail of what the child prints; the rest is read and dropped.")


class Judge(Section):
    """How far and how long the judge looks."""

    num_seeds: int = Field(3, ge=1, description="Fresh input draws a shape variant at the search tier.")
    candidate_s: float = Field(60.0, gt=0, description="Wall clock for one candidate: compile, check and time.")
    search_pairs: int = Field(30, ge=5, description="Paired samples at the search tier.")
    claim_pairs: int = Field(50, ge=20, description="Paired samples at the claim tier, in each process.")
    search_s: float = Field(0.5, gt=0, description="Longest measuring time at the search tier.")
    claim_s: float = Field(1.0, gt=0, description="Longest measuring time at the claim tier, an arm and process.")
    settled: float = Field(
        0.005, gt=0, description="A search stops timing once the ratio's standard error is below this share.")


class Optimize(Section):
    """How `dvk optimize` searches."""

    budget_s: float = Field(120.0, gt=0, description="Wall clock of the search, final confirmation excluded.")
    num_skills: int = Field(20, ge=0, description="Skills that retrieval ranks for a task.")
    query_terms: int = Field(32, ge=1, description="Rarest terms of the graph's listing kept in a retrieval query.")


class Config(Section):
    """All settings."""

    seed: int = Field(0, description="Seeds everything that is not required to be secret.")
    limits: Limits = Limits()
    judge: Judge = Judge()
    optimize: Optimize = Optimize()


def load(file: Path | None = None, settings: Sequence[str] = (), flags: dict[str, Any] | None = None) -> Config:
    """Merge the four sources.

    Args:
        file: a TOML file whose tables are the sections.
        settings: `a.b=c` strings; `c` is JSON if it parses as such, else text.
        flags: dotted key → value from named flags; None values are skipped.

    Raises:
        UsageError: unreadable file, unknown key or value of the wrong kind.
    """
    merged: dict[str, Any] = {}
    if file is not None:
        try:
            merged = tomllib.loads(file.read_text())
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise UsageError(f"cannot read `{file}`: {error}", "give a readable TOML file") from None
    for setting in settings:
        key, separator, text = setting.partition("=")
        if not separator:
            raise UsageError(f"not a setting: `{setting}`", "write --set section.key=value")
        _put(merged, key.strip(), _literal(text.strip()))
    for key, value in (flags or {}).items():
        if value is not None:
            _put(merged, key, value)
    try:
        return Config.model_validate(merged)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise UsageError(f"bad setting `{key}`: {first['msg']}", "see `dvk doctor --settings` for all keys") from None


def _literal(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _put(tree: dict[str, Any], dotted: str, value: Any) -> None:
    *parents, last = dotted.split(".")
    for parent in parents:
        branch: Any = tree.setdefault(parent, {})
        if not isinstance(branch, dict):
            problem = f"bad setting `{dotted}`: `{parent}` is not a section"
            raise UsageError(problem, "see `dvk doctor --settings` for all keys")
        tree = branch
    tree[last] = value

"""Every number a user may change, written once, with its unit and its reason.

Precedence: defaults here < `--config file.toml` < `--set a.b=c` < named flags.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from dvk.config import names
from dvk.config.judging import Judge, Limits, Optimize
from dvk.config.learning import Credit, Learning, Objective, Rewards, Trials
from dvk.config.library import Grooming
from dvk.config.models import Agents, Backbone, Rollout
from dvk.config.remote import Remote, Serve
from dvk.config.searching import Contrastive, Evolve, Polca, Review, Search
from dvk.config.section import Section
from dvk.config.teaching import Collect, Diversity, Fit, Speedups
from dvk.config.training import Training
from dvk.errors import UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["Agents", "Backbone", "Collect", "Config", "Contrastive", "Credit", "Diversity", "Evolve", "Fit", "Grooming", "Judge",
           "Learning", "Limits", "Objective", "Optimize", "Polca", "Remote", "Review", "Rewards", "Rollout", "Search", "Section", "Serve",
           "Speedups", "Training", "Trials", "changed", "load"]


_QUOTED = re.compile(r"""\s*(["'])(.*?)\1\s*""")
_PLAIN = re.compile(r"([^.=]*)")


class Config(Section):
    """All settings."""

    seed: int = Field(0, description="Seeds everything that is not required to be secret.")
    limits: Limits = Limits()
    judge: Judge = Judge()
    optimize: Optimize = Optimize()
    backbone: Backbone = Backbone()
    agents: Agents = Agents()
    rollout: Rollout = Rollout()
    rewards: Rewards = Rewards()
    credit: Credit = Credit()
    objective: Objective = Objective()
    search: Search = Search()
    learning: Learning = Learning()
    collect: Collect = Collect()
    fit: Fit = Fit()
    train: Training = Training()
    trials: Trials = Trials()
    diversity: Diversity = Diversity()
    library: Grooming = Grooming()
    remote: Remote = Remote()
    serve: Serve = Serve()


def load(file: Path | None = None, settings: Sequence[str] = (), flags: dict[str, Any] | None = None) -> Config:
    """Merge the four sources.

    Args:
        file: a TOML file whose tables are the sections.
        settings: `a.b=c` strings; `c` is JSON if it parses as such, else text. Parts of the key may be quoted: `a."x.py:term"=1`.
        flags: dotted key → value from named flags; None values are skipped.

    Raises:
        UsageError: unreadable file, unknown key or name, or value of the wrong kind.
    """
    merged: dict[str, Any] = {}
    if file is not None:
        try:
            merged = tomllib.loads(file.read_text())
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise UsageError(f"cannot read `{file}`: {error}", "give a readable TOML file") from None
    defaults = Config()
    for setting in settings:
        path, text = split(setting)
        if text is None:
            raise UsageError(f"not a setting: `{setting}`", "write --set section.key=value")
        _put(merged, path, _literal(text.strip()), defaults)
    for key, value in (flags or {}).items():
        if value is not None:
            _put(merged, split(key)[0], value, defaults)
    return _validated(merged)


def changed(config: Config, settings: Mapping[str, Any]) -> Config:
    """The configuration with some settings replaced, by dotted key.

    Raises:
        UsageError: unknown key or value of the wrong kind.
    """
    merged = config.model_dump()
    for key, value in settings.items():
        _put(merged, split(key)[0], value)
    return _validated(merged)


def _validated(merged: dict[str, Any]) -> Config:
    try:
        config = Config.model_validate(merged)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise UsageError(f"bad setting `{key}`: {first['msg']}", "see `dvk doctor --settings` for all keys") from None
    names.check(config, Config())
    return config


def _literal(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def split(setting: str) -> tuple[list[str], str | None]:
    """The parts of a dotted key, and the text after the first `=`; None where there is none. Parts may stand in quotes, as in TOML.

    Raises:
        UsageError: a quote is not closed, or something follows it.
    """
    parts, at = [], 0
    while True:
        quoted = _QUOTED.match(setting, at)
        plain = _PLAIN.match(setting, at)
        assert plain is not None, "it matches nothing at all, too"
        found = quoted or plain
        parts.append((found.group(2) if quoted else found.group(1)).strip())
        at = found.end()
        follows = setting[at : at + 1]
        if follows in ("=", ""):
            return parts, setting[at + 1 :] if follows else None
        if follows != "." or (not quoted and parts[-1][:1] in ("'", '"')):
            raise UsageError(f"not a setting: `{setting}`", "close the quotes: --set 'section.\"quoted key\".last=value'")
        at += 1


def _put(tree: dict[str, Any], path: Sequence[str], value: Any, defaults: Any = None) -> None:
    """Set one value; a table that is a setting itself begins as it is among `defaults`, so that its other entries stay."""
    *parents, last = path
    for parent in parents:
        defaults = getattr(defaults, parent, None)
        branch: Any = tree.setdefault(parent, dict(defaults) if isinstance(defaults, dict) else {})
        if not isinstance(branch, dict):
            problem = f"bad setting `{'.'.join(path)}`: `{parent}` is not a section"
            raise UsageError(problem, "see `dvk doctor --settings` for all keys")
        tree = branch
    tree[last] = value

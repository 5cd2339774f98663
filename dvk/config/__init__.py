"""All settings with defaults, units and reasons.

Precedence: defaults here < `--recipe name` < `--config file.toml` < `--set a.b=c` < named flags.
"""

from __future__ import annotations

import difflib
import json
import re
import sys
from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import Field, ValidationError

from dvk.config import former, names
from dvk.config.judging import JudgeConfig, Limits, OptimizeConfig
from dvk.config.learning import (
    CreditConfig,
    LearningConfig,
    ObjectiveConfig,
    RewardsConfig,
    TrialsConfig,
)
from dvk.config.library import LibraryConfig
from dvk.config.models import AgentsConfig, BackboneConfig, RolloutConfig
from dvk.config.remote import RemoteConfig, ServeConfig
from dvk.config.section import Section
from dvk.config.served import ServedConfig
from dvk.config.teaching import ChooseConfig, CollectConfig, DiversityConfig, FitConfig
from dvk.config.training import TrainConfig
from dvk.errors import UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = [
    "AgentsConfig",
    "BackboneConfig",
    "CollectConfig",
    "Config",
    "CreditConfig",
    "DiversityConfig",
    "FitConfig",
    "LibraryConfig",
    "JudgeConfig",
    "LearningConfig",
    "Limits",
    "ObjectiveConfig",
    "OptimizeConfig",
    "RemoteConfig",
    "RewardsConfig",
    "RolloutConfig",
    "Section",
    "ServeConfig",
    "ServedConfig",
    "TrainConfig",
    "TrialsConfig",
    "changed",
    "load",
    "restored",
]


_QUOTED = re.compile(r"""\s*(["'])(.*?)\1\s*""")
_PLAIN = re.compile(r"([^.=]*)")


class Config(Section):
    """All settings."""

    seed: int = Field(0, description="Seed of everything that need not be secret.")
    limits: Limits = Limits()
    judge: JudgeConfig = JudgeConfig()
    optimize: OptimizeConfig = OptimizeConfig()
    backbone: BackboneConfig = BackboneConfig()
    agents: AgentsConfig = AgentsConfig()
    rollout: RolloutConfig = RolloutConfig()
    rewards: RewardsConfig = RewardsConfig()
    credit: CreditConfig = CreditConfig()
    objective: ObjectiveConfig = ObjectiveConfig()
    learning: LearningConfig = LearningConfig()
    collect: CollectConfig = CollectConfig()
    fit: FitConfig = FitConfig()
    choose: ChooseConfig = ChooseConfig()
    train: TrainConfig = TrainConfig()
    trials: TrialsConfig = TrialsConfig()
    diversity: DiversityConfig = DiversityConfig()
    library: LibraryConfig = LibraryConfig()
    remote: RemoteConfig = RemoteConfig()
    serve: ServeConfig = ServeConfig()
    served: ServedConfig = ServedConfig()


def load(
    file: Path | None = None,
    settings: Sequence[str] = (),
    flags: dict[str, Any] | None = None,
    recipe: Mapping[str, Any] = MappingProxyType({}),
) -> Config:
    """Merge the sources.

    Args:
        recipe: settings that all others override, as `cli.recipes.read` gives them.
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
            raise UsageError(
                f"cannot read `{file}`: {error}", "give a readable TOML file"
            ) from None
    for name, section in recipe.items():
        told = merged.get(name, {})
        merged[name] = (
            {**section, **told} if isinstance(section, dict) and isinstance(told, dict) else told
        )
    defaults = Config()
    _put_all(merged, settings, defaults)
    for key, value in (flags or {}).items():
        if value is not None:
            _put(merged, split(key)[0], value, defaults)
    return _validated(former.update(merged))


def changed(config: Config, settings: Mapping[str, Any]) -> Config:
    """Return the configuration with some settings replaced, by dotted key.

    Raises:
        UsageError: unknown key or value of the wrong kind.
    """
    merged = config.model_dump()
    for key, value in settings.items():
        _put(merged, split(key)[0], value)
    return _validated(former.update(merged))


def with_settings(config: Config, settings: Sequence[str]) -> Config:
    """Return the configuration with some `a.b=c` strings applied.

    Raises:
        UsageError: see `load`.
    """
    merged = config.model_dump()
    _put_all(merged, settings)
    return _validated(former.update(merged))


def restored(stored: dict[str, Any]) -> Config:
    """Return the settings of a run folder, which an earlier version may have written.

    Raises:
        UsageError: a key or value that no version had.
    """
    return _validated(former.update(stored, quiet=True))


def _validated(merged: dict[str, Any]) -> Config:
    try:
        config = Config.model_validate(merged)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        if first["type"] == "extra_forbidden":
            near = difflib.get_close_matches(key, _keys(Config()), cutoff=0.7)
            hint = f"did you mean {' or '.join(f'`{one}`' for one in near)}? " if near else ""
            raise UsageError(
                f"bad setting `{key}`: unknown setting",
                f"{hint}see `dvk doctor --settings` for all keys",
            ) from None
        hint = "see `dvk doctor --settings` for all keys"
        parent, _, last = key.rpartition(".")
        if isinstance(first["input"], dict) and parent in _tables():  # `weights.x.py:term=1`
            hint = f"a name with dots is quoted: --set '{parent}.\"{last}.…\"=value'"
        raise UsageError(f"bad setting `{key}`: {first['msg']}", hint) from None
    names.check(config, Config())
    return config


def _keys(section: Section, prefix: str = "") -> list[str]:
    """All dotted keys."""
    values = {name: getattr(section, name) for name in type(section).model_fields}
    return [
        key
        for name, value in values.items()
        for key in (
            _keys(value, f"{prefix}{name}.") if isinstance(value, Section) else [prefix + name]
        )
    ]


def _tables() -> set[str]:
    """Dotted keys of the settings that are tables of names."""
    defaults = Config()
    return {
        key
        for key in _keys(defaults)
        if isinstance(reduce(getattr, key.split("."), defaults), dict)
    }


def _literal(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def split(setting: str) -> tuple[list[str], str | None]:
    """Split a setting into the parts of its dotted key and the text after the first `=` (None without one). Parts may be quoted, as in
    TOML.

    Raises:
        UsageError: a quote is not closed, or something follows it.
    """
    parts, at = [], 0
    while True:
        quoted = _QUOTED.match(setting, at)
        plain = _PLAIN.match(setting, at)
        assert plain is not None, "it matches nothing at all, too"
        match = quoted or plain
        parts.append((match.group(2) if quoted else match.group(1)).strip())
        at = match.end()
        follows = setting[at : at + 1]
        if follows in ("=", ""):
            return parts, setting[at + 1 :] if follows else None
        if follows != "." or (not quoted and parts[-1][:1] in ("'", '"')):
            raise UsageError(
                f"not a setting: `{setting}`",
                "close the quotes: --set 'section.\"quoted key\".last=value'",
            )
        at += 1


def _put_all(tree: dict[str, Any], settings: Sequence[str], defaults: Any = None) -> None:
    for setting in settings:
        path, text = split(setting)
        if text is None:
            raise UsageError(f"not a setting: `{setting}`", "write --set section.key=value")
        _put(tree, path, _literal(text.strip()), defaults)


def _put(tree: dict[str, Any], path: Sequence[str], value: Any, defaults: Any = None) -> None:
    """Set one value; a setting that is a table starts as a copy of its default, so that its other entries stay."""
    *parents, last = path
    for parent in parents:
        defaults = getattr(defaults, parent, None)
        branch: Any = tree.setdefault(parent, dict(defaults) if isinstance(defaults, dict) else {})
        if not isinstance(branch, dict):
            problem = f"bad setting `{'.'.join(path)}`: `{parent}` is not a section"
            raise UsageError(problem, "see `dvk doctor --settings` for all keys")
        tree = branch
    tree[last] = value

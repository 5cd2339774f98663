"""What a patch does with modules inside of others."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from torch import nn

from dvk.api.network import applying, patching
from dvk.composer.runtime import facts, sources
from tests.pipelines.input_sets import imported


class Inner(nn.Module):
    pass


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()


@pytest.fixture
def patches(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package with drop-ins of both classes, that of the inner one first."""
    blocks = {}
    for kind in (Inner, Outer):
        new = type("ModelNew", (kind,), {"_dvk_read": (), "_dvk_known": "key"})
        drop_in = SimpleNamespace(
            ModelNew=new, dvk_facts_key=lambda part, read: "key", dvk_described=str
        )
        monkeypatch.setitem(sys.modules, f"{applying.__name__}.{kind.__name__}", drop_in)
        name = f"{kind.__module__}.{kind.__qualname__}"
        blocks[kind.__name__] = {"class": name, "entry": "none", "configs": ["key"]}
    monkeypatch.setattr(applying, "BLOCKS", blocks)


def patched(model: nn.Module) -> list[str]:
    return [path for path, part in model.named_modules() if type(part).__name__ == "ModelNew"]


def test_a_module_inside_a_patched_one_stays_as_its_kernels_expect_it(patches: None) -> None:
    model = nn.ModuleDict({"layer": Outer(), "last": Inner()})
    for _ in range(2):
        applying.apply(model, quiet=True)
        assert patched(model) == ["layer", "last"]
    applying.remove(model)
    assert patched(model) == []
    applying.apply(model, quiet=True, only=["Inner"])
    assert patched(model) == ["layer.inner", "last"]


class Settings:
    """A configuration, of which models read the width."""

    def __init__(self) -> None:
        self.width, self.name = 8, "first"


def test_guards_see_of_a_configuration_what_is_read_of_it() -> None:
    drop_in: Any = imported(facts.__file__)
    model = nn.Linear(2, 2)
    model.settings, model.eps = Settings(), 0.5
    drop_in.ModelNew = SimpleNamespace(
        _dvk_read=((("",), {"settings": "Settings as text", "eps": "0.5"}),), _dvk_known=""
    )
    read = {"Settings": ["width"]}
    key = applying.dvk_key(drop_in, model, read)
    applying.dvk_known(drop_in, model, read)
    new = drop_in.ModelNew
    model.settings.name = "other"
    assert drop_in.dvk_changes(model, new._dvk_read) == []
    assert applying.dvk_key(drop_in, model, read) == key == new._dvk_known.strip()
    model.settings.width = 9
    ((_, text),) = drop_in.dvk_changes(model, new._dvk_read)
    assert "{'width': 9}; the kernels were made for Settings with {'width': 8}" in text
    assert applying.dvk_unlike(drop_in, model, read) == "its configuration differs in one of width"
    model.eps = 0.25
    assert (
        applying.dvk_unlike(drop_in, model, read) == "`eps` is 0.25; the kernels were made for 0.5"
    )


def test_a_patch_advises_what_whole_models_take(tmp_path: Path) -> None:
    one = patching.Patch("One", "kind", "entry", sources.text(["dvk_unlike"]), ())
    text = (patching.write(tmp_path, [one], "model", {}) / "One.py").read_text(encoding="utf-8")
    assert "dvk optimize --model … --input" in text and "--also" not in text

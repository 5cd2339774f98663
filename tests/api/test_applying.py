"""What a patch does with modules inside of others."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
from torch import nn

from dvk.api.network import applying


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
        drop_in = SimpleNamespace(ModelNew=new, dvk_facts_key=lambda part, read: "key")
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

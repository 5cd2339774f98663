"""What all tests share: no test touches the user's own `$DVK_HOME`, and `gpu` tests wait for a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dvk import machine


@pytest.fixture(scope="session", autouse=True)
def dvk_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A `$DVK_HOME` of this test session's own."""
    home = tmp_path_factory.mktemp("dvk-home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DVK_HOME", str(home))
        yield home


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    wanted = [item for item in items if item.get_closest_marker("gpu")]
    if wanted and not machine.gpu_names():
        for item in wanted:
            item.add_marker(pytest.mark.skip(reason="needs an NVIDIA GPU"))

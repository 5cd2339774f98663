"""Shared by all tests: a `$DVK_HOME` that is not the user's, a GPU if one is requested, separate turns on two cores."""

from __future__ import annotations

import atexit
import fcntl
import gc
import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dvk import machine

# Before anything loads OpenMP. Threads that spin while others wait for the core make a test ten times as long.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

HERE = Path(__file__).parent


@pytest.fixture(scope="session", autouse=True)
def dvk_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A `$DVK_HOME` of this test session's own."""
    home = tmp_path_factory.mktemp("dvk-home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DVK_HOME", str(home))
        yield home


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Imported modules are permanent: the collector would walk all of torch's objects again and again, as the tests' own ones grow."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        atexit.register(gc.unfreeze)
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    wanted = [item for item in items if item.get_closest_marker("gpu")]
    if wanted and not machine.gpu_names():
        for item in wanted:
            item.add_marker(pytest.mark.skip(reason="needs an NVIDIA GPU"))


# ---------------------------------------------------------------- several processes: `-n 2`


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """A file stays in one process, which makes its fixtures once; the order is that of the folders, the small ones last."""
    if config.getvalue("dist") != "load":
        return None
    from xdist.scheduler import LoadFileScheduling

    config.option.loadscopereorder = False
    return LoadFileScheduling(config, log)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Tests marked `alone` wait until the other processes' tests have ended, which then wait for them."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return (yield)
    with _held(
        HERE / "conftest.py", fcntl.LOCK_EX
    ) as turn:  # in line: no process overtakes one that waits for exclusive use
        with _held(HERE, fcntl.LOCK_EX if item.get_closest_marker("alone") else fcntl.LOCK_SH):
            fcntl.flock(turn, fcntl.LOCK_UN)
            return (yield)


@contextmanager
def _held(path: Path, how: int) -> Iterator[int]:
    """A lock that ends with this process at the latest; forked children do not prolong it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, how)
        yield descriptor
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)

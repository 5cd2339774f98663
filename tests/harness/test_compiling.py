"""What processes that compile share."""

from __future__ import annotations

import pytest

from dvk import machine
from dvk.harness.session import compiling


def test_processes_that_compile_at_once_share_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten judges on 16 cores started pools of 16 workers each: their first verdicts took 42 to 62 s."""
    monkeypatch.setattr(machine, "num_cores", lambda: 16)
    assert compiling.threads(10) == {"TORCHINDUCTOR_COMPILE_THREADS": "1"}
    assert compiling.threads(4) == {"TORCHINDUCTOR_COMPILE_THREADS": "4"}
    assert compiling.threads(1) == {}, "alone, PyTorch decides"

"""What travels inside drop-ins is the functions' own source, and to write it no torch is loaded."""

from __future__ import annotations

import inspect
import subprocess
import sys
from types import ModuleType

import pytest

from dvk.composer import carried, cuda_launch, embedded
from dvk.composer.compact import frame


@pytest.mark.parametrize("module", [embedded, cuda_launch, frame], ids=lambda module: module.__name__)
def test_texts_are_the_functions_own(module: ModuleType) -> None:
    functions = {name: value for name, value in vars(module).items() if inspect.isfunction(value) and name.startswith("dvk_")}
    assert functions
    for name, function in functions.items():
        assert carried.texts()[name] == inspect.getsource(function)


def test_the_search_of_a_module_loads_no_torch() -> None:
    code = "import sys, dvk.pipelines.optimize; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0

"""Every way in which a user's file is malformed gives a TaskError that says what and what to do."""

from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from textwrap import dedent

import pytest

from dvk import machine
from dvk.config import Limits
from dvk.errors import DvkError, Exhausted, MachineError, TaskError
from dvk.tasks import load

LIMITS = Limits(wall_s=60, memory_bytes=4 << 30)
INPUTS = "\ndef get_inputs(): return [torch.rand(4, 8)]\n"


def _with_inputs(text: str) -> str:
    return dedent(text) + INPUTS


def refuse(path: Path | str, **options: object) -> TaskError:
    options.setdefault("limits", LIMITS)
    with pytest.raises(TaskError) as caught:
        load(str(path), **options)  # type: ignore[arg-type]
    assert caught.value.hint
    assert "Traceback" not in caught.value.message
    return caught.value


CASES = {
    "syntax": ("import torch\ndef f(x:\n    return x\n", r"is not Python: .*line 2: def f\(x:"),
    "null byte": ("import torch\nx = '\0'\n", r"is not Python: [^,]*null bytes$"),
    "too deep": ("import torch\nx = " + "(" * 5000 + ")" * 5000, "is not Python|crashed"),
    "empty": ("", "no nn.Module class and no public function"),
    "only data": (
        "import torch\nclass Config: pass\nx = 1\n" + INPUTS,
        "no nn.Module class and no public function",
    ),
    "several classes": (
        _with_inputs("""
        import torch, torch.nn as nn
        class Encoder(nn.Module):
            def forward(self, x): return x
        class Decoder(nn.Module):
            def forward(self, x): return x
    """),
        "several nn.Module classes: Encoder, Decoder",
    ),
    "several functions": ("def f(x): return x\ndef g(x): return x\n", "several functions: f, g"),
    "no inputs": ("def f(x, y): return x\n", "no get_inputs"),
    "no forward": (
        "import torch, torch.nn as nn\nclass Net(nn.Module): pass\n" + INPUTS,
        "`Net` has no forward",
    ),
    "missing package": (
        "import no_such_package_x\n",
        r"ModuleNotFoundError: .*no_such_package_x.*\n  model.py, line 1",
    ),
    "relative import": (
        "from .layers import x\n",
        r"ModuleNotFoundError: .*layers.*\n  model.py, line 1",
    ),
    "raises on import": (
        "import torch\n\nraise ValueError('bad table')\n",
        r"ValueError: bad table\n  model.py, line 3",
    ),
    "exits": (
        "import sys\nprint('usage: model')\nsys.exit(2)\n",
        r"SystemExit: 2\n  model.py, line 3",
    ),
    "constructor arguments": (
        _with_inputs("""
        import torch, torch.nn as nn
        class Model(nn.Module):
            def __init__(self, width): super().__init__()
            def forward(self, x): return x
    """),
        r"Model\(\) could not be constructed: TypeError: .*'width'",
    ),
    "constructor raises": (
        _with_inputs("""
        import torch, torch.nn as nn
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.x = {}["weights"]
            def forward(self, x): return x
    """),
        r"KeyError: 'weights'\n  model.py, line 6, in __init__: self.x = \{\}\[\"weights\"\]",
    ),
    "get_init_inputs": (
        _with_inputs("""
        import torch, torch.nn as nn
        class Model(nn.Module):
            def forward(self, x): return x
        def get_init_inputs(): return 5
    """),
        r"get_init_inputs\(\) returned int",
    ),
    "get_inputs raises": (
        "import torch\ndef f(x): return x\ndef get_inputs(): return [torch.rand(-1)]\n",
        r"get_inputs\(\) failed: RuntimeError: .*\n  model.py, line 3, in get_inputs",
    ),
    "get_inputs kind": (
        "def f(x): return x\ndef get_inputs(): return 'x'\n",
        r"get_inputs\(\) returned str",
    ),
    "no input tensor": (
        "import torch\ndef f(x): return torch.ones(3) * x\ndef get_inputs(): return [2.0]\n",
        "no tensor",
    ),
    "too many inputs": (
        "import torch\ndef f(x): return x\ndef get_inputs(): return [torch.rand(2), torch.rand(2)]\n",
        r"f\(x\) does not take these inputs: too many positional",
    ),
    "input is NaN": (
        "import torch\ndef f(x): return x\ndef get_inputs(): return [torch.rand(3).log() / 0 * 0]\n",
        "the output of f is NaN throughout",
    ),
    "inputs differ": (
        "import os, torch\ndef f(x): return x\n"
        "def get_inputs(): return [torch.tensor(list(os.urandom(16))).float()]\n",
        "another `x` under equal seeds",
    ),
    "shapes do not fit": (
        _with_inputs("""
        import torch, torch.nn as nn
        class Model(nn.Module):
            def __init__(self): super().__init__(); self.linear = nn.Linear(9, 9)
            def forward(self, x):
                return self.linear(x)
    """),
        r"Model failed on the example inputs: RuntimeError: mat1 and mat2.*\n  model.py, line 6, in forward",
    ),
    "forward exits": (
        "import torch\ndef f(x): raise SystemExit\n" + INPUTS,
        "f failed on the example inputs: SystemExit",
    ),
    "on a GPU": (
        "import torch\ndef f(x): return x.to('cuda:7')\n" + INPUTS,
        "f failed on the example inputs",
    ),
    "NaN": (
        "import torch\ndef f(x): return {'loss': x.sum(), 'logs': (x - 5).log()}\n" + INPUTS,
        "output `logs` of f is NaN throughout",
    ),
    "no tensor returned": (
        "import torch\ndef f(x): return float(x.sum())\n" + INPUTS,
        "f returns no tensor but float",
    ),
    "sparse": (
        "import torch\ndef f(x): return x.to_sparse()\n" + INPUTS,
        "not a plain dense tensor but sparse_coo",
    ),
    "puts something into a dict": (
        "import torch\ndef f(cache):\n    cache['k'] = cache['k'] + 1\n    return cache['k'] * 2\n"
        "def get_inputs(): return [{'k': torch.rand(4, 8)}]\n",
        "f changes a list or dict among its inputs",
    ),
    "resizes its input": (
        "import torch\ndef f(x): return x.unsqueeze_(0).sub(1)\n" + INPUTS,
        "gives its input `x` another shape or other memory",
    ),
    "nondeterministic": (
        "import os, torch\ndef f(x): return x * int.from_bytes(os.urandom(4), 'big')\n" + INPUTS,
        "different results under equal seeds",
    ),
    "hidden state": (
        _with_inputs("""
        import torch, torch.nn as nn
        class Model(nn.Module):
            calls = 0
            def forward(self, x):
                self.calls += 1
                return x * self.calls
    """),
        "different results under equal seeds",
    ),
    "kills itself": (
        "import os, torch\ndef f(x): os.kill(os.getpid(), 11)\n" + INPUTS,
        r"crashed \(SIGSEGV\) while running it",
    ),
    "leaves": (
        "import os\nprint('bye now', flush=True)\nos._exit(7)\n",
        r"ended the process \(exit 7\) while importing it\n.*bye now",
    ),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.slow
def test_malformed_file(tmp_path: Path, case: str) -> None:
    text, says = CASES[case]
    path = tmp_path / "model.py"
    path.write_text(dedent(text))
    error = refuse(path)
    assert re.search(says, error.message), error.message


HANGING = {
    "importing it": "while True: pass\n",
    "running it": "import torch\ndef f(x): __import__('time').sleep(1000)\n" + INPUTS,
    "drawing inputs": "import time\ndef f(x): return x\ndef get_inputs(): time.sleep(1000)\n",
}


@pytest.mark.slow
def test_hanging_files(tmp_path: Path) -> None:
    """All at once: each takes its limit."""

    def refused(number: int, text: str) -> TaskError:
        (tmp_path / str(number)).mkdir()
        path = tmp_path / str(number) / "model.py"
        path.write_text(text)
        return refuse(path, limits=Limits(wall_s=3))

    started = time.monotonic()
    with ThreadPoolExecutor(len(HANGING)) as pool:
        errors = dict(
            zip(HANGING, pool.map(refused, range(len(HANGING)), HANGING.values()), strict=True)
        )
    for where, error in errors.items():
        assert error.message == f"`model.py` did not finish within 3 s while {where}"
        assert "limits.wall_s" in error.hint and isinstance(error, Exhausted)
    assert time.monotonic() - started < 30


def test_memory_hog(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text("import torch\ndef f(x): return torch.ones(1 << 28) * x.sum()\n" + INPUTS)
    error = refuse(path, limits=Limits(wall_s=60, memory_bytes=1 << 30))
    assert "needed more than 1.0 GiB while running it" in error.message and isinstance(
        error, Exhausted
    )


@pytest.mark.parametrize(
    ("raised", "passing"),
    [
        ("RuntimeError('CUDA out of memory. Tried to allocate 2 GiB')", True),
        ("MemoryError()", True),
        ("ValueError('wrong')", False),
    ],
)
def test_verdicts_that_load_may_have_decided_are_marked(
    tmp_path: Path, raised: str, passing: bool
) -> None:
    path = tmp_path / "model.py"
    path.write_text(f"import torch\ndef f(x): raise {raised}\n" + INPUTS)
    assert isinstance(refuse(path), Exhausted) == passing


def test_dying_of_another_shape_is_not_the_files_fault(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text(
        "import os, torch\ndef f(x):\n    if x.shape[0] > 8: os._exit(1)\n    return x + 1\n"
        + INPUTS
    )
    task = load(str(path), limits=LIMITS)
    assert [v.name for v in task.shape_variants] == ["batch+3"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"inputs": ["z=float32[2]"]}, "no parameter `z`"),
        ({"inputs": ["x=float32[2]"]}, "no --input for parameter `y`"),
        ({"inputs": ["x=float32[2]", "y=float32[3]"]}, "f failed on the example inputs"),
        ({"inputs": ["x=float32"]}, "`float32` has no sizes"),
        ({"init": ["width"]}, "not a Python literal"),
        ({"dtype": "int8"}, "unknown dtype"),
        ({"device": "tpu"}, "unsupported device `tpu`"),
    ],
)
def test_options_that_do_not_fit(tmp_path: Path, options: dict[str, object], says: str) -> None:
    path = tmp_path / "model.py"
    path.write_text("def f(x, y): return x + y\n")
    assert says in refuse(path, **options).message


def test_names_that_do_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text("import torch.nn as nn\nlive = nn.ReLU()\nnumber = 3\ndef f(x): return x\n")
    error = refuse(f"{path}:missing")
    assert "has no `missing`" in error.message
    assert error.hint == "it has f"
    assert "is an object, not a class" in refuse(f"{path}:live").message
    assert "neither an nn.Module class nor a function" in refuse(f"{path}:number").message
    assert "not the name" in refuse(f"{path}:3x").message


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    assert "no such file" in refuse(tmp_path / "none.py").message
    assert "is a folder" in refuse(tmp_path).message
    binary = tmp_path / "model.bin"
    binary.write_bytes(bytes(range(256)))
    assert "not a text file" in refuse(binary).message


def test_cuda_without_a_gpu(tmp_path: Path) -> None:
    if machine.gpu_names():
        pytest.skip("there is a GPU")
    path = tmp_path / "model.py"
    path.write_text("import torch\ndef f(x): return x\n" + INPUTS)
    with pytest.raises(MachineError, match="no usable CUDA device") as caught:
        load(str(path), device="cuda")
    assert isinstance(caught.value, DvkError)

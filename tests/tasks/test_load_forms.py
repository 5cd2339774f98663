"""Every form of file and option that `load` accepts, examined for real in the sandbox."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from dvk.records import Task
from dvk.tasks import load

MODEL = """
    import torch, torch.nn as nn

    class Model(nn.Module):
        def __init__(self, width, eps=1e-5):
            super().__init__()
            self.linear = nn.Linear(width, width)
            self.eps = eps

        def forward(self, x):
            return torch.relu(self.linear(x)) + self.eps

    def get_inputs():
        return [torch.rand(8, 16)]
"""
INIT = "\n    def get_init_inputs():\n        return "


def write(folder: Path, text: str, name: str = "model.py") -> str:
    path = folder / name
    path.write_text(dedent(text))
    return str(path)


def shapes(
    task: Task,
) -> tuple[list[tuple[str, tuple[int, ...]]], list[tuple[str, tuple[int, ...]]]]:
    return [(s.name, s.shape) for s in task.inputs], [(s.name, s.shape) for s in task.outputs]


@pytest.mark.parametrize("init", ["[16]", "[[16], {'eps': 0.1}]", "{'width': 16}", "(16, 0.1)"])
def test_kernelbench_format(tmp_path: Path, init: str) -> None:
    task = load(write(tmp_path, MODEL + INIT + init))
    assert (task.name, task.entry, task.kind, task.device) == ("model", "Model", "module", "cpu")
    assert shapes(task) == ([("x", (8, 16))], [("output", (8, 16))])
    assert task.inputs[0].strides == (16, 1)
    assert task.inputs[0].dtype == "float32"
    assert (task.precision, task.stochastic) == ("fp32", False)
    assert task.num_shape_variants == 1 + len(task.shape_variants) >= 4
    assert task.path == str(tmp_path / "model.py")


def test_a_task_is_plain_data(tmp_path: Path) -> None:
    task = load(write(tmp_path, MODEL + INIT + "[16]"))
    assert Task.model_validate(task.model_dump(mode="json")) == task


def test_identity(tmp_path: Path) -> None:
    path = write(tmp_path, MODEL + INIT + "[16]")
    same = load(write(tmp_path, MODEL + INIT + "[16]", "other.py"))
    assert load(path).id == same.id
    others = {
        load(path, init=["16"]).id,
        load(path, eval_mode=True).id,
        load(path, dtype="float64").id,
    }
    assert len(others | {same.id}) == 4


def test_function_with_specs(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        """
        import torch
        def _private(x): return x
        def gate(x, y, alpha=1.0, *, beta=0.0):
            return {"gated": alpha * torch.sigmoid(_private(x)) * y, "rest": [x + beta]}
    """,
    )
    specs = ["x=float32[6,4]", "y=float32[6,1]:ones", "beta=2.0"]
    task = load(path, inputs=specs)
    assert (task.entry, task.kind, task.input_specs) == ("gate", "function", tuple(specs))
    assert shapes(task) == ([("x", (6, 4)), ("y", (6, 1))], [("gated", (6, 4)), ("rest.0", (6, 4))])


def test_named_entry(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        """
        import torch.nn as nn
        from torch.nn.functional import relu
        class First(nn.Module):
            def forward(self, x): return x + 1
        class Second(First):
            def forward(self, x): return x * 2
        def helper(x): return x - 1
    """,
    )
    for name, kind in (("Second", "module"), ("helper", "function"), ("relu", "function")):
        task = load(
            f"{path}:{name}", inputs=["x=float32[3,4]" if name != "relu" else "input=float32[3,4]"]
        )
        assert (task.entry, task.kind, task.name) == (name, kind, f"model:{name}")


def test_one_module_class_of_any_name(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        """
        import torch, torch.nn as nn
        from torch.nn import LayerNorm
        def helper(x): return x
        class Block(nn.Module):
            def __init__(self, width, mode): super().__init__(); self.norm = LayerNorm(width); self.mode = mode
            def forward(self, tokens, table): return self.norm(helper(table)[tokens])
    """,
    )
    task = load(
        path, inputs=["tokens=int64[5,3]<9", "table=float32[9,8]"], init=["8", "mode='last'"]
    )
    assert shapes(task) == ([("tokens", (5, 3)), ("table", (9, 8))], [("output", (5, 3, 8))])
    assert task.init_args == ("8", "mode='last'")


def test_specs_and_init_take_the_place_of_the_files_own(tmp_path: Path) -> None:
    task = load(write(tmp_path, MODEL + INIT + "[16]"), inputs=["x=float32[2,32]"], init=["32"])
    assert shapes(task)[0] == [("x", (2, 32))]


@pytest.mark.parametrize(
    ("returned", "names"),
    [
        ("torch.rand(4, 3)", ["x"]),
        ("[torch.rand(4, 3), None]", ["x"]),
        (
            "(torch.rand(4, 3), [torch.rand(4, 3), {'k': torch.rand(4, 3)}])",
            ["x", "more.0", "more.1.k"],
        ),
        ("{'more': [torch.rand(4, 3)], 'x': torch.rand(4, 3)}", ["more.0", "x"]),
        ("[torch.rand(4, 3), 2.5, torch.rand(4, 3), torch.rand(4, 3)]", ["x", "rest.0", "rest.1"]),
    ],
)
def test_forms_of_get_inputs(tmp_path: Path, returned: str, names: list[str]) -> None:
    task = load(
        write(
            tmp_path,
            f"""
        import torch
        def work(x, more=None, *rest): return torch.exp(x)
        def get_inputs(): return {returned}
    """,
        )
    )
    assert [spec.name for spec in task.inputs] == names


def test_train_mode_unless_the_file_or_the_user_says_eval(tmp_path: Path) -> None:
    text = """
        import torch, torch.nn as nn
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.norm, self.drop = nn.BatchNorm1d(6), nn.Dropout(0.5)
            def forward(self, x): return self.drop(self.norm(x))
        def get_inputs(): return [torch.randn(9, 6)]
    """
    assert load(write(tmp_path, text)).stochastic
    task = load(write(tmp_path, text), eval_mode=True)
    assert task.eval_mode
    assert not task.stochastic
    by_itself = text.replace("nn.Dropout(0.5)", "nn.Dropout(0.5)\n                self.eval()")
    assert not load(write(tmp_path, by_itself)).stochastic


def test_batch_norm_in_train_mode_refuses_a_batch_of_one(tmp_path: Path) -> None:
    task = load(
        write(
            tmp_path,
            """
        import torch, torch.nn as nn
        class Model(nn.Module):
            def __init__(self): super().__init__(); self.norm = nn.BatchNorm1d(6)
            def forward(self, x): return self.norm(x)
        def get_inputs(): return [torch.randn(8, 6)]
    """,
        )
    )
    assert [v.name for v in task.shape_variants] == ["batch+3", "batch*2+1"]


def test_dtype_casts_floating_inputs_and_weights(tmp_path: Path) -> None:
    path = write(tmp_path, MODEL + INIT + "[16]")
    half = load(path, dtype="bf16")
    assert (half.dtype, half.inputs[0].dtype, half.outputs[0].dtype, half.precision) == (
        "bfloat16",
        "bfloat16",
        "bfloat16",
        "half",
    )
    assert load(path, dtype="float64").precision == "fp64"


@pytest.mark.parametrize(
    ("expression", "precision"),
    [
        ("x.half().float() * 2", "fp32"),  # a cast alone: everything is computed in float32
        ("(x.half() * 2).float()", "half"),
        ("x.double().exp()", "fp64"),
        ("(x > 0.5)", "exact"),
        ("x.argmax(-1)", "exact"),
    ],
)
def test_precision(tmp_path: Path, expression: str, precision: str) -> None:
    text = f"import torch\ndef f(x): return {expression}\ndef get_inputs(): return [torch.rand(4, 5)]\n"
    assert load(write(tmp_path, text)).precision == precision


def test_nan_in_some_rows_of_inputs_and_outputs_is_a_task(tmp_path: Path) -> None:
    task = load(
        write(
            tmp_path,
            """
        import torch
        def f(x, mask): return torch.softmax(x.masked_fill(mask, float("-inf")), -1)
        def get_inputs():
            x, mask = torch.randn(6, 5), torch.rand(6, 5) > 0.6
            x[2, 1] = float("nan")
            mask[4] = True
            return [x, mask]
    """,
        )
    )
    assert shapes(task) == ([("x", (6, 5)), ("mask", (6, 5))], [("output", (6, 5))])


def test_strides_are_recorded_and_kept(tmp_path: Path) -> None:
    task = load(
        write(
            tmp_path,
            """
        import torch
        def f(x): return x + 1
        def get_inputs(): return [torch.rand(2, 3, 5, 4).to(memory_format=torch.channels_last)]
    """,
        )
    )
    assert task.inputs[0].strides == task.outputs[0].strides == (60, 1, 12, 3)


def test_siblings_import_and_shadow_nothing(tmp_path: Path) -> None:
    write(tmp_path, "SCALE = 3.0", "my_layers.py")
    write(tmp_path, "raise RuntimeError('shadowed')", "torch.py")
    write(tmp_path, "raise RuntimeError('shadowed')", "types.py")
    (tmp_path / "table.txt").write_text("4")
    task = load(
        write(
            tmp_path,
            """
        import pathlib, types, torch
        from my_layers import SCALE
        TABLE = float((pathlib.Path(__file__).parent / "table.txt").read_text())
        def scale(x): return x * SCALE * TABLE
        def get_inputs(): return [torch.rand(3, 4)]
    """,
        )
    )
    assert task.entry == "scale"
    assert not (tmp_path / "__pycache__").exists()


def test_prints_warnings_and_main_guard_do_no_harm(tmp_path: Path) -> None:
    task = load(
        write(
            tmp_path,
            """
        import sys, warnings, torch
        print("{}" * 1000); warnings.warn("odd")
        def f(x):
            print("called", file=sys.stderr)
            return x.cos()
        def get_inputs(): return [torch.rand(3, 4)]
        if __name__ == "__main__":
            sys.exit(3)
    """,
        )
    )
    assert task.entry == "f"


def test_lazy_modules_and_windows_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_bytes(
        b"\xef\xbb\xbf"
        + dedent("""
        import torch, torch.nn as nn
        class Net(nn.Module):
            def __init__(self): super().__init__(); self.linear = nn.LazyLinear(5)
            def forward(self, x): return self.linear(x)
        def get_inputs(): return [torch.rand(4, 7)]
    """)
        .replace("\n", "\r\n")
        .encode()
    )
    assert shapes(load(str(path)))[1] == [("output", (4, 5))]

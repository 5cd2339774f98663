"""Suites: folders, other benchmarks' layouts (with tasks made up here), published tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from dvk.errors import UsageError
from dvk.interop.kernelbench.problems import problem
from dvk.interop.tables import write_parquet
from dvk.pipelines.eval.kernelbench_ids import numbers
from dvk.pipelines.eval.layouts import from_settings, from_tests
from dvk.pipelines.eval.suites import SuiteTask, read, with_sources_on_disk
from dvk.runs import RunFolder

SOURCE = "import torch\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x + 1\n"
ROBUST = """
import torch

def forward_fn(x, weight):
    return x * weight

class Model(torch.nn.Module):
    def __init__(self, width=3, scale=1.0):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((width,), scale))

    def forward(self, x, fn=forward_fn):
        return fn(x, self.weight)

def get_inputs(batch=1, width=3):
    return [torch.ones(batch, width)]

input_names = ["x"]
"""
SETTINGS = {
    "single_input_configs": [{"batch": 5}],
    "multi_input_configs": [{"batch": 7}],
    "single_init_configs": [{"scale": 2.0}],
    "single_shared_configs": [{"width": 4}],
}
TESTED = (
    """
import torch

def fused_scale(x, factor=2.0, *, out=None):
    return torch.mul(x, factor, out=out)
"""
    + "#" * 146
    + """
import torch

def test_fused_scale():
    results = {}
    results["small"] = fused_scale(torch.ones(2, 2))
    results["large"] = fused_scale(torch.ones(4, 3), factor=5.0)
    return results

test_results = test_fused_scale()
"""
)


def put(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_py", ".py").replace("_json", ".json")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def ran(source: str) -> dict[str, Any]:
    scope: dict[str, Any] = {}
    exec(source, scope)  # a task made up above
    return scope


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    index = [{"name": "a", "category": "norm", "seed": 3}, {"name": "c", "category": "loss"}]
    put(
        tmp_path,
        level1__b_py=SOURCE,
        level1__a_py=SOURCE,
        level2__c_py=SOURCE,
        level2___draft_py=SOURCE,
    )
    return put(tmp_path, index_json=json.dumps(index))


def test_a_folder_is_read_with_its_levels_and_its_index(folder: Path) -> None:
    assert [(p.name, p.groups) for p in read(folder)] == [
        ("a", {"level": "level1", "category": "norm"}),
        ("b", {"level": "level1"}),
        ("c", {"level": "level2", "category": "loss"}),
    ]
    assert [p.name for p in read(folder, ["c"])] == ["c"]


def test_bad_folders_say_what_to_do(folder: Path) -> None:
    with pytest.raises(UsageError, match="no such folder"):
        read(folder / "none")
    with pytest.raises(UsageError, match="no task `zz`"):
        read(folder, ["zz"])
    (folder / "index.json").write_text("{")
    with pytest.raises(UsageError, match="cannot read"):
        read(folder)
    (folder / "empty").mkdir()
    with pytest.raises(UsageError, match="no task files"):
        read(folder / "empty")


def test_names_shared_by_levels_are_distinguished(tmp_path: Path) -> None:
    put(tmp_path, level2__7_Net_py=SOURCE, level3__7_Net_py=SOURCE, level3__8_Other_py=SOURCE)
    found = read(tmp_path)
    assert [p.name for p in found] == ["level2/7_Net", "level3/7_Net", "8_Other"]
    assert numbers(found) == {"level2/7_Net": (2, 7), "level3/7_Net": (3, 7), "8_Other": (3, 8)}


def test_a_checkout_of_kernelbench_is_its_levels(tmp_path: Path) -> None:
    put(
        tmp_path,
        KernelBench__level1__12_Op_py=SOURCE,
        scripts__run_py="raise SystemExit",
        src__eval_py="",
    )
    assert [(p.name, p.number, p.groups) for p in read(tmp_path)] == [
        ("12_Op", 12, {"level": "level1"})
    ]


def test_problems_without_numbers_are_numbered_in_their_order() -> None:
    found = numbers(
        [
            SuiteTask("x", Path("x"), {"level": "easy"}),
            SuiteTask("y", Path("y"), {"level": "hard"}),
            SuiteTask("z", Path("z")),
        ]
    )
    assert found == {"z": (1, 1), "x": (2, 1), "y": (3, 1)}


def test_robust_kbench(tmp_path: Path) -> None:
    place = tmp_path / "tasks" / "scaling"
    place.mkdir(parents=True)
    for name, text in {
        "func_forward.py": ROBUST,
        "func_backward.py": "",
        "config_forward.json": json.dumps(SETTINGS),
    }.items():
        (place / name).write_text(text)
    (found,) = read(tmp_path)
    assert (found.name, found.groups, found.error) == (
        "scaling",
        {},
        None,
    ) and found.source is not None
    module = ran(found.source)
    args, kwargs = module["get_init_inputs"]()
    (x,) = module["get_inputs"]()
    assert x.shape == (5, 4) and torch.equal(module["Model"](*args, **kwargs)(x), 2 * x)
    bare = ran(from_settings(ROBUST, {}))
    assert bare["get_inputs"]()[0].shape == (1, 3) and bare["get_init_inputs"]() == [[], {}]


def test_functions_with_tests_take_the_largest_call(tmp_path: Path) -> None:
    put(tmp_path, data__kernelbenchx__Fusion__fused_scale_py=TESTED)
    (found,) = read(tmp_path)
    assert (found.name, found.groups) == (
        "fused_scale",
        {"category": "Fusion"},
    ) and found.source is not None
    module = ran(found.source)
    x, factor, out = module["get_inputs"]()
    assert x.shape == (4, 3) and factor == 5.0 and out is None
    assert (
        torch.equal(module["Model"]()(x, factor, out), 5 * x) and module["get_init_inputs"]() == []
    )


def test_a_line_of_ornament_makes_no_tests(tmp_path: Path) -> None:
    put(tmp_path, level1__a_py="#" * 120 + "\n" + SOURCE)
    assert [(p.source, p.groups) for p in read(tmp_path)] == [(None, {"level": "level1"})]


def test_tests_that_only_define_are_called() -> None:
    module = ran(
        from_tests("fused_scale", TESTED.replace("test_results = test_fused_scale()\n", ""))
    )
    assert module["get_inputs"]()[0].shape == (4, 3)


def test_what_cannot_be_adapted_says_why(tmp_path: Path) -> None:
    bad = TESTED.replace("factor=2.0, *", "*factors")
    place = tmp_path / "data" / "TritonBench_T_v1"
    place.mkdir(parents=True)
    (place / "fused_scale.py").write_text(bad)
    (place / "other.py").write_text("def f(:\n" + "#" * 146)
    assert [p.error for p in read(tmp_path)] == [
        "`fused_scale` takes any number of arguments",
        "not Python: invalid syntax, line 1",
    ]


# ---------------------------------------------------------------- tables


def test_kernelbench_rows() -> None:
    assert problem({"code": SOURCE, "level": 2, "name": "7_Net", "problem_id": 7}).name == "7_Net"
    found = problem({"code": SOURCE, "level": 2, "name": "Net", "problem_id": 7})
    assert (found.name, found.level, found.source) == ("7_Net", "level2", SOURCE)


def test_rows_of_reinforcement_learning_data() -> None:
    extra = {"entry_point": "Net", "level": 3, "module_name": "Net", "uuid": 91}
    row = {
        "reward_model": {"style": "rule", "ground_truth": SOURCE.replace("Model", "Net")},
        "extra_info": json.dumps(extra),
    }
    found = problem(row)
    assert (found.name, found.level) == ("Net_91", "level3") and ran(found.source)["Model"]()(
        1
    ) == 2
    with pytest.raises(ValueError, match="holds a reference"):
        problem({"prompt": []})


def test_a_validation_parquet_is_a_suite(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    extra = json.dumps({"module_name": "Net"})
    rows = [
        {"reward_model": json.dumps({"ground_truth": SOURCE + f"# {n}"}), "extra_info": extra}
        for n in "ab"
    ]
    write_parquet(
        tmp_path / "level2.parquet",
        {"reward_model": "large_string", "extra_info": "large_string"},
        rows,
    )
    found = read(tmp_path / "level2.parquet")
    assert [(p.name, p.groups) for p in found] == [
        ("level2/Net", {"level": "level2"}),
        ("level2/Net_2", {"level": "level2"}),
    ]
    run = RunFolder(tmp_path / "run", {}, -1)
    placed = with_sources_on_disk(found, run)
    assert [p.path.read_text()[-1] for p in placed] == ["a", "b"] and placed[
        1
    ].path == tmp_path / "run/tasks/level2/Net_2.py"
    (tmp_path / "other.jsonl").write_text(json.dumps({"question": "?"}) + "\n")
    with pytest.raises(UsageError, match="other.jsonl:1"):
        read(tmp_path / "other.jsonl")

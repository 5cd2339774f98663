"""One drop-in for a range of sizes: kernels take sizes as arguments, and compute what the original does at every sampled size."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dvk.composer import Plan, join
from dvk.composer.capture.sizes import Formula, SizeDependent, formulas
from dvk.composer.sized import border, boxes
from dvk.records import BackendName
from dvk.tasks.dynamic import DynamicDim
from tests.composer import cuda_emulator
from tests.composer.programs import differences, run_source
from tests.composer.sized_models import SizedModel, disagreements

ROWS = "x=float32[batch:1..300, 17, 48]"
CASES = {
    "residual chain": (
        "F.gelu(self.n(x)) * torch.sigmoid(y) + x",
        (ROWS, "y=float32[batch, 17, 48]"),
        "self.n = nn.LayerNorm(48)",
    ),
    "calls take sizes": (
        "F.relu(self.l(x.flatten(1))) * 2",
        (ROWS,),
        "self.l = nn.Linear(17 * 48, 10)",
    ),
    "two dimensions": (
        "torch.softmax(self.n(x), -1)",
        ("x=float32[batch:1..40, seq:1..100, 24]",),
        "self.n = nn.LayerNorm(24)",
    ),
    "a row as long as the dimension": (
        "torch.softmax(x, -1)",
        ("x=float32[4, 7, seq:1..700]",),
        "pass",
    ),
    "attention": (
        "torch.softmax(x @ y.transpose(-1, -2) * 0.125, -1) @ y",
        ("x=float32[2, 4, seq:1..130, 16]", "y=float32[2, 4, seq, 16]"),
        "pass",
    ),
    "a causal mask": (
        "torch.softmax(x.masked_fill(torch.ones(x.shape[-1], x.shape[-1]).triu(1).bool(), float('-inf')), -1)",
        ("x=float32[4, seq:1..130, seq]",),
        "pass",
    ),
    "the size as a number": ("x.sum(-1) / x.shape[0] + x.mean(-1)", (ROWS,), "pass"),
    "windows": ("F.avg_pool2d(x, 3, 1, 1) + 1", ("x=float32[2, 8, h:3..64, w:3..64]",), "pass"),
    "from the end": ("x[:, -1] * 2 + x[:, 0]", ("x=float32[batch:1..20, seq:2..100, 16]",), "pass"),
    "across the dimension": ("x - x.mean(0) + x.max(0).values", (ROWS,), "pass"),
}
SLOW = {
    "statistics over the dimension": (
        "(x - x.mean(0)) / (x.var(0) + 1e-5).sqrt()",
        ("x=float32[batch:2..300, 40]",),
        "pass",
    ),
    "all elements": ("(x * x).sum(), x.mean()", (ROWS,), "pass"),
    "one dimension": ("torch.tanh(x) * 2", ("x=float32[n:1..5000]",), "pass"),
    "views": (
        "torch.relu(x.view(x.shape[0], -1)).view(-1, 48).t().contiguous() * 2",
        (ROWS,),
        "pass",
    ),
    "concatenated": (
        "torch.cat([x, y], 0).tanh(), torch.cat([x, y], 1) * 2",
        (ROWS, "y=float32[batch, 17, 48]"),
        "pass",
    ),
    "convolution": (
        "F.relu(self.n(self.c(x)))",
        ("x=float32[batch:1..40, 3, 12, 12]",),
        "self.c, self.n = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)",
    ),
    "group norm": (
        "F.silu(self.n(x))",
        ("x=float32[batch:1..40, 8, 6, 6]",),
        "self.n = nn.GroupNorm(2, 8)",
    ),
    "scan": ("torch.cumsum(x, 1) * 2", ("x=float32[3, seq:1..400, 8]",), "pass"),
    "classes": ("F.cross_entropy(x, y)", ("x=float32[batch:1..300, 50]", "y=int64[batch]"), "pass"),
    "table": ("self.e(x) * 2 + 1", ("x=int64[batch:1..40, 9]",), "self.e = nn.Embedding(30, 16)"),
    "half": ("torch.softmax(x.float(), -1).to(x.dtype)", ("x=bfloat16[batch:1..300, 50]",), "pass"),
    "positions": (
        "x + torch.arange(x.shape[1])[None, :, None] * 0.01",
        ("x=float32[4, seq:1..700, 32]",),
        "pass",
    ),
    "neighbours": ("x[:, 1:] - x[:, :-1]", ("x=float32[4, seq:2..700]",), "pass"),
    "rotary": (
        "torch.cat([x[..., :8] * y - x[..., 8:] * y, x[..., 8:] * y + x[..., :8] * y], -1)",
        ("x=float32[2, 4, seq:1..200, 16]", "y=float32[seq, 8]"),
        "pass",
    ),
    "padded": (
        "F.pad(x, (1, 1)) * 2, x.flip(1), x.repeat(2, 1)",
        ("x=float32[4, seq:1..700]",),
        "pass",
    ),
    "product": (
        "torch.relu(x @ self.w)",
        ("x=float32[m:1..300, 64]",),
        "self.w = nn.Parameter(torch.randn(64, 32))",
    ),
    "outer": ("x[:, None] * x[None, :] + 1", ("x=float32[n:1..200]",), "pass"),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.slow
def test_the_program_agrees_at_sampled_sizes(name: str) -> None:
    assert disagreements(*CASES[name]) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_more_programs_agree_at_sampled_sizes(name: str) -> None:
    assert disagreements(*SLOW[name]) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("forward", "spec"),
    [
        ("F.gelu(F.layer_norm(x, (12,))) + x", "x=float32[batch:1..40, 3, 12]"),
        ("torch.softmax(x, -1)", "x=float32[2, seq:1..40]"),
        ("(x * x).sum(), x - x.mean(0)", "x=float32[batch:1..40, 12]"),
    ],
)
def test_triton_kernels_take_sizes(forward: str, spec: str) -> None:
    pytest.importorskip("triton")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.composer.triton_sized", forward, spec],
        cwd=Path(__file__).resolve().parents[2],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert json.loads(done.stdout) == []


CUDA_CASES = (
    "two dimensions",
    "neighbours",
    "a row as long as the dimension",
    "across the dimension",
)


@pytest.fixture
def emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA text runs in an emulator on the CPU."""
    monkeypatch.setitem(sys.modules, "dvk_record", cuda_emulator.Recorder())


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in CUDA_CASES[:2] else pytest.mark.slow)
        for name in CUDA_CASES
    ],
)
@pytest.mark.slow
def test_cuda_kernels_take_sizes(name: str, emulated: None) -> None:
    assert disagreements(*(CASES | SLOW)[name], backend="cuda") == []


@pytest.mark.hand
@pytest.mark.slow
def test_all_programs_in_cuda_agree_at_sampled_sizes(emulated: None) -> None:
    names = ("statistics over the dimension", "all elements", "half", "positions", "padded")
    assert {name: disagreements(*SLOW[name], backend="cuda") for name in names} == {
        name: [] for name in names
    }


@pytest.mark.gpu
@pytest.mark.parametrize("backend", ["cuda", "triton"])
@pytest.mark.parametrize("name", CUDA_CASES)
def test_programs_for_a_range_agree_on_a_gpu(name: str, backend: BackendName) -> None:
    assert disagreements(*(CASES | SLOW)[name], backend=backend, device="cuda") == []


@pytest.mark.slow
def test_a_thread_has_room_for_a_power_of_two_of_a_dynamic_row(emulated: None) -> None:
    made = SizedModel("return torch.softmax(x, -1)", "x=float32[64, seq:16..40000]", backend="cuda")
    text = made.candidate.source
    rooms = {int(n) for n in re.findall(r"dvk_pack<float, 1> s\d+\[(\d+)\]", text)}
    assert len(rooms) > 1 and all(n & n - 1 == 0 and n <= 64 for n in rooms)
    assert "; r += " in text and "long long n_seq_)" in text  # beyond the registers, a loop
    table = text[text.index("_DVK_FUNCTIONS") :].partition("]")[0]
    assert table.count("None,") == text.count("__global__")


def test_a_dynamic_row_stays_in_registers_where_it_fits() -> None:
    """One kernel for each power of two that the length needs; beyond the registers it is walked."""
    made = SizedModel(
        "return torch.softmax(x, -1)", "x=float32[64, seq:16..200000]", backend="triton"
    )
    text = made.candidate.source
    assert "tl.arange(0, whole0)" in text and "1 << (n_seq - 1).bit_length())" in text
    kept, walked = (
        re.findall(rf"^def (k[\d_]+)\(.*{end}\):$", text, re.M) for end in ("constexpr", "n_seq")
    )
    assert kept and walked
    launchers = re.findall(r"^run_(k\d+) = dvk_sized_launcher\(\1, \d+, 1\)$", text, re.M)
    assert sorted(launchers) == sorted(kept)


@pytest.fixture(scope="module")
def norm() -> SizedModel:
    return SizedModel(
        "return F.gelu(self.n(x)) + x",
        "x=float32[batch:2..300, 17, 48]",
        init="self.n = nn.LayerNorm(48)",
    )


@torch.no_grad()
def test_other_sizes_and_layouts_run_the_original(norm: SizedModel) -> None:
    for other in (
        torch.randn(1, 17, 48),
        torch.randn(301, 17, 48),
        torch.randn(8, 18, 48),
        torch.randn(8, 17),
        torch.randn(8, 48, 17).transpose(1, 2),
        torch.randn(16, 17, 48)[::2],
        torch.randn(8, 17, 48, dtype=torch.float64),
    ):
        assert not norm.fits([other])
    for other in (torch.randn(1, 17, 48), torch.randn(301, 17, 48), torch.randn(16, 17, 48)[::2]):
        assert differences(norm.new(other), norm.model(other)) == []


def test_no_size_stands_in_the_text_as_a_number(norm: SizedModel) -> None:
    text = norm.candidate.source
    assert "n_batch*17" in text and "long n_batch" in text
    assert text.count('extern "C" void k') == len(re.findall(r"\blong n_batch\)", text))


def test_points_with_one_program_share_it(norm: SizedModel) -> None:
    assert norm.candidate.source.count("def _dvk_run") == 1
    assert "_dvk_choice" not in norm.candidate.source


@torch.no_grad()
def test_the_nearest_measured_point_decides(norm: SizedModel) -> None:
    parts = [
        replace(part, plan=Plan(part.plan.recipes, {"k0": replace(how, width=256 if n else 512)}))
        for n, part in enumerate(norm.parts)
        for how in part.plan.schedules.values()
    ]
    first = parts[0].within[0]
    for chosen in (parts, parts[:1], parts[1:]):
        new = run_source(join(chosen, "cpp").source).ModelNew().eval()
        ran = {n: new._dvk_choice(torch.randn(n, 17, 48)) for n in range(2, 301)}
        names = {n: run and run.__name__ for n, run in ran.items()}
        assert [n for n in range(3, 301) if names[n] != names[n - 1]] == [first[2] + 1]
        for n in (first[2], first[2] + 1):
            x = torch.randn(n, 17, 48)
            assert differences(new(x), run_source(norm.source).Model().eval()(x)) == []


@torch.no_grad()
def test_tensors_that_share_a_dimension_must_agree() -> None:
    made = SizedModel(
        "return torch.tanh(x) * y[:, None]", "x=float32[batch:1..64, 16]", "y=float32[batch]"
    )
    assert made.fits([torch.randn(7, 16), torch.randn(7)])
    assert not made.fits([torch.randn(7, 16), torch.randn(8)])
    assert not made.fits([torch.randn(7, 16), torch.randn(1)])


@pytest.mark.parametrize(
    ("forward", "why"),
    [
        ("(torch.relu(x) if x.shape[0] > 20 else torch.tanh(x)) * 2", "operators"),
        ("x / x.shape[0] ** 0.5", "operand"),
        ("x.reshape(-1, 48)[: x.shape[0] // 2 + 1] * 2", "size"),
    ],
)
def test_a_forward_that_decides_by_the_size_is_refused(forward: str, why: str) -> None:
    with pytest.raises(SizeDependent, match=f"depends on the size: .*{why}.* at batch="):
        SizedModel(f"return {forward}", ROWS)


@pytest.mark.slow
def test_formulas_are_the_simplest_that_hold() -> None:
    made = SizedModel("return x.flatten(1) * 2", "x=float32[batch:1..40, seq:1..100, 24]")
    shapes = [n.shape for n in made.sized.nodes if n.op.startswith("aten.flatten")]
    assert shapes == [(Formula(((("batch",), 1),)), Formula(((("seq",), 24),)))]


def test_boxes_cover_the_range_once() -> None:
    dims = (DynamicDim("a", 1, 100), DynamicDim("b", 3, 50))
    points = [{"a": a, "b": b} for a in (4, 40) for b in (5, 30)]
    covered = [
        (a, b)
        for box in boxes(dims, points)
        for a in range(box["a"][0], box["a"][1] + 1)
        for b in range(box["b"][0], box["b"][1] + 1)
    ]
    assert sorted(covered) == [(a, b) for a in range(1, 101) for b in range(3, 51)]
    assert border(4, 40) == 12


def test_captures_that_do_not_differ_give_numbers() -> None:
    made = SizedModel("return x * 2", "x=float32[batch:1..40, 5]")
    same = made.sized.captured
    found = formulas(made.dims, {(3,): same, (3 + 4,): same})
    assert found.numbers() >= {5}

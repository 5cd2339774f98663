"""Calls that cannot be captured are left to PyTorch inside an otherwise fused program."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

from dvk.composer.capture import partial
from dvk.composer.capture.calling import ModuleCall
from dvk.composer.capture.eager_calls import CallRecording, CallSite
from dvk.composer.capture.eager_run import _Noting
from dvk.composer.capture.export import CapturedGraph, trace_call
from dvk.composer.ir.errors import CannotCompose
from tests.composer.partial_models import Made

HEADER = """
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
"""

ZOO = (
    HEADER
    + """
class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList([nn.Linear(16, 16) for _ in range(3)])

    def forward(self, x, chosen):
        out = torch.zeros_like(x)
        for n in torch.unique(chosen).tolist():
            rows = (chosen == n).nonzero()[:, 0]
            out[rows] = self.experts[n](x[rows])
        return out

class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * float(x.detach().numpy().size > 0) * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2

class Custom(nn.Module):
    def forward(self, x):
        return Twice.apply(x)

def lengths_of(mask):
    return mask.sum(1).numpy().tolist()

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.moe, self.custom = nn.Linear(16, 3), Experts(), Custom()
        self.norm = torch.nn.utils.spectral_norm(nn.Linear(16, 16))
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        self.rnn = nn.GRU(16, 16, batch_first=True)
        self.seen = nn.LayerNorm(16)

    def route(self, x):
        return self.gate(x).argmax(-1).numpy().astype("int64").tolist()

    def forward(self, x, mask):
        assert x.shape[-1] == 16
        if torch.isnan(x).any():
            raise ValueError("not a number")
        flat = x.reshape(-1, 16)
        y = F.silu(self.moe(flat, self.gate(flat).argmax(-1)) + flat).view(x.shape)
        y = torch.tanh(self.norm(y) * 2) + self.custom(y).sigmoid()
        attended, weights = self.attention(y, y, y, key_padding_mask=~mask)
        packed = pack_padded_sequence(torch.relu(attended * 3 + 1), lengths_of(mask), batch_first=True, enforce_sorted=False)
        out, _ = pad_packed_sequence(self.rnn(packed)[0], batch_first=True, total_length=x.shape[1])
        z = self.seen(F.gelu(out) + y)
        positive = z[z > 0]
        noise = torch.rand(z.shape, generator=torch.Generator().manual_seed(3))
        return z * noise, weights, positive * 2, positive.shape[0]
"""
)

TRAINED = (
    HEADER
    + """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.bn, self.plain = nn.BatchNorm1d(16, momentum=None), nn.BatchNorm1d(16, track_running_stats=False)
        self.norm = torch.nn.utils.spectral_norm(nn.Linear(16, 16))
        self.weighted = torch.nn.utils.weight_norm(nn.Linear(16, 16))
        self.parametrized = torch.nn.utils.parametrizations.weight_norm(nn.Linear(16, 16))

    def forward(self, x):
        y = torch.relu(self.bn(x)) * 2 + self.plain(x)
        return torch.tanh(self.norm(y) + y) + F.silu(self.weighted(y)) * self.parametrized(y).sigmoid()
"""
)


def inputs(seed: int, lengths: tuple[int, ...] = (6, 4, 2)) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(seed)
    return torch.randn(3, 6, 16), torch.arange(6)[None] < torch.tensor(lengths)[:, None]


@pytest.fixture(scope="module")
def zoo() -> Iterator[Made]:
    made = Made("zoo", ZOO, False, *inputs(0))
    yield made
    made.close()


def test_parts_are_left_and_the_rest_is_fused(zoo: Made) -> None:
    places = {
        ".".join(filter(None, node.kwargs["place"]))
        for node in zoo.captured.graph.nodes
        if node.op == "left"
    }
    assert {"moe", "norm", "custom", "attention", "rnn"} <= places
    assert (
        "kernels" in zoo.text.title
        and zoo.text.source.count("static void") + zoo.text.source.count('extern "C"') >= 3
    )
    for seed in range(3):
        got, want, whole = zoo.both(*inputs(seed))
        assert whole
        torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-4)


def test_a_program_falls_back_if_a_value_or_a_part_differs(zoo: Made) -> None:
    x, mask = inputs(1)
    x[0, 0, 0] = float("nan")
    with pytest.raises(ValueError, match="not a number"):
        zoo.new(x, mask)
    got, want, whole = zoo.both(*inputs(2, (5, 5, 1)))
    torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-4)
    got, want, whole = zoo.both(*(t[:2] for t in inputs(2)))
    assert not whole
    torch.testing.assert_close(got, want)


def test_hooks_on_parts_left_to_pytorch_stay_and_others_end_the_program(zoo: Made) -> None:
    seen = []
    handle = zoo.new.moe.register_forward_hook(lambda *_: seen.append(1))
    try:
        got, want, whole = zoo.both(*inputs(3))
        assert seen and whole
    finally:
        handle.remove()
    handle = zoo.new.seen.register_forward_hook(lambda module, args, out: out * 0)
    try:
        got, _, whole = zoo.both(*inputs(3))
        assert not whole and not got[0].any()
    finally:
        handle.remove()


def test_the_graph_of_parts_is_listed_and_kept_as_data(zoo: Made) -> None:
    graph = zoo.captured.graph
    assert CapturedGraph.model_validate(zoo.captured.model_dump(mode="json")).graph == graph
    listing = graph.listing()
    assert "left(" in listing and "expect(" in listing


def test_state_that_parts_write_moves_as_in_eager() -> None:
    torch.manual_seed(1)
    made = Made("trained", TRAINED, True, torch.randn(8, 16))
    try:
        for _ in range(3):
            got, want, whole = made.both(torch.randn(8, 16))
            assert whole
            torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-4)
        for key, value in made.model.state_dict().items():
            torch.testing.assert_close(made.new.state_dict()[key], value, atol=1e-5, rtol=1e-4)
        assert made.new.bn.num_batches_tracked == 3
    finally:
        made.close()


CHOOSY = (
    HEADER
    + """
class Ordinary(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(8)

    def forward(self, x):
        y = self.norm(x)
        return y[torch.from_numpy(x.numpy().max(1) < 10)]

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.part = nn.BatchNorm1d(8), Ordinary()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        y = torch.relu(self.norm(x)) * 2
        return torch.tanh(self.part(y)) + self.calls
"""
)


def test_what_a_program_has_written_is_put_back_before_the_original_writes_it() -> None:
    made = Made("choosy", CHOOSY, True, torch.randn(64, 8))
    try:
        (left,) = [node for node in made.captured.graph.nodes if node.op == "left"]
        statistics = ("num_batches_tracked", "running_mean", "running_var")
        assert left.kwargs["writes"] == [f"part.norm.{name}" for name in statistics]
        for far, fits in ((0.0, True), (1e3, False), (0.0, True)):
            x = torch.randn(64, 8)
            x[0] += far
            got, want, whole = made.both(x)
            assert whole is fits
            torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-4)
            for key, value in made.model.state_dict().items():
                torch.testing.assert_close(made.new.state_dict()[key], value, atol=1e-5, rtol=1e-4)
    finally:
        made.close()


def test_a_part_that_writes_the_module_must_not_run_twice() -> None:
    model, recording = nn.BatchNorm1d(4), CallRecording(parts={"part": "", "other": ""})
    with torch.no_grad():
        noting = _Noting(recording, {}, model)
        for name, function in (("part", model), ("other", torch.relu)):
            noting.called(CallSite(name=name, module=""), function, (torch.randn(8, 4),), {})
    writing, other = recording.calls
    assert writing.has_effects and not writing.is_steady
    assert writing.written == ("num_batches_tracked", "running_mean", "running_var")
    assert not other.has_effects and not other.written


class Inline(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.from_numpy(x.numpy() + 1)


def test_a_failed_capture_names_the_line() -> None:
    with pytest.raises(
        CannotCompose, match=r"test_partial.py, line \d+: return x \* torch.from_numpy"
    ):
        trace_call(Inline(), [torch.randn(3)], {}, ["x"])


def test_answers_are_not_asked_for_twice_after_random_numbers() -> None:
    class Drawn(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = torch.nn.functional.dropout(x, 0.5)
            return y.exp() if y.sum() > -1e9 else y

    graph = trace_call(Drawn(), [torch.randn(3)], {}, ["x"]).graph
    assert "left" in [node.op for node in graph.nodes] and "expect" not in [
        node.op for node in graph.nodes
    ]


class Routed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList([nn.Linear(8, 8) for _ in range(3)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for number, expert in enumerate(self.experts):
            if (x > number).any():
                x = x + expert(x)
        return x


class Sine(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sin()


class Slope(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.func.grad(lambda v: (v.tanh() ** 2).sum())(x)


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x * self.calls


PARTS = {
    "experts chosen by questions": Routed,
    "TorchScript": lambda: torch.jit.script(Sine()),
    "torch.func": Slope,
    "a counter": Counting,
}


@pytest.mark.parametrize("name", PARTS)
def test_a_submodule_is_left_and_the_rest_is_captured(name: str) -> None:
    class Around(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.part = PARTS[name]()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.tanh(self.part(x * 2)) + 1

    model = Around().eval()
    part, held = model.part, set(vars(model.part))
    graph = trace_call(model, [torch.randn(4, 8)], {}, ["x"]).graph
    assert [node.op for node in graph.nodes if not node.op.startswith("aten._")][-5:] == [
        "aten.mul.Tensor",
        "left",
        "getitem",
        "aten.tanh.default",
        "aten.add.Tensor",
    ]
    assert model.part is part and set(vars(part)) == held and "forward" not in vars(model)


def test_code_of_the_model_itself_is_refused_with_a_remedy() -> None:
    with pytest.raises(CannotCompose, match=r"`self.calls`.*moved into a separate submodule"):
        trace_call(Counting(), [torch.randn(3)], {}, ["x"])


@pytest.mark.slow
def test_real_modules_are_captured_and_right() -> None:
    from tests.composer import real_modules

    rows = [real_modules.tried(name) for name in ("llama", "mixtral", "bert", "t5", "swin")]
    assert [
        (row.name, row.how, row.why)
        for row in rows
        if row.how in ("not", "fell back", "another type")
    ] == []
    assert all(row.error < 1e-4 and row.num_kernels for row in rows)


def test_layers_that_pytorch_has_one_function_for_get_a_remedy_that_helps() -> None:
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 8, batch_first=True), 1).eval()
    mask = torch.tensor([[False, False, True], [False, True, True]])
    call: tuple[Any, ...] = Outer(model), [torch.randn(2, 3, 8), mask], {}, ["x", "mask"]
    with pytest.raises(CannotCompose, match=r"set_fastpath_enabled\(False\)"):
        trace_call(*call)
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        graph = trace_call(*call).graph
    finally:
        torch.backends.mha.set_fastpath_enabled(before)
    assert not any(node.op == "left" for node in graph.nodes)


class Outer(nn.Module):
    """A module that only calls another, with a padding mask."""

    def __init__(self, inner: nn.Module):
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> Any:
        return self.inner(x, src_key_padding_mask=mask)


def test_attempts_end_and_say_the_line(tmp_path: Any, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "resized.py"
    path.write_text(
        HEADER
        + """
class Model(nn.Module):
    def forward(self, x):
        y = x[::2]
        z = y.unsqueeze_(0).squeeze_(0)
        torch.zeros(3, out=z)
        return torch.relu(x) + 1, z
"""
    )
    space: dict[str, Any] = {"__name__": "resized"}
    exec(compile(path.read_text(), str(path), "exec"), space)
    sys.modules["resized"] = ModuleType("resized")
    try:
        with pytest.raises(CannotCompose):
            trace_call(space["Model"](), [torch.randn(4, 6)], {}, ["x"], space)
    finally:
        del sys.modules["resized"]
    assert "torch/fx" not in capfd.readouterr().err

    class Never(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x

    tried = []

    def trace(recording: Any) -> Any:
        tried.append(recording)
        error = CannotCompose("never")
        error.path = ""
        raise error

    with pytest.raises(CannotCompose, match="never"):
        partial.captured(ModuleCall(Never(), [torch.ones(2)], ["x"], 0, {}), trace)
    assert len(tried) == 2

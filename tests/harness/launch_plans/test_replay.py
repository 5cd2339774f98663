"""Plans of operators, run on the CPU: what is done once a load follows the weights, and calls compute what the module does."""

from __future__ import annotations

import base64
import copy
import json
import random

import pytest
import torch

from dvk.harness.launch_plans.plan import LaunchPlanError, LaunchRecording, PlanMismatch, decode
from dvk.harness.launch_plans.replay import OutOfBounds, Replay
from tests.harness.launch_plans.recording import HEADER, MODULE, recorded, reference, steps
from tests.harness.launch_plans.replays import replay

PACKED = """
        if not hasattr(self, "packed"):
            self.packed = (self.weight * 3).view(8, 8).t().contiguous()
        return x * self.packed.t().reshape(64) / 3
"""


def test_packed_weights_follow_the_weights():
    made = replay(HEADER + MODULE + PACKED)
    assert steps(made.plan) == ["t", "clone", "_unsafe_view", "mul", "div"]
    x = torch.randn(8, 64)
    for seed in (1, 2):
        weight = torch.randn(64, generator=torch.Generator().manual_seed(seed))
        made.load({"weight": weight})
        (y,) = made.run([x])
        torch.testing.assert_close(y, x * weight)
        torch.testing.assert_close(made.state()["weight"], weight)


def test_weights_are_loaded_into_the_same_memory():
    made = replay(HEADER + MODULE + PACKED)
    made.load({"weight": torch.ones(64)})
    addresses = {value: t.data_ptr() for value, t in made._kept.items()}
    made.load({"weight": torch.zeros(64)})
    assert {value: t.data_ptr() for value, t in made._kept.items()} == addresses
    (y,) = made.run([torch.ones(8, 64)])
    assert not y.any()


def test_the_callers_weights_are_left_alone():
    made = replay(HEADER + MODULE + "        self.weight.mul_(2)\n        return x * self.weight\n")
    weight = torch.ones(64)
    made.load({"weight": weight})
    first, second = made.run([torch.ones(8, 64)])[0], made.run([torch.ones(8, 64)])[0]
    assert first.unique().tolist() == [2.0] and second.unique().tolist() == [4.0]
    assert weight.unique().tolist() == [1.0] and made.state()["weight"].unique().tolist() == [4.0]


def test_constants_of_the_source_are_made_once():
    body = """
        if not hasattr(self, "c"):
            self.c = torch.tensor([1.0, 2.0] * 32, device=x.device)
        return x * self.c + torch.tensor([4.0] * 64, device="cuda") + torch.tensor(0.5)
"""
    made = replay(HEADER + MODULE + body)
    assert steps(made.plan) == ["mul", "clone", "add", "add"]
    made.load({"weight": torch.ones(64)})
    x = torch.randn(8, 64)
    (y,) = made.run([x])
    torch.testing.assert_close(y, x * torch.tensor([1.0, 2.0] * 32) + 4.5)


STATISTICS = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(64)
        self.linear = nn.Linear(64, 32)

    def forward(self, x):
        return [self.linear(self.norm(x)), {"half": x[:, :32]}]
"""


def test_modules_with_statistics_and_nested_results():
    model = reference(STATISTICS)
    made = replay(
        STATISTICS.replace("class Model", "class ModelNew"), torch.zeros(16, 64), source=STATISTICS
    )
    made.load(model.state_dict())
    theirs = copy.deepcopy(model)
    for seed in range(3):
        x = torch.randn(16, 64, generator=torch.Generator().manual_seed(seed))
        with torch.no_grad():
            want = theirs(x)
        got = made.result(made.run([x], poison=float("nan")))
        torch.testing.assert_close(got, want)
    state = made.state()
    assert state["norm.num_batches_tracked"].item() == 3
    for name, tensor in theirs.state_dict().items():
        torch.testing.assert_close(state[name], tensor)
    made.load(model.state_dict())
    torch.testing.assert_close(made.state()["norm.running_mean"], torch.zeros(64))


def test_unwritten_memory_is_poisoned():
    made = replay(HEADER + MODULE + "        return torch.empty_like(x).mul_(0)\n")
    made.load({"weight": torch.ones(64)})
    assert made.run([torch.ones(8, 64)], poison=float("nan"))[0].isnan().all()


def test_an_out_of_bounds_write_is_detected():
    made = replay(
        HEADER
        + MODULE
        + "        y = torch.empty_like(x)\n        y.as_strided((516,), (1,)).fill_(1)\n        return y\n"
    )
    made.load({"weight": torch.ones(64)})
    with pytest.raises(OutOfBounds, match=r"next to float32\[8, 64\]"):
        made.run([torch.ones(8, 64)], poison=float("nan"))


def test_inputs_and_weights_must_be_what_was_recorded():
    made = replay(HEADER + MODULE + "        return x * self.weight\n")
    with pytest.raises(LaunchPlanError, match="load the weights"):
        made.run([torch.ones(8, 64)])
    for state in ({}, {"weight": torch.ones(63)}, {"weight": torch.ones(64).double()}):
        with pytest.raises(LaunchPlanError, match="weight"):
            made.load(state)
    made.load({"weight": torch.ones(64)})
    for inputs in ([], [torch.ones(8, 63)], [torch.ones(64, 8).t()], [torch.ones(8, 64).double()]):
        with pytest.raises(LaunchPlanError, match="input"):
            made.run(inputs)


def edited(change) -> dict:
    wire = json.loads(
        json.dumps(
            recorded(HEADER + MODULE + "        return (x * self.weight).t().sum(0)\n").wire()
        )
    )
    change(wire["plans"][0])
    return wire


def test_a_real_result_that_looks_otherwise_is_noticed():
    def change(plan):
        last = str(plan["outputs"]["tensor"])
        plan["values"][last]["shape"] = [9]

    recording = decode(edited(change))
    made = Replay(recording, recording.plans[0], "cpu")
    made.load({"weight": torch.ones(64)})
    with pytest.raises(PlanMismatch, match="recorded"):
        made.run([torch.ones(8, 64)])


@pytest.mark.parametrize(
    "op",
    [
        "aten.from_file.default",
        "aten.set_.source_Tensor",
        "aten.rand.default",
        "aten.item.default",
        "aten.nope.default",
    ],
)
def test_operators_that_no_recording_has_are_refused(op):
    recording = decode(edited(lambda plan: plan["call"][0].update(op=op)))
    with pytest.raises(LaunchPlanError, match="not an operator"):
        Replay(recording, recording.plans[0], "cpu")


@pytest.mark.parametrize(
    "change",
    [
        lambda plan: plan["call"][0].update(op="os.system.default"),
        lambda plan: plan["call"][0].update(args=[{"ref": 999}]),
        lambda plan: plan["call"][0].update(args=[{"ref": "x"}]),
        lambda plan: plan["call"][1].update(outs=plan["call"][0]["outs"]),
        lambda plan: plan["prepare"].append(plan["call"][0]),
        lambda plan: plan.update(outputs={"tensor": 12345}),
        lambda plan: plan.update(outputs=[[[]]]),
        lambda plan: plan.update(surprise=1),
        lambda plan: plan["buffers"].update(more=777),
        lambda plan: plan["call"].extend([plan["call"][0]] * 30_000),
        lambda plan: plan["call"].append(
            {
                "kind": "launch",
                "cubin": "none",
                "name": "k",
                "grid": [1, 1, 1],
                "block": [32, 1, 1],
                "shared_bytes": 0,
                "args": [],
            }
        ),
    ],
)
def test_malformed_plans_are_refused(change):
    with pytest.raises(LaunchPlanError):
        decode(edited(change))


def test_anything_may_come_over_the_wire():
    wire = recorded(HEADER + MODULE + "        return x * self.weight\n").wire()
    junk = [None, True, -1, 1.5, "", "aten", [], {}, {"ref": 0}, [[]], {"float": "nan"}, 2**70]
    draw = random.Random(0)
    kept = 0
    for _ in range(300):
        changed = json.loads(json.dumps(wire))
        place, key = changed, None
        while isinstance(place, (dict, list)) and place and (key is None or draw.random() < 0.8):
            parent = place
            key = (
                draw.choice(list(place)) if isinstance(place, dict) else draw.randrange(len(place))
            )
            place = parent[key]
        parent[key] = draw.choice(junk)
        try:
            recording = decode(changed)
            for plan in recording.plans:
                made = Replay(recording, plan, "cpu")
                made.load({"weight": torch.ones(64)})
                made.run([torch.ones(8, 64)])
            kept += 1
        except (LaunchPlanError, TypeError, RuntimeError, IndexError):
            continue  # said so, or torch refused the operands
    assert kept < 300


def test_cubins_do_not_unpack_without_end():
    import zlib

    bomb = base64.b64encode(zlib.compress(bytes(80 << 20))).decode()
    wire = LaunchRecording(plans=(), cubins={}).wire()
    with pytest.raises(LaunchPlanError, match="too large"):
        decode({**wire, "cubins": {"a": bomb}})

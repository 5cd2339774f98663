"""Content of a recording: launches with their compiled code and arguments, operators, and steps done once per load."""

from __future__ import annotations

import struct

import pytest
import torch

from dvk.harness.launch_plans.plan import KernelLaunch, NotReducible, Pointer, Scalar
from dvk.harness.launch_plans.record import preload
from dvk.tasks.build import CandidateError
from tests.harness.launch_plans.recording import (
    HEADER,
    KERNEL,
    LAUNCH,
    MODULE,
    call_of,
    plan_of,
    recorded,
    steps,
)

pytest.importorskip("triton")


def launches(plan) -> list[KernelLaunch]:
    return [node for node in plan.call if isinstance(node, KernelLaunch)]


def test_a_launch_is_recorded_with_code_for_the_gpu():
    recording = recorded(KERNEL + MODULE + LAUNCH, torch.zeros(1000, 64))
    (plan,) = recording.plans
    (launch,) = launches(plan)
    assert launch.name == "scale" and launch.grid == (250, 1, 1) and launch.block == (128, 1, 1)
    code = recording.cubins[launch.cubin]
    assert code[:4] == b"\x7fELF" and struct.unpack_from("<H", code, 18) == (190,)  # EM_CUDA
    x, weight, y, n, width, factor = launch.args
    assert x == Pointer(ref=plan.inputs[0][0], modulo16=0)
    assert isinstance(weight, Pointer) and weight.ref == plan.buffers["weight"]
    assert isinstance(y, Pointer) and plan.outputs == {"tensor": y.ref}
    assert (n, width, factor) == (
        Scalar(type="i32", value=64000),
        Scalar(type="i32", value=64),
        Scalar(type="fp32", value=1.0),
    )
    assert plan.arch == 90 and plan.values[y.ref].shape == (1000, 64)


def test_views_keep_their_alignment_and_ones_are_compiled_in():
    body = """
        y = torch.empty_like(x)
        scale[(1,)](x[0, 1:], self.weight, y, 1, 64, 1.0, BLOCK=256)
        return y
"""
    plan = plan_of(KERNEL + MODULE + body)
    (launch,) = launches(plan)
    pointers = [a for a in launch.args if isinstance(a, Pointer)]
    assert [p.modulo16 for p in pointers] == [4, 0, 0]
    assert len(launch.args) == 5, "n = 1 is a constant of the code"
    assert steps(plan).count("slice") == 1


def test_kernels_that_take_numbers_of_every_type():
    candidate = (
        HEADER
        + """
@triton.jit
def put(y, a, b, c, d, flag):
    tl.store(y, a + b + c + d + flag)

"""
        + MODULE
        + """
        y = torch.empty(1, device=x.device)
        put[(1,)](y, 7, 2**40, 1.5, float("inf"), True)
        return y
"""
    )
    (launch,) = launches(plan_of(candidate))
    assert [(a.type, a.value) for a in launch.args if isinstance(a, Scalar)] == [
        ("i32", 7),
        ("i64", 2**40),
        ("fp32", 1.5),
        ("fp32", "inf"),
        ("u1", 1),
    ]


def test_questions_about_the_gpu_are_answered():
    body = """
        assert torch.cuda.is_available() and x.is_cuda and x.device == torch.device("cuda", 0) and x.get_device() == 0
        assert torch.cuda.get_device_capability() == (9, 0) and "H100" in torch.cuda.get_device_name()
        sms = torch.cuda.get_device_properties(x.device).multi_processor_count
        sms += triton.runtime.driver.active.utils.get_device_properties(0)["multiprocessor_count"]
        with torch.cuda.device(x.device):
            y = torch.empty_like(x)
            scale[(sms,)](x, self.weight, y, x.numel(), 64, 1.0, BLOCK=64)
        torch.cuda.synchronize()
        return y
"""
    (launch,) = launches(plan_of(KERNEL + MODULE + body))
    assert launch.grid == (264, 1, 1)


def test_heuristics_are_decided_while_recording():
    candidate = KERNEL.replace(
        "@triton.jit", '@triton.heuristics({"BLOCK": lambda args: 128})\n@triton.jit'
    )
    (launch,) = launches(
        plan_of(
            candidate + MODULE + LAUNCH.replace(", BLOCK=256", "").replace('meta["BLOCK"]', "128")
        )
    )
    assert launch.grid == (4, 1, 1)


def test_autotuned_kernels_carry_their_other_configurations():
    configs = (
        '[triton.Config({"BLOCK": b}, num_warps=w) for b, w in ((128, 4), (256, 8), (512, 4))]'
    )
    candidate = KERNEL.replace(
        "@triton.jit", f'@triton.autotune(configs={configs}, key=["n"])\n@triton.jit'
    )
    plan = plan_of(candidate + MODULE + LAUNCH.replace(", BLOCK=256", ""))
    (launch,) = launches(plan)
    assert (launch.grid, launch.block) == ((4, 1, 1), (128, 1, 1))
    assert [(o.grid[0], o.block[0]) for o in launch.options] == [(2, 256), (1, 128)]
    assert all(o.args == launch.args for o in launch.options)
    assert len({launch.cubin, *(o.cubin for o in launch.options)}) == 3


def test_shape_variants_are_recorded_one_by_one():
    calls = [call_of(torch.zeros(8, 64)), call_of(torch.zeros(3, 64), variant="batch-5")]
    first, second = recorded(KERNEL + MODULE + LAUNCH, calls=calls).plans
    assert (first.variant, second.variant) == ("native", "batch-5")
    assert [launches(p)[0].grid[0] for p in (first, second)] == [2, 1]


def test_named_and_plain_arguments_reach_the_call():
    body = "        return x * self.weight + bias * (2 if flag else 3)\n"
    module = MODULE.replace("forward(self, x)", "forward(self, x, flag, *, bias)")
    from dvk.harness.launch_plans.calls import describe_call
    from tests.harness.launch_plans.recording import on_gpu

    spec = describe_call("native", [torch.zeros(8, 64), True], {"bias": torch.zeros(64)})
    spec = spec.model_copy(update={"tensors": tuple(on_gpu(t) for t in spec.tensors)})
    (plan,) = recorded(HEADER + module + body, calls=[spec]).plans
    assert len(plan.inputs) == 2 and steps(plan) == ["mul", "mul", "add"]
    assert [a for node in plan.call for a in node.args if a == 2] == [2]


def test_a_kernel_that_does_not_compile_is_the_candidates_fault():
    with pytest.raises(CandidateError) as caught:
        recorded(KERNEL.replace("tl.program_id(0)", "tl.no_such_function(0)") + MODULE + LAUNCH)
    assert caught.value.status == "compile_error" and "no_such_function" in caught.value.message


@pytest.mark.slow
def test_too_much_shared_memory_is_the_candidates_fault():
    candidate = (
        HEADER
        + """
@triton.jit
def product(x, y, N: tl.constexpr):
    at = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    a = tl.load(x + at)
    tl.store(y + at, tl.dot(a, tl.trans(a)))

"""
        + MODULE
        + """
        y = torch.empty_like(x)
        product[(1,)](x, y, N=256, num_warps=8)
        return y
"""
    )
    with pytest.raises(CandidateError, match="shared memory"):
        recorded(candidate, torch.zeros(256, 256))


REFUSED = {
    "item": ("        return x if x.sum().item() > 0 else -x\n", "values"),
    "if": ("        return x if (x > 0).any() else -x\n", "values"),
    "random": ("        return x + torch.rand_like(x)\n", "random"),
    "dropout": ("        return nn.functional.dropout(x)\n", "random"),
    "nonzero": ("        return x[x > 0]\n", "values"),
    "stream": ("        torch.cuda.Stream()\n        return x * 2\n", "Stream"),
    "caught": (
        "        try: torch.cuda.Event()\n        except Exception: pass\n        return x * 2\n",
        "Event",
    ),
    "thread": (
        "        import threading\n        threading.Thread(target=print).start()\n        return x * 2\n",
        "threads",
    ),
    "library": (
        "        import ctypes\n        ctypes.CDLL(None)\n        return x * 2\n",
        "library",
    ),
    "compile": ("        return torch.compile(lambda y: y * 2)(x)\n", "torch.compile"),
    "host": ("        return x.cpu().cuda() * 2\n", "host"),
    "returns_host": ("        return torch.zeros(3)\n", "GPU"),
    "returns_object": ("        return {1, 2}\n", "cannot express"),
    "counter": (
        "        self.n = getattr(self, 'n', 0) + 1\n        return x * self.n\n",
        "differ",
    ),
    "keeps_result": (
        "        self.y = y = x * getattr(self, 'y', 1)\n        return y\n",
        "differ",
    ),
    "keeps_first_result": (
        "        if not hasattr(self, 'y'): self.y = x * 2\n        return self.y * 1\n",
        "earlier call",
    ),
    "keeps_output": (
        "        self.y = getattr(self, 'y', torch.empty_like(x))\n        return torch.mul(x, 2, out=self.y)\n",
        "writes again",
    ),
    "keeps_input": (
        "        self.x = getattr(self, 'x', x)\n        return self.x * 2\n",
        "earlier call",
    ),
    "address": (
        "        y = torch.empty_like(x)\n        scale[(1,)](x, self.weight, y, x.data_ptr(), 64, 1.0, BLOCK=64)\n        return y\n",
        "address",
    ),
    "weights_before_loading": (
        "        if not hasattr(self, 'w'): self.w = x.new_tensor(self.first.tolist())\n        return x * self.w\n",
        "values",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_plan_cannot_express_is_refused(name):
    body, reason = REFUSED[name]
    module = MODULE.replace(
        "self.weight = nn", "self.first = torch.randn(64, device='cuda')\n        self.weight = nn"
    )
    with pytest.raises(NotReducible, match=reason):
        recorded(KERNEL + module + body)


def test_what_needs_a_gpu_is_refused_even_where_it_fails_first():
    with pytest.raises(NotReducible, match="CUDAGraph"):
        recorded(HEADER + MODULE + "        g = torch.cuda.CUDAGraph()\n        return x\n")


def test_other_weights_than_the_references_are_refused():
    with pytest.raises(NotReducible, match="state_dict"):
        recorded(HEADER + MODULE.replace("randn(64)", "randn(32)") + "        return x\n")


def test_operators_of_others_are_refused():
    candidate = (
        HEADER
        + """
@torch.library.custom_op("dvk_plan_test::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2

@twice.register_fake
def _(x):
    return torch.empty_like(x)

"""
        + MODULE
        + "        return twice(x)\n"
    )
    with pytest.raises(NotReducible, match="custom operator"):
        recorded(candidate)


def test_the_process_is_as_it_was_afterwards():
    import sys
    import threading

    from triton.runtime import driver

    before = torch.cuda.is_available, threading.Thread.start
    recorded(KERNEL + MODULE + LAUNCH)
    assert (torch.cuda.is_available, threading.Thread.start) == before
    assert "dvk_record" not in sys.modules and driver._active is None
    assert torch.zeros(2).data_ptr() > 0 and torch.zeros(2).sum().item() == 0


def test_attention_stays_whole():
    body = """
        q = x.view(2, 4, 64, 64)
        y = nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)
        assert y.shape == q.shape and y.device == q.device
        return y * self.weight
"""
    plan = plan_of(HEADER + MODULE + body, torch.zeros(512, 64))
    assert steps(plan) == ["view", "scaled_dot_product_attention", "mul"]
    assert plan.call[1].kwargs == {"is_causal": True}
    with pytest.raises(NotReducible, match="random"):
        recorded(
            HEADER + MODULE + body.replace("is_causal", "dropout_p=0.5, is_causal"),
            torch.zeros(512, 64),
        )


def test_weights_may_be_copied_with_all_that_they_are():
    """As modules do that are made of copies of one: nn.TransformerEncoder."""
    body = """
        import copy
        weight, same = copy.deepcopy([self.weight, self.weight])
        assert weight is same is not self.weight and isinstance(weight, nn.Parameter) and weight.requires_grad
        return x * weight
"""
    plan = plan_of(HEADER + MODULE + body)
    assert [step for step in steps(plan) if step != "detach"] == ["clone", "mul"]


def test_numbers_may_index_and_masks_may_not():
    body = "        return x[:, torch.arange(4, device=x.device)]\n"
    assert "index" in steps(plan_of(HEADER + MODULE + body))


def test_preloading_asks_for_no_gpu(monkeypatch):
    def asked(*_):
        raise AssertionError(
            "the driver would be started in the process that others are forked from"
        )

    monkeypatch.setattr(torch.cuda, "is_available", asked)
    monkeypatch.setattr(torch.cuda, "device_count", asked)
    preload()

"""Kernels of CUDA C++ text: compiled by NVRTC while recording, for the alignment that their tensors have."""

from __future__ import annotations

import pytest
import torch

from dvk import cuda_toolkit
from dvk.harness.launch_plans.plan import KernelLaunch, NotReducible, Scalar
from dvk.tasks.build import CandidateError
from tests.harness.launch_plans.recording import MODULE, plan_of, recorded

pytestmark = pytest.mark.skipif(cuda_toolkit.nvrtc() is None, reason="needs NVRTC")

TEXT = (
    '''
import sys
import torch
from torch import nn

SOURCE = """
extern "C" __global__ void scale(const float *x, const float *w, float *y) {
#if DVK_ALIGNED
    *(float4 *)y = *(const float4 *)x;
#else
    y[threadIdx.x] = x[threadIdx.x] * w[0];
#endif
}
"""
'''
    + MODULE
    + """
        if not hasattr(self, "kernel"):
            self.kernel = sys.modules["dvk_record"].cuda_kernel(SOURCE, "scale", ("--std=c++17", "-DDVK_ALIGNED=1"))
        y = torch.empty_like(x)
        self.kernel((8, 1, 1), (48, 2, 1), 1024, (x, self.weight, y))
        return y
"""
)


def test_a_launch_of_cuda_text():
    recording = recorded(TEXT)
    (launch,) = [node for node in recording.plans[0].call if isinstance(node, KernelLaunch)]
    assert (launch.name, launch.grid, launch.block, launch.shared_bytes) == (
        "scale",
        (8, 1, 1),
        (48, 2, 1),
        1024,
    )
    assert len(launch.args) == 3 and recording.cubins[launch.cubin][:4] == b"\x7fELF"


def test_code_follows_the_alignment():
    shifted = TEXT.replace("(x, self.weight, y))", "(x.view(-1)[1:], self.weight, y))")
    codes = [
        next(n.cubin for n in plan_of(text).call if isinstance(n, KernelLaunch))
        for text in (TEXT, shifted)
    ]
    assert codes[0] != codes[1]


def test_text_that_does_not_compile_is_the_candidates_fault():
    with pytest.raises(CandidateError, match="nonsense") as caught:
        recorded(TEXT.replace("float4 *)y =", "nonsense *)y ="))
    assert caught.value.status == "compile_error"


def test_a_size_is_a_number_and_an_address_is_not():
    sized = TEXT.replace("float *y)", "float *y, long long n)")
    (launch,) = [
        node
        for node in plan_of(sized.replace("self.weight, y))", "self.weight, y, 5))")).call
        if isinstance(node, KernelLaunch)
    ]
    assert launch.args[3] == Scalar(type="i64", value=5)
    for passed in ("x.data_ptr()", "5.0", "True"):
        with pytest.raises(NotReducible, match="address"):
            recorded(sized.replace("self.weight, y))", f"self.weight, y, {passed}))"))


def test_libraries_stay_out_of_reach():
    body = "        self.kernel((8, 1, 1)"
    with pytest.raises(NotReducible, match="library"):
        recorded(TEXT.replace(body, "        import ctypes; ctypes.CDLL(None)\n" + body))
    assert torch.zeros(1).item() == 0

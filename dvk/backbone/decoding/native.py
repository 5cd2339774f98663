"""A decoding step of one sequence on a CPU as a C++ function, `step.cpp`.

It is for small models, where a step is some 300 operators whose overhead exceeds their memory traffic. g++ compiles it on
first use, in under a second, to `$DVK_HOME/cache/step`; if that fails, steps run operator by operator, as those of several
sequences always do.
"""

from __future__ import annotations

import ctypes
import logging
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from ctypes import POINTER, c_float, c_int64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from dvk import machine, resources
from dvk.backbone.decoding.weights import CacheView, Stack
from dvk.backbone.decoding.weights import LayerWeights as Weights
from dvk.records import content_hash

SOURCE = Path(__file__).with_name("step.cpp")
FLAGS = ("-O3", "-march=native", "-fopenmp-simd", "-fno-math-errno", "-shared", "-fPIC")
BUILD_S = 60.0

_log = logging.getLogger(__name__)


class NativeDecoder(Protocol):
    """The interface of `forward.Decoder`, which lies in a higher module."""

    words: Tensor
    cos: Tensor
    sin: Tensor
    norm: Tensor
    head: Stack
    layers: list[Weights]
    heads: int
    kv_heads: int
    head_size: int
    eps: float
    positions: int


class NativeMatrix(ctypes.Structure):
    """A stack's weight, without a copy."""

    _fields_ = [
        ("weight", c_void_p),
        ("inputs", c_int64),
        ("outputs", c_int64),
        ("upright", c_int64),
    ]


class NativeLayer(ctypes.Structure):
    """One block's weights."""

    _fields_ = [
        *((name, c_void_p) for name in ("before_attention", "head_norm", "before_mlp")),
        *((name, NativeMatrix) for name in ("qkv", "output", "gate_up", "down")),
    ]


class NativeModel(ctypes.Structure):
    """A decoder's shape and weights."""

    _fields_ = [
        *((name, c_int64) for name in ("layers", "width", "heads", "kv_heads", "size")),
        ("eps", c_float),
        *((name, c_void_p) for name in ("words", "cos", "sin", "norm")),
        ("layer", POINTER(NativeLayer)),
        ("head", NativeMatrix),
    ]


class NativeStep:
    """Logits after one more token of one sequence.

    Args:
        decoder: its buffers keep their addresses.
        function: `step` of the compiled library.
    """

    def __init__(self, decoder: NativeDecoder, function: Any):
        self.decoder, self.function = decoder, function
        width, size = decoder.words.shape[1], decoder.head_size
        layers = (NativeLayer * len(decoder.layers))(
            *(
                NativeLayer(
                    _address(one.before_attention),
                    _address(one.head_norm),
                    _address(one.before_mlp),
                    *map(_matrix, (one.qkv, one.output, one.gate_up, one.down)),
                )
                for one in decoder.layers
            )
        )
        tables = map(_address, (decoder.words, decoder.cos, decoder.sin, decoder.norm))
        self.model = NativeModel(
            len(layers),
            width,
            decoder.heads,
            decoder.kv_heads,
            size,
            decoder.eps,
            *tables,
            layers,
            _matrix(decoder.head),
        )
        self.cache = (c_void_p * (2 * len(layers)))()
        self.x = torch.empty(width)
        widest = max(stack.width for one in decoder.layers for stack in (one.qkv, one.gate_up))
        self.room = torch.empty(width + decoder.heads * size + decoder.positions + widest)

    def __call__(self, token: int, position: int, cache: Sequence[CacheView]) -> Tensor:
        """As `NativeDecoder.step`: float32 [1, vocabulary]."""
        self.cache[:] = [part.data_ptr() for view in cache for part in view[2:]]
        logits = torch.empty(1, self.decoder.head.width)
        capacity = cache[0][2].stride(0) // self.decoder.head_size
        self.function(
            ctypes.byref(self.model),
            self.cache,
            capacity,
            token,
            position,
            self.x.data_ptr(),
            self.room.data_ptr(),
            logits.data_ptr(),
        )
        return logits


def step_of(decoder: NativeDecoder) -> NativeStep | None:
    """The step of a decoder on a CPU, in float32; None if a matrix has a bias or comes in parts, or no compiler works."""
    stacks = [
        decoder.head,
        *(
            stack
            for one in decoder.layers
            for stack in (one.qkv, one.output, one.gate_up, one.down)
        ),
    ]
    if any(
        len(stack.parts) > 1 or stack.parts[0][1] is not None or stack.parts[0][2]
        for stack in stacks
    ):
        return None
    try:
        function = ctypes.CDLL(str(_library())).step
    except (OSError, subprocess.SubprocessError) as error:
        _log.warning(
            "decoding by PyTorch's operators, at about half the speed: step.cpp does not compile here: %s",
            error,
        )
        return None
    function.argtypes = [
        POINTER(NativeModel),
        c_void_p,
        c_int64,
        c_int64,
        c_int64,
        c_void_p,
        c_void_p,
        c_void_p,
    ]
    function.restype = None
    return NativeStep(decoder, function)


def _address(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def _matrix(stack: Stack) -> NativeMatrix:
    weight = stack.parts[0][0]
    return NativeMatrix(weight.data_ptr(), weight.shape[1], weight.shape[0], weight.is_contiguous())


@cache
def _library() -> Path:
    """The compiled file.

    Raises:
        OSError, subprocess.SubprocessError: no compiler, a compile error, or an unwritable cache.
    """
    compiler = machine.cxx()
    if shutil.which(compiler[0]) is None:
        raise FileNotFoundError(f"there is no {compiler[0]}")
    banner = subprocess.run(
        [*compiler, "--version"], capture_output=True, text=True, timeout=BUILD_S, check=True
    ).stdout
    folder = resources.home() / "cache" / "step"
    made = (
        folder
        / f"{content_hash(SOURCE.read_text(encoding='utf-8'), banner, machine.isa(), *FLAGS)}.so"
    )
    if not made.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as aside:
            built = Path(aside, made.name)
            subprocess.run(
                [*compiler, *FLAGS, str(SOURCE), "-o", str(built)],
                capture_output=True,
                timeout=BUILD_S,
                check=True,
            )
            os.replace(built, made)
    return made

"""The grammar of --input, --init and --dtype."""

from __future__ import annotations

import pytest

from dvk.errors import TaskError
from dvk.tasks.specs import InputSpec, parse_dtype, parse_init, parse_input, parse_inputs


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x=float32[64,1024]", InputSpec("x", "float32", (64, 1024))),
        (" x = fp16[ 8 , 3 ]:ones", InputSpec("x", "float16", (8, 3), fill="ones")),
        ("idx=int64[64]<1000", InputSpec("idx", "int64", (64,), high=1000)),
        ("idx=int[4]<7:zeros", InputSpec("idx", "int32", (4,), high=7, fill="zeros")),
        ("t=float64[]", InputSpec("t", "float64", ())),
        ("m=bool[2,2]", InputSpec("m", "bool", (2, 2))),
        ("x=bf16[5]:rand", InputSpec("x", "bfloat16", (5,), fill="rand")),
        ("alpha=0.5", InputSpec("alpha", value=0.5)),
        ("mode='tanh'", InputSpec("mode", value="tanh")),
        ("sizes=[1, 2]", InputSpec("sizes", value=[1, 2])),
    ],
)
def test_input(text: str, expected: InputSpec) -> None:
    assert parse_input(text) == expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("float32[3]", "no name"),
        ("x=float12[3]", "unknown dtype `float12`"),
        ("x=float32[3,]", "sizes"),
        ("x=float32[a]", "cannot read"),
        ("x=float32[0]", "empty"),
        ("x=float32[3]<5", "integers only"),
        ("x=int64[3]:randn", "floats only"),
        ("x=int64[3]<0", "no integer"),
        ("x=int8[3]<1000", "cannot hold 999"),
        ("x=float32[3]:uniform", "unknown fill"),
        ("x=relu", "not a Python literal"),
        ("x=", "no name"),
    ],
)
def test_bad_input(text: str, says: str) -> None:
    with pytest.raises(TaskError, match="input") as caught:
        parse_input(text)
    assert says in caught.value.message
    assert caught.value.hint


def test_input_twice() -> None:
    with pytest.raises(TaskError, match="twice"):
        parse_inputs(["x=float32[1]", "x=float32[2]"])


def test_init() -> None:
    assert parse_init(["512", "(1, 2)", "eps=1e-5", "mode='a=b'"]) == (
        [512, (1, 2)],
        {"eps": 1e-5, "mode": "a=b"},
    )


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        (["gelu"], "not a Python literal"),
        (["eps=1", "3"], "follows a named one"),
        (["eps=1", "eps=2"], "twice"),
        (["__import__('os').getcwd()"], "not a Python literal"),
    ],
)
def test_bad_init(texts: list[str], says: str) -> None:
    with pytest.raises(TaskError, match=says):
        parse_init(texts)


def test_dtype() -> None:
    assert parse_dtype("bf16") == "bfloat16"
    assert parse_dtype("torch.float16") == "float16"
    with pytest.raises(TaskError, match="int8"):
        parse_dtype("int8")


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("float32[64]", "begins with a parameter of forward"),
        ("x=float32[64,a]", "`a` is not a whole number"),
        ("x=float32[64", "brackets, as in `float32[64]`"),
        ("x=float32(64,8)", "brackets, as in `float32[64,8]`"),
        ("x=int64[8]<abc", "not `<abc`"),
        ("x=float32[8]=3", "not `=3`"),
        ("x=float32[8] rand", "not `rand`"),
        ("x=torch.float32[8]", "`torch.float32` is no dtype"),
        ("x=Float32[8]", "`Float32` is no dtype"),
        ("x=flot32[8]", "unknown dtype `flot32`"),
        ("x=float32", "has no sizes"),
        ("x=float32[8]:rnd", "unknown fill `rnd`"),
        ("x=float32[-1]", "`-1` is not a whole number"),
        ("mode=mean", "not a Python literal"),
        ("x=float32[8,,8]", "whole number"),
    ],
)
def test_errors_name_the_bad_part(text: str, part: str) -> None:
    with pytest.raises(TaskError) as caught:
        parse_input(text)
    assert (
        part in caught.value.message
        and "e.g." in caught.value.hint
        or "use one of" in caught.value.hint
    ), caught.value.message


def test_plain_values_of_every_kind() -> None:
    for text, value in (
        ("a=0.5", 0.5),
        ("a=-3", -3),
        ("a=True", True),
        ("a=None", None),
        ("a=[1, 2]", [1, 2]),
        ("a=(1,)", (1,)),
        ("a='tanh'", "tanh"),
        ("a={'k': 1}", {"k": 1}),
    ):
        assert parse_input(text).value == value and parse_input(text).dtype is None

"""Which algorithm a kernel is nearest to: by its lines, whatever numbers and registers stand in them."""

from __future__ import annotations

from tests.benchmarks.following import Right, likeness, shape

FLAT = """k0[cdiv(s0*s1, 1024), 4]:
    x = tl.program_id(0) * 1024 + tl.arange(0, 1024)
    xmask = x < s0*s1
    ex0 = tl.load(x0 + x, xmask)
    e0 = relu(ex0)
    tl.store(v0 + x, e0, xmask)
return v0"""
STRIDE = """k0[64, 4]:
    for x0_ in range(tl.program_id(0) * 1024, s0*s1, 64 * 1024):
        x = x0_ + tl.arange(0, 1024)
        xmask = x < s0*s1
        ex0 = tl.load(x0 + x, xmask)
        e0 = relu(ex0)
        tl.store(v0 + x, e0, xmask)
return v0"""
WAYS = {"flat": frozenset({FLAT}), "grid stride": frozenset({STRIDE})}


def test_an_answer_follows_the_way_that_is_nearest_to_it() -> None:
    flat, stride = (Right("k0", way, WAYS) for way in WAYS)
    assert (
        flat.follows(FLAT)
        and not flat.follows(STRIDE)
        and stride.follows(STRIDE)
        and not stride.follows(FLAT)
    )
    other = (
        FLAT.replace("1024", "256")
        .replace(", 4]", ", 1]")
        .replace("e0", "a7")
        .replace("relu(", "gelu(")
    )
    assert flat.follows(other) and not flat.in_its_words(other) and flat.in_its_words(FLAT)
    assert not flat.follows("v0 = x0.relu()\nreturn v0"), "there is no such kernel"


def test_what_is_as_near_to_another_way_follows_neither() -> None:
    same = {"flat": frozenset({FLAT}), "tiled": frozenset({FLAT.replace("1024", "64")})}
    assert not Right("k0", "flat", same).follows(FLAT)


def test_shapes_have_no_numbers_and_no_registers() -> None:
    assert (
        shape("    a12 = ex1 * 2 + s0*16")
        == shape("    e3 = ep0 * 4 + s0*1")
        == ["    r = r * # + s0*#"]
    )
    assert likeness(["a", "b", "c"], ["a", "c"]) == 0.8

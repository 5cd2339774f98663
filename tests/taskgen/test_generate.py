"""The generator: reproducible, on the right side of its split, in the format, and as varied as promised."""

from __future__ import annotations

import ast
import json
import random
import re
from collections import Counter
from functools import cache
from itertools import groupby
from pathlib import Path

import pytest

from dvk import aten
from dvk.composer.capture.batch import trace_quickly
from dvk.records import Task
from dvk.taskgen import Generated, collapsed, generate, make, signature_of, split_of
from dvk.taskgen.dice import Dice
from dvk.taskgen.sizes import PROFILES
from dvk.taskgen.split import SILENT
from dvk.tasks.hygiene import SMALL

NUM_SIGNATURES = 20_000


@cache
def drawn(
    device: str, split: str = "any", seed: int = 1, count: int = 1800
) -> tuple[Generated, ...]:
    return tuple(generate(seed, count, split=split, device=device))  # type: ignore[arg-type]


def test_the_same_arguments_give_the_same_tasks() -> None:
    first, again = (list(generate(9, 25, device="cpu")) for _ in range(2))
    assert first == again
    assert not {g.source for g in first} & {g.source for g in generate(10, 25, device="cpu")}
    for made in first:
        assert make(made.seed, made.level, made.profile) == made


@pytest.mark.slow
def test_every_file_is_in_the_format() -> None:
    for made in drawn("cuda")[:150]:
        tree = ast.parse(made.source)
        defined = {
            node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))
        }
        assert defined == {"Model", "get_inputs", "get_init_inputs"}
        sizes = {
            m[1]: (int(m[2]), int(m[3]))
            for m in re.finditer(
                r"^([A-Z0-9_]+) = (\d+)  # small: (\d+)$", made.source, re.MULTILINE
            )
        }
        assert sizes and all(1 <= small <= native for native, small in sizes.values())
        assert len(SMALL.findall(made.source)) == len(sizes)
        # No size stands in a shape as a bare number, no input or weight goes unused.
        forward = next(
            n
            for c in tree.body
            if isinstance(c, ast.ClassDef)
            for n in c.body
            if getattr(n, "name", "") == "forward"
        )
        text = ast.unparse(forward)
        assert all(
            re.search(rf"\b{argument.arg}\b", text.partition(":")[2])
            for argument in forward.args.args[1:]
        ), made.source  # type: ignore[attr-defined]
        attributes = set(re.findall(r"self\.(\w+) = ", made.source)) | set(
            re.findall(r'register_buffer\("(\w+)"', made.source)
        )
        body = made.source[made.source.index("super().__init__()") :] if attributes else ""
        assert all(
            len(re.findall(rf"self\.{name}\b", body)) + body.count(f'("{name}"') > 1
            for name in attributes
        ), made.source
        assert isinstance(made.task("cpu"), Task)


@pytest.mark.slow
def test_sides_never_meet() -> None:
    train = {g.signature for g in drawn("cpu", "train", 2, 500)}
    heldout = {g.signature for g in drawn("cpu", "heldout", 3, 50)}
    assert not train & heldout
    assert all(split_of(s) == "train" for s in train) and all(
        split_of(s) == "heldout" for s in heldout
    )


@pytest.mark.slow
def test_the_split_over_many_signatures() -> None:
    """Real signatures and recombinations of them: stable, independent of spelling and repeats, a tenth held out."""
    real = sorted({g.signature for g in drawn("cuda")})
    assert len(real) > 1200
    rng = random.Random(0)
    signatures = set(real)
    while len(signatures) < NUM_SIGNATURES:
        a, b = rng.choice(real), rng.choice(real)
        signatures.add(collapsed(a[: rng.randint(1, len(a))] + b[rng.randint(0, len(b) - 1) :]))
    spellings = {
        family: [name for name in aten.OPERATORS if aten.family(name) == family] or [family]
        for s in signatures
        for family in s
    }
    silent = sorted(SILENT)
    sides: Counter[str] = Counter()
    for signature in signatures:
        side = split_of(signature)
        sides[side] += 1
        written = []
        for family in signature:
            for _ in range(rng.choice((1, 1, 2))):
                name = rng.choice(spellings[family])
                written += [name + "_" if rng.random() < 0.2 and not name.startswith("_") else name]
                written += [rng.choice(silent)] if rng.random() < 0.3 else []
        assert signature_of(written) == signature and split_of(signature_of(written)) == side
    assert 0.09 < sides["heldout"] / sides.total() < 0.115


@pytest.mark.slow
def test_every_operator_occurs_in_training() -> None:
    everywhere = Counter(
        operator for g in (*drawn("cuda"), *drawn("cpu")) for operator in g.operators
    )
    training = Counter(
        operator
        for g in (*drawn("cuda"), *drawn("cpu"))
        if g.split == "train"
        for operator in g.operators
    )
    assert len(everywhere) >= 115
    assert set(everywhere) == set(training)
    single = {g.signature for g in drawn("cuda") if g.level == "single"}
    assert {split_of(s) for s in single} == {"train", "heldout"}


WIDE = {
    "pad_constant",
    "pad_reflect",
    "pad_replicate",
    "flip",
    "roll",
    "repeat_interleave",
    "tril",
    "triu",
    "pixel_shuffle",
    "pixel_unshuffle",
    "upsample_nearest2d",
    "upsample_bilinear2d",
    "upsample_linear1d",
    "index_select",
    "sort",
    "topk",
    "cumsum",
    "cumprod",
    "cummax",
    "cummin",
    "logcumsumexp",
    "attention",
    "embedding_add",
    "gather",
    "scatter_add",
    "unfold",
    "round",
    "interleave",
    "prod",
    "gt_mask",
    "argmax",
    "step",
}
"""Drawn for devices, and in no frozen task."""


@pytest.mark.slow
def test_captured_tasks_have_the_drawn_signature() -> None:
    left = set(WIDE)
    for made in (*drawn("cuda", seed=2), *drawn("cuda", seed=3)):
        if (new := left & set(made.operators)) and made.dtype == "float32":
            assert (
                signature_of(trace_quickly(made.task("cpu")).graph.signature()) == made.signature
            ), made.source
            left -= new
    assert not left
    assert not any(WIDE & set(made.operators) for made in generate(3, 300, device="neutral"))


def test_it_is_varied() -> None:
    tasks = drawn("cuda")
    assert {g.level for g in tasks} == {"single", "fusion", "network"}
    lengths = Counter(len(g.operators) for g in tasks if g.level == "fusion")
    assert {*range(2, 13)} <= set(lengths)
    assert len({g.category for g in tasks}) >= 17
    assert Counter(g.dtype for g in tasks)["float32"] / len(tasks) > 0.6
    assert {g.dtype for g in tasks} == {"float32", "float16", "bfloat16"}
    text = "\n".join(g.source for g in tasks)
    for style in (
        "nn.Sequential(",
        "inplace=True",
        ".relu_()",
        "register_buffer",
        "nn.Parameter",
        " self._",
        "F.gelu",
        "nn.GELU",
        ".softmax(",
        "torch.softmax(",
        "** 2",
        ".square()",
        "keepdim=True",
        "alpha=",
        "self.eval()",
        "from torch import nn",
        "import torch.nn as nn",
        ".chunk(2",
        "torch.cat",
        ".permute(",
        "[..., ::2]",
        "return [CHANNELS",
        "track_running_stats=False",
        "nn.ConvTranspose2d",
        "nn.Conv3d",
        "nn.Conv1d",
        "cross_entropy",
        ".to(torch.float",
    ):
        assert style in text, style
    # One signature is written in many ways.
    by_signature = sorted(tasks, key=lambda g: g.signature)
    families = [
        [g.source for g in group] for _, group in groupby(by_signature, key=lambda g: g.signature)
    ]
    assert max(len({re.sub(r"\d+", "", source) for source in group}) for group in families) > 10


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_sizes_fit_the_device(device: str) -> None:
    profile = PROFILES[device]
    elements = []
    for made in drawn(device)[:300]:
        sizes = {
            m[1]: int(m[2])
            for m in re.finditer(r"^([A-Z0-9_]+) = (\d+)", made.source, re.MULTILINE)
        }
        first = re.search(
            r"torch\.randn?\(([^()]*)\)", made.source[made.source.index("def get_inputs") :]
        )
        assert first
        total = 1
        for part in first[1].split(","):
            total *= eval(part, {}, sizes)
        elements.append(total)
    assert max(elements) <= profile.high
    assert sorted(elements)[len(elements) // 20] >= profile.low / 8
    assert max(elements) > 50 * min(elements)


def test_dice_need_only_random_numbers() -> None:
    """The same on every Python: only random() is drawn, whose sequence is guaranteed."""
    dice = Dice(7)
    assert [dice.between(1, 6) for _ in range(8)] == [2, 1, 4, 1, 4, 3, 1, 4]
    assert sorted(dice.shuffled(range(50))) == list(range(50))
    counts = Counter(dice.weighted({"a": 1, "b": 3}) for _ in range(4000))
    assert 0.7 < counts["b"] / 4000 < 0.8


UNTAUGHT = {
    "__and__",
    "__rshift__",
    "addcdiv",
    "einsum",
    "embedding_bag",
    "fft_rfft",
    "grid_sampler",
    "imag",
    "index",
    "log10",
    "median",
    "mv",
    "real",
    "scatter",
    "unfold",
    "upsample_trilinear3d",
    "view_as",
}
"""Families of the suite's development half that no training task has. A new one is either taught or written here."""


def test_suites_hold_few_operators_that_are_never_taught() -> None:
    taught = {family for g in (*drawn("cuda"), *drawn("cuda", seed=2)) for family in g.signature}
    index = json.loads(Path("data/tasks/suite/index.json").read_text())
    missing = {
        entry["name"]: new
        for entry in index
        if entry["half"] == "development" and (new := set(entry["signature"]) - taught)
    }
    assert set().union(*missing.values()) == UNTAUGHT, missing

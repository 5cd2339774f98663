"""The parts of the diversity filter, each against its specification."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from dvk.config import DiversityConfig
from dvk.learn.diversity import (
    balance,
    capping,
    duplicates,
    filter,
    lexing,
    signatures,
    sketches,
    steps,
)
from dvk.learn.diversity.methods import density, linkage
from dvk.learn.diversity.rows import facts
from dvk.learn.examples import ExampleTask
from tests.learn.example_rows import one, said

TRITON = '''import triton
import triton.language as tl

@triton.jit
def scale_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    """Doc."""
    offsets = tl.program_id(0) * 1024 + tl.arange(0, BLOCK)  # where
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
    tl.store(y_ptr + offsets, tl.exp(x) * 2.5, mask=offsets < n)
'''
CUDA = (
    'SOURCE = """\n#include <cuda.h>\n__global__ void run(const float* a, float* b, int n) {\n'
    '  // copy\n  int i = blockIdx.x;\n  if (i < n) b[i] = expf(a[i]);\n}\n"""\n'
)


# ---------------------------------------------------------------- lexing


@pytest.mark.parametrize(
    "old, new, same_shape, same_exact",
    [
        ("offsets", "at", True, True),
        ("scale_kernel", "k0", True, True),
        ("  # where", "", True, True),
        ('    """Doc."""\n', "", True, True),
        (" * 2.5", "*2.5", True, True),
        ("1024", "2048", True, False),
        ("2.5", "0.1", True, False),
        ("tl.exp", "tl.log", False, False),
        ("offsets < n, other", "offsets <= n, other", False, False),
    ],
)
def test_what_tokens_depend_on(old: str, new: str, same_shape: bool, same_exact: bool) -> None:
    a, b = lexing.code_tokens(TRITON), lexing.code_tokens(TRITON.replace(old, new))
    assert TRITON != TRITON.replace(old, new)
    assert (
        np.array_equal(a.shape, b.shape) is same_shape
        and np.array_equal(a.exact, b.exact) is same_exact
    )


@pytest.mark.parametrize(
    "old, new, same",
    [
        ("// copy", "/* copied\n here */", True),
        ("expf", "sinf", False),
        ("run", "go", True),
        ("n) b", "m) b", True),
    ],
)
def test_c_inside_a_string_is_code(old: str, new: str, same: bool) -> None:
    a, b = lexing.code_tokens(CUDA), lexing.code_tokens(CUDA.replace(old, new))
    assert CUDA != CUDA.replace(old, new) and np.array_equal(a.exact, b.exact) is same
    assert len(a.exact) > 40


def test_any_text_has_tokens() -> None:
    draw = random.Random(0)
    for _ in range(300):
        text = "".join(draw.choices("ab1_.:#/*\"'\\(){};= \n\t\u00e9\ud800", k=draw.randint(0, 80)))
        tokens = lexing.code_tokens(text)
        assert (
            len(tokens.shape) == len(tokens.exact)
            and lexing.prose_tokens(text).exact.dtype == np.uint32
        )
    for text in (
        "#" * 20000,
        '"' * 20000,
        "/*" * 10000,
        "//" * 10000 + ";\n;\n",
        "(" * 20000,
    ):  # no exponential matching
        lexing.code_tokens(text)


# ---------------------------------------------------------------- sketches and duplicates


def test_sketches_estimate_jaccard() -> None:
    random_ids = np.random.default_rng(0)
    for share in (0.2, 0.6, 0.9):
        errors = []
        for _ in range(60):
            a = random_ids.integers(0, 1 << 32, 300, dtype=np.uint32)
            b = np.concatenate(
                [
                    a[: int(300 * share)],
                    random_ids.integers(0, 1 << 32, 300 - int(300 * share), dtype=np.uint32),
                ]
            )
            both = sketches.sketch([a, b], 1, 128)
            errors.append(
                float((both[0] == both[1]).mean())
                - sketches.jaccard(sketches.shingles(a, 1), sketches.shingles(b, 1))
            )
        assert abs(np.mean(errors)) < 0.02 and np.std(errors) < 0.06


def test_a_sketch_does_not_depend_on_its_neighbours() -> None:
    draw = np.random.default_rng(1)
    texts = [
        draw.integers(0, 50, int(size), dtype=np.uint32)
        for size in [0, 1, 4, 5, 6, *draw.integers(0, 3000, 40), 0]
    ]
    together = sketches.sketch(texts, 5, 16)
    assert np.array_equal(
        together, np.concatenate([sketches.sketch([text], 5, 16) for text in texts])
    )
    assert (
        np.array_equal(together[0], together[-1])
        and sketches.similarities(together, together).diagonal().min() == 1.0
    )


@pytest.mark.parametrize("threshold", [0.7, 0.85, 0.9, 0.95, 1.0])
def test_every_near_duplicate_is_found(threshold: float) -> None:
    """Against all pairs, on sketches made so that many lie on the very edge."""
    draw = np.random.default_rng(2)
    base = draw.integers(0, 1 << 32, (12, 128), dtype=np.uint32)
    sketch = base[draw.integers(0, 12, 400)]
    most = round((1 - threshold) * 128)
    for row in sketch:
        row[draw.choice(128, draw.integers(0, most + 4), replace=False)] = draw.integers(0, 1 << 32)
    alike = draw.integers(0, 2, 400).astype(np.uint64)
    order = draw.permutation(400).tolist()
    instead = duplicates.find(sketch, alike, order, threshold)
    kept: list[int] = []
    for row in order:  # the definition
        near = [
            other
            for other in kept
            if alike[other] == alike[row] and (sketch[other] == sketch[row]).mean() >= threshold
        ]
        if near:
            assert instead[row] in near
        else:
            assert instead[row] == -1
            kept.append(row)
    assert 12 < len(kept) < 400
    assert 128 % duplicates.num_bands(128, threshold) == 0


# ---------------------------------------------------------------- clusters


def blocks() -> tuple[np.ndarray, np.ndarray]:
    """A similarity matrix with three groups and two strangers; and the groups."""
    groups = np.array([0] * 8 + [1] * 7 + [2] * 6 + [3, 4])
    noise = np.random.default_rng(3).uniform(-0.05, 0.05, (len(groups), len(groups)))
    near = np.where(groups[:, None] == groups[None], 0.85, 0.2) + (noise + noise.T) / 2
    np.fill_diagonal(near, 1.0)
    return near.astype(np.float32), groups


@pytest.mark.parametrize("labels", [linkage.labels, density.labels])
@pytest.mark.slow
def test_clusters_are_the_groups_in_any_order(labels: Any) -> None:
    near, groups = blocks()
    for order in (np.arange(len(groups)), np.random.default_rng(4).permutation(len(groups))):
        found = labels(near[np.ix_(order, order)], DiversityConfig())
        assert (
            len(set(zip(found.tolist(), groups[order].tolist()))) == len(set(found.tolist())) == 5
        )


def test_linkage_is_the_textbook_algorithm() -> None:
    """Against merging the two most alike clusters, by average, until none are alike enough."""
    draw = np.random.default_rng(5)
    for number in (1, 2, 3, 9, 25):
        near = draw.uniform(0, 1, (number, number))
        near = (near + near.T) / 2
        np.fill_diagonal(near, 1.0)
        clusters = [[row] for row in range(number)]
        while len(clusters) > 1:
            pairs = [
                (near[np.ix_(a, b)].mean(), i, j)
                for i, a in enumerate(clusters)
                for j, b in enumerate(clusters)
                if i < j
            ]
            best, i, j = max(pairs)
            if best < 0.6:
                break
            clusters[i] += clusters.pop(j)
        found = linkage.labels(near.astype(np.float32), DiversityConfig())
        assert sorted(
            sorted(np.flatnonzero(found == label).tolist()) for label in set(found.tolist())
        ) == sorted(map(sorted, clusters))


def test_families() -> None:
    same = signatures.family(("linear", "relu", "mul", "softmax"))
    assert (
        same == signatures.family(("mm", "gelu", "view", "log_softmax")) == "product point softmax"
    )
    assert signatures.family(()) == "unknown" and signatures.family(("view",)) == "move"
    assert signatures.family(("linear", "relu", "sum") * 5) == "long: point product reduce"


def test_water_level() -> None:
    draw = random.Random(6)
    for _ in range(200):
        sizes = [draw.randint(1, 40) for _ in range(draw.randint(0, 12))]
        goal = draw.randint(0, sum(sizes) + 5)
        level = capping.water_level(sizes, goal)
        kept = sum(min(size, level) for size in sizes)
        assert kept >= min(goal, sum(sizes)) and (
            level == 0
            or sum(min(size, level - 1) for size in sizes) < max(goal, 1)
            or level == max(sizes)
        )


def test_farthest_first_takes_one_of_each_before_a_second_of_any() -> None:
    themes = [
        "softmax rows online maximum",
        "matmul tile dot accumulate",
        "bias gelu epilogue store",
        "reduce warp shuffle tree",
    ]
    texts = [f"{theme} kernel number {copy}".split() for copy in range(4) for theme in themes]
    chosen = capping.farthest_first(texts, 4)
    assert chosen[0] == 0 and {number % 4 for number in chosen} == {0, 1, 2, 3}
    assert sorted(capping.farthest_first(texts, 99)) == list(range(16))
    assert capping.farthest_first([[], [], ["a"]], 2)[0] == 0
    assert capping.pool(range(16), 4) == list(range(8)) and capping.pool(range(4), 4) == []
    assert capping.keep(
        list(range(16)), 4, capping.spread_out(texts[:8], 4)
    ) == capping.farthest_first(texts[:8], 4), "of the best"


def test_a_skill_that_is_everywhere_is_cut_to_its_share() -> None:
    skills = [("common",)] * 400 + [(f"rare_{number % 40}",) for number in range(120)]
    rows = [
        facts(one(kind="policy_with_skills", skills=names, quality={"n": n}))
        for n, names in enumerate(skills)
    ]
    choice = balance.choose(rows, list(range(len(rows))), DiversityConfig())
    taken = [skills[position][0] for position in choice.taken]
    assert sum(name != "common" for name in taken) == 120 and taken.count("common") == 30
    assert {why for why, _ in choice.refused.values()} == {"skill_share"} and choice.shares[
        "skill"
    ] == 0.2
    two = balance.choose(rows[398:402], [0, 1, 2, 3], DiversityConfig())
    assert two.shares["skill"] == 0.5 and len(two.taken) == 4, "few skills allow larger shares"


# ---------------------------------------------------------------- quality


@pytest.mark.parametrize(
    "fields, reason",
    [
        ({}, None),
        ({"verified": False}, "not_verified"),
        ({"speedup": 0.7}, "slow"),
        ({"speedup": None}, "no_speedup"),
        ({"kind": "policy_with_skills", "skills": ("a",), "speedup": None}, None),
        ({"kind": "policy_with_skills", "skills": ("a",), "speedup": 0.3}, None),
        ({"code": "x"}, "too_short"),
        ({"code": "x = 1\n" * 30000}, "too_long"),
        (
            {
                "code": "def run(x0):\n    # ... rest of the code\n    # rest of the code unchanged\n"
            },
            "lazy",
        ),
        ({"code": "def run(x0): raise NotImplementedError"}, "lazy"),
        (
            {"code": "import torch\nclass ModelNew(torch.nn.Module): pass", "backend": "triton"},
            "lazy",
        ),
        ({"code": TRITON + "class ModelNew: pass", "backend": "triton"}, None),
        ({"code": TRITON, "backend": "cuda"}, None),
        ({"kind": "selection", "code": "", "skills": ("a", "b"), "chosen": ("b",)}, None),
        (
            {"kind": "selection", "code": "", "skills": ("a", "b"), "chosen": ("c",)},
            "unknown_skill",
        ),
        (
            {"kind": "selection", "code": "", "skills": ("a", "gone"), "chosen": ("gone",)},
            "unknown_skill",
        ),
        (
            {"kind": "selection", "code": "", "skills": ("a",), "messages": said("select none")},
            None,
        ),
        (
            {
                "kind": "selection",
                "code": "",
                "skills": ("a",),
                "speedup": 0.5,
                "messages": said("select none"),
            },
            None,
        ),
        ({"kind": "selection", "code": ""}, "unknown_skill"),
        ({"kind": "summary", "code": "", "speedup": 1.1, "chosen": ("new",)}, "slow"),
        ({"kind": "summary", "code": "", "speedup": 1.1, "messages": said("none")}, None),
        ({"kind": "summary", "code": "", "speedup": 2.0}, None),
        (
            {
                "kind": "summary",
                "code": "",
                "messages": said("Just use torch.compile instead of a kernel."),
            },
            "lazy",
        ),
        (
            {
                "kind": "summary",
                "code": "",
                "messages": said("Do not use Triton atomics here; write two kernels."),
            },
            None,
        ),
    ],
)
def test_reasons(fields: dict[str, Any], reason: str | None) -> None:
    found = filter.reason(one(**fields), {"a", "b", "c"})
    assert (found and found[0]) == reason


def test_what_is_far_below_the_best_of_its_task() -> None:
    table = [(2.0, "t", ()), (1.7, "t", ()), (1.2, "t", ()), (1.2, "t", ("a",)), (1.0, "u", ())]
    rows = [
        one(
            speedup=s,
            code=f"code {n} of {s}",
            kind="policy_with_skills" if given else "policy",
            skills=given,
            task=ExampleTask(id=task),
        )
        for n, (s, task, given) in enumerate(table)
    ]
    assert set(filter.slower_than_best(list(map(facts, rows)))) == {2}


# ---------------------------------------------------------------- steps


def test_best_steps() -> None:
    root = one(code="root of all", speedup=1.0)
    children = [
        one(code=f"child {s}", speedup=s, lo=lo, parent=root.id)
        for s, lo in ((1.3, 1.25), (1.5, 1.2), (1.02, 1.01), (0.9, None))
    ]
    conversations = [
        one(code=f"turns {rounds}", speedup=rounds[-1], round_speedups=rounds)
        for rounds in ((None, 1.0, 2.0), (2.0, 1.5), (None, 2.5), (1.2,))
    ]
    elsewhere = one(
        code="its parent is not here", speedup=2.0, parent="gone", quality={"parent_speedup": 1.6}
    )
    unknown = one(code="nothing is known of its parent", speedup=2.0, parent="gone too")
    role = one(kind="selection", code="", speedup=9.0, parent=root.id)
    everything = [root, *children, *conversations, elsewhere, unknown, role]
    assert steps.best_steps(everything) == [children[0], conversations[0], elsewhere]
    assert steps.best_steps(reversed(everything)) == [elsewhere, conversations[0], children[0]]
    assert steps.best_steps(everything, min_gain=1.9) == [conversations[0]]

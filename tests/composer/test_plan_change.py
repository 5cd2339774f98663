"""Skills on plans: facts, changes applied, following; seeds' changes, and two that contradict each other."""

from __future__ import annotations

import pytest

from dvk.agents.task_context import TaskContext
from dvk.composer.capture.export import trace
from dvk.composer.plan_change import applied, follows, graph_facts, machine_words
from dvk.composer.plan_space import PlanSpace
from dvk.composer.recipes import RECIPES
from dvk.records.skill_block import parse_block
from dvk.skills import seeds
from dvk.tasks import load


@pytest.fixture(scope="module")
def space() -> PlanSpace:
    task = load("data/tasks/examples/mlp_head.py", device="cpu")
    subject = TaskContext(task, trace(task), "cpp")
    assert subject.captured is not None
    return PlanSpace(task, subject.captured, "cpp")


def test_facts_are_those_of_the_default_plan(space: PlanSpace) -> None:
    facts = graph_facts(space, "NVIDIA H100 80GB HBM3, torch 2.11.0", "device")
    assert facts.words["machine"] == ("nvidia", "h100", "80gb", "hbm3")
    assert facts.words["backend"] == ("cpp",) and "linear" in facts.words["has"]
    kernels = space.fused(space.default.recipes).ordered
    assert sorted(facts.kernels) == sorted(kernel.name for kernel in kernels)
    assert machine_words("") == ()


def test_contradicting_skills_are_each_followed(space: PlanSpace) -> None:
    facts, plan = graph_facts(space), space.default
    for texts in (
        ("+own_matmul", "-fuse_rowwise"),
        ("kernels = parallel serial", "kernels = parallel rows"),
        ("kernels = width 256", "kernels = width 512"),
    ):
        blocks = [parse_block("backend = cpp", text) for text in texts]
        plans = [applied(space, plan, block, facts) or plan for block in blocks]
        for block, made in zip(blocks, plans, strict=True):
            assert follows(space, made, block, facts), str(block.do)
        assert plans[0] != plans[1]
    own, none = (parse_block("always", text) for text in ("+own_matmul", "-own_matmul"))
    made = applied(space, plan, own, facts)
    assert made is not None and not follows(space, made, none, facts)


def test_a_skill_for_others_changes_nothing(space: PlanSpace) -> None:
    facts, plan = graph_facts(space), space.default
    for when, do in (
        ("device = cuda", "+own_matmul"),  # another device
        ("always", "+cuda_graph"),  # does not apply
        ("does = convolution", "kernels = parallel serial"),  # no such kernel
        ("always", "kernels = looped"),  # no such schedule
        ("always", "+fuse_rowwise"),  # is so already
    ):
        assert applied(space, plan, parse_block(when, do), facts) is None, (when, do)


def test_what_is_applied_can_be_composed(space: PlanSpace) -> None:
    facts = graph_facts(space)
    plan = applied(space, space.default, parse_block("always", "kernels = parallel serial"), facts)
    assert plan is not None
    assert space.candidate(plan, "serial").id != space.candidate(space.default, "default").id


def test_every_seed_with_a_recipe_has_a_block() -> None:
    found = {skill.name: skill for skill in seeds.load() if skill.recipe is not None}
    without = [name for name, skill in found.items() if skill.block is None]
    assert without == ["vectorized_loads"], "every kernel has vectors: there is nothing to change"
    for skill in found.values():
        if skill.block is not None and RECIPES[str(skill.recipe)].kind != "schedule":
            # A recipe may need others, which the block adds with it.
            assert skill.recipe in skill.block.do.added

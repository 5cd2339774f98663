"""Lessons of the cold start: what their answers are mixed of."""

from __future__ import annotations

import random

from dvk.agents.task_context import TaskContext
from dvk.agents.teacher.lessons import OWN_SHARE, Lesson, lessons

from .conftest import affine, captured


def test_notes_that_say_nothing_about_the_task_change_nothing() -> None:
    """Answers under idle notes are the usual one as often as answers without notes: else notes, whatever they say, act as "be usual"."""
    subject = TaskContext(affine(), captured(), "cpp")
    plain = lessons(subject, random.Random(1), 400, with_skills=0.0)
    idle = [
        one for one in lessons(subject, random.Random(2), 900, with_skills=1.0) if not one.follows
    ]
    assert len(idle) > 150 and all(one.skills for one in idle)
    usual = max({one.variant.text for one in plain}, key=[o.variant.text for o in plain].count)

    def share(of: list[Lesson]) -> float:
        return sum(one.variant.text == usual for one in of) / len(of)

    assert share(plain) >= OWN_SHARE - 0.08
    assert abs(share(idle) - share(plain)) < 0.12

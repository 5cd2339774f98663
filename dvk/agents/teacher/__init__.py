"""The composer as a teacher: what a small model learns from, made without one.

advice      a skill's meaning, as data: under which condition which algorithm; in words, and followed
phrases     the many ways to say the same, some of which training never sees
lessons     a captured task → conversations and their right answers
"""

from dvk.agents.teacher.advice import Advice, follow, given, say, understood
from dvk.agents.teacher.lessons import Lesson, lessons

__all__ = ["Advice", "Lesson", "follow", "given", "lessons", "say", "understood"]

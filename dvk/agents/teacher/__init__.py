"""The composer as a teacher: training data for a small model, made without a model.

advice      a skill's meaning, as data: under which condition which algorithm; as text, and applied to a plan
phrases     many paraphrases of each, some of which training never sees
lessons     a captured task → conversations and their right answers
"""

from dvk.agents.teacher.advice import Advice, advice_for, follow, format_note, parse_note
from dvk.agents.teacher.lessons import Lesson, lessons

__all__ = ["Advice", "Lesson", "follow", "advice_for", "lessons", "format_note", "parse_note"]

"""The three agents on one backbone: selection, policy, summary. Pure functions build prompts and read answers; `rollout` plays.

tools         the two tools' schemas
reading       tool calls and code from answers, or why there are none
showing       tasks and skills as text, within budgets
notes         skills as notes of two lines
feedback      verdicts in words
briefs        what a search puts before the policy: versions, operation, lessons
turns         what earlier turns of a conversation say together
dialects      how a backbone is spoken to: chat, compact

selection     library → candidates → chosen skills
policy        task, skills, earlier attempts → candidate
summary       a conversation that helped → new skills

play          one task's conversations: what is asked next
judging       verdicts as they come
rollout       many tasks at once, over a backbone and the judge
writers       models on the nodes of a Ray cluster as one backbone

proposing     skills that summaries propose, and whether they are new
siblings      tasks that resemble another
arms          with a skill and without it: asked and judged
gains         what paired answers say, with bounds
trials        proposed skills tried, and admitted or refused
"""

from dvk.agents.rollout import run_episode, run_episodes
from dvk.agents.task_context import TaskContext

__all__ = ["TaskContext", "run_episode", "run_episodes"]

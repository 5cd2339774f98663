"""The three agents on one backbone: selection, policy, summary. Pure functions build prompts and parse answers; `rollout` plays.

tools            the tools' schemas
reading          parses tool calls and code in answers, or gives the error
repair           backtracking for unparsable answers
task_context     tasks and skills as text, within budgets
notes            skills as notes of two lines
feedback         verdicts as text
briefs           a search's additions to the prompt: versions, operation, lessons
turns            facts about a conversation's earlier turns
dialects         prompt formats of backbones: chat, compact

selection        library → candidates → chosen skills
policy           task, skills, earlier attempts → candidate
summary          a conversation that helped → new skills

episode_runner   one task's conversations: the next questions
rollout          many tasks at once, over a backbone and the judge
writers          models on the nodes of a Ray cluster as one backbone

proposing        skills that summaries propose, and whether they are new
similar_tasks    tasks that resemble another
trial_arms       answers with a skill and without it, judged
trials           trials of proposed skills: admitted or refused
"""

from dvk.agents.rollout import run_episode, run_episodes
from dvk.agents.task_context import TaskContext

__all__ = ["TaskContext", "run_episode", "run_episodes"]

"""The tools that agents answer with: schemas as OpenAI-style functions, one source for prompts, training data and reading.

Names and fields of the first two are those of daVinci-kernel (arXiv 2606.16497), so that its published checkpoints answer
in a form that dvk parses. Counts are part of the schema: the caller decides how many.
"""

from __future__ import annotations

from typing import Any

SELECT = "select_skills"
UPDATE = "update_skill_library"
ADVISE = "advise"
PLAN = "plan_moves"


def select_skills(most: int) -> dict[str, Any]:
    """The selection agent's tool: at most `most` skills, each with a reason."""
    item = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "Exact name of a skill in the list."},
            "reason": {"type": "string", "description": "Why it should make this task faster."},
        },
        "required": ["name", "reason"],
    }
    return _function(
        SELECT,
        "Choose the skills to write this kernel with.",
        {
            "think": {
                "type": "string",
                "description": "What bounds the task's time, and which techniques would help.",
            },
            "selected_skills": {
                "type": "array",
                "maxItems": most,
                "items": item,
                "description": f"The skills chosen, at most {most}, the most valuable first; empty if none helps.",
            },
        },
    )


def update_skill_library(most: int) -> dict[str, Any]:
    """The summary agent's tool: at most `most` new skills."""
    text = {"type": "string"}
    item = {
        "type": "object",
        "properties": {
            "name": {**text, "description": "snake_case, new, says what the technique is."},
            "description": {
                **text,
                "description": "One line of at most 120 characters: what it is and when it pays.",
            },
            "scope": {**text, "description": "`general`, or `task_specific/<kind>`."},
            "tags": {
                "type": "array",
                "items": text,
                "description": "Three to six words to find it by.",
            },
            "content": {
                **text,
                "description": "Markdown with ## Motivation, ## Key Idea, ## When it pays, ## Example, ## Pitfalls.",
            },
            "when": {
                **text,
                "description": "Optional, with `do`: a condition that can be checked, e.g. `device = cuda, does = softmax, "
                "row_length > 4096`, or `always`.",
            },
            "do": {
                **text,
                "description": "Optional, with `when`: a change of the composer's plan, e.g. `+own_matmul -inplace_epilogue` or "
                "`kernels = looped online yes`.",
            },
        },
        "required": ["name", "description", "scope", "tags", "content"],
    }
    return _function(
        UPDATE,
        "Add what was learnt to the skill library.",
        {
            "think": {
                "type": "string",
                "description": "What made the code faster, and whether it carries over to other tasks.",
            },
            "new_skills": {
                "type": "array",
                "maxItems": most,
                "items": item,
                "description": f"At most {most} skills; empty if nothing is worth keeping.",
            },
        },
    )


def advise() -> dict[str, Any]:
    """The reviewer's tool: one change, by its form."""
    return _function(
        ADVISE,
        "Name the one change to make next.",
        {
            "think": {"type": "string", "description": "What the findings say, and what follows."},
            "problem": {
                "type": "string",
                "description": "The one fault, or what takes most of the time.",
            },
            "change": {
                "type": "string",
                "description": "Exactly one change, concrete enough to be made without asking back.",
            },
        },
    )


def plan_moves(most: int) -> dict[str, Any]:
    """The planner's tool: at most `most` moves, each a kind and a region."""
    item = {
        "type": "object",
        "properties": {
            "kind": {
                "type": "string",
                "description": "What to do: a kind listed as legal for the region.",
            },
            "region": {"type": "string", "description": "Where: `graph`, or a kernel's name."},
        },
        "required": ["kind", "region"],
    }
    return _function(
        PLAN,
        "Name the next moves.",
        {
            "think": {
                "type": "string",
                "description": "What takes the time, and which moves would lower it.",
            },
            "moves": {
                "type": "array",
                "minItems": 1,
                "maxItems": most,
                "items": item,
                "description": f"The moves, at most {most}, the most promising first.",
            },
        },
    )


def _function(name: str, description: str, properties: dict[str, Any]) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": parameters},
    }

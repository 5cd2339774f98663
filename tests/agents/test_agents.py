"""The three agents as pure functions, in the chat dialect: prompts, parsing, refusals with reasons."""

from __future__ import annotations

import json

import pytest

from dvk import backends
from dvk.agents import dialects, notes, policy, selection, summary
from dvk.agents.dialects import chat
from dvk.agents.dialects.examples import RULES, TITLES, worked
from dvk.agents.task_context import SUMMARY_TOKENS, TaskContext
from dvk.agents.turns import best_timing, turns_in_budget
from dvk.backbone import Completion
from dvk.config import AgentsConfig, Config
from dvk.harness.session import static
from dvk.records import Candidate, Graph, Node, Skill, Trace
from dvk.skills import Library
from tests.agents.conftest import make_skill, ok, turn, wrong
from tests.agents.group_norm import HERE, SOURCE, TASK

CHAT = dialects.get("chat")
SETTINGS = Config().agents


def said(text: str, finish: str = "stop") -> Completion:
    return Completion.model_validate({"text": text, "finish": finish})


def called(tool: str, **arguments: object) -> Completion:
    return said(
        f"<tool_call>{json.dumps({'name': tool, 'arguments': {'think': 'so', **arguments}})}</tool_call>"
    )


# ---------------------------------------------------------------- selection


def picked(*names: str) -> Completion:
    return called(
        "select_skills", selected_skills=[{"name": name, "reason": "fits"} for name in names]
    )


def test_candidates_follow_source_and_graph(library: Library) -> None:
    library.add(make_skill("group_norm_silu", tags=("GroupNorm", "silu")))
    library.add(make_skill("online_softmax", tags=("softmax",)))
    library.add(
        make_skill(
            "import_kernels",
            description="import torch nn Module forward self get_inputs class def return",
        )
    )
    assert [s.name for s in selection.candidates(HERE, library, SETTINGS)] == ["group_norm_silu"]
    softmax = Node(name="v0", op="aten.softmax.int", shape=(2, 3), dtype="float32")
    captured = type("C", (), {"graph": Graph(nodes=(softmax,), outputs={"ref": "v0"})})
    found = selection.candidates(TaskContext(TASK, captured, "cpp"), library, SETTINGS)  # type: ignore[arg-type]  # only the graph is read
    assert {s.name for s in found[:2]} == {"group_norm_silu", "online_softmax"}
    assert selection.candidates(HERE, library, AgentsConfig(num_candidates=0)) == []
    assert (
        len(
            selection.candidates(
                TaskContext(TASK, captured, "cpp"), library, AgentsConfig(num_candidates=1)
            )
        )
        == 1
    )  # type: ignore[arg-type]


def test_source_words_are_the_names_that_code_uses() -> None:
    assert sorted(selection.source_words(TASK)) == ["GroupNorm", "silu"]
    methods = "def f(x):\n    nn.init.uniform_(self.scale)\n    return x.view(2).softmax(-1) + torch.special.erf(self.bias(x))"
    assert sorted(selection.source_words(TASK.model_copy(update={"source": methods}))) == [
        "erf",
        "softmax",
    ]
    assert selection.source_words(TASK.model_copy(update={"source": "def ("})) == []


OFFERED = [make_skill(name) for name in ("a", "b", "c", "d")]


@pytest.mark.parametrize(
    ("answer", "chosen", "num_dropped", "malformed"),
    [
        (picked("b", "a"), ["b", "a"], 0, None),
        (picked("a", "nowhere", "a", "c"), ["a", "c"], 2, None),
        (picked("a", "b", "c", "d"), ["a", "b", "c"], 1, None),
        (picked(), [], 0, None),
        (picked("x", "y"), [], 2, "none of the names was offered: x, y"),
        (called("select_skills", selected_skills=["a", " b "]), ["a", "b"], 0, None),
        (
            called("select_skills", selected_skills=[{"reason": "no name"}]),
            [],
            0,
            "a selected skill without a name",
        ),
        (called("select_skills", selected_skills=[3]), [], 0, "a selected skill without a name"),
        (said("a and b"), [], 0, "no tool call"),
    ],
)
def test_a_choice_is_read(
    answer: Completion, chosen: list[str], num_dropped: int, malformed: str | None
) -> None:
    found = selection.read(CHAT, answer, OFFERED, SETTINGS)
    assert [s.name for s in found.skills] == chosen
    assert (len(found.dropped), found.malformed) == (num_dropped, malformed)


def test_a_selection_sees_headers_only() -> None:
    asked = CHAT.selection(HERE, [make_skill("one_sweep")], SETTINGS)
    text = json.dumps(asked.messages)
    assert (
        "one_sweep" in text
        and "about one_sweep" in text
        and "Key Idea" not in text
        and "GroupNorm" in text
    )
    (tool,) = asked.tools
    assert (
        tool["function"]["parameters"]["properties"]["selected_skills"]["maxItems"]
        == SETTINGS.num_chosen
    )


# ---------------------------------------------------------------- policy


def test_skills_are_given_once_and_turns_follow() -> None:
    turns = [
        turn(wrong(error="`output`: 3 elements differ"), "first answer"),
        turn(ok(1.5), "second answer"),
    ]
    asked = policy.build_prompt(CHAT, HERE, [make_skill("one_sweep")], turns, SETTINGS)
    roles = [message["role"] for message in asked.messages]
    assert roles == ["user", "assistant", "user", "assistant", "user"]
    contents = [message["content"] for message in asked.messages]
    assert "Do one_sweep in one sweep" in contents[0] and not any(
        "one_sweep" in c for c in contents[1:]
    )
    assert contents[1::2] == ["first answer", "second answer"]
    assert "3 elements differ" in contents[2] and "repair" in contents[2]
    assert "1.50×" in contents[4] and "faster" in contents[4]
    assert (
        "skill"
        not in policy.build_prompt(CHAT, HERE, [], [], SETTINGS).messages[0]["content"].lower()
    )


def test_a_prompt_keeps_its_budget_and_forgets_thinking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat, "TASK_TOKENS", 500)
    tight = AgentsConfig(prompt_tokens=2500, kept_attempts=4)
    turns = [
        turn(ok(1.0 + n / 10), f"<think>{'hm' * 5000}</think>\n" + f"answer {n} " * 190)
        for n in range(4)
    ]
    asked = policy.build_prompt(CHAT, HERE, [], turns, tight)
    shown = [message["content"] for message in asked.messages if message["role"] == "assistant"]
    assert [text[:8] for text in shown] == ["answer 2", "answer 3"] and "hm" not in shown[0]
    assert sum(len(message["content"]) for message in asked.messages) <= 2500 * 3
    long = policy.build_prompt(CHAT, HERE, [], [turn(wrong(), "x" * 100_000)], tight).messages
    assert (
        sum(len(message["content"]) for message in long) <= 2500 * 3 + 100
        and "left out" in long[1]["content"]
    )
    silent = policy.build_prompt(
        CHAT, HERE, [], [turn(None, "<think>on and on", malformed="an empty answer")], SETTINGS
    )
    assert silent.messages[1]["content"] == "(no answer)"


def test_an_unparsable_answer_is_reported_to_the_model() -> None:
    asked = policy.build_prompt(
        CHAT, HERE, [], [turn(None, "no code", malformed="no fenced block of code")], SETTINGS
    )
    assert (
        "Nothing could be read from your answer: no fenced block of code."
        in asked.messages[-1]["content"]
    )


@pytest.mark.parametrize(
    ("speeds", "most", "shown"),
    [
        ([], 2, []),
        ([1.0, 2.0, 0], 3, [0, 1, 2]),
        ([3.0, 2.0, 0, 1.0], 2, [0, 3]),  # the best and the last
        ([1.0, 2.0, 0, 1.0], 3, [1, 2, 3]),
        ([0, 0, 0], 2, [1, 2]),
        ([1.0, 2.0], 1, [1]),
    ],
)
def test_what_stays_in_context(speeds: list[float], most: int, shown: list[int]) -> None:
    turns = [turn(ok(s) if s else wrong()) for s in speeds]
    assert turns_in_budget(turns, most) == shown
    timing = best_timing(turns)
    assert (timing.speedup.value if timing else 0) == max(speeds, default=0)


def test_a_candidate_is_signed() -> None:
    code = "class ModelNew: ..."
    found = policy.read(
        CHAT, HERE, said(f"```python\n{code}\n```"), "hf:x", [make_skill("a")], "turn 1"
    )
    assert isinstance(found, Candidate)
    assert (found.source, found.backend, found.proposer, found.skills, found.title) == (
        code + "\n",
        "cpp",
        "hf:x",
        ("a",),
        "turn 1",
    )
    assert (
        policy.read(CHAT, HERE, said(f"```python\n{code}", "length"), "x", [], "")
        == "the code was cut at the token limit"
    )


@pytest.mark.parametrize("backend", ["triton", "cuda", "cpp"])
def test_every_back_end_is_explained_by_two_examples(backend: str) -> None:
    asked = CHAT.policy(TaskContext(TASK, None, backend), [], SETTINGS).messages[0]["content"]  # type: ignore[arg-type]
    assert len(worked(backend)) == 2  # type: ignore[arg-type]
    for one in worked(backend):  # type: ignore[arg-type]
        assert backends.detect(one.candidate) == backend and static.refuse(one.candidate) is None
        assert one.candidate in asked and "class Model(nn.Module)" in one.reference
    assert RULES[backend] in asked and TITLES[backend] in asked and SOURCE.strip() in asked  # type: ignore[index]


# ---------------------------------------------------------------- inverses of parsing


@pytest.mark.parametrize("name", sorted(dialects.DIALECTS))
def test_what_training_data_says_is_what_is_read(name: str) -> None:
    """One source for both: the answers that a dialect writes are the answers that it reads."""
    dialect, names = dialects.get(name), [skill.name for skill in OFFERED]
    for chosen in ([], ["c"], ["d", "a", "b"]):
        text = dialect.write_selection(
            names, {n: "it's 'so' </p>" for n in chosen}, "memory [bound]"
        )
        assert [
            s.name for s in selection.read(dialect, said(text), OFFERED, SETTINGS).skills
        ] == chosen
    block = {"when": "device = cuda", "do": "+own_matmul"}
    skills = [
        make_skill("one", tags=("a", "b"), scope="task_specific/norm", **block),
        make_skill("two", **block),
    ]
    trace = Trace(role="policy", turns=(turn(ok(1.0), "TEXT"), turn(ok(2.0), "TEXT")))
    for some in ([], skills[:1], skills):
        found = summary.read(
            dialect, HERE, said(dialect.write_summary(some, "learnt")), trace, SETTINGS, {}
        )
        assert found.malformed is None and [s.name for s in found.skills] == [s.name for s in some]
        if name == "plan":
            assert [(s.when, s.do) for s in found.skills] == [(s.when, s.do) for s in some]
        else:
            assert [notes.note(s) for s in found.skills] == [notes.note(s) for s in some]
        if name not in ("compact", "plan"):
            assert list(found.skills) == some


def test_a_file_written_is_the_file_read() -> None:
    file = 's = "`` `"\nclass ModelNew: ...\n'
    found = policy.read(CHAT, HERE, said(CHAT.write_policy(file)), "x", [], "")
    assert isinstance(found, Candidate) and found.source == file


# ---------------------------------------------------------------- summary

BODY = "## Motivation\nm\n\n## Key Idea\nk\n\n## Example\n```python\n## not a heading\n```"


def draft(**changes: object) -> dict[str, object]:
    return {
        "name": "One Sweep!",
        "description": "d",
        "scope": "general",
        "tags": ["a", "b,c", "[d]"],
        "content": BODY,
        **changes,
    }


def proposed(*drafts: dict[str, object]) -> summary.SummaryProposals:
    trace = Trace(role="policy", turns=(turn(ok(1.0)), turn(ok(2.0))))
    answer = called("update_skill_library", new_skills=list(drafts))
    return summary.read(CHAT, HERE, answer, trace, SETTINGS, {"source": "run", "summary": 3})


def test_proposals_are_read() -> None:
    found = proposed(draft(), draft(name="other", tags="x, y", scope="task_specific/norm"))
    first, second = found.skills
    assert (first.name, first.scope, first.tags, first.body) == (
        "one_sweep",
        "general",
        ("a", "b c", "d"),
        BODY,
    )
    assert (second.tags, second.scope) == (("x", "y"), "task_specific/norm")
    assert (
        first.provenance == {"source": "run", "summary": 3}
        and found.malformed is None
        and not found.refused
    )
    assert proposed() == summary.SummaryProposals()


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"name": ""}, "no name"),
        ({"name": "?!"}, "without letters"),
        ({"name": 3}, "no name"),
        ({"description": None}, "no description"),
        ({"description": "x" * 201}, "description of 201"),
        ({"content": "text"}, "no section `## Motivation`"),
        ({"content": " "}, "no content"),
        ({"content": BODY + "x" * 10_000}, "more than twice"),
        ({"tags": 3}, "tags"),
        ({"tags": [1]}, "tags"),
    ],
)
def test_a_bad_proposal_is_refused_with_the_reason(changes: dict[str, object], why: str) -> None:
    alone = proposed(draft(**changes))
    assert not alone.skills and alone.malformed and why in alone.malformed
    beside = proposed(draft(**changes), draft())
    assert (
        [s.name for s in beside.skills] == ["one_sweep"]
        and len(beside.refused) == 1
        and why in beside.refused[0]
    )


def test_no_more_than_asked_for_and_no_name_twice() -> None:
    assert [s.name for s in proposed(draft(name="a"), draft(name="b"), draft(name="c")).skills] == [
        "a",
        "b",
    ]
    found = proposed(draft(name="a"), draft(name="A", description="other"))
    assert [s.description for s in found.skills] == ["d"] and found.refused == ("A: named twice",)


@pytest.mark.parametrize(
    ("speeds", "is_due"),
    [
        ([1.0, 1.2], True),
        ([1.0, 1.19], False),
        ([0.5, 1.1], False),
        ([1.5, 1.7], False),
        ([0, 3.0], False),
        ([1.0, 3.0, 0.5], True),
        ([2.0], False),
        ([1.0, 0, 1.25], True),
        ([], False),
    ],
)
def test_when_a_summary_is_due(speeds: list[float], is_due: bool) -> None:
    trace = Trace(role="policy", turns=tuple(turn(ok(s) if s else wrong()) for s in speeds))
    assert summary.due(trace) is is_due


def test_the_best_improvement_is_summarised() -> None:
    def trace(*speeds: float, role: str = "policy", rollout: int = 0) -> Trace:
        return Trace.model_validate(
            {"role": role, "rollout": rollout, "turns": tuple(turn(ok(s)) for s in speeds)}
        )

    traces = [
        trace(1.0, 1.5),
        trace(3.0, 3.1, rollout=1),
        trace(1.0, 2.0, rollout=2),
        trace(1.0, 9.0, role="summary"),
    ]
    found = summary.best(traces)
    assert found is not None and found.rollout == 2
    assert summary.best(traces[1:2]) is None


def test_a_summary_prompt_holds_the_whole_conversation_within_its_budget() -> None:
    turns = [
        turn(wrong(error="2 elements differ")).model_copy(
            update={"candidate": Candidate(source="first = 1", backend="cpp")}
        ),
        turn(None, "prose", malformed="no fenced block of code"),
        turn(ok(2.5)).model_copy(
            update={"candidate": Candidate(source="third = 3", backend="cpp")}
        ),
    ]
    asked = CHAT.summary(
        HERE, Trace(role="policy", turns=tuple(turns)), [make_skill("given_one")], SETTINGS
    )
    text = asked.messages[-1]["content"]
    for part in ("Do given_one", "no fenced block", "fastest is version 3"):
        assert part in text
    order = [
        text.index(part)
        for part in (
            "GroupNorm",
            "given_one",
            "first = 1",
            "2 elements differ",
            "prose",
            "third = 3",
            "2.50×",
        )
    ]
    assert order == sorted(order)
    long = [
        one.model_copy(update={"candidate": Candidate(source="x" * 100_000, backend="cpp")})
        for one in turns
    ]
    skill = Skill(name="long", description="d", body="y" * 100_000)
    cut = CHAT.summary(HERE, Trace(role="policy", turns=tuple(long)), [skill], SETTINGS).messages[
        -1
    ]["content"]
    assert len(cut) < SUMMARY_TOKENS * 3 + 5000 and cut.count("left out") == 4

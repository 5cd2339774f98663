"""The first question to a general model: what it holds, what is cut first, that it stays within the model's context."""

from __future__ import annotations

import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from dvk import cuda_toolkit, resources, tasks
from dvk.agents import TaskContext, dialects, policy
from dvk.agents.bounds import Bounds, OperatorCost, Opponent
from dvk.agents.dialects.examples import SHOWS, worked
from dvk.agents.dialects.opening import Section, fitted
from dvk.config import AgentsConfig, changed
from dvk.harness import judge
from dvk.records import Candidate, Device, Skill, Status
from tests.agents.conftest import QUICK, affine, captured, make_skill, ok, turn

CHAT = dialects.get("chat")
BOUNDS = Bounds(
    device="Made-up GPU, 100 multiprocessors",
    memory_gbps=1000.0,
    gflops={"fp32": 50e3},
    measured=True,
    num_bytes=50_000_000,
    unfused_bytes=200_000_000,
    reference_ms=0.25,
    operators=(
        OperatorCost(name="aten::mul", count=2, ms=0.15, share=0.6),
        OperatorCost(name="aten::relu", ms=0.1, share=0.4),
    ),
    opponent=Opponent(name="torch.compile", ms=0.1, speedup=2.5),
)


def here(**how: object) -> TaskContext:
    return replace(TaskContext(affine(), captured(), "cpp", bounds=BOUNDS), **how)


def asked(subject: TaskContext, skills: list[Skill], prompt_tokens: int = 24576) -> str:
    settings = AgentsConfig(prompt_tokens=prompt_tokens)
    return str(CHAT.policy(subject, skills, settings).messages[-1]["content"])


def test_it_holds_what_a_large_model_can_use() -> None:
    text = asked(here(), [make_skill("tiling")])
    parts = [
        "The file defines `ModelNew`",
        worked("cpp")[0].candidate,
        worked("cpp")[1].candidate,
        affine().source.strip(),
        "v0: float32[64,301] = ",
        "Device: Made-up GPU, 100 multiprocessors; measured 1000 GB/s, 50 TFLOP/s fp32.",
        "A call moves at least 50 MB",
        "one by one move 200 MB",
        "Roofline: 50 µs a call, bound by memory.",
        "Eager PyTorch takes 250 µs, 5.00× the roofline.",
        "To beat: `torch.compile`, the fastest line of PyTorch here, 100 µs a call, 2.50× eager.",
        "- aten::mul ×2: 150 µs, 60%",
        "name: tiling",
        "Write the fastest correct `ModelNew`",
    ]
    places = [text.index(part) for part in parts]
    assert places == sorted(places), "what all tasks share comes first, for prefix caches"


def test_the_least_needed_goes_first() -> None:
    skills = [make_skill("tiling", body="# Tiling\n" + "word " * 2000)]
    whole, gone = asked(here(), skills), []
    marks = {
        "second example": worked("cpp")[1].candidate,
        "operators": "Its operators, as captured",
        "first example": worked("cpp")[0].candidate,
        "all of the skills": ("word " * 2000).strip(),
        "profile": "Where eager PyTorch's time goes",
    }
    for tokens in range(len(whole) // 2, 1000, -50):
        text = asked(here(), skills, max(1000, tokens))
        assert affine().source.strip() in text and "Roofline: 50 µs" in text
        assert len(text) <= max(1000, tokens) * 2 or len(gone) == len(marks)
        gone += [name for name, mark in marks.items() if mark not in text and name not in gone]
    assert gone == list(marks)


def test_sections_are_left_out_or_cut_to_their_least() -> None:
    sections = [Section("a" * 300), Section("b" * 3000, rank=1, least=100), Section("c" * 600, 2)]
    assert [len(s.text) for s in fitted(sections, 2000)] == [300, 3000, 600]
    assert [len(s.text) for s in fitted(sections, 1200)] == [300, 3000, 0]
    kept = fitted(sections, 400)
    assert kept[0].text == "a" * 300 and "characters left out" in kept[1].text
    assert 300 < len(kept[1].text) and sum(len(s.text) for s in kept) <= 400 * 3


@cache
def code_tokenizer() -> Tokenizer:
    """Byte-level BPE as large models have it, of a tenth of their vocabulary: it takes more tokens than theirs."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    root = Path(__file__).resolve().parents[2]
    folders = ("dvk/composer", "dvk/harness", "tests/kernels")
    files = [path for folder in folders for path in sorted((root / folder).rglob("*.py"))]
    trainer = trainers.BpeTrainer(vocab_size=16000, show_progress=False)
    made.train_from_iterator([path.read_text() for path in files[::3]], trainer)
    return made


@pytest.mark.parametrize("prompt_tokens", [24576, 8192, 4096])
def test_prompts_stay_within_the_context_of_an_8b_model(prompt_tokens: int) -> None:
    """24,576 tokens of prompt and 8,192 of answer are the 32k of Qwen3-8B: with all that can be long."""
    long = (Path(resources.resource("data", "worked")) / "row_scale" / "cuda.py").read_text() * 12
    task = affine().model_copy(update={"source": affine().source + "\n# more\n" + long})
    subject = here(task=task, backend="cuda")
    skills = [make_skill(name, body="# A skill\n" + long) for name in ("one", "two", "three")]
    turns = [
        turn(ok(1.0 + n), f"<think>{long}</think>\nFaster.\n```python\n{long}\n```")
        for n in range(4)
    ]
    settings = AgentsConfig(prompt_tokens=prompt_tokens)
    for history in ([], turns[:1], turns):
        conversation = policy.build_prompt(CHAT, subject, skills, history, settings)
        text = "\n".join(str(message["content"]) for message in conversation.messages)
        assert "<think>" not in text
        assert len(code_tokenizer().encode(text).ids) <= prompt_tokens
        assert "Write the fastest correct `ModelNew`" in text


# ---------------------------------------------------------------- the worked examples


def verdicts(name: str, backends: tuple[str, ...], device: Device = "cpu") -> list[Status]:
    folder = resources.resource("data", "worked", name)
    candidates = [
        Candidate(source=one.candidate, backend=backend)  # type: ignore[arg-type]
        for backend in backends
        for one in worked(backend)  # type: ignore[arg-type]
        if one.name == name
    ]
    reference = tasks.load(str(folder / "reference.py"), device=device)
    config = changed(QUICK, {"judge.candidate_s": 200.0})  # nvcc takes a minute for an extension
    found = judge(reference, candidates, tier="smoke", config=config)
    assert {v.error for v in found} == {None}
    return [v.status for v in found]


@pytest.mark.parametrize("name", sorted(SHOWS))
@pytest.mark.slow
def test_the_worked_examples_are_right(name: str) -> None:
    """C++ compiled, Triton in its interpreter."""
    backends = ("cpp", "triton") if shutil.which("g++") else ("triton",)
    assert verdicts(name, backends) == [Status.OK] * len(backends)


@pytest.mark.gpu
@pytest.mark.parametrize("name", sorted(SHOWS))
def test_the_worked_examples_are_right_on_a_gpu(name: str) -> None:
    backends = ("triton", "cuda") if cuda_toolkit.nvcc() else ("triton",)
    assert verdicts(name, backends, "cuda") == [Status.OK] * len(backends)

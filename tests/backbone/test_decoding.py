"""Our sampler against transformers, against itself in other batches, and against the scorer."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from dvk.backbone import Sampling, ScoringRow, nano
from dvk.backbone.decoding import forward, native
from dvk.backbone.decoding.engine import Engine
from dvk.backbone.decoding.sample_token import sample_token
from dvk.backbone.decoding.seeds import keys_for, uniforms
from dvk.backbone.decoding.slots import Slots
from dvk.backbone.decoding.stops import Stops
from dvk.backbone.hf import HfBackbone
from dvk.config import Config

ARCHITECTURES: dict[str, dict[str, Any]] = {
    "qwen3": {"head_dim": 16},
    "qwen3 untied": {"head_dim": 12, "tie_word_embeddings": False, "num_key_value_heads": 1},
    "qwen2": {},
    "llama": {"tie_word_embeddings": False, "attention_bias": True},
    "llama stretched": {
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 10000.0,
            "factor": 4.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32,
        }
    },
}


def prompts(count: int, vocabulary: int, longest: int = 30) -> list[tuple[int, ...]]:
    generator = torch.Generator().manual_seed(count)
    lengths = torch.randint(1, longest, (count,), generator=generator).tolist()
    return [
        tuple(torch.randint(6, vocabulary, (length,), generator=generator).tolist())
        for length in lengths
    ]


def engine_of(backbone: HfBackbone, slots: int = 8) -> tuple[Engine, Stops]:
    stops = Stops(backbone.tokenizer, backbone.vocabulary, backbone.end_ids, ())
    return Engine(backbone.model, torch.float32, backbone.positions, slots), stops


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_prompt_and_step_logits_equal_transformers(
    name: str, make_hf: Callable[..., HfBackbone]
) -> None:
    backbone = make_hf(name.split()[0], **ARCHITECTURES[name])
    assert forward.supports(backbone.model)
    ids = torch.tensor(
        [
            prompts(1, backbone.vocabulary)[0][:1] * 3 + p[:9]
            for p in prompts(40, backbone.vocabulary)
            if len(p) > 9
        ]
    )
    with torch.no_grad():
        expected = backbone.model(ids).logits
        decoder = forward.Decoder(backbone.model, torch.float32, 128)
        b, width = ids.shape
        shape = (b * decoder.kv_heads, 64, decoder.head_size)
        cache = [(torch.zeros(shape), torch.zeros(shape)) for _ in decoder.layers]
        views = [(k.flatten(0, 1), v.flatten(0, 1), k[:, :32], v[:, :32]) for k, v in cache]

        def keep(layer: int, keys: torch.Tensor, values: torch.Tensor) -> None:
            for kept, new in zip(cache[layer], (keys, values)):
                kept.unflatten(0, (b, decoder.kv_heads))[:, :, :5] = new.transpose(1, 2)

        got = decoder.prefill(ids[:, :5], torch.full((b,), 4), keep)
        torch.testing.assert_close(got, expected[:, 4], atol=2e-5, rtol=1e-4)
        for t in range(5, width):
            index = torch.arange(b * decoder.kv_heads) * 64 + t
            mask = torch.where(torch.arange(32) <= t, 0.0, -torch.inf).expand(
                b * decoder.kv_heads, 1, 32
            )
            got = decoder.step(ids[:, t], torch.full((b,), t), index, mask, views)
            torch.testing.assert_close(got, expected[:, t], atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("name", [name for name in ARCHITECTURES if name not in ("qwen2", "llama")])
def test_the_compiled_step_equals_the_operators(
    name: str, make_hf: Callable[..., HfBackbone]
) -> None:
    """Sizes that are no multiple of four, and two sequences in a partly filled cache."""
    odd = {"hidden_size": 54, "num_attention_heads": 6, "intermediate_size": 70, "head_dim": 12}
    backbone = make_hf(name.split()[0], **odd | ARCHITECTURES[name])
    decoder = forward.Decoder(backbone.model, torch.float32, 128)
    compiled, heads, generator = decoder.native, decoder.kv_heads, torch.Generator().manual_seed(1)
    assert compiled is not None
    held = [
        [torch.randn(2 * heads, 40, decoder.head_size, generator=generator) for _ in "kv"]
        for _ in decoder.layers
    ]
    for slot, position in ((0, 0), (1, 17), (0, 31)):
        found = []
        for decoder.native in (compiled, None):
            cache = [
                [part.clone()[slot * heads : (slot + 1) * heads] for part in pair] for pair in held
            ]
            views = [(k.flatten(0, 1), v.flatten(0, 1), k[:, :32], v[:, :32]) for k, v in cache]
            mask = torch.where(torch.arange(32) <= position, 0.0, -torch.inf).expand(heads, 1, 32)
            with torch.no_grad():
                logits = decoder.step(
                    torch.tensor([7 + slot]),
                    torch.tensor([position]),
                    torch.arange(heads) * 40 + position,
                    mask,
                    views,
                )
            found.append([logits, *(part for pair in cache for part in pair)])
        torch.testing.assert_close(found[0], found[1], atol=2e-5, rtol=1e-4)


def test_without_a_compiler_steps_go_by_operators(
    nano_folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    compiled = nano.open_nano(str(nano_folder), Config(), device="cpu")
    asked, how = prompts(2, compiled.vocabulary), Sampling(temperature=0, max_tokens=25)
    answers = [compiled.complete([prompt], how)[0].text for prompt in asked]
    native._library.cache_clear()
    monkeypatch.setenv("CXX", "no-such-compiler")
    plain = nano.open_nano(str(nano_folder), Config(), device="cpu")
    assert [plain.complete([prompt], how)[0].text for prompt in asked] == answers
    assert compiled.engine is not None and compiled.engine.decoder.native is not None
    assert plain.engine is not None and plain.engine.decoder.native is None
    assert "there is no no-such-compiler" in caplog.text
    native._library.cache_clear()
    monkeypatch.setenv("CXX", "env g++")
    again = nano.open_nano(str(nano_folder), Config(), device="cpu")
    assert again.complete([asked[0]], how)[0].text == answers[0]
    assert again.engine is not None and again.engine.decoder.native is not None, (
        "a command of two words is a compiler, too"
    )


def test_weights_that_have_changed_are_decoded_with(nano_folder: Path) -> None:
    backbone = nano.open_nano(str(nano_folder), Config(), device="cpu")
    prompt, how = prompts(1, backbone.vocabulary)[0], Sampling(max_tokens=20, seed=1)
    for change in (0.0, 0.01, 0.0):
        with torch.no_grad():
            for parameter in backbone.parameters():
                parameter.add_(change)
        tokens = backbone.complete([prompt], how)[0].tokens
        assert tokens is not None
        scores = backbone.logprobs([ScoringRow(tokens.prompt, tokens.completion)])
        torch.testing.assert_close(
            scores.values[0].detach(), torch.tensor(tokens.logprobs), atol=1e-4, rtol=0
        )


def test_greedy_equals_transformers_generate(shared_nano: HfBackbone) -> None:
    asked = prompts(6, shared_nano.vocabulary)
    for prompt, answer in zip(
        asked, shared_nano.complete(asked, Sampling(temperature=0, max_tokens=25))
    ):
        theirs = shared_nano.model.generate(
            torch.tensor([prompt]), max_new_tokens=25, do_sample=False
        )[0, len(prompt) :]
        assert answer.tokens is not None and answer.tokens.completion == tuple(theirs.tolist())


def test_a_sample_does_not_depend_on_its_batch(shared_nano: HfBackbone) -> None:
    asked = prompts(11, shared_nano.vocabulary)
    few, stops = engine_of(shared_nano, slots=4)
    together = few.run(asked, 20, stops, seed=5)
    assert few.slots is not None and few.slots.count == 4
    many, _ = engine_of(shared_nano, slots=64)
    backwards = many.run(asked[::-1], 20, stops, seed=5)[::-1]
    alone = [many.run([prompt], 20, stops, seed=5)[0] for prompt in asked]
    assert (
        [s.tokens for s in together] == [s.tokens for s in alone] == [s.tokens for s in backwards]
    )
    assert len({s.tokens for s in together}) == 11
    assert [s.tokens for s in many.run(asked, 20, stops, seed=6)] != [s.tokens for s in alone]


def test_order_is_kept_and_slots_are_refilled(shared_nano: HfBackbone) -> None:
    """Uneven limits and ends: more prompts than slots, so that most are admitted where another has ended."""
    asked = prompts(17, shared_nano.vocabulary)
    engine, _ = engine_of(shared_nano, slots=3)
    ends = Stops(
        shared_nano.tokenizer, shared_nano.vocabulary, range(0, shared_nano.vocabulary, 9), ()
    )
    sampled = engine.run(asked, 60, ends, seed=1)
    lengths = [len(s.tokens) for s in sampled]
    assert len(set(lengths)) > 5 and {s.finish for s in sampled} == {"stop"}
    for prompt, s in zip(
        asked, sampled
    ):  # greedy-free proof of order: the log-probabilities belong to this prompt
        scores = shared_nano.logprobs([ScoringRow(prompt, s.tokens)])
        torch.testing.assert_close(
            scores.values[0].detach(), torch.tensor(s.logprobs), atol=1e-4, rtol=0
        )


def test_equal_prompts_draw_differently_and_repeatably(shared_nano: HfBackbone) -> None:
    prompt = prompts(1, shared_nano.vocabulary)[0]
    first = shared_nano.complete([prompt] * 6, Sampling(max_tokens=20, seed=3))
    assert len({c.text for c in first}) > 1
    assert first == shared_nano.complete([prompt] * 6, Sampling(max_tokens=20, seed=3))
    fewer = shared_nano.complete([prompt] * 2, Sampling(max_tokens=20, seed=3))
    assert [c.text for c in fewer] == [c.text for c in first[:2]]
    for one, other in zip(fewer, first):  # a product of other height may be rounded otherwise
        assert one.tokens is not None and other.tokens is not None
        assert one.tokens.logprobs == pytest.approx(other.tokens.logprobs, abs=1e-4)
    unseeded = [shared_nano.complete([prompt], Sampling(max_tokens=20))[0].text for _ in range(4)]
    assert len(set(unseeded)) > 1


@pytest.mark.parametrize("temperature", [0.0, 0.6, 1.0, 1.7])
def test_sampling_logprobs_are_what_the_scorer_computes(
    shared_nano: HfBackbone, temperature: float
) -> None:
    answers = shared_nano.complete(
        prompts(9, shared_nano.vocabulary), Sampling(temperature=temperature, max_tokens=40, seed=0)
    )
    kept = [answer.tokens for answer in answers if answer.tokens is not None]
    assert len(kept) == 9
    scores = shared_nano.logprobs([ScoringRow(t.prompt, t.completion) for t in kept], temperature)
    for i, tokens in enumerate(kept):
        n = len(tokens.completion)
        assert scores.mask[i].sum() == n
        torch.testing.assert_close(
            scores.values[i, :n].detach(), torch.tensor(tokens.logprobs), atol=1e-4, rtol=0
        )


def test_stop_texts_cut_text_and_tokens(shared_nano: HfBackbone) -> None:
    asked = prompts(8, shared_nano.vocabulary)
    free = shared_nano.complete(asked, Sampling(max_tokens=60, seed=2))
    stop = next(found[0] for answer in free if (found := re.search(r"[!-~]{2}", answer.text[12:])))
    for answer, uncut in zip(
        shared_nano.complete(asked, Sampling(max_tokens=60, seed=2, stop=(stop, "never written"))),
        free,
    ):
        assert answer.tokens is not None and uncut.tokens is not None
        before, found, _ = uncut.text.partition(stop)
        assert answer.text == before
        assert answer.tokens.completion == uncut.tokens.completion[: len(answer.tokens.completion)]
        if found:
            assert answer.finish == "stop"
            decode = shared_nano.tokenizer.decode
            assert stop in decode(answer.tokens.completion) and stop not in decode(
                answer.tokens.completion[:-1]
            )


@pytest.mark.parametrize("stop", ["\n", " ", "é", "\t"])
def test_any_character_may_end_a_stop_text(shared_nano: HfBackbone, stop: str) -> None:
    marked = Stops(shared_nano.tokenizer, shared_nano.vocabulary, (), ("ab" + stop,)).may_end
    for token in range(shared_nano.vocabulary):
        if stop in shared_nano.tokenizer.decode([token]):
            assert marked[token], shared_nano.tokenizer.decode([token])
    spelled = shared_nano.tokenizer("ab" + stop, add_special_tokens=False)["input_ids"]
    assert marked[spelled[-1]]


def test_limits(shared_nano: HfBackbone) -> None:
    room = shared_nano.positions
    full, over, nothing = tuple([7] * (room - 3)), tuple([7] * room), ()
    near, too_long, empty, single = shared_nano.complete(
        [full, over, nothing, (7,)], Sampling(max_tokens=5, seed=1)
    )
    assert near.tokens is not None and len(near.tokens.completion) <= 3
    assert too_long.finish == "error" and str(room) in (too_long.error or "")
    assert empty.finish == "error"
    assert single.finish in ("stop", "length")
    one = shared_nano.complete([(7, 8)], Sampling(max_tokens=1, temperature=0))[0]
    assert one.tokens is not None and len(one.tokens.completion) == 1
    assert shared_nano.complete([], Sampling()) == []


def test_other_architectures_go_through_transformers(make_hf: Callable[..., HfBackbone]) -> None:
    """GPT-2 has learned positions, which `forward` does not know; the contract is the same."""
    backbone = make_hf("gpt2", n_embd=48, n_layer=2, n_head=4, n_positions=128)
    assert not forward.supports(backbone.model)
    asked = prompts(5, backbone.vocabulary)
    together = backbone.complete(asked, Sampling(max_tokens=12, seed=4, temperature=0.9))
    alone = [
        backbone.complete([prompt], Sampling(max_tokens=12, seed=4, temperature=0.9))[0]
        for prompt in asked
    ]
    assert [c.text for c in together] == [c.text for c in alone]
    kept = [c.tokens for c in together if c.tokens is not None]
    scores = backbone.logprobs([ScoringRow(t.prompt, t.completion) for t in kept], 0.9)
    for i, tokens in enumerate(kept):
        torch.testing.assert_close(
            scores.values[i, : len(tokens.completion)].detach(),
            torch.tensor(tokens.logprobs),
            atol=1e-4,
            rtol=0,
        )
    greedy = backbone.complete(asked[:2], Sampling(max_tokens=9, temperature=0))
    for prompt, answer in zip(asked, greedy):
        theirs = backbone.model.generate(torch.tensor([prompt]), max_new_tokens=9, do_sample=False)[
            0, len(prompt) :
        ]
        assert answer.tokens is not None and answer.tokens.completion == tuple(theirs.tolist())


def test_both_samplers_draw_the_same(
    shared_nano: HfBackbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = prompts(5, shared_nano.vocabulary)
    sampling = Sampling(max_tokens=15, seed=9, top_p=0.8, stop=("a",))
    ours = shared_nano.complete(asked, sampling)
    monkeypatch.setattr(forward, "ARCHITECTURES", ())
    theirs = shared_nano.complete(asked, sampling)
    assert [c.text for c in ours] == [c.text for c in theirs]
    assert [c.finish for c in ours] == [c.finish for c in theirs]


def test_draw_follows_the_distribution() -> None:
    logits = torch.tensor([1.0, 0.0, 2.0, -1.0, -30.0])
    numbers = torch.from_numpy(uniforms([1], 40_000))[0]
    tokens, logprobs = sample_token(logits.expand(40_000, -1), numbers, 0.7, greedy=False)
    shares = torch.bincount(tokens, minlength=5) / 40_000
    torch.testing.assert_close(shares, (logits / 0.7).softmax(0), atol=0.01, rtol=0)
    torch.testing.assert_close(logprobs, (logits / 0.7).log_softmax(0)[tokens])
    nucleus, kept = sample_token(logits.expand(40_000, -1), numbers, 1.0, greedy=False, top_p=0.7)
    assert set(nucleus.tolist()) == {0, 2}  # 0.64 is not enough, 0.64 + 0.24 is
    torch.testing.assert_close(kept, logits.log_softmax(0)[nucleus])
    edge, _ = sample_token(logits[None], torch.tensor([1 - 2.0**-23]), 1.0, greedy=False, top_p=0.7)
    assert edge.item() in (0, 2)


def test_numbers_belong_to_keys() -> None:
    keys = keys_for([b"a", b"b", b"a"], 1)
    assert len(set(keys)) == 3 and keys_for([b"b", b"a", b"a"], 1) == [keys[1], keys[0], keys[2]]
    one, two, three = keys_for([b"a", b"b", b"a"], 1, [5, 5, None])
    assert one == two != three == keys[0], "numbered streams depend on nothing else"
    assert keys_for([b"a"], 2, [5]) != [one]
    assert keys_for([b"a"], 2) != keys[:1] and keys_for([b"a"], None) != keys_for([b"a"], None)
    numbers = uniforms(keys, 1000)
    assert numbers.min() >= 0 and numbers.max() < 1
    assert abs(numbers.mean() - 0.5) < 0.03 and abs(numbers[0] @ numbers[1] / 1000 - 0.25) < 0.03
    assert (uniforms(keys, 10) == numbers[:, :10]).all()


def test_an_answer_goes_on_from_what_it_is_begun_with(shared_nano: HfBackbone) -> None:
    asked, how = prompts(3, shared_nano.vocabulary), Sampling(temperature=0, max_tokens=25)
    whole = shared_nano.complete(asked, how)
    begun = [
        one.tokens.completion[: 3 * place]
        for place, one in enumerate(whole)
        if one.tokens is not None
    ]
    again = shared_nano.complete(asked, how, begun)
    assert [one.text for one in again] == [one.text for one in whole]
    assert [one.tokens and one.tokens.completion for one in again] == [
        one.tokens and one.tokens.completion for one in whole
    ]
    assert [bool(one.tokens and one.tokens.logprobs) for one in again] == [True, False, False], (
        "of none that was begun"
    )
    (full,) = shared_nano.complete(asked[:1], how, [tuple([5] * 25)])
    assert full.finish == "error"


def test_alternatives_are_the_likelier_tokens_that_were_not_drawn(shared_nano: HfBackbone) -> None:
    prompt, how = (
        prompts(1, shared_nano.vocabulary)[0],
        Sampling(max_tokens=12, seed=2, alternatives=True),
    )
    (answer,) = shared_nano.complete([prompt], how)
    assert answer.tokens is not None and answer.alternatives
    drawn = answer.tokens.completion
    with torch.no_grad():
        logits = shared_nano.model(input_ids=torch.tensor([[*prompt, *drawn]])).logits[
            0, len(prompt) - 1 : -1
        ]
    expected = []
    for position, row in enumerate(logits.log_softmax(-1)):
        values, ids = row.topk(4)
        expected += [
            (position, int(i), float(v))
            for v, i in zip(values, ids)
            if int(i) != drawn[position] and v >= math.log(1e-3)
        ]
    assert [(one.position, one.token) for one in answer.alternatives] == [
        found[:2] for found in expected
    ]
    assert [one.logprob for one in answer.alternatives] == pytest.approx(
        [found[2] for found in expected], abs=1e-4
    )
    assert all(
        one.at == len(shared_nano.tokenizer.decode(drawn[: one.position]))
        for one in answer.alternatives
    )
    assert (
        shared_nano.complete([prompt], how.model_copy(update={"alternatives": False}))[
            0
        ].alternatives
        == ()
    )


def test_where_memory_is_short_prompts_of_like_length_share_slots(
    shared_nano: HfBackbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slots as long as the longest prompt needs would be two: short prompts wait for no slot of that size."""
    asked = [[5 + n, 6, 7] for n in range(6)] + [[9] * 150, [8] * 140]
    free, stops = engine_of(shared_nano, slots=16)
    expected = [one.tokens for one in free.run(asked, 6, stops, seed=3)]
    short, _ = engine_of(shared_nano, slots=16)
    room = 2.5 * Slots.bytes_each(short.decoder, 192)
    monkeypatch.setattr(short, "_room", lambda: room)
    made: list[tuple[int, int]] = []
    begin = Slots.begin

    def noted(self: Slots, *args: Any) -> None:
        made.append((self.count, self.capacity))
        begin(self, *args)

    monkeypatch.setattr(Slots, "begin", noted)
    assert [one.tokens for one in short.run(asked, 6, stops, seed=3)] == expected
    (many, small), (few, large) = made
    assert many >= 6 > few and small < large
    made.clear()
    assert [one.tokens for one in short.run(asked, 6, stops, seed=3)] == expected
    assert len(made) == 2, "and again"

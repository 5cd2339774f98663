"""Questions in people's words: their concepts, and the ranking of skills."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dvk.skills import Library
from dvk.skills.asking import concepts

QUESTIONS = {
    "how do I make softmax faster for long rows": {"softmax_looped_three_pass", "softmax_online"},
    "GEMM with bias and gelu": {"matmul_tile_with_epilogue", "epilogue_after_library_matmul"},
    "memory bound elementwise chain": {"fused_elementwise_chain"},
    "KV cache attention decode, single token": {
        "attention_by_library_call",
        "flash_attention_tile",
    },
    "top-k along the last dimension": {"top_k_by_counting", "argmax_value_index_pair"},
    "LN for small hidden size": {"layer_norm_one_read"},
    "int8 quantised linear": {"quantize_dequantize_fusion"},
    "sum reduction over the last axis of a few very long rows": {"split_reduction_long_rows"},
    "python overhead of tiny kernels": {"launch_overhead_small_tensors"},
    "fold BatchNorm into the conv": {"fold_batch_norm_into_conv"},
}
OTHERS = {
    "what to do about bank conflicts": {"bank_conflict_free_transpose"},
    "my loss is cross entropy over a 128k vocabulary": {"cross_entropy_one_pass"},
    "matrix multiplication with a very long K and few tiles": {"split_k_matmul"},
    "can I use RoPE in one kernel?": {"rotary_embedding_fusion"},
    "deconvolution is slow": {"transposed_convolution_phases"},
    "numerically stable sigmoid": {"stable_activation_forms"},
    "tail handling when the size is not a multiple of BLOCK": {"masks_and_odd_sizes"},
    "SwiGLU in an MLP": {"gated_activation_swiglu"},
    "LSTM on CPU": {"recurrent_sequence_kernel"},
    "which precision on tensor cores": {"precision_classes_tf32_bf16_fp32"},
}
"""Written after the ranking, as a check of it."""
NOTHING = (
    "best pizza in Naples",
    "ring allreduce with nccl",
    "winograd",
    "how to deploy with kubernetes",
    "xyzzy",
)


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Library]:
    """The skills that come with dvk."""
    before = pytest.MonkeyPatch()
    before.setenv("DVK_HOME", str(tmp_path_factory.mktemp("home")))
    with Library.open() as library:
        yield library
    before.undo()


@pytest.mark.parametrize("question", [*QUESTIONS, *OTHERS])
def test_the_first_answer_is_right(seeds: Library, question: str) -> None:
    hits = [hit.name for hit in seeds.ask(question, 3)]
    assert hits and hits[0] in {**QUESTIONS, **OTHERS}[question], hits


@pytest.mark.parametrize("question", NOTHING)
def test_what_no_skill_is_about_has_no_answer(seeds: Library, question: str) -> None:
    assert [hit.name for hit in seeds.ask(question)] == []


def test_names_of_one_thing_are_one_concept() -> None:
    assert concepts("GEMM") == concepts("matmul") == concepts("how do I do a matrix multiply")
    assert (
        concepts("LayerNorm") == concepts("LN") == concepts("layer_norm") == concepts("layer-norm")
    )
    assert len(concepts("top-k, topk and top_k")) == 1 and concepts("the best pizza") == [
        ("pizza",)
    ]
    assert concepts("tl.dot") == [("tldot", "tl dot", "dot")] and concepts("how to") == [
        ("how",),
        ("to",),
    ]
    assert concepts("") == concepts("?!") == []


def test_any_text_can_be_asked(seeds: Library) -> None:
    for text in (
        '"a" OR b*',
        "x\0y",
        "\ud800z",
        "(^{[]})'",
        "💥",
        "NEAR(a b)",
        "-" * 1000,
        "ß İ ﬁ é",
        "softmax " * 500,
        "-O3",
    ):
        seeds.ask(text)


def test_scores_fall_and_limits_hold(seeds: Library) -> None:
    scores = [hit.score for hit in seeds.ask("softmax", 5)]
    assert len(scores) == 5 and scores == sorted(scores, reverse=True) and scores[-1] > 0

"""A question in a person's words → its concepts: stop words left out, synonyms of the field merged.

    how do I make LN faster for small rows   →   [layer norm | layernorm | ln] [small | tiny] [row]

Each concept is a list of alternatives, the words of a phrase with blanks between them. A skill with one of them has the
concept. Queries from a captured graph (`graphs`) use the library's vocabulary, and skip this module.
"""

from __future__ import annotations

import re

from dvk.skills.terms import clean

_WORD = re.compile(r"[^\W_]+")
_CHUNK = re.compile(r"\w+(?:(?:\.|::|->)\w+)*")
_HYPHEN = re.compile(r"(?<=[a-zA-Z])-(?=[a-zA-Z])")

STOP = frozenset(
    "a about across all along also am an and any anything are as at avoid based be been being best better between both but by can cannot "
    "case code could did do does doing done each either else every fast faster fastest few find for from get gets give given go good "
    "got had has have having help how i if implement implementation improve in instead into is it its just kernel kernels know "
    "less let like lot make makes making many may me more most much my need needs no not of off on one only operation operations "
    "operator operators optimal optimise optimised optimize optimized or other our over please pytorch quick quicker quickly run "
    "running runs same should slow so some something speed speeding such take takes tensor tensors than that the their them then "
    "there these they thing this those to too torch trick tricks up use used useful using very want way ways we well what when "
    "where which while who why will with within without work works would write writing you your".split()
)
"""Words that distinguish no skills: English, and the words of every skill."""

_TOGETHER = (
    "matmul | gemm | mm | matrix product | matrix multiply | matrix multiplication | matrix matrix > matmul | gemm | mm",
    "layer norm | layernorm | ln",
    "batch norm | batchnorm | bn",
    "group norm | groupnorm | gn | instance norm",
    "rms norm | rmsnorm | root mean square norm",
    "normalize | normalise | normalization | normalisation | norm",
    "attention | sdpa | mha | scaled dot product attention | multi head attention | multihead attention | self attention",
    "flash attention | flashattention | fused attention | softmax attention | memory efficient attention",
    "kv cache | key value cache | decode | decoding | decode attention | autoregressive | single token | one token > attention",
    "softmax | softmaxes",
    "logsumexp | log sum exp | lse",
    "cross entropy | crossentropy | ce loss | nll loss | negative log likelihood",
    "top k | topk | kth | kth value > top k | topk | argmax | sort",
    "argmax | argmin | arg max | arg min",
    "reduction | reduce | reduces | reducing | reductions | summation",
    "cumsum | prefix sum | scan | cumulative sum | cumulative | prefix",
    "bandwidth | memory bound | bandwidth bound | memory bandwidth | dram",
    "roofline | arithmetic intensity | byte count | compute bound | bottleneck",
    "quantize | quantise | quantized | quantised | quantization | quantisation | int8 | dequantize | dequantise",
    "fp16 | half | half precision | bf16 | bfloat16 | float16 | mixed precision",
    "tf32 | tensor core | tensor cores",
    "accuracy | precision | rounding | rounding error | numerical error",
    "overflow | stable | stability | inf | infinity",
    "nan | fully masked",
    "convolution | conv | conv2d | conv1d | conv3d | cnn",
    "transposed convolution | conv transpose2d | conv transpose1d | conv transpose | deconvolution | deconv | transposed conv",
    "depthwise | depth wise | grouped",
    "pointwise convolution | 1x1 | 1x1 convolution | pointwise conv",
    "channels last | nhwc | memory format",
    "elementwise | element wise | pointwise | point wise",
    "fusion | fuse | fused | fusing",
    "fold | folding | merge into | absorb",
    "epilogue | bias | after a matmul",
    "gelu | gaussian error",
    "silu | swish",
    "swiglu | geglu | glu | gated | gate",
    "rotary | rope | positional",
    "embedding | gather | lookup | index select | indexing",
    "lstm | gru | rnn | recurrent | recurrence",
    "pooling | avg pool2d | max pool2d | maxpool | avgpool | pool",
    "dropout | random",
    "variance | std | standard deviation | welford",
    "launch overhead | python overhead | host bound | launch bound | cpu overhead | many launches | overhead",
    "cuda graph | cuda graphs | cudagraph | graph replay",
    "shared memory | smem | bank conflict | bank conflicts",
    "warp shuffle | shfl | warp",
    "vectorize | vectorise | vectorized | vectorised | vectorization | float4 | wide loads",
    "simd | avx | avx2 | avx512",
    "thread | threads | openmp | omp | multithreading | parallel",
    "page fault | page faults | first touch",
    "occupancy | registers | register pressure | register spill | spill",
    "autotune | autotuning | tuning | tune | schedule search",
    "odd sizes | tail | remainder | not a multiple | boundary | out of bounds | ragged",
    "last dim | last dimension | last axis | innermost dimension | inner dimension | each row | per row | rowwise | row wise > row | rows",
    "first dim | first dimension | first axis | dim 0 | axis 0 | batch dimension | over rows > column | columns | dim0",
    "row | rows",
    "column | columns | dim0",
    "small | tiny | little",
    "long | large | huge | big",
    "skinny | tall | thin",
    "projection | projections | qkv",
    "residual | skip connection | shortcut",
    "transpose | permute | transposed",
    "concat | cat | concatenate | concatenation | stack",
    "loss | losses",
    "deterministic | determinism | reproducible",
    "noncontiguous | non contiguous | contiguous | strided | strides | stride",
)
"""A line a concept: its names in the field, in the words of skills and of people; after a `>` the names to search for instead. The
longest phrase wins."""


def _table() -> dict[tuple[str, ...], tuple[str, ...]]:
    result: dict[tuple[str, ...], tuple[str, ...]] = {}
    for line in _TOGETHER:
        said, _, looked_for = line.partition(">")
        names = tuple(" ".join(name.split()) for name in (looked_for or said).split("|"))
        for name in said.split("|"):
            result.setdefault(tuple(name.split()), names)
    return result


_NAMES = _table()
_LONGEST = max(map(len, _NAMES))


def concepts(text: str) -> list[tuple[str, ...]]:
    """Concepts of `text` in order: for each its names.

    If `text` has stop words only, they are the concepts.
    """
    result: dict[tuple[str, ...], tuple[str, ...]] = {}
    said = [
        [word.lower() for word in _WORD.findall(chunk)]
        for chunk in _CHUNK.findall(_HYPHEN.sub(" ", clean(text)))
    ]
    words = [(word, tuple(chunk)) for chunk in said for word in chunk]
    place = 0
    while place < len(words):
        for length in range(min(_LONGEST, len(words) - place), 0, -1):
            phrase = tuple(word for word, _ in words[place : place + length])
            if phrase in _NAMES:
                names = _NAMES[phrase]
                result.setdefault(names, names)
                break
        else:
            word, chunk = words[place]
            length = 1
            if (
                len(chunk) > 1 and phrase[0] == chunk[0]
            ):  # an identifier: as a whole, or a meaningful part of it
                parts = [part for part in chunk if len(part) > 2 and part not in STOP]
                result.setdefault(chunk, ("".join(chunk), " ".join(chunk), *parts))
                length = len(chunk)
            elif word not in STOP:
                result.setdefault((word,), (word,))
        place += length
    return list(result.values()) or [(word,) for word in dict.fromkeys(word for word, _ in words)]

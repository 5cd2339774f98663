"""Graphs as queries."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from dvk.records import Graph, Node, Skill
from dvk.skills import Library, query_from_graph
from dvk.skills.graphs import graph_words

Make = Callable[..., Skill]


def graph(*ops: str, dtype: str = "float32") -> Graph:
    """A chain of `ops` over a 64x1024 input."""
    nodes = [Node(name="x0", op="input", shape=(64, 1024), dtype=dtype)]
    for number, op in enumerate(ops):
        previous = {"ref": nodes[-1].name}
        nodes.append(
            Node(
                name=f"v{number}",
                op=f"aten.{op}",
                args=(previous, 1024),
                shape=(64, 1024),
                dtype=dtype,
            )
        )
    return Graph(nodes=tuple(nodes), outputs={"ref": nodes[-1].name})


@pytest.mark.parametrize(
    ("op", "word"),
    [
        ("_softmax.default", "softmax"),
        ("_log_softmax.default", "logsumexp"),
        ("native_layer_norm.default", "layer_norm"),
        ("native_group_norm.default", "group_norm"),
        ("_native_batch_norm_legit_no_training.default", "batch_norm"),
        ("cudnn_batch_norm.default", "batch_norm"),
        ("addmm.default", "linear"),
        ("linear.default", "linear"),
        ("convolution.default", "conv2d"),
        ("conv2d.default", "conv2d"),
        ("relu_.default", "relu"),
        ("add.Tensor", "add"),
        ("mean.dim", "reduction"),
        ("_scaled_dot_product_flash_attention_for_cpu.default", "attention"),
        ("never_heard_of.default", "never_heard_of"),
    ],
)
def test_operators_speak_the_words_of_skills(op: str, word: str) -> None:
    assert word in graph_words(graph(op).listing())


def test_operators_together_have_a_joint_name() -> None:
    spelt_out = graph("pow.Tensor_Scalar", "mean.dim", "add.Tensor", "rsqrt.default", "mul.Tensor")
    assert "rms_norm" in graph_words(spelt_out.listing())
    assert "attention" in graph_words(
        graph("bmm.default", "_softmax.default", "bmm.default").listing()
    )
    assert "attention" not in graph_words(graph("_softmax.default").listing())


def test_names_sizes_and_views_say_nothing() -> None:
    assert graph_words(graph("view.default", "relu.default").listing()) == [
        "relu",
        "activation",
        "elementwise",
    ]
    assert "bf16" in graph_words(graph("relu.default", dtype="bfloat16").listing())
    assert graph_words("not a listing\nx0\n") == []


def test_only_the_rarest_known_words_are_asked(library: Library, make: Make) -> None:
    library.add_all(
        [
            make("a", "relu elementwise softmax"),
            make("b", "relu elementwise"),
            make("c", "elementwise"),
        ]
    )
    chain = graph("relu.default", "_softmax.default", "tanh.default")
    assert query_from_graph(chain, library, 10).split() == ["softmax", "relu", "elementwise"]
    assert query_from_graph(chain, library, 1) == "softmax"
    assert query_from_graph(graph("view.default"), library, 5) == ""


@pytest.mark.parametrize(
    ("ops", "recipe"),
    [
        (("_softmax.default",), {"persistent_row", "online_softmax", "looped_row"}),
        (("native_layer_norm.default", "gelu.default"), {"fuse_rowwise"}),
        (("linear.default", "relu.default"), {"fuse_epilogue", "inplace_epilogue"}),
        (("relu.default", "mul.Tensor", "add.Tensor", "sigmoid.default"), {"fuse_pointwise"}),
        (("conv2d.default", "batch_norm.default"), {"fold_batch_norm"}),
        (("linear.default", "sum.dim_IntList"), {"collapse_linear_reduction"}),
        (("cross_entropy_loss.default",), {"fuse_rowwise", "online_softmax", "split_reduction"}),
    ],
)
def test_the_seeds_answer_typical_graphs_with_their_recipes(
    ops: tuple[str, ...], recipe: set[str]
) -> None:
    with Library.open() as library:
        found = library.search(query_from_graph(graph(*ops), library, 32), 5)
        assert recipe & {hit.row["recipe"] for hit in found}, [hit.name for hit in found]

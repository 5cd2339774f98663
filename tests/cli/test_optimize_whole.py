"""`dvk optimize --model`: bad input ends with one message, exit 2 and nothing written; a run leaves what its stages promise."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dvk.api.network import report
from dvk.api.network.building import ModelSource, build, read_settings
from dvk.errors import DvkError
from tests.api.whole_models import MODELS
from tests.cli.optimizing import QUICK, dvk


@pytest.mark.parametrize(
    "args, told",
    [
        (("--model", "transformers:LlamaForCausalLMM"), "did you mean LlamaForCausalLM"),
        (("chain.py", "--model", "timm:resnet18"), "--model does not go with a file"),
        ((), "nothing to make faster"),
    ],
)
@pytest.mark.slow
def test_bad_input_is_one_message_and_leaves_nothing(args, told, tmp_path: Path) -> None:
    done = dvk(*args, "--device", "cpu", "--out", "run", cwd=tmp_path, exits=2)
    assert told in done.stderr and done.stderr.count("error:") == 1
    assert "Traceback" not in done.stderr and not (tmp_path / "run").exists()


DROPS = """
from torch import nn

def make():
    return nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5))
"""


@pytest.mark.slow
def test_a_model_with_dropout_is_not_trained_and_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "drops.py").write_text(DROPS)
    what = ("--model", "drops.py:make", "--input", "input=float32[4,8]", "--train")
    done = dvk(*what, "--device", "cpu", "--out", "run", cwd=tmp_path, exits=2)
    assert "draws random numbers" in done.stderr and "--eval" in done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "spec, settings, told",
    [
        ("nothing:X", (), "no model: `nothing:X`"),
        ("transformers", (), "no model"),
        ("transformers:AutoModel", (), "is no model that a configuration makes"),
        ("transformers:LlamaConfig", (), "is no model"),
        ("transformers:LlamaForCausalLM", ("hiden_size=3",), "did you mean hidden_size"),
        ("transformers:LlamaForCausalLM", ("hidden_size=abc",), "cannot be built"),
        ("transformers:LlamaForCausalLM", ("none.json",), "cannot read `none.json`"),
        ("transformers:LlamaForCausalLM", ("hidden_size",), "is no configuration of a model"),
        ("none.py:factory", (), "cannot read `none.py`"),
    ],
)
def test_a_model_that_cannot_be_built_says_why(spec, settings, told, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DvkError) as raised:
        build(ModelSource(spec=spec, settings=read_settings(settings)))
    assert told in str(raised.value)


def test_settings_nest_and_later_ones_win(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text('{"text_config": {"hidden_size": 8, "vocab_size": 9}}')
    found = read_settings([str(file), "text_config.hidden_size=16", "hidden_act=gelu"])
    assert found == {"text_config": {"hidden_size": 16, "vocab_size": 9}, "hidden_act": "gelu"}


def test_the_page_of_a_model_shows_every_block_and_links_to_its_search(tmp_path: Path) -> None:
    row = {"class": "Layer", "inputs": "", "ms": 1.0, "operators_left": 0, "share": 0.5}
    nothing = {"tried": None, "speedup": None, "lo": None, "hi": None, "run": None, "patched": []}
    found = {
        "status": "faster",
        "reason": None,
        "model": "transformers:<Llama>",
        "backend": "cpp",
        "baselines": {"eager": {"ms": 2.0, "speedup": 1.5, "lo": 1.4, "hi": 1.6}},
        "ms": 2.0,
        "share_patched": 0.5,
        "blocks": [
            {
                **row,
                "name": "Layer",
                "instances": 2,
                "tried": 1.7,
                "speedup": 1.8,
                "lo": 1.7,
                "hi": 1.9,
                "patched": ["layers.0", "layers.1"],
                "why": "",
                "run": str(tmp_path / "blocks" / "Layer"),
            },
            {**row, **nothing, "name": "Norm", "instances": 3, "why": "nothing in it can be fused"},
        ],
        "left": {"layers.2": "it has hooks"},
        "error": 1e-7,
        "own_error": 2e-7,
        "no_truth": None,
        "patch": "patch",
        "use": "from patch import apply; apply(model)",
        "run": str(tmp_path),
    }
    text = report.document(found, {"versions": {"torch": "2"}})
    assert 'href="blocks/Layer/report.html"' in text and "nothing in it can be fused" in text
    assert "1.80×" in text and "it has hooks" in text and "1.0e-07" in text
    assert "transformers:&lt;Llama&gt;" in text and "<Llama>" not in text
    failed = {**found, "status": "failed", "reason": "wrong", "error": None, "patch": None}
    assert "not proved faster (failed): wrong" in report.document(failed, {})


@pytest.mark.slow
@pytest.mark.hand
def test_a_llama_end_to_end(tmp_path: Path) -> None:
    spec, settings = MODELS["llama"]
    (tmp_path / "llama.json").write_text(json.dumps(settings))
    args = ("--model", spec, "--config", "llama.json", "--device", "cpu", "--out", "run", "--json")
    done = dvk(*args, *QUICK, cwd=tmp_path, exits=None)
    summary = json.loads(done.stdout)
    assert done.returncode == (0 if summary["status"] == "faster" else 1)
    assert summary["status"] in ("faster", "no_speedup", "too_noisy"), summary
    run = tmp_path / "run"
    assert all((run / f).exists() for f in ("profile.json", "report.md", "report.html"))
    assert "LlamaDecoderLayer" in {row["name"] for row in summary["blocks"]}
    assert all(row["patched"] or row["why"] for row in summary["blocks"])
    # A finished run answers again.
    again = dvk(*args, *QUICK, "--resume", cwd=tmp_path, exits=done.returncode)
    assert json.loads(again.stdout) == summary

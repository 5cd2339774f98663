"""Folders, LoRA, saving and loading; the errors when a model cannot be opened."""

from __future__ import annotations

import http.server
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import huggingface_hub.constants
import pytest
import torch

from dvk.agents import reading
from dvk.backbone import Conversation, Sampling, ScoringRow, nano, open_backbone
from dvk.backbone.hf import HfBackbone
from dvk.config import BackboneConfig as Settings
from dvk.config import Config
from dvk.device_lock import DeviceLock, of_cpu
from dvk.errors import DvkError, MachineError, RunFolderError, UsageError

ASKED = [
    Conversation(messages=({"role": "user", "content": text},))
    for text in ("v0 = aten.relu", "x0: float32[s0,s1]")
]
GREEDY = Sampling(temperature=0, max_tokens=16)
LORA = Config(backbone=Settings(lora_rank=4))


def opened(folder: Path, config: Config | None = None) -> HfBackbone:
    backbone = open_backbone(f"hf:{folder}", config, device="cpu")
    assert isinstance(backbone, HfBackbone)
    return backbone


def train_a_little(backbone: HfBackbone, steps: int = 3) -> None:
    optimizer = torch.optim.SGD(backbone.parameters(), lr=0.5)
    for _ in range(steps):
        (-backbone.logprobs([ScoringRow((7, 8, 9), (20, 21, 22, 1))]).values.sum()).backward()
        optimizer.step()
        optimizer.zero_grad()


def test_save_and_open_again(nano_folder: Path, tmp_path: Path) -> None:
    backbone = opened(nano_folder)
    assert backbone.dialect == "compact" and backbone.model.dtype == torch.float32
    before = [answer.tokens for answer in backbone.generate(ASKED, GREEDY)]
    train_a_little(backbone)
    after = [answer.tokens for answer in backbone.generate(ASKED, GREEDY)]
    assert before != after, "the sampler follows the weights as they are trained"
    backbone.save(tmp_path / "a" / "saved")
    again = opened(tmp_path / "a" / "saved")
    assert [answer.tokens for answer in again.generate(ASKED, GREEDY)] == after
    assert again.dialect == "compact" and again.card == backbone.card
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["saved"], (
        "nothing half-written is left"
    )
    with pytest.raises(RunFolderError):
        backbone.save(tmp_path / "a" / "saved")


def test_lora_trains_few_weights_and_comes_back(nano_folder: Path, tmp_path: Path) -> None:
    torch.manual_seed(
        0
    )  # of LoRA's matrices: training as roughly as here, some make float32 lose its last digits
    plain, lora = opened(nano_folder), opened(nano_folder, LORA)
    assert (
        0
        < sum(p.numel() for p in lora.parameters())
        < 0.3 * sum(p.numel() for p in plain.parameters())
    )
    assert [a.tokens for a in lora.generate(ASKED, GREEDY)] == [
        a.tokens for a in plain.generate(ASKED, GREEDY)
    ]
    train_a_little(lora)
    trained = lora.generate(ASKED, GREEDY)
    assert [a.tokens for a in trained] != [a.tokens for a in plain.generate(ASKED, GREEDY)]
    for answer in trained:  # the merged copy that samples and the wrapped module that scores agree
        assert answer.tokens is not None
        scores = lora.logprobs([ScoringRow(answer.tokens.prompt, answer.tokens.completion)])
        torch.testing.assert_close(
            scores.values[0].detach(), torch.tensor(answer.tokens.logprobs), atol=1e-4, rtol=0
        )
    lora.save(tmp_path / "adapters")
    assert not list((tmp_path / "adapters").glob("model*.safetensors")), (
        "only the adapters are written"
    )
    again = opened(tmp_path / "adapters")
    assert [a.tokens for a in again.generate(ASKED, GREEDY)] == [a.tokens for a in trained]
    assert sum(p.numel() for p in again.parameters()) == sum(p.numel() for p in lora.parameters())
    assert again.dialect == "compact"


def test_large_models_are_read_in_place(nano_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Above the size that is copied: separate products, LoRA as two thin ones, no second copy of a weight."""
    copied = opened(nano_folder, LORA)
    train_a_little(copied)
    monkeypatch.setattr("dvk.backbone.decoding.forward.STACKED_PARAMETERS", 0)
    in_place = HfBackbone(
        nano.Loaded(copied.model, copied.tokenizer, {}), LORA.backbone, "in place"
    )
    for temperature in (0.0, 1.0):
        sampling = Sampling(temperature=temperature, max_tokens=16, seed=1)
        assert [a.tokens and a.tokens.completion for a in in_place.generate(ASKED, sampling)] == [
            a.tokens and a.tokens.completion for a in copied.generate(ASKED, sampling)
        ]
    assert in_place.engine is not None
    weight = in_place.engine.decoder.layers[0].qkv.parts[0][0]
    theirs = copied.model.get_base_model().model.layers[0].self_attn.q_proj.base_layer.weight
    assert weight.data_ptr() == theirs.data_ptr()
    train_a_little(copied, 1)
    assert [a.text for a in in_place.generate(ASKED, GREEDY)] == [
        a.text for a in copied.generate(ASKED, GREEDY)
    ]


def test_training_mode_and_usage_are_kept(nano_folder: Path) -> None:
    backbone = opened(nano_folder)
    backbone.model.train()
    answers = backbone.generate(ASKED, GREEDY)
    assert backbone.model.training
    kept = [answer.tokens for answer in answers if answer.tokens]
    assert backbone.usage.prompt_tokens == sum(len(t.prompt) for t in kept)
    assert backbone.usage.completion_tokens == sum(len(t.completion) for t in kept)
    assert backbone.usage.seconds > 0 and backbone.usage.cost_usd is None


def test_nothing_is_written_while_a_candidate_is_timed(nano_folder: Path) -> None:
    backbone, done = opened(nano_folder), threading.Event()
    writer = threading.Thread(
        target=lambda: (backbone.generate(ASKED, GREEDY), done.set()), daemon=True
    )
    with DeviceLock(of_cpu()).exclusive():
        writer.start()
        assert not done.wait(1.0), "it takes some hundredths of a second otherwise"
    assert done.wait(30)


def test_who_holds_a_writer_back_can_measure_meanwhile(nano_folder: Path) -> None:
    backbone, done = opened(nano_folder), threading.Event()
    parked, released = threading.Event(), threading.Event()

    def pulse() -> None:
        parked.set()
        assert released.wait(60)

    backbone.pulse = pulse
    threading.Thread(
        target=lambda: (backbone.generate(ASKED, GREEDY), done.set()), daemon=True
    ).start()
    assert parked.wait(30)
    got = threading.Event()

    def measure() -> None:
        with DeviceLock(of_cpu()).exclusive():
            got.set()

    threading.Thread(target=measure, daemon=True).start()
    assert got.wait(30) and not done.is_set()
    released.set()
    assert done.wait(60)


def test_bfloat16(nano_folder: Path) -> None:
    backbone = opened(nano_folder, Config(backbone=Settings(dtype="bfloat16")))
    assert backbone.model.dtype == torch.bfloat16
    answer = backbone.generate(ASKED[:1], Sampling(seed=1, max_tokens=20))[0]
    assert answer.tokens is not None
    scores = backbone.logprobs([ScoringRow(answer.tokens.prompt, answer.tokens.completion)])
    torch.testing.assert_close(
        scores.values[0].detach(), torch.tensor(answer.tokens.logprobs), atol=0.3, rtol=0
    )


# ---------------------------------------------------------------- what cannot be opened


@pytest.mark.parametrize(
    "spec", ["hf:", "hf:/no/such/folder", "hf:./missing", "nano:/no/such/folder"]
)
def test_a_missing_folder_is_said(spec: str) -> None:
    with pytest.raises(UsageError) as caught:
        open_backbone(spec, device="cpu")
    assert caught.value.hint


def test_a_folder_without_a_model_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"neither config\.json"):
        open_backbone(f"hf:{tmp_path}", device="cpu")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "no_such_architecture"}))
    with pytest.raises(UsageError, match="cannot load"):
        open_backbone(f"hf:{tmp_path}", device="cpu")


def test_a_model_that_is_no_nano_is_said(
    make_hf: object, shared_nano: HfBackbone, tmp_path: Path
) -> None:
    plain = HfBackbone(
        nano.Loaded(shared_nano.model, shared_nano.tokenizer, {}), Settings(), "plain"
    )
    plain.save(tmp_path / "plain")
    assert opened(tmp_path / "plain").dialect == "chat"
    with pytest.raises(UsageError, match="compact"):
        open_backbone(f"nano:{tmp_path / 'plain'}", device="cpu")
    (tmp_path / "plain" / "dvk.json").write_text('{"dialect": "klingon"}')
    with pytest.raises(UsageError, match="klingon"):
        open_backbone(f"hf:{tmp_path / 'plain'}", device="cpu")


def test_a_missing_gpu_is_said(nano_folder: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(MachineError, match="GPU"):
        open_backbone(f"nano:{nano_folder}", device="cuda")


class Hub(http.server.BaseHTTPRequestHandler):
    """Answers as the Hub does for a gated and for an unknown repository: the status and the header that names the error."""

    def do_HEAD(self) -> None:
        gated = "gated" in self.path
        self.send_response(403 if gated else 404)
        self.send_header("X-Error-Code", "GatedRepo" if gated else "RepoNotFound")
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_HEAD

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """A loopback Hub; its cache is empty."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    for name, value in {
        "ENDPOINT": url,
        "HUGGINGFACE_CO_URL_TEMPLATE": url + "/{repo_id}/resolve/{revision}/{filename}",
    }.items():
        monkeypatch.setattr(huggingface_hub.constants, name, value)
        if hasattr(huggingface_hub.file_download, name):
            monkeypatch.setattr(huggingface_hub.file_download, name, value)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    yield url
    server.shutdown()


def test_the_hub_s_refusals_are_explained(hub: str) -> None:
    with pytest.raises(UsageError, match="gated") as caught:
        open_backbone("hf:some/gated-model", device="cpu")
    assert "HF_TOKEN" in caught.value.hint
    with pytest.raises(UsageError, match="no model `some/unknown-model`"):
        open_backbone("hf:some/unknown-model", device="cpu")


def test_an_unreachable_hub_is_said(hub: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(DvkError) as caught:
        open_backbone("hf:some/other-model", device="cpu")
    assert isinstance(caught.value, MachineError), caught.value


def test_a_hub_that_does_not_answer_is_said_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its client alone would try again for a minute."""
    from huggingface_hub.utils import are_progress_bars_disabled
    from transformers.utils import logging

    from dvk.backbone import loading

    monkeypatch.setattr(loading.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(loading.constants, "ENDPOINT", "http://127.0.0.1:9")
    began = time.monotonic()
    for work in (
        lambda: loading.load("nobody/no-such-model", Config().backbone, torch.device("cpu")),
        lambda: loading.folder_of("nobody/no-such-model", (".safetensors",), ".bin"),
    ):
        with pytest.raises(MachineError, match="cannot be reached") as caught:
            work()
        assert "hf download" in caught.value.hint
    assert time.monotonic() - began < 10
    assert are_progress_bars_disabled() and not logging.is_progress_bar_enabled()


def test_an_answer_of_a_model_that_always_thinks_begins_with_its_thought(nano_folder: Path) -> None:
    backbone = opened(nano_folder)
    plain = backbone.generate(ASKED, GREEDY)
    assert backbone.chat.opening == ""
    thinking = opened(nano_folder)
    template = thinking.chat.template
    thinking.chat.template = template + "{% if add_generation_prompt %}<think>\n{% endif %}"
    answers = thinking.generate(ASKED, Sampling(temperature=0, max_tokens=16, alternatives=True))
    assert all(a.text.startswith("<think>\n") for a in answers) and len(plain) == len(answers)
    with pytest.raises(reading.MalformedAnswer):
        reading.code(answers[0].text, complete=False)
    assert all(one.at >= len("<think>\n") for a in answers for one in a.alternatives)


def test_released_caches_are_taken_again(make_hf: Callable[..., HfBackbone]) -> None:
    """An update has the memory of the sampler's caches; later answers are the same."""
    backbone = make_hf("qwen3", head_dim=16)
    asked = [Conversation(messages=({"role": "user", "content": text},)) for text in ("x0", "v0")]
    before = backbone.generate(asked, Sampling(max_tokens=8, seed=1))
    assert backbone.engine is not None
    backbone.release()
    assert backbone.engine is None
    assert backbone.generate(asked, Sampling(max_tokens=8, seed=1)) == before

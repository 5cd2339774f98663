"""daVinci-kernel's checkpoints: the model's folder, the dialect, and reopening a saved one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dvk.agents.reading import arguments
from dvk.agents.tools import select_skills
from dvk.backbone import Conversation, open_backbone
from dvk.backbone.chat import ChatTemplate
from dvk.backbone.hf import HfBackbone
from dvk.backbone.loading import read_card
from dvk.backbone.packing import model_folder
from dvk.config import AgentsConfig
from dvk.errors import UsageError
from dvk.interop.davinci.backbone import TEMPLATE
from dvk.interop.davinci.dialect import DaVinciDialect
from tests.backbone.tokenizers import bare_tokenizer


def checkpoint(nano_folder: Path, folder: Path) -> Path:
    """A released checkpoint's shape: a plain model folder, without a mention of dvk."""
    shutil.copytree(nano_folder, folder)
    (folder / "dvk.json").unlink()
    return folder


def test_its_template_lists_tools_as_xml_and_its_calls_are_read() -> None:
    tokenizer = bare_tokenizer()
    tokenizer.chat_template = TEMPLATE  # type: ignore[attr-defined]
    tool = select_skills(3)
    call = {
        "id": "1",
        "type": "function",
        "function": {
            "name": "select_skills",
            "arguments": '{"think": "it\\u2019s bound", "selected_skills": [{"name": "a", "reason": "r"}]}',
        },
    }
    asked = {"role": "user", "content": "Choose."}
    talk = Conversation(
        messages=(asked, {"role": "assistant", "content": "", "tool_calls": [call]}), tools=(tool,)
    )
    text = ChatTemplate(tokenizer, "x").render(talk)
    system, user, answer, rest = text.split("<|im_end|>\n")
    assert (
        system.startswith("<|im_start|>system\nYou are")
        and "<name>select_skills</name>" in system
        and "<name>think</name>" in system
    )
    assert user == "<|im_start|>user\nChoose." and rest == "<|im_start|>assistant\n"
    found = arguments(answer, (), tool)
    assert found == {"think": "it’s bound", "selected_skills": [{"name": "a", "reason": "r"}]}
    plain = ChatTemplate(tokenizer, "x").render(Conversation(messages=(asked,)))
    assert plain == "<|im_start|>user\nChoose.<|im_end|>\n<|im_start|>assistant\n", (
        "no system line without tools"
    )


def test_lists_that_a_template_wrote_with_str_are_read() -> None:
    answer = (
        "<tool_call>\n<function=select_skills>\n<parameter=think>\nt\n</parameter>\n<parameter=selected_skills>\n"
        "[{'name': 'a', 'reason': \"it's\"}]\n</parameter>\n</function>\n</tool_call>"
    )
    assert arguments(answer, (), select_skills(3))["selected_skills"] == [
        {"name": "a", "reason": "it's"}
    ]


def test_a_checkpoint_is_opened_saved_and_opened_again(nano_folder: Path, tmp_path: Path) -> None:
    folder = checkpoint(nano_folder, tmp_path / "model")
    opened = open_backbone(f"davinci:{folder}", device="cpu")
    assert (
        isinstance(opened, HfBackbone)
        and opened.dialect == "davinci"
        and opened.name == f"davinci:{folder}"
    )
    opened.save(tmp_path / "saved")
    assert read_card(tmp_path / "saved")["dialect"] == "davinci"
    assert open_backbone(f"hf:{tmp_path / 'saved'}", device="cpu").dialect == "davinci"
    assert open_backbone(f"hf:{folder}", device="cpu").dialect == "chat", "as any other model"


@pytest.mark.parametrize("own", [True, False])
def test_a_tokenizer_s_own_template_is_kept(nano_folder: Path, tmp_path: Path, own: bool) -> None:
    folder = checkpoint(nano_folder, tmp_path / "model")
    assert isinstance(before := open_backbone(f"hf:{folder}", device="cpu"), HfBackbone)
    before.tokenizer.chat_template = "{{ messages[0].content }}" if own else None
    for file in (folder / "chat_template.jinja", folder / "tokenizer_config.json"):
        file.unlink(missing_ok=True)
    before.tokenizer.save_pretrained(folder)
    opened = open_backbone(f"davinci:{folder}", device="cpu")
    assert isinstance(opened, HfBackbone) and opened.chat.template == (
        "{{ messages[0].content }}" if own else TEMPLATE
    )


def test_where_a_run_has_its_model(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such folder"):
        model_folder(tmp_path / "nowhere")
    for step in (9, 10):
        place = tmp_path / f"global_step_{step}" / "actor" / "huggingface"
        place.mkdir(parents=True)
    (tmp_path / "global_step_9" / "actor" / "model_world_size_8_rank_0.pt").touch()
    with pytest.raises(UsageError, match="shards"):
        model_folder(tmp_path)
    for step in (9, 10):
        (tmp_path / f"global_step_{step}" / "actor" / "huggingface" / "config.json").touch()
    assert model_folder(tmp_path) == tmp_path / "global_step_10" / "actor" / "huggingface"
    assert model_folder(tmp_path / "global_step_9" / "actor").parts[-3:] == (
        "global_step_9",
        "actor",
        "huggingface",
    )
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="config.json"):
        model_folder(tmp_path / "empty")


def test_its_prompts_have_their_shape() -> None:
    from tests.agents.conftest import make_skill, ok, turn, wrong
    from tests.agents.group_norm import HERE

    dialect, settings = DaVinciDialect(), AgentsConfig()
    opening = dialect.policy(HERE, [make_skill("one"), make_skill("two")], settings).messages
    assert [message["role"] for message in opening] == ["user"]
    text = opening[0]["content"]
    assert (
        text.index(HERE.task.source.strip())
        < text.index("[Skill Library]")
        < text.index("name: one")
        < text.index("name: two")
        < text.rindex("Optimize the architecture named Model")
    )
    assert "[Skill Library]" not in dialect.policy(HERE, [], settings).messages[0]["content"]
    found = dialect.feedback(wrong(error="worst at [3]"), None, None, settings)
    assert '"correctness": false' in found and "worst at [3]" in found and "reward" not in found
    assert '"speedup": 1.5' in dialect.feedback(ok(1.5), None, None, settings)
    from dvk.records import Trace

    trace = Trace(
        role="policy", turns=(turn(ok(1.0), "FIRST"), turn(wrong(), "WRONG"), turn(ok(2.5), "BEST"))
    )
    asked = dialect.summary(HERE, trace, [make_skill("one")], settings)
    told = asked.messages[1]["content"]
    assert (
        "Speedup: 1.00x" in told
        and "Speedup: 2.50x" in told
        and "FIRST" in told
        and "BEST" in told
        and "WRONG" not in told
    )
    assert asked.tools[0]["function"]["name"] == "update_skill_library"

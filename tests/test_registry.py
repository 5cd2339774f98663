"""Plug-ins are found by name or in a file, and a wrong name says which ones there are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dvk.errors import UsageError
from dvk.registry import resolve

TABLE = {"loads": "json:loads", "gone": "json:no_such_thing"}


def test_by_name() -> None:
    assert resolve("loads", TABLE, "reader") is json.loads


def test_nothing_is_imported_until_asked_for() -> None:
    assert (
        resolve("loads", {**TABLE, "broken": "no_such_module_anywhere:x"}, "reader") is json.loads
    )


def test_from_a_file(tmp_path: Path) -> None:
    plugin = tmp_path / "mine.py"
    plugin.write_text("class Mine:\n    value = 7\n")
    assert resolve(f"{plugin}:Mine", TABLE, "reader").value == 7


@pytest.mark.parametrize(
    "name, says",
    [
        ("lods", "gone, loads"),
        ("nowhere.py:Mine", "path before the colon"),
        ("{file}:Yours", "defined in that file"),
        ("no/colon.py", "path/to/file.py:Name"),
    ],
)
def test_mistakes_say_what_to_do(tmp_path: Path, name: str, says: str) -> None:
    plugin = tmp_path / "mine.py"
    plugin.write_text("Mine = 1\n")
    with pytest.raises(UsageError) as caught:
        resolve(name.format(file=plugin), TABLE, "reader")
    assert says in caught.value.hint


def test_two_files_of_one_name_stay_apart(tmp_path: Path) -> None:
    found = []
    for folder, value in (("a", 1), ("b", 2)):
        (tmp_path / folder).mkdir()
        plugin = tmp_path / folder / "mine.py"
        plugin.write_text(f"def mine():\n    return {value}\n")
        found.append(resolve(f"{plugin}:mine", {}, "reader"))
    assert [plugin() for plugin in found] == [1, 2]

"""The live view: on a real pseudo-terminal, on a pipe, under Ctrl-C, and its cost."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import textwrap
import time
from pathlib import Path

import pytest

from dvk.pipelines.live import SearchView
from dvk.records import Status, Turn
from tests.pipelines.searches import bad, candidate, ok

TOP = Path(__file__).resolve().parents[2]
PRELUDE = """
import sys, time
from dvk.pipelines.live import SearchView
from dvk.records import Status, Turn
from tests.pipelines.searches import bad, candidate, ok
"""


class Terminal:
    """A child on a pseudo-terminal as stdin and stderr; stdout is a pipe."""

    def __init__(self, code: str, **env: str):
        self.master, slave = pty.openpty()
        self.slave, self.before = slave, termios.tcgetattr(slave)
        self.child = subprocess.Popen(
            [sys.executable, "-c", PRELUDE + textwrap.dedent(code)],
            stdin=slave,
            stderr=slave,
            stdout=subprocess.PIPE,
            cwd=TOP,
            env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24", **env},
            start_new_session=True,
            preexec_fn=lambda: _own_terminal(slave),
        )
        self._bytes = b""

    @property
    def seen(self) -> str:
        """Everything shown so far."""
        return self._bytes.decode(errors="replace")

    def read_until(self, text: str, timeout_s: float = 120.0) -> None:
        """Keep what appears until `text` has."""
        deadline = time.monotonic() + timeout_s
        while text not in self.seen:
            assert time.monotonic() < deadline, f"{text!r} never appeared in {self.seen!r}"
            self._read()

    def finish(self, timeout_s: float = 120.0) -> tuple[int, str]:
        """Exit status and stdout; everything shown is in `seen`."""
        assert self.child.stdout is not None
        deadline = time.monotonic() + timeout_s
        while self.child.poll() is None:
            assert time.monotonic() < deadline
            self._read()
        while self._read():
            pass
        after = termios.tcgetattr(self.slave)
        os.close(self.slave)
        os.close(self.master)
        assert after == self.before, "the terminal's settings were changed"
        with self.child.stdout as stdout:
            return self.child.returncode, stdout.read().decode()

    def _read(self) -> bool:
        ready, _, _ = select.select([self.master], [], [], 0.2)
        if not ready:
            return False
        self._bytes += os.read(self.master, 65536)
        return True


def _own_terminal(slave: int) -> None:
    """Make the pseudo-terminal the child's controlling one, so that Ctrl-C reaches it as a signal, in any test environment."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)


def screen(output: str) -> list[str]:
    """The lines that a terminal shows after `output`: newline, return, cursor up and erase line are obeyed."""
    lines, row, column = [""], 0, 0
    for piece in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", output):
        if piece == "\r":
            column = 0
        elif piece == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif piece.startswith("\x1b["):
            if piece.endswith("A"):
                row = max(0, row - int(piece[2:-1] or 1))
            elif piece.endswith("K"):
                lines[row] = ""
        else:
            lines[row] = (
                lines[row].ljust(column)[:column] + piece + lines[row][column + len(piece) :]
            )
            column += len(piece)
    return lines


def judged(number: int, speedup: float | None, tier: str = "search") -> Turn:
    verdict = ok(speedup, tier=tier) if speedup else bad(Status.MISMATCH, "wrong by 3e-2")
    return Turn(
        candidate=candidate(number, title=f"idea {number}"),
        verdict=verdict,
        elapsed_s=float(number),
    )


# ---------------------------------------------------------------- on a terminal


@pytest.mark.slow
def test_a_terminal_shows_the_search_and_is_clean_afterwards() -> None:
    terminal = Terminal("""
        with SearchView(60, name="mlp_head") as live:
            live.stage("searching schedules")
            live.judged(Turn(candidate=candidate(1, title="rows of 8"), verdict=ok(1.5)))
            live.judged(Turn(candidate=candidate(2, title="rows of 16"), verdict=ok(0.7)))
            live.judged(Turn(candidate=candidate(3, title="a wrong one"), verdict=bad(Status.MISMATCH, "no")))
            live.trying("rows of 32")
            time.sleep(1)
        print("result")
    """)
    terminal.read_until("rows of 32")
    shown = [line for line in screen(terminal.seen) if line]
    code, stdout = terminal.finish()
    assert code == 0 and stdout == "result\n"
    assert shown[0].startswith("mlp_head  searching schedules")
    assert " of 60 s" in shown[1]
    assert re.fullmatch(r"best  1\.50× \[1\.4\d, 1\.5\d\]  rows of 8", shown[2])
    assert shown[3].startswith("3 tried  2 ok · 1 mismatch")
    assert [line.split()[0] for line in shown[4:]] == ["1", "2", "3", "…"]
    assert "mismatch" in shown[6] and "rows of 32" in shown[7]
    assert [line for line in screen(terminal.seen) if line.strip()] == [], "the view is left behind"


def test_ctrl_c_leaves_the_terminal_sane() -> None:
    terminal = Terminal("""
        try:
            with SearchView(60, name="mlp_head") as live:
                live.judged(Turn(candidate=candidate(1), verdict=ok(1.5)))
                live.trying("an endless one")
                while True:
                    time.sleep(0.1)  # a signal that comes just before a longer one waits for its end
        except KeyboardInterrupt:
            print("kept", live.best)
    """)
    terminal.read_until("an endless one")
    os.write(terminal.master, b"\x03")
    code, stdout = terminal.finish()
    assert code == 0 and stdout.startswith("kept 1.50×")
    assert re.findall(r"\x1b\[\?25[lh]", terminal.seen)[-1] == "\x1b[?25h", (
        "the cursor stayed hidden"
    )
    assert [line for line in screen(terminal.seen) if line.strip() not in ("", "^C")] == []


def test_a_kill_leaves_the_cursor_visible() -> None:
    terminal = Terminal("""
        with SearchView(60) as live:
            live.trying("doomed")
            while True:
                time.sleep(10)
    """)
    terminal.read_until("doomed")
    terminal.child.send_signal(signal.SIGKILL)
    terminal.finish()
    assert re.findall(r"\x1b\[\?25[lh]", terminal.seen)[-1] == "\x1b[?25h"


@pytest.mark.slow
def test_it_redraws_at_most_four_times_a_second() -> None:
    terminal = Terminal("""
        with SearchView(60) as live:
            end = time.monotonic() + 1
            while time.monotonic() < end:
                live.trying("candidate")
                live.judged(Turn(candidate=candidate(1), verdict=ok(1.5)))
    """)
    code, _ = terminal.finish()
    assert code == 0
    assert 2 <= len(re.findall(r"best  ", terminal.seen)) <= 1 * 4 + 3


def test_long_and_hostile_titles_stay_on_their_line() -> None:
    terminal = Terminal(r"""
        title = "\x1b[2J\x1b[31m" + "wide " * 60 + "\nsecond [bold]line"
        with SearchView(60, name="\x1b]0;owned\x07") as live:
            live.judged(Turn(candidate=candidate(1, title=title), verdict=ok(1.5)))
            live.trying("the end\r\n\x9b2J")
            time.sleep(0.6)
    """)
    code, _ = terminal.finish()
    assert code == 0
    assert (
        "\x1b[2J" not in terminal.seen
        and "\x1b]0;" not in terminal.seen
        and "\x9b" not in terminal.seen
    )
    drawn = terminal.seen[: terminal.seen.rfind("the end") + 20]
    assert all(len(line) < 80 for line in screen(drawn))
    assert any(line.rstrip().endswith("…") and "wide wide" in line for line in screen(drawn))


def test_a_dumb_terminal_gets_plain_lines() -> None:
    terminal = Terminal(
        """
        with SearchView(60) as live:
            live.judged(Turn(candidate=candidate(1), verdict=ok(1.5)))
    """,
        TERM="dumb",
    )
    terminal.finish()
    assert "\x1b" not in terminal.seen
    assert re.fullmatch(r" +\d+ s  1\.50× \[1\.46, 1\.54\]  candidate 1\s+", terminal.seen), (
        terminal.seen
    )


# ---------------------------------------------------------------- elsewhere


def test_plain_lines_are_improvements_only() -> None:
    out = io.StringIO()
    with SearchView(60, file=out) as live:
        live.stage("capturing")
        for number, speedup in enumerate([0.9, 1.5, 1.2, None, 1.7, 1.7], start=1):
            live.trying(f"idea {number}")
            live.judged(judged(number, speedup))
    lines = out.getvalue().splitlines()
    assert [line.split("  ")[-1] for line in lines] == ["idea 2", "idea 5"]
    assert "1.70× [1.65, 1.75]" in lines[-1]


def test_plain_silence_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dvk.pipelines.live.HEARTBEAT_S", 0.3)
    out = io.StringIO()
    with SearchView(60, file=out) as live:
        live.stage("compiling torch.compile")
        time.sleep(1.0)
    lines = out.getvalue().splitlines()
    assert 2 <= len(lines) <= 3
    assert all(
        line.endswith("0 tried, nothing faster yet, compiling torch.compile") for line in lines
    )


def test_what_was_judged_before_is_counted_in_silence() -> None:
    out = io.StringIO()
    with SearchView(60, file=out) as live:
        live.resumed([judged(1, 2.0), judged(2, None)])
        assert live.best is not None and live.best.value == 2.0 and out.getvalue() == ""
        live.judged(judged(3, 1.5))
        assert out.getvalue() == "", "not better than what was there"
        live.judged(judged(4, 3.0))
    assert len(out.getvalue().splitlines()) == 1


def test_it_names_the_current_proposer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dvk.pipelines.live.HEARTBEAT_S", 0.2)
    out = io.StringIO()
    with SearchView(60, file=out, several=True) as live:
        live.stage("searching")
        live.asking("nano", 4)
        live.trying("idea 1", "composer")
        while "idea 1" not in out.getvalue():
            time.sleep(0.01)
        live.judged(judged(1, 2.0))
        live.asking("nano", 0)
        while "searching" not in out.getvalue():
            time.sleep(0.01)
        live.note("no operator graph")
    lines = [line.split("s  ", 1)[1] for line in out.getvalue().splitlines()]
    assert lines[0] == "0 tried, nothing faster yet, nano writes 4 answers, composer: idea 1"
    assert (
        "2.00× [1.94, 2.06]  composer: idea 1" in lines
        and "1 tried, 2.00× [1.94, 2.06], searching" in lines
    )
    assert lines[-1] == "no operator graph"


def test_quiet_says_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with SearchView(60, quiet=True) as live:
        live.judged(judged(1, 2.0))
    assert capfd.readouterr() == ("", "")
    assert live.best is not None and live.best.value == 2.0


def test_stdout_is_never_written(capfd: pytest.CaptureFixture[str]) -> None:
    with SearchView(60) as live:
        live.judged(judged(1, 2.0))
    out, err = capfd.readouterr()
    assert out == "" and "2.00×" in err


def test_a_reader_that_went_away_does_not_stop_the_search() -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as out:
        with SearchView(60, file=out) as live:
            live.judged(judged(1, 1.5))
            live.judged(judged(2, 1.9))
        assert live.best is not None and live.best.value == 1.9
        os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())


def test_a_confirmation_replaces_the_search_s_word() -> None:
    with SearchView(60, quiet=True) as live:
        live.judged(judged(1, 2.4))
        live.judged(judged(2, 2.3))
        live.judged(judged(1, 2.1, tier="claim"))
        assert live.best is not None and live.best.value == 2.1
        live.judged(judged(2, 2.3))
        assert live.best.value == 2.1
        live.judged(judged(1, 0.99, tier="claim"))
        assert live.best is not None and live.best.value == 2.3, "refuted: the next best stands"
        assert live._heartbeat().startswith("3 tried"), "and confirms what was tried before"
        live.judged(judged(2, None, tier="claim"))


def test_an_interval_that_reaches_one_is_no_best() -> None:
    with SearchView(60, quiet=True) as live:
        live.judged(judged(1, 1.02))
        assert live.best is None


def test_a_resumed_run_goes_on_counting() -> None:
    with SearchView(60, quiet=True, elapsed_s=40) as live:
        assert 40 <= live.elapsed_s < 42


@pytest.mark.slow
def test_the_view_costs_next_to_nothing() -> None:
    """Its cost to the candidates being timed: under 1 % of one core, the clock running."""
    terminal = Terminal("""
        with SearchView(60, name="mlp_head") as live:
            for number in range(10):
                live.judged(Turn(candidate=candidate(number, title="online softmax, vector width 8"), verdict=ok(1.5)))
            time.sleep(0.5)
            before = time.process_time()
            time.sleep(2)
            print((time.process_time() - before) / 2)
    """)
    code, stdout = terminal.finish()
    assert code == 0
    assert float(stdout) < 0.01

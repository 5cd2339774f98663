"""Isolated children: for each layer, what it keeps them from, and that the same deed succeeds without it."""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from dvk.sandbox import Death, SandboxSession, launcher, variables
from tests.sandbox.isolation_sessions import DENIED, KINDS, LIMITS, do, landlock, needs, start
from tests.sandbox.process_tree import ROOT

pytestmark = pytest.mark.usefixtures("children_find_the_tests")


@pytest.fixture(params=KINDS)
def session(request):
    with start(request.param) as session:
        session.kind = request.param
        yield session


@pytest.fixture
def free():
    """A child that is not isolated: what it cannot do proves nothing about isolation."""
    with start("none") as session:
        yield session


def test_caches_lie_in_the_home_wherever_the_user_keeps_them():
    """A drop-in given the user's folder could not write there."""
    environ = {
        "DVK_CACHE": "/cache",
        "TRITON_CACHE_DIR": "/cache/triton",
        "HF_TOKEN": "secret",
        "LANG": "C",
    }
    isolated = variables.isolated(environ, "/session")
    assert isolated.pop("LANG") == "C"
    assert all(value.startswith("/session") for value in isolated.values())


def test_an_ordinary_child_is_not_isolated(free):
    assert free.isolation == "none"
    assert do(free, "status", ["Seccomp", "NoNewPrivs"])["result"] == {
        "Seccomp": "0",
        "NoNewPrivs": "0",
    }


def test_the_level_is_known_before_the_target_runs():
    with SandboxSession("tests.sandbox.no_such_module:function", LIMITS, isolate="cpu") as session:
        assert session.isolation != ""
        death = session.receive(10)
    assert isinstance(death, Death) and death.reason == "exit 1" and "no_such_module" in death.log


def test_level_matches_what_the_kernel_says(session):
    level = session.isolation.split("+")
    status = do(
        session,
        "executed_status",
        ["Seccomp", "NoNewPrivs", "CapEff", "CapPrm", "CapInh", "CapAmb"],
    )["result"]
    assert status.pop("NoNewPrivs") == "1"
    assert ("seccomp" in level) == (status.pop("Seccomp") == "2")
    if "readsall" not in level:
        assert set(status.values()) == {"0" * 16}
    for layer, name in {
        "pid": "pid",
        "net": "net",
        "ipc": "ipc",
        "user": "user",
        "rofs": "mnt",
    }.items():
        apart = os.readlink(f"/proc/{session.pid}/ns/{name}") != os.readlink(
            f"/proc/self/ns/{name}"
        )
        assert (layer in level) == apart or layer == "rofs" and "proc" in level
    if session.kind == "cuda":
        assert not {"user", "ipc", "pid"} & set(level)


@pytest.mark.skipif(
    platform.machine() not in ("x86_64", "aarch64"), reason="no system calls known for this machine"
)
def test_level_is_what_this_machine_offers(session):
    """As other programs find it; so that no layer goes missing for a fault of ours and tests of it are skipped."""
    level = session.isolation.split("+")
    libc = ctypes.CDLL(None)
    offered = libc.syscall(444, None, ctypes.c_size_t(0), 1)
    assert landlock(session) == max(0, offered)
    if "Seccomp:" in Path("/proc/self/status").read_text():
        assert "seccomp" in level

    def unshare(*options):
        return subprocess.run(["unshare", *options, "true"], capture_output=True).returncode == 0

    if shutil.which("unshare") is None:
        pytest.skip("no unshare(1) to compare with")
    privileged = unshare("--net")
    for layer, option in {
        "net": "--net",
        "ipc": "--ipc",
        "pid": "--pid",
        "rofs": "--mount",
    }.items():
        if layer in ("ipc", "pid") and session.kind == "cuda":
            continue
        options = [option, "--fork"] if layer == "pid" else [option]
        if unshare(*options) or (
            session.kind == "cpu" and not privileged and unshare("--user", *options)
        ):
            assert layer in level, session.isolation


def test_one_hears_of_isolation_at_any_time():
    with start("cpu") as session:
        assert do(session, "pid")["result"] > 0
        assert session.isolation not in ("", "none")
    with SandboxSession("tests.sandbox.targets:forever", LIMITS, isolate="cpu") as session:
        os.kill(session.pid, signal.SIGKILL)
        assert session.isolation == "" or session.isolation.startswith(
            ("user", "pid", "net", "landlock", "rlimits")
        )
        assert session.receive(10) == Death("signal SIGKILL", "")


def test_no_network(session, free):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert do(free, "connect", port) == {"result": "connected"}
        assert "error" in do(session, "connect", port)
    families = [socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK, socket.AF_PACKET, socket.AF_ALG]
    needs(session, "seccomp")
    for family in families:
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW):
            assert do(session, "open_socket", family, kind) in DENIED
    assert do(session, "pair") == {"result": "x"}


def test_no_abstract_sockets(session, free):
    name = f"dvk-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("\0" + name)
        server.listen()
        assert do(free, "connect_abstract", name) == {"result": None}
        if session.kind == "cuda" and landlock(session) < 6:
            needs(session, "net")
        assert "error" in do(session, "connect_abstract", name)


def test_writes_at_home_only(session, free, tmp_path):
    paths = [
        f"/tmp/dvk-test-{os.getpid()}",
        f"/dev/shm/dvk-test-{os.getpid()}",
        f"/var/tmp/dvk-test-{os.getpid()}",
    ]
    paths += [str(tmp_path / "new"), str(ROOT / "dvk" / "new.py")]
    assert do(session, "at_home") == {"result": []}
    assert do(session, "write", "/dev/null") == {"result": None}
    if landlock(session) == 0:
        needs(session, "rofs")
    for path in paths:
        assert do(session, "write", path) in DENIED
        assert not os.path.exists(path)
    for path in paths[:4]:
        assert do(free, "write", path) == {"result": None}
        assert do(session, "write", path) in DENIED
        os.unlink(path)


def test_changes_no_file_elsewhere(session, free, tmp_path):
    file = tmp_path / "file"
    file.write_text("content")
    os.chmod(file, 0o640)
    if landlock(session) < 3:
        needs(session, "rofs")
    assert do(session, "truncate", str(file)) in DENIED
    needs(session, "rofs")
    assert do(session, "chmod", str(file)) in DENIED
    assert file.read_text() == "content" and file.stat().st_mode & 0o777 == 0o640
    assert do(free, "chmod", str(file)) == {"result": None}


def test_writes_no_settings_of_other_processes(session, free):
    """Root's own files below /proc are root's to write to, capabilities or not."""
    with start("none") as other:
        do(other, "pid")
        path = f"/proc/{other.pid}/coredump_filter"
        assert do(free, "overwrite", path, "0x33") == {"result": None}
        assert do(session, "overwrite", path, "0x33")["error"] in ("EACCES", "ENOENT", "EROFS")
        assert do(session, "write", "/proc/sys/kernel/core_pattern") in DENIED


def test_cuda_may_name_its_threads():
    """The driver does, and refuses to start where it may not."""
    with start("cuda") as session:
        needs(session, "landlock")
        assert do(session, "overwrite", f"/proc/self/task/{session.pid}/comm") == {"result": None}
        assert do(session, "overwrite", "/proc/self/oom_score_adj") in DENIED


def test_compiles_and_loads_at_home(session):
    assert do(session, "compile_and_load") == {"result": 42}


@pytest.mark.parametrize("kind", KINDS)
def test_executes_nothing_where_no_program_may_be(kind):
    with start(kind, programs=False) as session:
        needs(session, "seccomp")
        assert do(session, "compile_and_load") == {"error": "EPERM"}
        assert "result" in do(session, "read", "/etc/passwd")


def test_the_sandbox_reads_the_system_and_no_user_data(session, free):
    assert "result" in do(session, "read", "/etc/passwd")
    assert "result" in do(session, "read", os.__file__)
    assert "result" in do(session, "read", launcher.__file__)
    needs(session, "landlock")
    with start("cpu") as other:
        assert do(other, "write", "secret") == {"result": None}
        secret = f"{do(other, 'environ')['result']['TMPDIR']}/secret"
        assert do(session, "read", secret) in DENIED
        assert do(session, "listdir", os.path.dirname(secret)) in DENIED
        assert do(session, "listdir", tempfile.gettempdir()) in DENIED
        assert do(session, "listdir", os.path.expanduser("~")) in DENIED
        assert do(session, "listdir", "/dev/pts") in DENIED
        for file in (
            "/etc/shadow",
            "/etc/gshadow",
            "/etc/sudoers",
            "/etc/pam.d/login",
            "/etc/ssh/sshd_config",
            "/var/lib/dpkg/status",
        ):
            assert not os.path.exists(file) or do(session, "read", file) in DENIED, file
        for folder in (
            "/",
            "/etc",
            "/root",
            "/home",
            "/var",
            "/run",
            "/opt",
            "/srv",
            "/mnt",
            "/dev/shm",
            "/sys/kernel/debug",
        ):
            assert not os.path.isdir(folder) or do(session, "listdir", folder) in DENIED, folder
        if "proc" not in session.isolation.split("+"):  # else it sees no other
            assert do(session, "read", f"/proc/{os.getpid()}/environ") in DENIED
            assert do(session, "read", f"/proc/{os.getpid()}/mem") in DENIED
            assert do(session, "read", f"/proc/{os.getpid()}/fd/0") in DENIED
        assert do(free, "read", secret) == {"result": "x"}


def test_compilers_that_variables_name_are_readable_with_their_headers(tmp_path):
    from dvk.sandbox import landlock

    compiler = tmp_path / "gcc" / "bin" / "g++"
    compiler.parent.mkdir(parents=True)
    compiler.write_text("#!/bin/sh\n")
    compiler.chmod(0o755)
    shown = landlock.readable(
        "/",
        "/",
        {"PATH": "/usr/bin", "CXX": f"{compiler} -O1", "CC": "no_such_compiler", "CUDAHOSTCXX": ""},
    )
    assert str(tmp_path / "gcc") in shown
    assert not {
        path
        for path in landlock.readable("/", "/", {"PATH": "/usr/bin"})
        if path.startswith(str(tmp_path))
    }


def test_given_working_folder_is_read_only(tmp_path):
    (tmp_path / "source").write_text("int x;")
    with start("cpu", cwd=tmp_path) as session:
        assert do(session, "read", "source") == {"result": "int x;"}
        if landlock(session) == 0:
            needs(session, "rofs")
        assert do(session, "write", "source") in DENIED


def test_reaches_into_no_other_process(session, free):
    needs(session, "seccomp")
    with start("none") as other:
        address = do(other, "address")["result"]
        assert do(free, "read_memory", other.pid, address) == {"result": b"in sight".hex()}
        assert do(session, "read_memory", other.pid, address) in DENIED
        for pid in (other.pid, os.getpid(), session._warden):
            assert do(session, "ptrace", pid) in DENIED
            for name in ("mem", "environ", "maps", "fd/0", "cwd/x"):
                assert "error" in do(session, "read", f"/proc/{pid}/{name}"), name
        assert "result" in do(free, "read", f"/proc/{other.pid}/environ")


@pytest.mark.parametrize(
    "name",
    [
        "bpf",
        "perf_event_open",
        "userfaultfd",
        "io_uring_setup",
        "keyctl",
        "mount",
        "unshare",
        "shmget",
    ],
)
def test_system_calls_are_refused(session, name):
    needs(session, "seccomp")
    assert do(session, "syscall", name, 0, 0, 0, 0, 0, 0) in DENIED


def test_signals_reach_no_other_process(session, free):
    with start("none") as other:
        do(other, "pid")
        zygote = int(
            Path(f"/proc/{session._warden}/stat").read_text().rpartition(")")[2].split()[1]
        )
        victims = [os.getpid(), session._warden, zygote, other.pid]
        for victim in victims:
            assert do(free, "kill", victim, 0) == {"result": None}
            assert do(session, "kill", victim, 0)["error"] in ("EPERM", "ESRCH")
            assert do(session, "pidfd_kill", victim)["error"] in ("EPERM", "ESRCH", "EINVAL")
            assert do(session, "sigio", victim)["error"] in ("EPERM", "ESRCH")
        assert do(free, "sigio", other.pid) == {"result": "owner set"}
        for everyone in (-1, -os.getpgid(0)):
            do(session, "kill", everyone, int(signal.SIGUSR1))
        assert do(other, "pid")["result"] == other.pid  # SIGUSR1 would have ended it
    assert do(session, "pid")["result"] > 0


def test_signals_to_oneself_work(session):
    with start(session.kind) as victim:
        victim.send({"do": "abort"})
        assert victim.receive(10).reason == "signal SIGABRT"
    session.send({"do": "kill_oneself", "with": [int(signal.SIGKILL)]})
    assert session.receive(10) == Death("signal SIGKILL", "")


def test_tunes_no_other_process(session, free):
    with start("none") as other:
        do(other, "pid")
        for deed in ("affinity", "limits"):
            assert do(free, deed, other.pid)["result"] is not None or deed == "affinity"
            assert do(session, deed, other.pid)["error"] in ("EPERM", "ESRCH")
            assert "result" in do(session, deed, 0)
            assert "result" in do(session, deed, do(session, "pid")["result"])
        before = os.getpriority(os.PRIO_PROCESS, other.pid)
        do(session, "nice_all")
        assert os.getpriority(os.PRIO_PROCESS, other.pid) == before < 19


def test_the_judge_reads_the_child(session, free):
    address = do(session, "address")["result"]
    assert do(free, "read_memory", session.pid, address) == {"result": b"in sight".hex()}
    assert time.clock_gettime((~session.pid << 3) | 2) > 0
    needs(session, "seccomp")
    for option, value in ((4, 0), (0x59616D61, 0)):
        assert do(session, "prctl", option, value) in DENIED
    os.kill(session.pid, signal.SIGKILL)
    assert session.receive(10) == Death("signal SIGKILL", "")


@pytest.mark.slow
def test_environment_holds_no_secrets(monkeypatch):
    launcher.discard({}, launcher.launcher({}))
    names = ("HF_TOKEN", "OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "SSH_AUTH_SOCK", "PGPASSWORD")
    for name in names:
        monkeypatch.setenv(name, "xyzzy")
    monkeypatch.setenv("DVK_TEST_PLAIN", "plain")
    for kind in KINDS:
        with start(kind, late_env={"DVK_TEST_OWN": "own"}) as fresh:
            environ = do(fresh, "environ")["result"]
            assert "xyzzy" not in environ.values()
            assert environ["DVK_TEST_PLAIN"] == "plain" and environ["DVK_TEST_OWN"] == "own"
            home = environ["TMPDIR"]
            assert all(
                environ[name].startswith(home)
                for name in ("HOME", "TRITON_CACHE_DIR", "TORCH_EXTENSIONS_DIR")
            )
            assert "xyzzy" not in Path(f"/proc/{fresh.pid}/environ").read_text()
    with start("none") as trusted:
        assert do(trusted, "environ")["result"]["HF_TOKEN"] == "xyzzy"


def test_a_child_has_only_its_descriptors(session):
    assert do(session, "kinds_of_descriptors")["result"] == ["/dev/null", "pipe", "pipe", "socket"]

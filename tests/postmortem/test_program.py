"""`postmortem -- PROGRAM` with a program that behaves like CUDA: a pipe, a dump and an abort."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

import tma_dlpack as tma
from tma_dlpack.cli.main import main
from tma_dlpack.debug.postmortem.program import merged

#: Like the driver, makes the pipe; on a byte in the pipe, or at once, writes the dump and aborts.
DRIVER = """
import os, shutil, sys, time
names = [os.environ[f"CUDA_COREDUMP_{n}"].replace("%p", str(os.getpid())) for n in ("FILE", "PIPE")]
print("output of the program", flush=True)
if sys.argv[1] == "hang":
    os.mkfifo(names[1])
    open(names[1]).read(1)
if sys.argv[1] == "quiet":
    sys.exit(int(sys.argv[2]))
if sys.argv[1] == "sleep":
    time.sleep(60)
content = open(sys.argv[2], "rb").read()
with open(names[0], "wb") as file:  # in pieces, as the driver: it is whole at the end
    for start in range(0, len(content), 1 << 16):
        file.write(content[start : start + (1 << 16)])
        file.flush()
        if sys.argv[1] == "slow":
            time.sleep(0.5)
os.abort()
"""


@pytest.fixture
def program(tmp_path) -> list[str]:
    path = tmp_path / "driver.py"
    path.write_text(DRIVER)
    return [sys.executable, str(path)]


def run(*words: str, **more) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tma_dlpack", "postmortem", *words],
        capture_output=True,
        text=True,
        timeout=60,
        **more,
    )


def test_a_fault_is_explained_and_the_programs_output_is_untouched(program, dumps):
    done = run("--", *program, "fault", str(dumps / "fault_rank.core"))
    assert done.stdout == "output of the program\n"
    assert "MAP_RANK: UTMALDG.3D has 3 coordinates" in done.stderr
    assert done.returncode == 1


def test_a_program_that_hangs_is_dumped_after_the_time_and_the_dump_is_kept(
    program, dumps, tmp_path
):
    kept, report = tmp_path / "kept.core", tmp_path / "report.json"
    done = run(
        "--after", "0.5", "--keep", str(kept), "--json", "-o", str(report),
        "--", *program, "hang", str(dumps / "hang_bytes.core"),
    )  # fmt: skip
    assert done.returncode == 1
    assert "no end after 0.5 seconds: dumping 1 process" in done.stderr
    assert [b["rule"] for b in json.loads(report.read_text())["barriers"]] == ["HANG_BYTES"]
    assert kept.read_bytes() == (dumps / "hang_bytes.core").read_bytes()


def interrupted(words: list[str]) -> tuple[int, str]:
    """Run postmortem with a program, send Ctrl-C after the start; return status and output."""
    child = subprocess.Popen(
        [sys.executable, "-m", "tma_dlpack", "postmortem", "--", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # so that both processes get the signal, as from a terminal
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "output of the program\n"
    time.sleep(0.4)
    os.killpg(child.pid, signal.SIGINT)
    _, talk = child.communicate(timeout=60)
    return child.returncode, talk


def test_ctrl_c_dumps_a_program_that_hangs(program, dumps):
    status, talk = interrupted([*program, "hang", str(dumps / "hang_count.core")])
    assert "HANG_ARRIVALS: 1 of 2 arrivals came" in talk
    assert status == 1


def test_one_ctrl_c_does_not_give_up_a_dump_that_is_being_written(program, dumps):
    status, talk = interrupted([*program, "slow", str(dumps / "fault_rank.core")])
    assert "the dump is not whole yet; Ctrl-C again gives it up" in talk
    assert "MAP_RANK: UTMALDG.3D has 3 coordinates" in talk
    assert status == 1


def test_a_program_that_ends_well_is_nothing(program):
    done = run("--", *program, "quiet", "0")
    assert (done.returncode, done.stdout) == (0, "output of the program\n")
    assert done.stderr == "the program ended with status 0, and no GPU core dump was made\n"


def test_a_program_that_fails_without_a_dump_is_not_read(program):
    done = run("--", *program, "quiet", "3")
    assert done.returncode == 2
    assert "the program ended with status 3, and no GPU core dump was made" in done.stderr


def test_a_program_without_a_gpu_is_ended_and_said(program):
    done = run("--after", "0.5", "--", *program, "sleep")
    assert done.returncode == 2
    assert "no process has a CUDA context, so there is nothing to dump" in done.stderr


def test_a_dump_that_is_cut_off_is_said(program, tmp_path, dumps):
    cut = tmp_path / "cut"
    cut.write_bytes((dumps / "fault_rank.core").read_bytes()[:100_000])
    done = run("--", *program, "fault", str(cut))
    assert done.returncode == 2
    assert "is cut off or damaged" in done.stderr
    assert "The driver holds errors and exit() back until the dump is whole, but" in done.stderr


def test_dumps_of_several_processes_are_one_report_with_each_kind_once(dumps):
    cases = ["hang_bytes", "hang_bytes", "hang_count", "fault_rank", "fault_rank"]
    found = [tma.postmortem(dumps / f"{case}.core") for case in cases]
    one = merged(found)
    assert [(b.rule, b.blocks, b.waiting) for b in one.barriers if b.rule] == [
        ("HANG_BYTES", 6, 12),
        ("HANG_ARRIVALS", 1, 2),
    ]
    assert [(fault.rule, fault.alike) for fault in one.faults] == [("MAP_RANK", 2)]
    assert one.path.count(".core") == len(one.kernels) == 5
    assert (merged([]), merged(found[:1])) == (None, found[0])


def test_there_is_no_such_program():
    done = run("--", "no-such-program")
    assert done.returncode == 2
    assert "no-such-program: No such file or directory" in done.stderr


def test_another_developer_tool_excludes_dumps(program):
    environment = {**os.environ, "CUDA_INJECTION64_PATH": "/opt/tool.so"}
    done = run("--", *program, "quiet", "0", env=environment)
    assert done.returncode in (1, 2)
    assert "the driver makes no dump while another developer tool runs (trace," in done.stderr


# -- the command on files -------------------------------------------------------------------------


def test_a_dump_is_explained_as_text_json_and_a_page(dumps, tmp_path, capsys):
    path = str(dumps / "hang_ring_bytes.core")
    assert main(["postmortem", path]) == 1
    assert "HANG_BYTES: 24,576 bytes are expected" in capsys.readouterr().out
    page = tmp_path / "page.html"
    assert main(["postmortem", path, "--json", "--html", str(page)]) == 1
    assert len(json.loads(capsys.readouterr().out)["barriers"]) == 4
    assert "barriers of a block of hang_ring_bytes" in page.read_text()


def test_nothing_wrong_is_0_and_no_dump_is_2(dumps, tmp_path, capsys):
    assert main(["postmortem", str(dumps / "neither_syncthreads.core")]) == 0
    (tmp_path / "log").write_text("not a dump")
    assert main(["postmortem", str(tmp_path / "log")]) == 2
    assert "is not an ELF file" in capsys.readouterr().err
    assert main(["postmortem", str(tmp_path / "absent")]) == 2


@pytest.mark.parametrize("words", [[], ["a", "--pid", "3"]])
def test_one_thing_is_explained_at_a_time(words, capsys):
    assert main(["postmortem", *words]) == 2
    assert "postmortem needs one of: a dump, --pid PID, or -- PROGRAM" in capsys.readouterr().err


# -- cuda-gdb -------------------------------------------------------------------------------------


def gdb(folder: Path, body: str) -> None:
    path = folder / "cuda-gdb"
    path.write_text(f"#!{sys.executable}\nimport sys, shutil\n{textwrap.dedent(body)}")
    path.chmod(0o755)


def test_a_live_process_is_dumped_by_cuda_gdb(dumps, tmp_path, monkeypatch, capsys):
    source = str(dumps / "hang_count.core")
    gdb(
        tmp_path,
        f"""
        assert sys.argv[1:5] == ["-q", "-batch", "-p", "77"], sys.argv
        assert "skip_constbank_memory,skip_global_memory" in sys.argv[6], sys.argv
        shutil.copy({source!r}, sys.argv[6].split("--cuda-core-file ")[1])
        """,
    )
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert main(["postmortem", "--pid", "77"]) == 1
    assert capsys.readouterr().out.startswith("core.77 (sm_90): a hang: 2 warps")


@pytest.mark.parametrize(
    ("says", "said"),
    [
        (
            "ptrace: Operation not permitted.",
            "may not attach to process 77 (ptrace): run as its user",
        ),
        ("ptrace: No such process.", "there is no process 77"),
        ("The program is not being run.", "made no dump of process 77; it said: The program is"),
    ],
)
def test_why_cuda_gdb_made_no_dump_is_said(says, said, tmp_path, monkeypatch, capsys):
    gdb(tmp_path, f"print({says!r})")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert main(["postmortem", "--pid", "77"]) == 2
    assert said in capsys.readouterr().err


def test_without_cuda_gdb_the_other_way_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("shutil.which", lambda name, path=None: None)
    assert main(["postmortem", "--pid", "77"]) == 2
    assert "--pid needs cuda-gdb" in capsys.readouterr().err

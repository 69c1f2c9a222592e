"""The command line's messages for a mistake: their text, their stream, and their cost."""

from __future__ import annotations

import errno
import json
import os
import pty
import re
import subprocess
import sys

import pytest

import tma_dlpack as tma
from tma_dlpack.cli import main as program
from tma_dlpack.cli import output
from tma_dlpack.cli.main import main
from tma_dlpack.cli.table import commands

TENSOR = ["--shape=128,64", "--dtype=float16"]
SEE = "; see python -m tma_dlpack"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["chek"], "there is no command chek; did you mean check?"),
        (["--verison"], f"there is no option --verison{SEE} --help"),
        (["check", "--shape=8,8"], f"--dtype is missing{SEE} check --help"),
        (["check"], f"--shape and --dtype are missing{SEE} check --help"),
        (["suggest"], f"--shape, --dtype and --tile are missing{SEE} suggest --help"),
        (["check", *TENSOR, "--swiz=3"], "check has no option --swiz; did you mean --swizzle?"),
        (["check", *TENSOR, "--boxes", "8"], "check has no option --boxes; did you mean --box?"),
        (["postmortem", "--pid=x"], f"--pid: 'x' is not an integer{SEE} postmortem --help"),
        (["postmortem", "--after=x"], f"--after: 'x' is not a number{SEE} postmortem --help"),
        (["doctor", "x"], f"doctor has no argument x{SEE} doctor --help"),
        (["check", *TENSOR, "--box"], f"--box: expected one argument{SEE} check --help"),
        (
            ["suggest", *TENSOR, "--tile=8,8", "--reader=wgma"],
            "--reader: 'wgma' is not one of wgmma, tcgen05, ldmatrix, threads, none; did you mean "
            "wgmma?",
        ),
        (
            ["draw", *TENSOR, "--box=8,8", "--figure=shard"],
            "there is no figure shard; did you mean shared?",
        ),
        (["rules", "box_rang"], "there is no rule box_rang; did you mean BOX_RANGE?"),
        (["explain", "no/such.log"], "no/such.log: no such file or directory"),
        (
            ["check", *TENSOR],
            "pass either --box, such as --box 16,64, or for an im2col map all four of --lower, "
            f"--upper, --channels and --pixels{SEE} check --help",
        ),
        (
            ["check", *TENSOR, "--box=8,8", "--json", "--html=-"],
            "--json and --html - both write to standard output; name a file for one"
            f"{SEE} check --help",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_is_one_sentence_on_standard_error(words, said, capsys):
    assert main(words) == 2
    printed = capsys.readouterr()
    if "--json" in words:
        assert json.loads(printed.out) == {"ok": False, "error": said, "violations": []}
    else:
        assert (printed.out, printed.err) == ("", f"error: {said}\n")


@pytest.mark.parametrize(("word", "near"), [("float17", "float16"), ("bfloat15", "bfloat16")])
def test_a_dtype_that_is_none_asks_for_the_nearest(word, near, capsys):
    assert main(["check", "--shape=8,8", f"--dtype={word}", "--box=8,8"]) == 2
    assert (
        capsys.readouterr().err.count(f"\n  fix: did you mean {near}? Otherwise pass one of these")
        == 1
    )


def test_an_error_is_json_where_json_was_asked(capsys):
    assert main(["check", "--json", "--shape=8,8", "--dtype=float17", "--box=8,8"]) == 2
    found = json.loads(capsys.readouterr().out)
    assert (found["ok"], found["violations"][0]["rule"]) == (False, "ARGUMENT")
    assert found["error"].startswith("dtype is 'float17'; it must be one of")


@pytest.mark.parametrize("word", ["sm_80", "sm_89", "sm_75"])
def test_a_gpu_without_tma_is_told_what_tma_needs(word, capsys):
    assert main(["check", *TENSOR, "--box=8,64", f"--target={word}"]) == 2
    assert "; TMA needs Hopper (sm_90) or later" in " ".join(capsys.readouterr().out.split())


def test_no_error_shows_a_class_or_a_number_of_the_system(tmp_path, capsys):
    for words in (
        ["explain", str(tmp_path)],
        ["decode", "00"],
        ["draw", *TENSOR, "--box=8,64", f"--out={tmp_path}/no/map.svg"],
        ["verify", "--read", str(tmp_path / "none")],
    ):
        assert main(words) == 2
        said = capsys.readouterr().err
        assert said.startswith("error: ")
        assert re.search(r"[A-Z]\w+Error|[Ee]rrno", said) is None


def test_rules_are_found_in_any_case(capsys):
    assert main(["rules", "box_range", "Stride_Aligned"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("BOX_RANGE (")
    assert "\n\nSTRIDE_ALIGNED (" in printed


@pytest.mark.parametrize("words", [["error", "715"], ["error 715"], ["CUDA error 700"]])
def test_a_symptom_in_words_is_explained(words, capsys):
    assert main(["explain", *words]) == 0
    assert "cause 1:" in capsys.readouterr().out


def test_words_without_a_symptom_are_not_read(capsys):
    assert main(["explain", "nothing", "of", "the", "kind"]) == 2


def test_the_call_that_would_be_accepted_is_accepted(capsys):
    assert main(["check", *TENSOR, "--box=8"]) == 1
    command = capsys.readouterr().out.splitlines()[-1].split()
    assert command[:4] == ["python", "-m", "tma_dlpack", "check"]
    assert main(command[3:]) == 0


# -- files and streams ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "start"),
    [
        (["draw", *TENSOR, "--box=8,64", "--out", "-"], "<svg"),
        (["draw", *TENSOR, "--box=8,64", "-o", "-"], "<svg"),
        (["check", *TENSOR, "--box=8,64", "--html", "-"], "<!doctype html>"),
        (["explain", "error 715", "--html=-"], "<!doctype html>"),
        (["explore", "-o", "-"], "<!doctype html>"),
    ],
)
def test_a_minus_is_standard_output(words, start, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 0
    assert capsys.readouterr().out.lower().startswith(start)
    assert list(tmp_path.iterdir()) == []


COMMAND = f"{sys.executable} -m tma_dlpack"


@pytest.mark.parametrize("closed", [">&-", "<&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_change_no_status(closed):
    accepted = f"{COMMAND} check --shape=128,64 --dtype=float16 --box=8,64 {closed}"
    done = subprocess.run(["bash", "-c", accepted], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_closed_standard_input_is_an_empty_one():
    done = subprocess.run(["bash", "-c", f"{COMMAND} decode - <&-"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "error: the map is 0 bytes" in done.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_a_full_disk_is_an_error_in_words():
    done = subprocess.run(
        ["bash", "-c", f"{COMMAND} doctor > /dev/full"], capture_output=True, text=True
    )
    said = os.strerror(errno.ENOSPC)
    assert (done.returncode, done.stderr) == (2, f"error: {said[0].lower()}{said[1:]}\n")


def on_terminal(words, **environment):
    """Return the output of a command on a terminal."""
    ours, theirs = pty.openpty()
    known = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    child = subprocess.Popen(
        [sys.executable, "-m", "tma_dlpack", *words],
        stdout=theirs,
        stderr=theirs,
        env={**known, "TERM": "xterm", **environment},
    )
    os.close(theirs)
    found = b""
    try:
        while chunk := os.read(ours, 65536):
            found += chunk
    except OSError:  # the reader of the pipe has closed it
        pass
    child.wait()
    os.close(ours)
    return found.decode()


def test_a_terminal_has_colours_unless_it_asks_for_none():
    words = ["check", *TENSOR, "--box=8"]
    assert "\x1b[31;1mrefused\x1b[0m: 1 violation" in on_terminal(words)
    assert "\x1b[31;1merror:\x1b[0m there is no command chek" in on_terminal(["chek"])
    for plain in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert "\x1b" not in on_terminal(words, **plain)
    done = subprocess.run(
        [sys.executable, "-m", "tma_dlpack", *words], capture_output=True, text=True
    )
    assert "\x1b" not in done.stdout


def test_colours_change_no_letter(capsys):
    main(["check", *TENSOR, "--box=8"])
    text = capsys.readouterr().out
    assert output.coloured(text) != text
    assert re.sub(r"\x1b\[[\d;]+m", "", output.coloured(text)) == text


@pytest.mark.parametrize(
    ("called", "name"),
    [
        ("/usr/bin/tma-dlpack", "tma-dlpack"),
        ("/site/tma_dlpack/__main__.py", "python -m tma_dlpack"),
    ],
)
def test_the_program_calls_itself_as_it_was_called(called, name, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [called])
    assert program.program() == name
    main(["check"])
    assert f"; see {name} check --help" in capsys.readouterr().err
    main(["check", "--help"])
    assert f"usage: {name} check [OPTIONS] --shape SHAPE --dtype DTYPE" in capsys.readouterr().out


def test_what_version_and_help_import():
    code = (
        "import sys, tma_dlpack; before = set(sys.modules)\n"
        "from tma_dlpack.cli.main import main\n"
        "main(['--help'])\n"
        "print(len({n for n in set(sys.modules) - before if n.startswith('tma_dlpack')}))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (
        int(done.stdout.splitlines()[-1]) <= 13
    )  # the modules of the command line, and of two other folders with commands


def test_every_command_runs_for_help(capsys):
    for name in commands():
        assert main(["help", name]) == 0
        assert f"usage: python -m tma_dlpack {name}" in capsys.readouterr().out


def test_the_version_has_a_short_flag(capsys):
    assert main(["-V"]) == 0
    assert capsys.readouterr().out == f"tma_dlpack {tma.__version__}\n"

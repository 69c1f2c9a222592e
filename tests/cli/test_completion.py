"""The completion scripts in bash, and in zsh and fish if they are installed."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tma_dlpack.cli.machine import script
from tma_dlpack.cli.table import commands


def completed(*words: str) -> list[str]:
    """Return the words that bash proposes for the last word."""
    listed = " ".join(f"'{word}'" for word in ("tma-dlpack", *words))
    lines = [
        script("bash"),
        f"COMP_WORDS=({listed}) COMP_CWORD={len(words)}",
        '_tma_dlpack; printf "%s\\n" "${COMPREPLY[@]}"',
    ]
    done = subprocess.run(
        ["bash", "--norc", "-c", "\n".join(lines)], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_bash_completes_commands_flags_and_values():
    assert completed("ex") == ["explore", "explain"]
    assert completed("ver") == ["verify"]
    assert completed("check", "--sw") == ["--swizzle"]
    assert completed("check", "--swizzle", "bytes3") == ["bytes32"]
    assert completed("check", "--target", "sm_9") == ["sm_90"]
    assert completed("rules", "BOX_RANK") == ["BOX_RANK"]
    assert completed("draw", "--figure", "ban") == ["banks"]
    assert completed("explain", "build") == []  # then files
    assert set(completed("")) == {*commands(), "--help", "--version"}


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_another_shell_takes_its_script(shell, tmp_path):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    file = tmp_path / "completion"
    file.write_text(script(shell))
    done = subprocess.run([shell, "-n", str(file)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_fish_completes_values(tmp_path):
    if shutil.which("fish") is None:
        pytest.skip("fish is not installed")
    code = script("fish") + "complete -C 'tma-dlpack check --swizzle bytes3'\n"
    code += "complete -C 'tma-dlpack expl'\n"
    done = subprocess.run(["fish", "-c", code], capture_output=True, text=True, check=True)
    assert [line.split("\t")[0] for line in done.stdout.splitlines()] == [
        "bytes32", "explain", "explore",
    ]  # fmt: skip


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_has_every_command_and_every_flag(shell):
    text = script(shell)
    for name, row in commands().items():
        assert name in text
        for option in row.options():
            for flag in option.names:
                if flag[:2] == "--":
                    assert (f"-l {flag[2:]}" if shell == "fish" else flag) in text

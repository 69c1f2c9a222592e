"""Unusual input files: pipes, archives, archive bombs, dumps of tools, hidden characters."""

from __future__ import annotations

import gzip
import html
import io
import json
import lzma
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import tma_dlpack as tma
from tma_dlpack.cli.main import main
from tma_dlpack.debug import Trace, foreign
from tma_dlpack.tables.coerce import printable

MAP = bytes(
    tma.make_tma_descriptor(np.zeros((256, 512), np.float16), (128, 64), swizzle="bytes128")
)
EXAMPLES = Path(__file__).parents[1] / "cli/examples"
LOG = (EXAMPLES / "build.log").read_bytes()
PACKED = {"plain": bytes, "gzip": gzip.compress, "xz": lzma.compress}


def piped(content: bytes, folder: Path) -> str:
    """Return the path of a pipe into which a thread writes."""
    path = folder / "pipe"
    os.mkfifo(path)
    threading.Thread(target=path.write_bytes, args=(content,), daemon=True).start()
    return str(path)


# -- reading --------------------------------------------------------------------------------------


@pytest.mark.parametrize("pack", PACKED)
@pytest.mark.parametrize("source", ["file", "pipe", "stdin"])
def test_a_reader_sees_the_bytes_whatever_they_come_in(pack, source, tmp_path, monkeypatch):
    packed = PACKED[pack](LOG)
    path = tmp_path / "a.log"
    path.write_bytes(packed)
    word = {"file": str(path), "stdin": "-"}.get(source) or piped(packed, tmp_path)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(packed)))
    assert foreign.content(word, len(LOG), "FILE_LOG") == LOG


@pytest.mark.parametrize("pack", PACKED)
def test_a_file_of_the_limit_is_read_and_one_byte_more_is_refused(pack, tmp_path):
    path = tmp_path / "a"
    path.write_bytes(PACKED[pack](bytes(1000)))
    assert foreign.content(str(path), 1000, "FILE_LOG") == bytes(1000)
    with pytest.raises(tma.TmaPreconditionError, match="has more than 999 bytes") as error:
        foreign.content(str(path), 999, "FILE_LOG")
    assert error.value.violations[0].rule == "FILE_LOG"
    assert foreign.content(str(path), 999, "FILE_LOG", cut=True) == bytes(999)


@pytest.mark.parametrize("pack", ["gzip", "xz"])
def test_a_bomb_costs_no_more_than_its_limit(pack, tmp_path, monkeypatch):
    path = tmp_path / "bomb"
    path.write_bytes(PACKED[pack](bytes(64 << 20)))
    seen = []
    pieces = foreign._pieces
    monkeypatch.setattr(
        foreign, "_pieces", lambda *a: (seen.append(len(p)) or p for p in pieces(*a))
    )
    with pytest.raises(tma.TmaPreconditionError, match="more than 1 MiB"):
        foreign.content(str(path), 1 << 20, "FILE_LOG")
    assert sum(seen) <= 3 << 20


@pytest.mark.parametrize("pack", ["gzip", "xz"])
def test_an_archive_that_is_cut_off_or_damaged_is_refused(pack, tmp_path):
    packed = PACKED[pack](LOG)
    path = tmp_path / "a"
    for content in (packed[:-9], packed[:20] + b"\xff" * 30):
        path.write_bytes(content)
        with pytest.raises(tma.TmaPreconditionError, match="damaged or cut off"):
            foreign.content(str(path), 1 << 20, "FILE_LOG")


def test_archives_one_after_the_other_are_one_text(tmp_path):
    path = tmp_path / "a"
    for pack in (gzip.compress, lzma.compress):
        path.write_bytes(pack(b"one ") + pack(b"two"))
        assert foreign.content(str(path), 100, "FILE_LOG") == b"one two"


def test_a_regular_file_stays_where_it_is_and_has_no_limit(tmp_path):
    path = tmp_path / "a.core"
    path.write_bytes(bytes(1000))
    with foreign.plain_file(str(path), 10, "FILE_CORE_DUMP") as plain:
        assert plain == path
    path.write_bytes(gzip.compress(bytes(1000)))
    with foreign.plain_file(str(path), 1000, "FILE_CORE_DUMP") as plain:
        assert plain.read_bytes() == bytes(1000)
    assert not plain.exists()
    with (
        pytest.raises(tma.TmaPreconditionError, match="has more than 999 bytes"),
        foreign.plain_file(str(path), 999, "FILE_CORE_DUMP"),
    ):
        raise AssertionError


# -- the commands ---------------------------------------------------------------------------------

STATUS = {"explain": 1, "lint": 1, "postmortem": 1}
FILES = {"explain": "build.log", "lint": "kernel.ptx", "postmortem": "dead.core"}


@pytest.mark.parametrize("pack", PACKED)
@pytest.mark.parametrize("source", ["file", "pipe", "stdin"])
@pytest.mark.parametrize("command", FILES)
def test_a_command_reads_files_pipes_and_archives(
    command, source, pack, tmp_path, monkeypatch, capsys
):
    content = PACKED[pack]((EXAMPLES / FILES[command]).read_bytes())
    path = tmp_path / "a"
    path.write_bytes(content)
    word = {"file": str(path), "stdin": "-"}.get(source) or piped(content, tmp_path)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    assert main([command, word]) == STATUS[command]
    shown = capsys.readouterr().out
    assert main([command, str(EXAMPLES / FILES[command])]) == STATUS[command]
    plain = capsys.readouterr().out
    assert shown.splitlines()[-4:] == plain.splitlines()[-4:]


@pytest.mark.parametrize("command", [*FILES, "decode"])
def test_a_command_refuses_a_bomb_in_a_sentence(command, tmp_path, monkeypatch, capsys):
    path = tmp_path / "bomb.xz"
    path.write_bytes(lzma.compress(bytes(2 << 20)))
    for name in ("MAX_LOG_BYTES", "MAX_PIPED_DUMP_BYTES", "MAX_PTX_BYTES"):
        monkeypatch.setattr(f"tma_dlpack.tables.refusals.{name}", 1 << 20)
    assert main([command, str(path)]) == 2
    error = capsys.readouterr().err
    said = "the map is at least 65536 bytes" if command == "decode" else "has more than 1 MiB"
    assert said in error


def test_several_logs_are_several_explanations(tmp_path, capsys):
    nothing, symptom = tmp_path / "nothing.log", tmp_path / "symptom.log"
    nothing.write_text("all is well")
    symptom.write_text("CUDA error: misaligned address")
    log = str(EXAMPLES / "build.log")
    assert main(["explain", str(symptom), log]) == 1
    shown = capsys.readouterr().out
    assert shown.startswith(f"{symptom}: 716 (misaligned address): ")
    assert f"\n\n{log}: 1 encode read" in shown
    assert main(["explain", str(symptom), str(nothing)]) == 2
    assert main(["explain", str(symptom), str(symptom)]) == 0
    assert main(["explain", log, "no/such.log"]) == 2
    capsys.readouterr()
    assert main(["explain", "--json", str(symptom), log]) == 1
    assert capsys.readouterr().out.count('"symptoms"') == 2


def test_of_several_dumps_one_that_is_none_leaves_the_others(tmp_path, capsys):
    log, dump = tmp_path / "a.log", str(EXAMPLES / "dead.core")
    log.write_text("no dump")
    assert main(["postmortem", str(log), dump, dump]) == 1
    shown = capsys.readouterr()
    assert "is not an ELF file" in shown.err
    assert shown.out.count("dead.core (sm_90): ") == 2
    assert main(["postmortem", str(log), str(log)]) == 2


# -- dumps of every tool --------------------------------------------------------------------------

TOOLS = (
    "xxd", "xxd -a", "xxd -p", "xxd -g1", "xxd -c 32", "xxd -i", "hexdump", "hexdump -v",
    "hexdump -C", "hexdump -Cv", "hexdump -x", "od -tx1", "od -tx1z", "od -A x -tx1",
    "od -A d -tx1", "od -An -v -tx1", "od -x", "od -tx4", "od -v -tx8",
)  # fmt: skip


@pytest.mark.parametrize("command", TOOLS)
def test_what_a_tool_prints_is_decoded_also_amid_a_log(command, tmp_path, capsys):
    words = command.split()
    if shutil.which(words[0]) is None:
        pytest.skip(f"{words[0]} is not installed")
    path = tmp_path / "map.bin"
    path.write_bytes(MAP)
    printed = subprocess.run([*words, path], capture_output=True, text=True, check=True).stdout
    assert foreign.parse_dump(printed) == MAP
    assert [data for _, data in foreign.find_dumps(f"a log\n{printed}\nmore of it")] == [MAP]


def lines(step: str, data: bytes = MAP) -> str:
    """Return lines of bytes as od or hexdump print them, with repeated lines folded."""
    shown, last = [], b""
    for at in range(0, len(data), 16):
        row = data[at : at + 16]
        shown.append("*" if row == last else f"{at:07{step}} {row.hex(' ')}")
        last = row
    kept = [line for n, line in enumerate(shown) if line != "*" or shown[n - 1] != "*"]
    return "\n".join([*kept, f"{len(data):07{step}}"]) + "\n"


@pytest.mark.parametrize("step", ["x", "o", "d"])
def test_folded_lines_are_unfolded_by_the_offsets_in_any_base(step):
    text = lines(step)
    assert "*\n" in text
    assert foreign.parse_dump(text) == MAP
    assert foreign.parse_dump(text.rsplit("\n", 2)[0]) != MAP  # without the last offset


def test_lines_folded_without_offsets_ask_for_v(tmp_path, capsys):
    path = tmp_path / "dump"
    path.write_text("00 00 12 7f\n*\n")
    assert main(["decode", str(path)]) == 2
    assert "print them all, with hexdump -v or od -v" in capsys.readouterr().err


def test_an_offset_that_does_not_fit_is_no_dump():
    assert foreign.parse_dump(lines("x").replace("0000010", "0000012")) != MAP


# -- printing -------------------------------------------------------------------------------------

HIDDEN = "\x1b[31m\u202e\0\x7f\x9b\u2066\u200b\ud800"


def test_a_hidden_character_is_escaped_and_others_stay():
    assert printable(HIDDEN) == ("\\x1b[31m\\u202e\\x00\\x7f\\x9b\\u2066\\u200b\\ud800")
    text = "kernel<ä, 漢>: 1 × 2\n  fix: “x”"
    assert printable(text) == text


def test_a_reader_that_meets_the_unforeseen_refuses_its_file():
    @foreign.refusing("FILE_LOG")
    def read(error: Exception) -> None:
        raise error

    with pytest.raises(tma.TmaPreconditionError, match="ZeroDivisionError: a") as found:
        read(ZeroDivisionError("a"))
    assert found.value.violations[0].rule == "FILE_LOG"
    for own in (FileNotFoundError("x"), tma.TmaUnsupportedError("x")):
        with pytest.raises(type(own)):
            read(own)


def test_the_names_of_a_foreign_trace_and_of_foreign_ptx_are_escaped():
    raw = json.loads((EXAMPLES.parents[2] / "notebooks/09_trace.json").read_text())
    raw["maps"][0]["kernels"][0]["kernel"] = "k\x1b[2J\u202e"
    trace = Trace.from_json(json.dumps(raw))
    ptx = (EXAMPLES / "kernel.ptx").read_text()
    assert ".loc" not in ptx
    named = ptx.replace("st.shared", ".loc 1 3 0\n  st.shared", 1)
    report = tma.lint(f'{named}\n.file 1 "/tmp/a\x1b[2J\u202e.cu"\n')
    for shown in (str(trace), trace._repr_html_(), str(report), report._repr_html_()):
        assert not {*shown} & {"\x1b", "\u202e"}
    assert "k\\x1b[2J\\u202e" in str(trace)
    assert "a\\x1b[2J\\u202e.cu" in str(report)


def test_a_name_of_a_file_is_escaped_in_an_error(capsys):
    assert main(["explain", "/no/a\x1b[2J\u202e.log"]) == 2
    assert capsys.readouterr().err == (
        "error: /no/a\\x1b[2J\\u202e.log: no such file or directory\n"
    )


@pytest.mark.parametrize("command", ["explain", "lint"])
def test_a_page_of_several_files_shows_each_result_below_the_name_of_its_file(command, tmp_path):
    suffix = Path(FILES[command]).suffix
    content = (EXAMPLES / FILES[command]).read_bytes()
    paths = [tmp_path / f"{name}{suffix}" for name in ("a<b", "c")]
    for path in paths:
        path.write_bytes(content)
    page = tmp_path / "page.html"
    assert main([command, *map(str, paths), "--html", str(page)]) == STATUS[command]
    shown = page.read_text("utf-8")
    places = [shown.index(f"<b>{html.escape(str(path))}</b>") for path in paths]
    assert places == sorted(places)
    assert main([command, str(paths[1]), "--html", str(page)]) == STATUS[command]
    assert f"<b>{paths[1]}</b>" not in page.read_text("utf-8")

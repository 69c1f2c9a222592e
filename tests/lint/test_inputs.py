"""The inputs that `lint` accepts and refuses, its output, and the command's exit statuses."""

from __future__ import annotations

import json
import os
import random
import re
import stat
import sys
import time
import zipfile
from pathlib import Path

import pytest

import tma_dlpack as tma
from tma_dlpack.cli.main import main
from tma_dlpack.debug.lint.rules import RULES

HERE = Path(__file__).parent
PTX = HERE / "kernels.ptx"
HEAD = ".version 9.0\n.target sm_90a\n.address_size 64\n.shared .align 128 .b8 tile[4096];\n"
ENTRY = ".visible .entry k(.param .u64 p) {\n"
WRONG = (
    "ld.param.u64 %rd1, [p];\nmov.u32 %r1, tile;\nst.shared.u32 [%r1], 0;\n"
    "cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], 4096;\n"
    "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group.read 0;\nret;\n"
)
CLOSE = "}\n"
FIX = "\n  fix: make it with nvcc -ptx -lineinfo, or pass the .cu itself"


# -- inputs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty; it must be PTX, which has a .version and a .target"),
        (b"\n \n", "is empty; it must be PTX, which has a .version and a .target"),
        (b"int main() {}\n", "is other text; it must be PTX, which has a .version and a .target"),
        (bytes(range(256)), "is binary, and no ELF or fat binary; it must be PTX, which has a"),
        (b".version 9.0\n.targ", "ends before its .target; it must be PTX, which has a .version"),
    ],
    ids=["empty", "blank", "C", "binary", "cut"],
)
def test_what_is_no_ptx_is_refused_in_a_sentence(content, words, tmp_path):
    path = tmp_path / "file.ptx"
    path.write_bytes(content)
    with pytest.raises(tma.TmaPreconditionError) as refused:
        tma.lint(path)
    assert str(refused.value).startswith(f"{path} {words}")
    assert FIX in str(refused.value)


def test_a_file_of_100_mb_is_refused_unread(tmp_path):
    path = tmp_path / "big.ptx"
    with path.open("wb") as file:
        file.truncate(100 << 20)
    begun = time.perf_counter()
    with pytest.raises(
        tma.TmaPreconditionError, match=r"has 100 MiB; it must be PTX, .* most 96 MiB"
    ):
        tma.lint(path)
    assert time.perf_counter() - begun < 1


def test_a_string_with_a_line_is_text_and_without_one_a_path():
    assert tma.lint(HEAD + ENTRY + WRONG + "}\n").findings[0].rule == "PROXY_FENCE"
    assert tma.lint(str(PTX)).findings == tma.lint(PTX).findings
    with pytest.raises(FileNotFoundError):
        tma.lint("nothing.ptx")


def tool(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, script: str) -> None:
    """Put a program of this name first on the path."""
    path = folder / name
    path.write_text(f"#!{sys.executable}\nimport sys\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def test_a_cu_goes_through_nvcc_with_the_flags(tmp_path, monkeypatch):
    script = (
        "out = sys.argv[sys.argv.index('-o') + 1]\n"
        f"open(out, 'w').write({HEAD + ENTRY + WRONG + CLOSE!r})\n"
        f"open({str(tmp_path / 'words')!r}, 'w').write(' '.join(sys.argv[1:]))"
    )
    tool(tmp_path, monkeypatch, "nvcc", script)
    source = tmp_path / "kernel.cu"
    source.write_text("")
    assert [f.rule for f in tma.lint(source).findings] == ["PROXY_FENCE"]
    ours = f"-I{tma.get_include()} -o "
    words = (tmp_path / "words").read_text
    assert words().startswith(f"-ptx -lineinfo -arch=sm_90a {ours}")
    assert main(["lint", str(source), "--", "-arch=sm_100a", "-Ihere"]) == 1
    assert words().startswith(f"-ptx -lineinfo -arch=sm_100a -Ihere {ours}")


def test_what_nvcc_says_is_shown(tmp_path, monkeypatch):
    tool(tmp_path, monkeypatch, "nvcc", "print('kernel.cu(1): error: no'); sys.exit(1)")
    source = tmp_path / "kernel.cu"
    source.write_text("")
    with pytest.raises(tma.TmaUnsupportedError, match=r"nvcc failed: kernel.cu\(1\): error: no"):
        tma.lint(source)


@pytest.mark.parametrize("has_ptx", [True, False])
def test_a_binary_goes_through_cuobjdump(has_ptx, tmp_path, monkeypatch):
    text = f"\nFatbin ptx code:\n====\narch = sm_90a\n\n{HEAD + ENTRY + WRONG}}}\n" * has_ptx
    tool(tmp_path, monkeypatch, "cuobjdump", f"print({text!r})")
    binary = tmp_path / "library.so"
    binary.write_bytes(b"\x7fELF" + bytes(100))
    if has_ptx:
        assert [f.rule for f in tma.lint(binary).findings] == ["PROXY_FENCE"]
    else:
        with pytest.raises(tma.TmaPreconditionError, match="holds machine code and no PTX"):
            tma.lint(binary)


def test_a_library_of_machine_code_names_its_architectures(tmp_path, monkeypatch):
    script = "print('ELF file 1: a.sm_90a.cubin' * ('--list-elf' in sys.argv))"
    tool(tmp_path, monkeypatch, "cuobjdump", script)
    binary = tmp_path / "library.so"
    with binary.open("wb") as file:
        file.write(b"\x7fELF")
        file.truncate(100 << 20)  # the limit is that of the PTX inside
    with pytest.raises(tma.TmaPreconditionError, match="holds machine code for sm_90a and no PTX"):
        tma.lint(binary)


@pytest.mark.parametrize("suffix", [".cuh", ".cpp"])
def test_another_suffix_is_compiled_as_cuda(suffix, tmp_path, monkeypatch):
    script = (
        "assert sys.argv[1:3] == ['-x', 'cu']\n"
        "out = sys.argv[sys.argv.index('-o') + 1]\n"
        f"open(out, 'w').write({HEAD + ENTRY + WRONG + CLOSE!r})"
    )
    tool(tmp_path, monkeypatch, "nvcc", script)
    source = tmp_path / f"kernel{suffix}"
    source.write_text("")
    assert [f.rule for f in tma.lint(source).findings] == ["PROXY_FENCE"]


def test_a_wheel_is_read_library_by_library(tmp_path, monkeypatch):
    text = f"\n{HEAD + ENTRY + WRONG}}}\n"
    script = f"print({text!r} if b'PTX' in open(sys.argv[2], 'rb').read() else 'sm_80')"
    tool(tmp_path, monkeypatch, "cuobjdump", script)
    wheel = tmp_path / "a.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("a/one.so", b"\x7fELF")
        file.writestr("a/two.so", b"\x7fELF PTX")
        file.writestr("a/__init__.py", "")
    assert [f.rule for f in tma.lint(wheel).findings] == ["PROXY_FENCE"]
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("a/one.so", b"\x7fELF")
    with pytest.raises(tma.TmaPreconditionError, match=r"one.so holds machine code for sm_80"):
        tma.lint(wheel)
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("a/__init__.py", "")
    with pytest.raises(tma.TmaPreconditionError, match="an archive without a library in it"):
        tma.lint(wheel)


@pytest.mark.parametrize(("name", "content"), [("nvcc", b""), ("cuobjdump", b"\x7fELF")])
def test_a_tool_that_is_not_there_is_named(name, content, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_HOME", "")
    path = tmp_path / ("kernel.cu" if name == "nvcc" else "kernel.o")
    path.write_bytes(content)
    with pytest.raises(tma.TmaUnsupportedError, match=f"{name} was not found: install the CUDA"):
        tma.lint(path)


# -- hostile PTX ----------------------------------------------------------------------------------


@pytest.mark.parametrize("old", [";\n", "\n"], ids=["statements", "all of it"])
def test_a_line_may_hold_many_statements(old):
    text = (HEAD + ENTRY + WRONG + CLOSE).replace(old, old.replace("\n", " "))
    report = tma.lint(text + "\n")
    assert [finding.rule for finding in report.findings] == ["PROXY_FENCE"]
    assert report.functions == 1


def test_a_function_whose_braces_do_not_close_is_named_and_the_next_one_is_read():
    text = HEAD + ENTRY.replace(" k(", " open(") + "{\nret;\n" + ENTRY + WRONG + "}\n"
    report = tma.lint(text)
    assert report.notes == ("open: its braces do not close; not checked",)
    assert [finding.kernel for finding in report.findings] == ["k"]


@pytest.mark.parametrize("seed", range(60))
def test_damaged_ptx_is_read_or_refused_and_never_breaks(seed):
    rng = random.Random(seed)
    lines = PTX.read_text().splitlines(keepends=True)
    start = rng.randrange(len(lines) - 400)
    text = HEAD + "".join(lines[start : start + 400])
    for _ in range(rng.randrange(1, 40)):
        at, to = sorted(rng.randrange(len(text)) for _ in range(2))
        piece = text[at : min(to, at + 60)]
        junk = "".join(rng.choices('{}[]();:,@%!|.$#"/* \n0x-', k=rng.randrange(6)))
        text = text[:at] + rng.choice(["", junk, piece * 2]) + text[at + rng.randrange(9) :]
    if ".version" in text and ".target" in text[text.rindex(".version") :]:
        report = tma.lint(text)
        assert json.loads(report.to_json())["findings"] is not None
    else:
        with pytest.raises(tma.TmaPreconditionError, match="must be PTX"):
            tma.lint(text + "\n")


SLOW = {
    "instructions": "add.s32 %r2, %r1, 4;\nst.shared.u32 [%r1], %r2;\n",
    "branches": "setp.eq.s32 %p{n}, %r{n}, 0;\n@%p{n} bra $L{n};\nbar.sync 0;\n$L{n}:\n",
    "chained sums": "mul.lo.s32 %r{m}, %r{n}, %r{n};\n",
    "open braces": "{{\n",
    "inlined lines": ".loc 1 {m} 1, function_name $L, inlined_at 1 {n} 1\n",
}


@pytest.mark.parametrize("line", SLOW.values(), ids=SLOW)
def test_large_functions_take_bounded_work(line):
    body = "".join(line.format(n=n, m=n + 1) for n in range(3000))
    text = HEAD + ENTRY + "mov.u32 %r1, tile;\n" + body + WRONG + "}\n"
    report = tma.lint(text)
    assert all(re.search("braces do not close|too many paths", note) for note in report.notes)


DIGITS = "9" * 5000


@pytest.mark.parametrize(
    "line",
    [
        f".loc {DIGITS} 1 1", f".loc 1 {DIGITS} 1", f".loc 1 1 1, inlined_at 1 {DIGITS} 1",
        f'.file {DIGITS} "a.cu"', f"st.shared.u32 [%r1+{DIGITS}], 0;", f"mov.u32 %r9, {DIGITS};",
        f"cp.async.bulk.wait_group {DIGITS};", f"mbarrier.init.shared.b64 [%r9], {DIGITS};",
        f"cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], {DIGITS};",
        "cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], ²;",
        f".reg .b32 %r<{DIGITS}>;",
    ],
    ids=lambda line: line.split()[0] + str(len(line.split(DIGITS)[0])),
)  # fmt: skip
def test_numbers_that_no_register_holds_are_read_past(line):
    inside = WRONG if line[:5] == ".file" else WRONG.replace("st.shared", f"{line}\nst.shared")
    text = f"{HEAD}{line}\n" * (line[:5] == ".file") + HEAD + ENTRY + inside + CLOSE
    assert "PROXY_FENCE" in {finding.rule for finding in tma.lint(text).findings}


def test_values_take_bounded_time():
    squares = "mov.u32 %r2, 99999;\n" + "mul.lo.u32 %r2, %r2, %r2;\n" * 40
    chain = "shfl.sync.idx.b32 %r{a}, %r{b}, 0, 31, -1;\nxor.b32 %r{c}, %r{a}, %r{b};\n"
    for n in range(40, 160, 2):
        squares += chain.format(b=n - 1, a=n, c=n + 1)
    squares += "mov.u32 %r39, %tid.x;\nst.shared.u32 [%r159], 0;\n"
    begun = time.perf_counter()
    tma.lint(HEAD + ENTRY + squares + WRONG + CLOSE)
    assert time.perf_counter() - begun < 2


@pytest.mark.parametrize("word", [".entry\n", ".entry ", ".visible ", ".target ", ".func f "])
def test_words_that_begin_no_function_take_linear_time(word):
    begun = time.perf_counter()
    assert tma.lint(HEAD + word * 40_000 + "\n").functions == 0
    assert time.perf_counter() - begun < 5


def test_work_grows_with_the_length_and_not_with_its_square():
    """The number of calls of Python functions is compared, not the time."""

    def work(count: int) -> int:
        body = "st.shared.u32 [%r1+4], 0;\nbar.sync 0;\nsetp.eq.s32 %p1, %r9, 0;\n" * count
        body += "cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], 64;\n"
        calls = 0

        def count_call(*_: object) -> None:
            nonlocal calls
            calls += 1

        sys.setprofile(count_call)
        try:
            tma.lint(HEAD + ENTRY + "mov.u32 %r1, tile;\n" + body + "ret;\n}\n")
        finally:
            sys.setprofile(None)
        return calls

    work(10)
    assert work(400) < 2.5 * work(200)


# -- outputs --------------------------------------------------------------------------------------


def test_json_has_the_fields_of_the_contract():
    found = json.loads(tma.lint(PTX).to_json())["findings"]
    names = ["rule", "severity", "kernel", "line", "source", "sites", "message", "fix", "path"]
    assert {tuple(finding) for finding in found} == {tuple(names)}
    assert {type(finding["line"]) for finding in found} == {int}


def test_sarif_has_what_its_schema_requires():
    """SARIF 2.1.0: 3.13 (log), 3.14 (run), 3.18 (tool), 3.27 (result), 3.29 (physicalLocation)."""
    log = json.loads(tma.lint(PTX).to_sarif())
    assert log["version"] == "2.1.0"
    [run] = log["runs"]
    driver = run["tool"]["driver"]
    assert driver["name"] == "tma_dlpack lint"
    assert [rule["id"] for rule in driver["rules"]] == list(RULES)
    assert len(run["results"]) == len(tma.lint(PTX).findings)
    for result in run["results"]:
        assert result["ruleId"] in RULES
        assert result["level"] in ("error", "warning")
        assert result["message"]["text"]
        place = result["locations"][0]["physicalLocation"]
        assert place["artifactLocation"]["uri"] == "kernels.cu"
        assert place["region"]["startLine"] >= 1
    assert run["invocations"][0]["executionSuccessful"] is True


def test_repr_is_one_short_line():
    assert repr(tma.lint(HEAD + ENTRY + WRONG + "}\n")) == (
        "LintReport(1 error, 0 warnings in 1 function)"
    )


def test_html_escapes_what_the_ptx_says():
    text = (HEAD + ENTRY + WRONG + "}\n").replace("k(", "$k(")
    page = tma.lint('.file 1 "<b>.cu"\n' + text.replace("st.sh", ".loc 1 7 1\nst.sh"))._repr_html_()
    assert "&lt;b&gt;.cu:7" in page
    assert "<b>.cu" not in page


# -- the command ----------------------------------------------------------------------------------


def written(path: Path, body: str) -> str:
    path.write_text(HEAD + ENTRY + body + "}\n")
    return str(path)


def test_the_exit_status_says_what_was_found(tmp_path, capsys):
    wrong = written(tmp_path / "wrong.ptx", WRONG)
    right = written(tmp_path / "right.ptx", "ret;\n")
    fenced = WRONG.replace("cp.async", "fence.proxy.async;\ncp.async", 1)
    weak = written(tmp_path / "weak.ptx", fenced.replace("cp.async.bulk.commit_group;\n", ""))
    note = written(tmp_path / "n.ptx", fenced.replace("cp.async.bulk.wait_group.read 0;\n", ""))
    assert main(["lint", right]) == 0
    assert main(["lint", wrong]) == 1
    assert main(["lint", weak]) == 0
    assert main(["lint", weak, "--strict"]) == 1
    assert main(["lint", note, "--strict", "--notes"]) == 0
    assert "1 note in" in capsys.readouterr().out
    assert main(["lint", right, wrong]) == 1
    capsys.readouterr()
    assert main(["lint", right, str(tmp_path / "none.ptx")]) == 2
    talk = capsys.readouterr()
    assert talk.err == f"error: {tmp_path / 'none.ptx'}: No such file or directory\n"
    assert talk.out == (
        f"{right}: no mistake was found in 1 function\nexamined: no function uses TMA\n"
    )
    assert main(["lint", wrong, str(tmp_path / "none.ptx"), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [finding["rule"] for finding in found["findings"]] == ["PROXY_FENCE"]
    assert found["notes"] == [f"{tmp_path / 'none.ptx'}: No such file or directory"]


def test_a_function_that_was_not_read_is_not_success(tmp_path):
    assert main(["lint", written(tmp_path / "open.ptx", "{\nret;\n")]) == 2


def test_sarif_of_two_files_is_one_run(tmp_path, capsys):
    files = [written(tmp_path / f"{n}.ptx", WRONG) for n in range(2)]
    assert main(["lint", *files, "--sarif"]) == 1
    [run] = json.loads(capsys.readouterr().out)["runs"]
    places = [result["locations"][0]["physicalLocation"] for result in run["results"]]
    assert [place["artifactLocation"]["uri"] for place in places] == files


def test_a_page_has_the_findings_of_each_file_and_the_gap_of_a_missing_fence(tmp_path, capsys):
    wrong, right = tmp_path / "wrong.ptx", tmp_path / "right.ptx"
    kernel = """
.version 9.0
.target sm_90a
.address_size 64
.shared .align 128 .b8 tile[4096];
.visible .entry copy(.param .u64 out) {
  .reg .b64 %rd<2>; .reg .b32 %r<2>;
  ld.param.u64 %rd1, [out];
  mov.u32 %r1, tile;
  st.shared.u32 [%r1], 0;
  FENCE
  bar.sync 0;
  cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], 4096;
  cp.async.bulk.commit_group;
  cp.async.bulk.wait_group.read 0;
  ret;
}
"""
    wrong.write_text(kernel.replace("FENCE", ""), encoding="utf-8")
    right.write_text(kernel.replace("FENCE", "fence.proxy.async;"), encoding="utf-8")
    page = tmp_path / "report.html"
    assert main(["lint", str(wrong), str(right), "--html", str(page)]) == 1
    assert "PROXY_FENCE" in capsys.readouterr().out
    text = page.read_text("utf-8")
    assert all(name in text for name in ("wrong.ptx", "right.ptx", "PROXY_FENCE", "async proxy"))
    assert main(["lint", str(right), "--html", str(page)]) == 0
    assert "async proxy" not in page.read_text("utf-8")
    capsys.readouterr()
    assert main(["lint", str(wrong), "--html", "-"]) == 1
    assert capsys.readouterr().out.startswith("<!doctype html>")
    assert main(["lint", str(wrong), "--sarif", "--html", "-"]) == 2

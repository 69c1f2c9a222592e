"""`trace` of a program that is not Python, with stand-ins for libcuda and libcupti."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from stand_ins import COMPILER, build, compile_c, environment

import tma_dlpack as tma
from tma_dlpack import driver
from tma_dlpack.debug import Trace
from tma_dlpack.debug import trace as program
from tma_dlpack.tables.errors import TmaError, TmaUnsupportedError

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="trace is for Linux"),
    pytest.mark.skipif(COMPILER is None, reason="no C compiler on this machine"),
]


@pytest.fixture(scope="session", autouse=True)
def _needs_the_library():
    try:
        program.library()
    except TmaUnsupportedError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("trace")
    build(made)
    return made


@pytest.fixture
def traced(folder, monkeypatch):
    """Trace the program with these words; return its status and the trace."""

    def run(words, **more):
        for name, value in {**environment(folder), **more}.items():
            monkeypatch.setenv(name, value)
        return program.run([str(folder / "program"), *words.split()])

    return run


# -- what is seen ---------------------------------------------------------------------------------


def test_calls_that_differ_in_the_address_alone_are_one_map(traced):
    status, trace = traced("init tiled moved tiled")
    (made,) = trace.maps
    assert (status, made.call, made.count, made.result) == (0, "cuTensorMapEncodeTiled", 3, 0)
    assert str(made.arguments) == (
        "tiled: data_type=FLOAT16, rank=2, global_address=0x7f0000000000, global_dim=(128, 64), "
        "global_strides=(256,), box_dim=(64, 8), element_strides=(1, 1), interleave=none, "
        "swizzle=bytes128, l2_promotion=none, oob_fill=none"
    )
    wanted = tma.driver_encode_tiled(
        "FLOAT16", 2, 0x7F00_0000_0000, (128, 64), (256,), (64, 8), (1, 1), 0, 3, encoder="model"
    )
    assert made.bytes == bytes(wanted)
    assert made.tensor_map() == tma.TensorMap.from_bytes(bytes(wanted))
    assert made.report.ok
    assert made.ok
    assert str(made.target) == "sm_90"


def test_the_object_that_called_the_driver_is_named(traced, folder):
    _, trace = traced("init tiled")
    assert trace.maps[0].made_by == str(folder / "program")
    assert trace.maps[0].python == ()


def test_all_four_calls_are_seen_with_their_arguments(traced):
    _, trace = traced("init im2col wide tiled replace")
    im2col, wide, tiled, replaced = trace.maps
    assert im2col.arguments.kind == "im2col"
    assert im2col.arguments.pixel_box_lower_corner == (-1, -1)
    assert im2col.arguments.pixel_box_upper_corner == (-1, -1)
    assert im2col.arguments.channels_per_pixel == 64
    assert im2col.arguments.pixels_per_column == 32
    assert im2col.arguments.global_strides == (128, 1792, 25088)
    assert im2col.arguments.box_dim is None
    assert wide.arguments.kind == "im2col_wide"
    assert wide.arguments.pixel_box_lower_corner == (-1,)
    assert wide.arguments.swizzle == tma.TmaSwizzle.bytes128
    assert [advice.rule for advice in wide.report.advice] == ["WIDE_ON_SM_90"]
    assert replaced.call == "cuTensorMapReplaceAddress"
    assert replaced.arguments.global_address == 0x7F00_0008_0000
    assert replaced.arguments.global_dim == tiled.arguments.global_dim == (128, 64)
    assert replaced.bytes[8:] == tiled.bytes[8:]


def test_a_map_in_a_parameter_or_within_one_says_which_kernel_takes_it(traced):
    _, trace = traced("init tiled launch launch fill")
    (made,) = trace.maps
    assert made.uses == (("gemm", 1, 0, 2, False), ("gemm", 2, 64, 2, False))
    assert made.kernels == ("gemm",)


def test_the_name_of_a_kernel_in_cpp_is_readable(traced):
    _, trace = traced("init tiled lone")
    assert trace.maps[0].kernels == ("lone(CUtensorMap)",)


@pytest.mark.parametrize("how", ["launch", "ex", "extra", "graph"])
def test_every_way_to_launch_is_seen(traced, how):
    _, trace = traced(f"init tiled {how}")
    assert trace.maps[0].uses == (("gemm", 1, 0, 1, False), ("gemm", 2, 64, 1, False))


def test_a_map_whose_bit_85_was_changed_is_still_the_same(traced):
    _, trace = traced("init tiled bit85 launch")
    assert trace.maps[0].kernels == ("gemm",)


def test_a_map_of_another_address_is_still_the_same(traced):
    _, trace = traced("init tiled replace launch")
    tiled, replaced = trace.maps
    assert tiled.kernels == ("gemm",)
    assert replaced.kernels == ()


def test_a_map_that_the_driver_did_not_make_is_seen_where_a_kernel_takes_it(traced):
    _, trace = traced("init tiled unknown launch launch")
    made, unknown = trace.maps
    assert made.kernels == ()
    assert (unknown.call, unknown.kernels, unknown.count) == ("", ("gemm",), 0)
    assert unknown.arguments.global_dim == (127 + 1 - 1, 64)
    assert "map 2: passed to a kernel, made without the driver" in str(trace)


def test_128_bytes_that_are_no_map_are_not_listed(traced):
    _, trace = traced("init launch")
    assert trace.maps == ()


@pytest.mark.parametrize("unload", ["unload", "unload_library"])
def test_after_an_unload_a_handle_is_another_kernel(traced, unload):
    _, trace = traced(f"init tiled launch {unload} launch")
    assert trace.maps[0].uses == (("gemm", 1, 0, 1, False), ("gemm", 2, 64, 1, False))


def test_while_there_is_no_news_launches_are_not_heard(traced):
    _, trace = traced("init tiled launches 90000 fills 10000 launches 100")
    assert trace.maps[0].uses[0] == ("gemm", 1, 0, 90000, True)
    assert "passed to gemm (parameter 1), 90000 times or more" in str(trace)
    assert trace.notes[0].startswith("not all launches were recorded")


@pytest.mark.parametrize(
    ("again", "heard"),
    [
        ("", 0),
        ("sync", 0),
        ("wait sync", 1000),
        ("wait moved", 1000),
        ("load", 1000),
        ("wide", 1200),
    ],
)
def test_launches_are_heard_again_with_news_and_now_and_then(traced, again, heard):
    _, trace = traced(f"init tiled launch fills 100000 {again} launches 1200")
    assert [use.launches for use in trace.maps[0].uses] == [1 + heard] * 2


def test_with_less_than_100000_launches_all_are_heard(traced):
    _, trace = traced("init tiled fills 99998 launch")
    assert trace.maps[0].uses[0] == ("gemm", 1, 0, 1, False)
    assert len(trace.notes) == 2


def test_eight_threads_are_counted_exactly(traced):
    _, trace = traced("init threads")
    assert sorted(made.count for made in trace.maps) == [800] * 10
    assert sum(made.count for made in trace.maps) == 8000


def test_more_different_maps_than_fit_are_counted_in_a_note(traced):
    _, trace = traced("init many 8200")
    assert len(trace._raw["maps"]) == 8189
    assert trace._raw["processes"][0]["overflow"] == 11


# -- refused calls --------------------------------------------------------------------------------


def test_a_refused_call_is_explained_at_once_and_in_the_report(traced, capfd):
    status, trace = traced("init refused")
    (made,) = trace.maps
    assert (status, made.result, made.result_name) == (0, 1, "CUDA_ERROR_INVALID_VALUE")
    assert [violation.rule for violation in made.report.violations] == ["BOX_RANGE"]
    assert made.bytes is None
    assert not made.ok
    shown = capfd.readouterr().err
    assert "cuTensorMapEncodeTiled: CUDA_ERROR_INVALID_VALUE" in shown
    assert "box_dim[1] is 512; it must be 1..256" in shown


def test_an_accepted_call_is_not_explained(traced, capfd):
    traced("init tiled")
    assert capfd.readouterr().err.count("\n") == 1


def test_many_refusals_are_explained_twenty_times(traced, capfd):
    traced("init nocontext many 30")
    shown = capfd.readouterr().err
    assert shown.count("cuTensorMapEncodeTiled: CUDA_ERROR_INVALID_CONTEXT") == 20
    assert shown.count("more refused calls are in the report") == 1


@pytest.mark.parametrize(
    ("words", "rule", "found"),
    [
        ("init nocontext tiled", "DRIVER_RESULT", "the driver returned CUDA_ERROR_INVALID_CONTEXT"),
        ("init tiled misplace", "ADDRESS_ALIGNED", "the address is 0x7f0000080004"),
    ],
)
def test_a_refusal_for_another_reason_than_the_arguments_says_which(traced, words, rule, found):
    _, trace = traced(words)
    (violation,) = trace.maps[-1].report.violations
    assert violation.rule == rule
    assert violation.found.startswith(found)


@pytest.mark.parametrize(
    ("result", "fix"),
    [
        (201, "there is no current context: make one before the encode"),
        (3, "the driver is not initialized: call cuInit(0)"),
        (700, "Run the program again with CUDA_LAUNCH_BLOCKING=1"),
        (2, "report it with the arguments"),
    ],
)
def test_what_to_do_about_a_result_is_what_explain_says(traced, result, fix):
    _, trace = traced("init nocontext tiled")
    raw = json.loads(trace.to_json())
    raw["maps"][0]["result"] = result
    (violation,) = Trace.from_json(json.dumps(raw)).maps[0].report.violations
    assert (violation.rule, violation.fix[: len(fix)]) == ("DRIVER_RESULT", fix)


ARRAYS = ["map_address", "global_dim", "global_strides", "box_dim", "element_strides"]


@pytest.mark.parametrize("bad", range(5), ids=ARRAYS)
def test_a_pointer_to_no_memory_is_an_entry_that_says_so(traced, bad):
    _, trace = traced(f"init bad {bad}", STAND_IN_BLIND="1")
    (made,) = trace.maps
    (violation,) = made.report.violations
    assert (violation.rule, violation.argument) == ("UNREADABLE", ARRAYS[bad])
    assert " is not readable: the pointer is 0x" in violation.found
    assert made.result == 1
    assert getattr(made.arguments, ARRAYS[bad], None) is None


@pytest.fixture
def without(tmp_path):
    """Compile a library with a failing function of libc; return the variable that loads it."""

    def preload(function):
        source, library = tmp_path / "without.c", tmp_path / "without.so"
        source.write_text(f"#include <errno.h>\n{function}")
        compile_c(str(source), library)
        return {"LD_PRELOAD": f"{os.environ.get('LD_PRELOAD', '')} {library}"}

    return preload


@pytest.mark.parametrize(("words", "unreadable"), [("tiled", []), ("bad 3", ["box_dim"])])
def test_where_process_vm_readv_is_forbidden_memory_is_read_another_way(
    traced, without, words, unreadable
):
    forbidden = without("long process_vm_readv() { errno = EPERM; return -1; }")
    _, trace = traced(f"init {words}", **forbidden, STAND_IN_BLIND="1")
    (made,) = trace.maps
    assert made.arguments.global_dim == (128, 64)
    assert [v.argument for v in made.report.violations if v.rule == "UNREADABLE"] == unreadable


def test_where_the_disk_has_no_room_for_counts_a_note_says_so(traced, without):
    full = without("int posix_fallocate() { return ENOSPC; }")
    status, trace = traced("init tiled tiled exit 5", **full)
    assert (status, [made.count for made in trace.maps]) == (5, [1])
    assert trace.notes[0].startswith("calls could not be counted (error 28; is the disk full?)")


def test_a_call_that_ends_the_program_is_in_the_report(traced):
    options = f"{os.environ.get('ASAN_OPTIONS', '')}:handle_segv=0"  # of tests/sanitizers.sh
    status, trace = traced("init tiled bad 1", ASAN_OPTIONS=options)
    assert status == 128 + 11
    made, ended = trace.maps
    assert made.ok
    assert (ended.result, ended.result_name) == (None, "the call did not return")
    assert [violation.argument for violation in ended.report.violations] == ["global_dim"]


def test_calls_with_any_arguments_never_end_the_program(traced):
    status, trace = traced("init fuzz 300 exit 7", STAND_IN_BLIND="1")
    assert status == 7
    assert sum(raw["count"] for raw in trace._raw["maps"]) == 1200
    assert "refused" in str(trace)
    assert trace._raw["processes"][0]["problems"] == []


# -- how a program ends ---------------------------------------------------------------------------


@pytest.mark.parametrize(("end", "status"), [("exit 5", 5), ("kill", 137), ("abort", 134), ("", 0)])
def test_the_status_is_the_programs_and_nothing_seen_is_lost(traced, end, status):
    ended, trace = traced(f"init tiled tiled launch {end}")
    assert ended == status
    assert [(made.count, made.kernels) for made in trace.maps] == [(2, ("gemm",))]


def test_a_program_that_is_not_there_has_the_status_of_shells(traced, folder, capfd):
    status, _ = program.run([str(folder / "missing")])
    assert status == 127
    assert "missing: No such file or directory" in capfd.readouterr().err
    status, _ = program.run([str(folder / "libcuda.so.1") + "/"])
    assert status == 126


def test_a_program_without_maps_says_so_with_the_calls_that_were_seen(traced):
    _, trace = traced("init fill fill fill")
    assert str(trace).startswith("no tensor map was made; CUPTI saw 3 driver calls\n\nnote: not ")


def test_a_program_without_cuda_says_why_nothing_was_seen():
    status, trace = program.run([sys.executable, "-c", "raise SystemExit(3)"])
    assert status == 3
    (note,) = trace.notes
    assert note.startswith("no process was traced: libcuda did not load the trace.")
    assert str(trace).startswith("no tensor map was seen\n\nnote: no process was traced")


# -- children -------------------------------------------------------------------------------------


def test_a_forked_child_has_its_own_entry(traced):
    _, trace = traced("fork init tiled")
    assert trace.maps[0].count == 1
    _, trace = traced("init tiled fork tiled")
    by_parent, by_child = trace.maps
    assert (by_parent.result, by_parent.count) == (0, 1)
    assert (by_child.result_name, by_child.count) == ("CUDA_ERROR_NOT_INITIALIZED", 1)
    assert by_parent.processes != by_child.processes


def test_maps_of_several_processes_are_one_report_by_rank(traced, folder):
    child = [str(folder / "program"), "init", "tiled"]
    starts = (
        "import os, subprocess\n"
        f"for rank in range(3): subprocess.run({child}, env={{**os.environ, 'RANK': str(rank)}})"
    )
    for name, value in environment(folder).items():
        os.environ[name] = value
    _, trace = program.run([sys.executable, "-c", starts])
    (made,) = trace.maps
    assert (made.count, made.processes) == (3, ("rank 0", "rank 1", "rank 2"))
    assert str(trace).startswith("1 different tensor map of 3 calls in 3 processes: all accepted")


# -- what prevents a trace ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("39", "another tool (CUPTI for nsys) has CUPTI's one subscription, so nothing"),
        ("35", "CUPTI has no permission here (CUptiResult 35)"),
        ("1", "CUPTI could not be started (cuptiSubscribe returned 1)"),
    ],
)
def test_a_cupti_that_refuses_leaves_the_program_alone_and_says_why(traced, capfd, code, words):
    status, trace = traced("init tiled exit 5", STAND_IN_CUPTI=code)
    assert (status, trace.maps) == (5, ())
    assert trace.notes[0].startswith(words)
    assert words in capfd.readouterr().err


def test_without_cupti_the_program_runs_and_one_line_says_where_to_get_it(
    traced, tmp_path, monkeypatch
):
    compile_c("stand_in_driver.c", tmp_path / "libcuda.so.1")
    for name in ("libcupti.so.13", "libcupti.so.12", "libcupti.so"):
        (tmp_path / name).touch()  # the loader finds a file that is not a library
    monkeypatch.setattr(program, "cupti_paths", lambda name: "")
    status, trace = traced("init tiled exit 5", LD_LIBRARY_PATH=str(tmp_path))
    assert status == 5
    assert trace.notes[0].startswith("CUPTI was not found: pip install nvidia-cuda-cupti")


def test_a_driver_without_tensor_maps_is_named(traced, tmp_path):
    compile_c("stand_in_driver.c", tmp_path / "libcuda.so.1", "-DWITHOUT_TENSOR_MAPS")
    status, trace = traced("init exit 5", LD_LIBRARY_PATH=str(tmp_path))
    assert status == 5
    assert trace.notes[0].startswith("the driver has no tensor maps")


def test_an_older_cupti_without_subscribe_v2_works_too(traced, tmp_path):
    compile_c("stand_in_cupti.c", tmp_path / "libcupti.so.13", "-DBEFORE_13")
    _, trace = traced("init tiled", TMA_DLPACK_TRACE_CUPTI=str(tmp_path / "libcupti.so.13"))
    assert trace._raw["processes"][0]["cupti"] == str(tmp_path / "libcupti.so.13")
    assert len(trace.maps) == 1


def test_a_subscription_that_is_lost_on_the_way_is_reported(traced):
    _, trace = traced("init tiled finalize tiled")
    assert trace.maps[0].count == 1
    assert trace.notes[0].startswith("the subscription was lost on the way")


def test_without_the_library_the_reason_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(program, "__file__", str(tmp_path / "program.py"))
    with pytest.raises(TmaUnsupportedError, match="it is built on Linux with glibc"):
        program.run(["true"])


def test_beside_another_injected_tool_nothing_is_started(traced, tmp_path):
    with pytest.raises(TmaUnsupportedError, match=r"CUDA_INJECTION64_PATH is /opt/nsys\.so"):
        traced("init", CUDA_INJECTION64_PATH="/opt/nsys.so")


# -- text, HTML, JSON -----------------------------------------------------------------------------


PROGRAM = ["init", "tiled", "refused", "launch", "exit", "9"]


def command(folder, *options):
    return subprocess.run(
        [sys.executable, "-m", "tma_dlpack", "trace", *options, "--", folder / "program", *PROGRAM],
        capture_output=True,
        text=True,
        env={**os.environ, **environment(folder)},
    )


def test_the_command_leaves_the_programs_output_and_writes_report_and_html(folder, tmp_path):
    page, report = tmp_path / "t.html", tmp_path / "t.txt"
    done = command(folder, "--html", page, "-o", report)
    assert (done.returncode, done.stdout) == (9, "tiled 0\nrefused 1\n")
    assert report.read_text().startswith(
        "2 different tensor maps of 2 calls: 1 refused\n\n"
        "map 1: cuTensorMapEncodeTiled, once: accepted; process "
    )
    assert "\n  passed to gemm (parameter 1), once\n" in report.read_text()
    assert done.stderr.count("box_dim[1] is 512") == 1
    assert "tma-still" in page.read_text()


def test_without_a_file_the_report_is_the_end_of_standard_error(folder):
    done = command(folder)
    assert (done.returncode, done.stdout) == (9, "tiled 0\nrefused 1\n")
    assert "\n2 different tensor maps of 2 calls: 1 refused\n" in done.stderr


def test_json_is_a_switch_and_standard_error_has_nothing_else(folder, tmp_path):
    done = command(folder, "--json")
    assert (done.returncode, done.stdout) == (9, "tiled 0\nrefused 1\n")
    again = Trace.from_json(done.stderr)
    assert [len(again.maps), json.loads(done.stderr)["tma_dlpack_trace"]] == [2, 1]
    record = tmp_path / "t.json"
    done = command(folder, "--json", "-o", record)
    assert str(Trace.from_json(record.read_text())).startswith("2 different tensor maps")
    assert done.stderr.count("box_dim[1] is 512") == 1
    assert command(folder, "--json", "-o", "-").stdout.startswith("tiled 0\nrefused 1\n{")


def test_a_file_after_json_is_not_taken_for_the_program(folder, tmp_path):
    done = command(folder, "--json", tmp_path / "t.json")
    assert done.returncode == 2
    assert f"{tmp_path / 't.json'} stands before --" in done.stderr


def test_the_programs_words_stay_as_they_are():
    show = "import sys; print(sys.argv[1:])"
    words = ["--coords", "-4", "--", "--html", "x", "-h"]
    command = [sys.executable, "-m", "tma_dlpack", "trace", "--", sys.executable, "-c", show]
    done = subprocess.run([*command, *words], capture_output=True, text=True)
    assert done.stdout == f"{words}\n"


REPORT = """\
2 different tensor maps of 3 calls: 1 refused

map 1: cuTensorMapEncodeTiled, 2 times: accepted; rank 0 on sm_90
  tiled: data_type=FLOAT16, rank=2, global_address=0x7f0000000000, global_dim=(128, 64),
    global_strides=(256,), box_dim=(64, 8), element_strides=(1, 1), interleave=none,
    swizzle=bytes128, l2_promotion=none, oob_fill=none
  made by ./program
  passed to gemm (parameter 1), once
  passed to gemm (parameter 2, byte 64), once

map 2: cuTensorMapEncodeTiled, once: refused with CUDA_ERROR_INVALID_VALUE (1); rank 0 on sm_90
  tiled: data_type=FLOAT16, rank=2, global_address=0x7f0000000000, global_dim=(128, 64),
    global_strides=(256,), box_dim=(64, 512), element_strides=(1, 1), interleave=none,
    swizzle=bytes128, l2_promotion=none, oob_fill=none
  made by ./program
  box_dim[1] is 512; it must be 1..256
    fix: use 256, and several copies for a larger tile (copies 256 \
instead of 512 rows: the kernel must expect 32768 bytes)
    rule: BOX_RANGE

note: not seen: maps that a kernel builds or changes on the device (tensormap.replace, Triton's
  tl.make_tensor_descriptor), and kernels that read a map from global memory
note: while it ran, no other tool could subscribe to CUPTI (nsys, ncu, compute-sanitizer, cuda-gdb,
  torch.profiler, Proton)"""


def test_the_text_of_a_trace(traced, folder):
    _, trace = traced("init tiled launch refused tiled", RANK="0")
    text = re.sub(r"made by\s+", "made by ", str(trace))  # a long path has its own line
    assert text.replace(str(folder), ".") == REPORT


def test_the_command_without_a_program_says_what_to_type():
    command = [sys.executable, "-m", "tma_dlpack", "trace", "--"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == (
        "error: trace needs a program to run, such as python -m tma_dlpack trace -- python "
        "train.py; see python -m tma_dlpack trace --help\n"
    )


def test_a_program_that_is_not_there_is_named_and_nothing_else():
    command = [sys.executable, "-m", "tma_dlpack", "trace", "--", "nosuchprogram"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (127, "")
    assert done.stderr == "error: nosuchprogram: there is no such program\n"


NESTED = '{"tma_dlpack_trace": 1, "processes": [], "maps": ' + "[" * 5000 + "]" * 5000 + "}"
LONG = '{"tma_dlpack_trace": 1, "processes": [], "maps": [{"count": ' + "9" * 5000 + "}]}"


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", '{"tma_dlpack_trace": 2}', '{"maps": 3}', NESTED, LONG],
    ids=["empty", "no fields", "a list", "another format", "no maps", "nested", "a long number"],
)
def test_other_json_is_refused(text):
    with pytest.raises(TmaError, match="it must be the JSON of a trace"):
        Trace.from_json(text)


def test_json_beyond_the_limit_is_refused_before_it_is_parsed(monkeypatch):
    monkeypatch.setattr("tma_dlpack.tables.refusals.MAX_TRACE_CHARACTERS", 10)
    with pytest.raises(TmaError, match="be the JSON of a trace, of at most 134217728 char"):
        Trace.from_json('{"tma_dlpack_trace": 1, "processes": [], "maps": []}')


def test_the_bytes_of_a_map_get_advice_too():
    raw = json.loads((NOTEBOOKS / "09_trace.json").read_text())
    made = next(m for m in raw["maps"] if m["result"] == 0)
    small = (9, 2, 0x7F3B8A000000, (4096, 8), (8192,), (64, 8), (1, 1), 0, 3)
    data = bytearray(bytes(tma.driver_encode_tiled(*small, encoder="model")))
    data[10] |= 0x20  # bit 85
    raw["maps"] = [{**made, "bytes": data.hex()}]
    (traced,) = Trace.from_json(json.dumps(raw)).maps
    assert "ALLOCATION_CLASS" in [a.rule for a in traced.report.advice]


def test_a_notebook_shows_as_many_pictures_as_fit(traced):
    _, trace = traced("init many 9")
    assert 200_000 < len(trace._repr_html_()) < 400_000
    assert trace.html().count("shared memory:") == 9
    assert trace.html(0).count("shared memory:") == 0
    assert trace.html(0).count("<h3>") == 9


def test_names_are_escaped_in_html():
    raw = {"problems": [], "calls": 1, "overflow": 0, "pauses": 0, "pid": 1}
    kernel = {"kernel": "<b>k</b>", "parameter": 0, "offset": 0, "count": 1}
    data = bytes(
        tma.driver_encode_tiled("UINT8", 1, 0x1000, (64,), (), (16,), (1,), encoder="model")
    ).hex()
    made = {"call": None, "bytes": data, "process": 0, "count": 0, "kernels": [kernel]}
    text = json.dumps({"tma_dlpack_trace": 1, "processes": [raw], "maps": [made]})
    page = Trace.from_json(text)._repr_html_()
    assert "passed to &lt;b&gt;k&lt;/b&gt; (parameter 0), once" in page
    assert "<b>k</b>" not in page


# -- in this process ------------------------------------------------------------------------------

IN_PROCESS = """
import ctypes
import tma_dlpack as tma

def make(rows):
    return tma.driver_encode_tiled(
        "FLOAT16", 2, 0x7F0000000000, (64, 128), (128,), (64, rows), (1, 1), encoder="driver"
    )

make(4)
with tma.trace() as t:
    make(8), make(8)
    print([made.count for made in t.maps])
    make(16)
    try:
        with tma.trace():
            pass
    except tma.TmaUnsupportedError as error:
        print(error)
make(32)
print([(made.count, made.arguments.box_dim) for made in t.maps])
with tma.trace() as u:
    libcuda = ctypes.PyDLL("libcuda.so.1")  # keeps the GIL
    context, room = ctypes.c_void_p(), ctypes.create_string_buffer(256)
    libcuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
    libcuda.cuCtxPushCurrent_v2(context)
    start = ctypes.addressof(room)
    dims, strides = (ctypes.c_uint64 * 2)(64, 128), (ctypes.c_uint64 * 1)(128)
    box, ones = (ctypes.c_uint32 * 2)(64, 8), (ctypes.c_uint32 * 2)(1, 1)
    libcuda.cuTensorMapEncodeTiled(ctypes.c_void_p(start - start % -128), 6, 2,
        ctypes.c_void_p(0x7F0000000000), dims, strides, box, ones, 0, 3, 0, 0)
print(u.maps[0].made_at, u.maps[0].result, len(t.maps), t.maps[0].python)
print("tma-still" in u._repr_html_())
"""


def test_in_process_only_what_is_made_in_the_block_is_seen(folder, tmp_path):
    script = tmp_path / "mine.py"
    script.write_text(IN_PROCESS)
    done = subprocess.run(
        [sys.executable, script],
        capture_output=True,
        text=True,
        env={**os.environ, **environment(folder)},
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "[2]",
        "another trace of this process is running: CUPTI has one subscriber at a time",
        "[(2, (64, 8)), (1, (64, 16))]",
        f"{script}:30 in <module> 0 2 ()",
        "True",
    ]


def test_in_process_without_a_gpu_the_reason_is_the_drivers():
    reason = driver.status().reason
    if reason is None:
        pytest.skip("this machine has a GPU")
    with pytest.raises(TmaUnsupportedError) as caught, tma.trace():
        pass
    assert str(caught.value) == reason


def test_in_process_beside_another_tool_the_reason_names_it(monkeypatch):
    monkeypatch.setenv("CUDA_INJECTION64_PATH", "/opt/ncu.so")
    with pytest.raises(TmaUnsupportedError, match=r"CUDA_INJECTION64_PATH is /opt/ncu\.so"):
        tma.trace().__enter__()

"""``python -m tma_dlpack``: what it prints and its exit status."""

import io
import json
import os
import signal
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tma_dlpack as tma
from tma_dlpack.cli.main import main
from tma_dlpack.cli.output import plain
from tma_dlpack.cli.table import commands
from tma_dlpack.draw import FIGURES

MAP = tma.driver_encode_tiled(
    "FLOAT16", 2, 0x7F00_0000_0000, (64, 128), (128,), (64, 16), (1, 1), swizzle=3, encoder="model"
)
TENSOR = ["--dtype", "float16", "--address", "0x100000000"]


def test_demo_does_the_main_job(capsys):
    assert main(["demo"]) == 0
    printed = capsys.readouterr().out
    assert "shape               (128, 64)  global_dim              (64, 128)" in printed
    assert " 96  00000000 00000000" in printed
    assert "its first 8 rows equal x[120:]: True" in printed
    assert "TmaPreconditionError: 2 violations" in printed
    assert "pad the last dimension from 1733 to 1736 elements" in printed


def test_the_package_runs_as_a_module_without_any_framework():
    code = (
        "import sys, tma_dlpack.cli.main as c; c.main(['demo']); "
        "print(sorted({'torch', 'jax', 'cupy', 'cuda'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_check_of_an_accepted_tensor_exits_0(capsys):
    assert main(["check", "--shape", "128,64", *TENSOR, "--box", "16,64"]) == 0
    tile = "one tile: 2048 bytes copied, 2048 bytes of shared memory, aligned to 128"
    lines = capsys.readouterr().out.splitlines()
    assert (lines[0], lines[-1]) == ("accepted", tile)


@pytest.mark.parametrize("box", ["16,64", "16x64", "(16, 64)", "0x10,0x40"])
def test_a_box_is_read_as_suggest_prints_it_and_as_python_does(box, capsys):
    assert main(["check", "--shape", "128x64", *TENSOR, "--box", box]) == 0
    assert "one tile: 2048 bytes" in capsys.readouterr().out


def test_check_of_a_refused_tensor_exits_1_and_prints_what_would_be_accepted(capsys):
    assert main(["check", "--shape", "128,64", *TENSOR, "--box", "16,3"]) == 1
    printed = capsys.readouterr().out
    assert "box_sizes[1] spans 6 bytes" in printed
    assert "box_sizes=(16, 8)" in printed


def test_what_would_be_accepted_is_printed_as_one_types_it(capsys):
    main(["check", "--shape", "64,64", "--dtype", "int8", "--box", "16,16"])
    printed = capsys.readouterr().out
    assert (
        "accepted:\n  python -m tma_dlpack check --shape=64,64 --dtype=int8 --box=16,16 " in printed
    )
    assert printed.endswith(" --data-type=UINT8\n")


def test_check_takes_strides_types_rules_and_targets(capsys):
    words = ["check", "--shape", "8,64", "--dtype", "float4_e2m1fnx2", "--box", "8,128"]
    assert main(words) == 1
    assert "PACKED_TYPE" in capsys.readouterr().out
    assert main([*words, "--target", "sm_100", "--strides", "64,1"]) == 0
    assert main([*words, "--target", "sm_100", "--strides", "70,1"]) == 1
    assert "70 elements, 70 bytes" in capsys.readouterr().out


def test_check_writes_the_report_as_html(tmp_path, capsys):
    page = tmp_path / "report.html"
    main(["check", "--shape", "128,64", *TENSOR, "--box", "16,3", "--html", str(page)])
    assert "BOX_INNER_16B" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("wrap", [bytes.hex, lambda b: b.hex(" "), lambda b: "0x" + b.hex()])
def test_decode_reads_hex_digits(wrap, capsys):
    assert main(["decode", wrap(bytes(MAP))]) == 0
    assert "tiled map of FLOAT16, rank 2, at 0x7f0000000000" in capsys.readouterr().out


@pytest.mark.parametrize("content", [bytes(MAP), bytes(MAP).hex(" ").encode()])
def test_decode_reads_a_file_of_bytes_or_hex(content, tmp_path, capsys):
    dump = tmp_path / "map.bin"
    dump.write_bytes(content)
    assert main(["decode", str(dump)]) == 0
    assert "box_dim                 (64, 16)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("word", "status"), [("00", 2), ("no/such/file", 2), ("ff" * 128, 1), ("00" * 128, 1)]
)
def test_decode_tells_what_is_no_map_from_what_is_no_dump(word, status, capsys):
    assert main(["decode", word]) == status
    printed = capsys.readouterr()
    assert printed.err.startswith("error: ") or printed.out.startswith(
        "an all-zero map: all 128 bytes are 0"
    )


@pytest.mark.parametrize("word", ["no/such/file", "0x1 0x2", "zz" * 5000, "a\0b"])
def test_decode_of_what_is_neither_file_nor_map_lists_the_forms_that_are_read(word, capsys):
    assert main(["decode", word]) == 2
    said = capsys.readouterr().err
    assert "which is neither a dump nor a file; it must be 128 bytes" in said
    assert "x/32xw" in said
    assert len(said) < 1000


def test_decode_reads_the_words_of_a_debugger(capsys):
    words = struct.unpack("<32I", bytes(MAP))
    lines = [
        f"0x7ffe{16 * n:04x} <map+{16 * n}>:\t"
        + "\t".join(f"0x{w:08x}" for w in words[4 * n :][:4])
        for n in range(8)
    ]
    assert main(["decode", "\n".join(lines)]) == 0
    assert "tiled map of FLOAT16, rank 2, at 0x7f0000000000" in capsys.readouterr().out


def test_decode_of_a_file_of_something_else_lists_the_forms(tmp_path, capsys):
    other = tmp_path / "notes.txt"
    other.write_text("nothing of the kind")
    assert main(["decode", str(other)]) == 2
    assert "the map is 19 bytes; it must be 128 bytes" in capsys.readouterr().err


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/urandom"])
def test_decode_of_an_endless_file_stops(device, capsys):
    assert main(["decode", device]) == 2
    assert "the map is at least 65536 bytes; it must be 128 bytes" in capsys.readouterr().err


@pytest.mark.parametrize("word", ["foo", "-16", "1.5"])
def test_an_address_that_is_none_is_named(word, capsys):
    words = ["check", "--shape", "8,64", "--dtype", "float16", "--box", "8,64"]
    assert main([*words, f"--address={word}"]) == 2
    assert f"'{word}' is not an address; write one such as 0x100000000" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["--shape=-1,64"], "shape is (-1, 64); it must have extents of 0 or more"),
        (["--shape=8,64", "--strides=1"], "strides are (1,) for shape (8, 64)"),
    ],
)
def test_a_shape_that_is_none_is_refused_with_a_fix(words, found, capsys):
    assert main(["check", *words, *TENSOR, "--box", "8,64"]) == 2
    said = capsys.readouterr().err
    assert found in said
    assert "fix: pass" in said


BOXED = ["check", "--shape=128,64", *TENSOR, "--box=16,64"]


@pytest.mark.parametrize(
    "word",
    ["3", "0x3", "bytes128", "CU_TENSOR_MAP_SWIZZLE_128B", "128", "SWIZZLE_128B", "Swizzle<3,4,3>"],
)
def test_an_option_is_a_number_or_a_name(word, capsys):
    assert main([*BOXED, "--swizzle", word]) == 0


@pytest.mark.parametrize("word", ["3.7", "True", "(3)", "3e0", ""])
def test_what_python_would_make_a_number_of_is_none(word, capsys):
    assert main([*BOXED, "--swizzle", word]) == 2
    assert f"swizzle is {word!r}; it must be a TmaSwizzle" in capsys.readouterr().out


def test_empty_rules_are_not_taken_for_none(capsys):
    assert main([*BOXED, "--rules", ""]) == 2
    assert "rules is ''; it must be one of 'libcu++', 'driver'" in capsys.readouterr().out


@pytest.mark.parametrize("word", ["128,64", "128,64,", "(128, 64)", "[0x80, 64]"])
def test_a_shape_is_read_as_one_writes_it(word, capsys):
    assert main(["check", f"--shape={word}", *TENSOR, "--box=128,64"]) == 0


@pytest.mark.parametrize("word", ["128,,64", ",128,64", "128,64,,", "", "()", "128,64.0"])
def test_a_shape_with_an_empty_entry_is_named(word, capsys):
    assert main(["check", f"--shape={word}", *TENSOR, "--box=16,64"]) == 2
    assert (
        f"{word!r} is not a list of integers; write one such as 128,64" in capsys.readouterr().err
    )


@pytest.mark.parametrize("words", [[*BOXED, "--html="], ["draw", *BOXED[1:], "--out="]])
def test_a_file_without_a_name_is_refused(words, capsys):
    assert main(words) == 2
    assert "the name of the file is empty" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["float4_e2m1fn_x2", "float4_e2m1fnx2"])
def test_fp4_has_torchs_name_and_that_of_messages(name, capsys):
    words = ["check", "--shape=8,64", "--dtype", name, "--box=8,128", "--target=sm_100"]
    assert main(words) == 0


@pytest.mark.parametrize("name", ["fp16", "half", "bf16", "torch.float16", "torch.half", "e4m3"])
def test_a_dtype_has_the_names_that_people_write(name, capsys):
    assert main(["check", "--shape=64,64", "--dtype", name, "--box=8,64"]) == 0


@pytest.mark.parametrize("name", ["u4", "fp8", "", "torch", "float17"])
def test_a_dtype_of_no_clear_name_is_refused_with_the_names(name, capsys):
    assert main(["check", "--shape=64,64", "--dtype", name, "--box=8,64"]) == 2
    said = capsys.readouterr().err
    assert f"dtype is {name!r}; it must be one of uint8, " in said.replace("int32, int64, ", "")
    assert "or a usual one of them such as fp16, bf16, half or e4m3" in " ".join(said.split())


def test_a_reader_that_leaves_is_no_error():
    code = "import sys, tma_dlpack.cli.main as c; sys.exit(c.main(['doctor']))"
    running = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    running.stdout.close()
    said = running.stderr.read()
    running.stderr.close()
    assert (running.wait(), said) == (141, "")


def test_doctor_says_who_would_encode(capsys):
    assert main(["doctor"]) == 0
    printed = capsys.readouterr().out
    assert f"NumPy {np.__version__}" in printed
    assert "maps would be encoded by the model" in printed or "by the driver" in printed


def test_include_prints_the_folder_of_the_headers_and_nothing_else(capsys):
    assert main(["include"]) == 0
    printed = capsys.readouterr().out
    assert printed == tma.get_include() + "\n"
    assert {"tma_dlpack.h", "tma_dlpack_make.hpp"} <= set(os.listdir(printed.strip()))


def test_check_takes_rules_that_are_not_to_be_asked(capsys):
    words = ["check", "--shape=64,64", "--dtype=float32", "--box=65,16"]
    assert main(words) == 1
    assert "fix: pass allow=('BOX_IN_SHAPE',): the driver" in capsys.readouterr().out
    assert main([*words, "--allow=BOX_IN_SHAPE"]) == 0
    assert main([*words, "--allow=BOX_RANGE"]) == 2
    assert "allow names BOX_RANGE" in capsys.readouterr().out


def test_decode_reads_a_map_of_another_target(capsys):
    read = tma.TensorMap.from_bytes(bytes(128), "sm_100").replace(swizzle_mode="bytes128_atom_32B")
    dump = bytes(read).hex()
    assert main(["decode", dump, "--target=sm_100"]) == 0
    assert "bytes128_atom_32B" in capsys.readouterr().out
    assert main(["decode", dump]) == 1
    assert "bit 83 is set; they must be 0 in an sm_90 map" in capsys.readouterr().err


# -- version, help, exit status, JSON -------------------------------------------------------------


def test_the_command_prints_its_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"tma_dlpack {tma.__version__}\n"


def help_of(words, capsys):
    assert main([*words, "--help"]) == 0
    return " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("name", commands())
def test_help_states_what_the_command_does_its_examples_and_its_exit_status(name, capsys):
    about, row = help_of([name], capsys), commands()[name]
    assert f"usage: python -m tma_dlpack {name} " in f"{about} "
    assert f"exit status: {row.status}" in about
    assert "SUPPRESS" not in about
    for example in row.examples:
        assert f"python -m tma_dlpack {' '.join(example.split())}" in about


def test_the_help_of_the_program_lists_every_command_under_a_heading(capsys):
    about = help_of([], capsys)
    for name, row in commands().items():
        assert f"{name} {row.about}" in about
    assert "Find out why it failed: explain find the cause" in about


def test_verify_without_a_driver_has_nothing_to_compare_with(monkeypatch, capsys):
    def missing(*args, **keywords):
        raise tma.TmaUnsupportedError("no CUDA driver: libcuda.so.1 was not found")

    monkeypatch.setattr(tma, "verify", missing)
    assert main(["verify"]) == 2
    assert capsys.readouterr().err == ("error: no CUDA driver: libcuda.so.1 was not found\n")


def test_help_says_what_each_figure_shows(capsys):
    about = help_of(["draw"], capsys)
    assert [name for name, (what, *_) in FIGURES.items() if f"{name}: {what}" not in about] == []


@pytest.mark.parametrize(
    ("words", "option", "values"),
    [
        (["check"], "--swizzle", ["none (0)", "bytes128 (3)", "bytes128_atom_64B (6)"]),
        (["check"], "--interleave", ["bytes16 (1)", "bytes32 (2)"]),
        (["check"], "--l2", ["bytes64 (1)", "bytes256 (3)"]),
        (["check"], "--oobfill", ["none (0), nan (1)"]),
        (["check"], "--data-type", ["UINT8 (0)", "16U6_ALIGN16B (15)"]),
        (["check"], "--dtype", ["bfloat16 (bf16)", "float8_e4m3fn (e4m3)"]),
        (["check"], "--target", ["sm_90, sm_100, sm_103, sm_107, sm_110, sm_120, sm_121"]),
        (["check"], "--rules", ["libcu++", "driver"]),
        (["check"], "--allow", ["STRIDE_UNIQUE", "BOX_IN_SHAPE"]),
        (["check"], "--channels", ["1..256"]),
        (["check"], "--pixels", ["1..1024"]),
        (["draw"], "--figure", ["shared"]),
        (["decode"], "--target", ["sm_90, sm_100"]),
        (["explain"], "--target", ["sm_90, sm_100"]),
    ],
)
def test_help_names_the_values_of_an_option(words, option, values, capsys):
    about = help_of(words, capsys).partition(f" {option} ")[2]
    for value in values:
        assert value in about


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ([*BOXED], 0),
        ([*BOXED, "--swizzle", "bytes32"], 1),  # a row of 128 bytes
        ([*BOXED, "--swizzle", "bytes23"], 2),
        (["draw", *BOXED[1:], "--swizzle", "bytes32"], 1),
        (["draw", *BOXED[1:], "--swizzle", "bytes23"], 2),
        (["draw", *BOXED[1:], "--out", "/no/such/folder/map.svg"], 2),
        (["decode", bytes(MAP).hex(), "--target=sm_80"], 2),
        (["rules", "BOX_RANG"], 2),
        (["explain", "/no/such/file"], 2),
    ],
)
def test_the_exit_status_tells_refused_from_unread(words, status, capsys):
    assert main(words) == status


def json_of(words, capsys):
    status = main([*words, "--json"])
    return status, json.loads(capsys.readouterr().out)


def test_a_check_is_printed_as_json(capsys):
    status, found = json_of(["check", "--shape=64,64", "--dtype=fp16", "--box=8,6"], capsys)
    assert (status, found["ok"], found["advice"]) == (1, False, [])
    assert found["violations"] == [
        {
            "rule": "BOX_INNER_16B",
            "argument": "box_sizes",
            "found": "box_sizes[1] spans 12 bytes",
            "limit": "it must be a multiple of 16 bytes when interleave_layout is none",
            "fix": "use a multiple of 8 elements (16 bytes); the nearest that fits is "
            "box_sizes=(8, 8)",
            "source": tma.rules("BOX_INNER_16B")[0].source,
        }
    ]
    assert found["fixed"]["box_sizes"] == [8, 8]
    unclear = ["check", "--shape=64,64", "--dtype=fp16", "--box=8,8", "--swizzle=bytes23"]
    status, found = json_of(unclear, capsys)
    assert (status, found["violations"][0]["rule"], found["fixed"]) == (2, "ARGUMENT", None)


def test_a_map_is_printed_as_json(capsys):
    status, found = json_of(["decode", bytes(MAP).hex()], capsys)
    assert status == 0
    assert found["data_type"] == "FLOAT16"
    assert (found["global_dim"], found["shape"]) == ([64, 128], [128, 64])
    assert (found["swizzle"], found["remarks"]) == ("bytes128", [])
    assert found["bytes"] == bytes(MAP).hex()


def test_an_explanation_is_printed_as_json(tmp_path, capsys):
    log = tmp_path / "log"
    log.write_text("globalDim (64,64)\nglobalStrides (2,100)\nboxDim (64,64)\n")
    status, found = json_of(["explain", str(log)], capsys)
    assert status == 1
    assert [v["rule"] for v in found["reports"][0]["violations"]] == ["STRIDE_ALIGNED"]
    assert found["requests"][0]["box_dim"] == [64, 64]
    log.write_text("nothing of the kind")
    status, found = json_of(["explain", str(log)], capsys)
    assert (status, found["reports"]) == (2, [])


def test_suggestions_are_printed_as_json(capsys):
    words = ["suggest", "--shape=4096,4096", "--dtype=bf16", "--tile=128,64"]
    status, found = json_of(words, capsys)
    assert status == 0
    assert found["items"][0]["arguments"]["swizzle"] == "bytes128"
    assert found["items"][0]["copies"] == 1
    status, found = json_of([*words[:-1], "--tile=128,60"], capsys)
    assert (status, found["items"]) == (1, [])
    assert found["reasons"]


def test_the_doctors_facts_are_printed_as_json(capsys):
    status, found = json_of(["doctor"], capsys)
    assert (status, found["numpy"], found["tma_dlpack"]) == (0, np.__version__, tma.__version__)
    assert found["encoder"] in ("driver", "model")


def test_rules_are_printed_as_json(capsys):
    status, found = json_of(["rules", "BOX_RANGE"], capsys)
    assert (status, [rule["id"] for rule in found]) == (0, ["BOX_RANGE"])


def test_json_has_the_names_of_members_the_hex_of_bytes_and_lists():
    result = {"map": tma.TmaSwizzle.bytes64, "data": b"\x01", "sizes": (1, 2)}
    assert plain([result]) == [{"map": "bytes64", "data": "01", "sizes": [1, 2]}]


def test_decode_and_explain_read_standard_input(monkeypatch, capsys):
    for words, shown in ((["decode", "-"], "tiled map of FLOAT16"), (["explain", "-"], "1 encode")):
        for dump in (bytes(MAP), bytes(MAP).hex(" ").encode()):
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(dump)))
            assert main(words) == 0
            assert shown in capsys.readouterr().out


def test_wide_tiles_and_slices_have_flags_and_come_back_as_flags(capsys):
    words = ["--shape=64,128", "--dtype=fp16", "--box=8,128", "--swizzle=bytes128"]
    assert main(["check", *words]) == 1
    capsys.readouterr()
    assert main(["check", *words, "--split-inner", "--ragged", "0"]) == 0
    assert main(["draw", *words, "--split-inner"]) == 0
    capsys.readouterr()
    assert main(["check", *words[:2], "--box=8,100", words[3], "--split-inner"]) == 1
    assert capsys.readouterr().out.endswith(
        "  python -m tma_dlpack check --shape=64,128 --dtype=fp16 --box=8,128 --swizzle=bytes128 "
        "--split-inner\n"
    )
    assert main(["explore", *words, "--split-inner", "--out=-"]) == 0
    assert "split_inner=yes" in capsys.readouterr().out


IM2COL = "--shape=8,56,56,64 --dtype=fp16 --lower=-1,-1 --upper=-1,-1 --channels=64 --pixels=128"


@pytest.mark.parametrize(
    ("words", "state"),
    [
        (f"{IM2COL} --swizzle=bytes128 --rules=documented", "kind=im2col&swizzle=bytes128"),
        ("--shape=64,64 --dtype=fp16 --swizzle=bytes32", "swizzle=bytes32"),
        ("--shape=64,64 --dtype=fp32 --box=16,32 --coords=8,16", "coords=8,16"),
        ("--shape=64,128 --dtype=fp16 --box=8,128 --split-inner --coords=0,8,0", "coords=0,8,0"),
    ],
)
def test_the_explorer_starts_with_every_argument_of_the_command_line(capsys, words, state):
    assert main(["explore", *words.split(), "--out=-"]) == 0
    page = capsys.readouterr().out
    assert all(part in page for part in state.split("&"))
    assert "rules=documented" not in page


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("--shape=64,64 --dtype=fp32 --box=16,32 --coords=8", "has 1 integer; the map has 2 dim"),
        ("--shape=64,64 --dtype=fp16 --box=8,64 --split-inner --coords=0,8", "the map has 3 dim"),
        ("--shape=8,8,8,64 --dtype=f16 --channels=64 --pixels=300", "pass either --box"),
        (f"{IM2COL} --box=8,8", "pass either --box"),
    ],
)
def test_the_explorer_ignores_no_argument(capsys, words, found):
    assert main(["explore", *words.split(), "--out=-"]) == 2
    assert found in capsys.readouterr().err


#: Runs Python as a terminal does. Background jobs of a shell and their children would ignore
#: Ctrl-C.
WITH_CTRL_C = (
    "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); "
    "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
)


@pytest.mark.skipif(sys.platform == "win32", reason="a process cannot interrupt itself there")
def test_ctrl_c_while_numpy_is_imported_prints_no_traceback(tmp_path):
    (tmp_path / "numpy.py").write_text(
        "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(9)\n"
    )
    path = os.pathsep.join([str(tmp_path), str(Path(tma.__file__).parents[1])])
    command = [sys.executable, "-c", WITH_CTRL_C, "-m", "tma_dlpack", "rules"]
    run = subprocess.run(command, capture_output=True, env=os.environ | {"PYTHONPATH": path})
    assert (run.returncode, run.stderr) == (-signal.SIGINT, b"")


def test_ctrl_c_is_left_alone_where_the_package_is_imported():
    code = "import signal, tma_dlpack; print(signal.getsignal(2) is signal.default_int_handler)"
    command = [sys.executable, "-c", WITH_CTRL_C, "-c", code]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.stdout == "True\n"

"""`explain` for failures that people pasted in public threads: each row of a corpus."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

import tma_dlpack as tma
from tma_dlpack.cli.main import main
from tma_dlpack.debug.explain import NOTHING_READ
from tma_dlpack.debug.explain.failures import FAILURES

CORPUS = json.loads((Path(__file__).parents[1] / "golden/failures.json").read_text())["failures"]
IDS = {failure.words: failure.id for failure in FAILURES.values()}


def named(text: str) -> list[str]:
    """Return the failures and the rules that an explanation names, in its order."""
    found = tma.explain(text)
    rules = [v.rule for report in found.reports for v in report.violations]
    return rules + [IDS.get(words, words.split()[0]) for words in found.symptoms]


def text_of(row: dict) -> str:
    return "\n".join(row["text"])


def test_the_corpus_is_of_150_texts_from_public_threads():
    assert len(CORPUS) >= 150
    assert len({row["source"] for row in CORPUS}) >= 100
    assert all(row["source"].count("#") == row["source"].count("/") == 1 for row in CORPUS)
    assert len({text_of(row) for row in CORPUS}) == len(CORPUS)


@pytest.mark.parametrize(
    "row", CORPUS, ids=[f"{row['source']} {n}" for n, row in enumerate(CORPUS)]
)
def test_a_pasted_failure_is_explained_with_its_exit_status(row, tmp_path, capsys):
    log = tmp_path / "a.log"
    log.write_text(text_of(row))
    assert main(["explain", str(log)]) == row["status"], capsys.readouterr().out
    assert named(text_of(row))[:1] == row["explained"]


FORMS = {
    "colours": lambda line: f"\x1b[31;1m{line}\x1b[0m",
    "a logger's prefix": lambda line: f"2026-05-01 12:00:00.123 [rank3]: {line}",
    "a worker's prefix": lambda line: f"(Engine pid=7) ERROR 02-05 00:58:24 [core.py:968] {line}",
    "a quotation": lambda line: f"> {line}",
    "carriage returns": lambda line: f"{line}\r",
}


@pytest.mark.parametrize("form", FORMS)
def test_failures_of_one_line_are_named_whatever_is_around_them(form):
    rows = [row for row in CORPUS if len(row["text"]) == 1 and row["explained"]]
    lost = [
        row["source"]
        for row in rows
        if row["explained"][0] not in named(FORMS[form](row["text"][0]))
    ]
    assert lost == []


@pytest.mark.parametrize("failure", FAILURES)
def test_a_row_has_causes_a_check_each_and_a_next_step(failure):
    row = FAILURES[failure]
    assert row.causes
    assert all(cause.misuse and cause.check for cause in row.causes)
    assert row.step
    assert row.source


def test_every_row_with_patterns_explains_a_text_of_the_corpus_or_of_this_file():
    seen = {name for row in CORPUS for name in row["explained"]}
    seen |= {name for text, name in OTHERS}
    assert {failure.id for failure in FAILURES.values() if failure.patterns} <= seen


OTHERS = [
    ("invalid argument", "1"),
    ("error 1", "1"),
    ("CUDA_ERROR_INVALID_VALUE", "1"),
    ("cudaErrorInvalidValue", "1"),
    ("CUDAError: CUDA_ERROR_INVALID_VALUE", "1"),
    ("cuTensorMapEncodeTiled failed", "1"),
    ("TE/common/util.cu:9 in function create_2D_tensor_map: CUDA Error: invalid argument", "1"),
    (
        "op tma_partition: shared-memory operand stride at mode 1 is 16 bits, not a multiple of "
        "the required 128-bit TMA smem alignment",
        "cute",
    ),
    ("error: failed to legalize operation 'tt.make_tensor_descriptor'", "triton descriptor"),
    ("a.o: in function `main': undefined reference to `cuTensorMapEncodeTiled'", "linker"),
    ('a.cu(7): error: identifier "CUtensorMap" is undefined', "compiler"),
    ("========= Warning: Race reported between Write access at k+0x1 and Read access", "race"),
    ("========= Barrier error detected. Divergent thread(s) in block", "barrier"),
    ("TypeError: cannot determine Numba type of <class 'tma_dlpack.TensorMap'>", "numba"),
    ("xid 31", "Xid 31"),
    ("Error 1: invalid argument", "1"),
    ("CUresult: 1", "1"),
    ("CUDA Driver API error = 0001 from file <a.cu>, line 5", "1"),
    ("CudaAPIError: [1] Call to cuLaunchKernel results in CUDA_ERROR_INVALID_VALUE", "1"),
    ("CudaAPIError: [700] Call to cuMemcpyDtoH results in UNKNOWN_CUDA_ERROR", "700"),
    ("Failed to launch kernel: invalid argument", "1"),
    ("/usr/bin/ld: cannot find -lcuda: No such file or directory", "linker"),
    ("error LNK2019: unresolved external symbol cuTensorMapEncodeTiled", "linker"),
    ("error[E0412]: cannot find type `CUtensorMap` in this scope", "compiler"),
    ("a.h(3): error C2061: syntax error: identifier 'CUtensorMap'", "compiler"),
    ("CUDA error: too many resources requested for launch", "smem"),
    ("========= Out-of-range Shared or Local Address", "700"),
    ("OpError: expects arch to be at least sm_90, but got sm_89", "cute"),
    ("ptxas: Instruction 'cp.async.bulk' requires .target sm_90 or higher", "target"),
    ("NVRM: Xid (PCI:0000:41:00): 13, Graphics Exception: ESR 0x5067b0=0x9", "Xid 13"),
    ("CUDA Exception: Cluster target block not present", "cluster-block"),
    ("CUDA_EXCEPTION_18, Cluster Block Not Present", "cluster-block"),
    ("CUDBG_EXCEPTION_CLUSTER_BLOCK_NOT_PRESENT", "cluster-block"),
    (
        "NVRM: Xid (PCI:0000:41:00): 13, Graphics SM Warp Exception on (GPC 0, TPC 0, SM 0): "
        "Cluster target block not present",
        "cluster-block",
    ),
]


@pytest.mark.parametrize(("text", "failure"), OTHERS)
def test_spellings_that_no_thread_of_the_corpus_has(text, failure):
    assert named(text) == [failure]


UNRELATED = [
    "OSError: [Errno 22] Invalid argument",
    "make: *** [Makefile:7: all] Error 1",
    "ValueError: invalid argument: expected 2 values",
    "Process finished with exit code 1",
    "gcc: error: unrecognized command-line option '-foo'",
    "subprocess.CalledProcessError: Command 'nvcc' returned non-zero exit status 1.",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
    "KeyError: 'tensor_map_of_users'",
    "ImportError: cannot import name 'Descriptor' from 'google.protobuf'",
    "RuntimeError: shape '[2, 3]' is invalid for input of size 5",
    "ModuleNotFoundError: No module named 'triton'",
    "bash: /dev/shm: No space left on device (shared memory)",
    "It is possible that dataloader's workers are out of shared memory. Please try to raise your "
    "shared memory limit.",
    "RuntimeError: DataLoader worker (pid 27) is killed by signal: Bus error, insufficient shared "
    "memory (shm)",
    "INVALID_ARGUMENT: You must feed a value for placeholder tensor",
    "Deadlock found when trying to get lock; try restarting transaction",
    "OutOfResources: out of resource: tensor memory, Required: 1024, Hardware limit: 512",
    "RuntimeError: No CUDA GPUs are available",
    "fatal error: cuda.h: No such file or directory",
    "CUDA error: invalid device ordinal",
    "ld: cannot find -lcudart",
]


@pytest.mark.parametrize("text", UNRELATED)
def test_what_has_nothing_to_do_with_tma_gets_one_sentence_and_status_2(text, capsys):
    trace = f"Traceback (most recent call last):\n  File 'a.py', line 1\n{text}\n"
    for pasted in (text, trace):
        assert tma.explain(pasted).notes == (NOTHING_READ,)
        assert main(["explain", pasted]) == 2


SANITIZER = """\
========= COMPUTE-SANITIZER
========= Program hit CUDA_ERROR_INVALID_VALUE (error 1) due to "invalid argument" on CUDA API \
call to cuTensorMapEncodeTiled.
=========     Saved host backtrace up to driver entry point at error
========= Invalid __shared__ write of size 4 bytes
=========     at copy(CUtensorMap)+0x1a0 in copy.cu:31
=========     by thread (0,0,0) in block (0,0,0)
=========     Address 0x8400 is out of bounds
"""


def test_of_a_sanitizers_log_the_first_failure_and_the_cause_it_names_are_first():
    found = tma.explain(SANITIZER)
    assert [words.split()[0] for words in found.symptoms] == ["1", "700"]
    assert "a stride is no multiple of 16 bytes" in found.notes[0]
    (first,) = [note for note in found.notes if note.startswith("700") and "cause 1:" in note]
    assert "beyond the block's shared memory" in first
    assert "(the text has: Invalid __shared__ write of size 4 bytes)" in first


def test_without_the_sanitizers_line_the_measured_order_stays():
    note = next(n for n in tma.explain("CUDA error 700").notes if "cause 1:" in n)
    assert "without __grid_constant__" in note


ANOTHER_CALL = "another call failed, not an encode"
A_STRIDE = "a stride is no multiple of 16 bytes"
HIT = 'Program hit cudaErrorInvalidValue (error 1) due to "invalid argument" on CUDA API call to '
XID_13 = "NVRM: Xid (PCI:0000:70:00): 13, Graphics SM Warp Exception on (GPC 1, TPC 1, SM 1): "


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("CUDA error (hopper/flash_fwd_launch_template.h:188): invalid argument", "the launch or"),
        ("CUDA error: invalid argument, cuTensorMapEncodeTiled", A_STRIDE),
        ("cudaMallocArray(&a, &desc, x, y) failed with the error invalid argument", ANOTHER_CALL),
        (f"========= {HIT}cudaPointerGetAttributes.", ANOTHER_CALL),
        (f"========= {HIT}cuTensorMapEncodeTiled.", A_STRIDE),
        (f"========= {HIT}cudaLaunchKernel.", A_STRIDE),
        (f"========= {HIT}cudaGetLastError.", A_STRIDE),
        (f"========= {HIT}cudaFuncSetAttribute.", "the launch or cudaFuncSetAttribute"),
        (f"========= {HIT}cudaLaunchKernelExC_v11060.", "the cluster of the launch"),
        (
            f"========= {HIT}cuLaunchKernel.\n========= Program hit error 999 on CUDA API call to "
            "cudaDeviceSynchronize.",
            A_STRIDE,
        ),
        (
            "Cuda Driver error detected: Returning 1 (CUDA_ERROR_INVALID_VALUE) from cuCtxSetLimit",
            ANOTHER_CALL,
        ),
        ("[1] Call to cuCtxSetLimit results in CUDA_ERROR_INVALID_VALUE", ANOTHER_CALL),
        ("[1] Call to cuLaunchKernel results in CUDA_ERROR_INVALID_VALUE", A_STRIDE),
        ("CUDA error: invalid argument, from cutlass and cuBLAS", A_STRIDE),
        (f"{XID_13}MMU Fault", "the map is in local or shared memory"),
        (f"{XID_13}Out Of Range Address", "the destination lies beyond"),
        (f"{XID_13}Misaligned Address", "the tile in shared memory"),
    ],
)
def test_the_cause_that_the_log_names_is_first(text, first):
    assert f", cause 1: {first}" in tma.explain(text).notes[0]


def test_a_block_that_is_not_present_is_a_fault_of_a_kernel_and_not_of_its_launch():
    found = tma.explain("CUDA Exception: Cluster target block not present")
    assert found.symptoms == ("a block of the cluster is not present",)
    assert "cause 1: a block of the cluster has ended" in found.notes[0]
    assert "postmortem" in found.notes[-1]
    assert named("cluster size is too large") == ["cluster"]


def test_an_encode_that_is_read_replaces_the_causes_of_error_1():
    text = (
        "CUDA_ERROR_INVALID_VALUE\nglobalDim (1001,4096,1,1,1)\nglobalStrides (2,2002,0,0,0)\n"
        "boxDim (64,128,1,1,1)\n"
    )
    assert named(text) == ["STRIDE_ALIGNED"]


@pytest.mark.parametrize("digit", ["\uff10", "\u0660", "\u0966"])
def test_a_foreign_digit_is_read_as_a_masked_one(digit):
    assert tma.explain(f"{digit}1").notes == (NOTHING_READ,)
    (request,) = tma.explain(f"globalDim (64,{digit}128)\nboxDim (64,64)\nrank 2\n").requests
    assert request.global_dim != (64, 128)


@pytest.mark.parametrize("hidden", ["\x1b[2J\x1b]0;x\x07", "\u202e", "\0", "\x9b2J", "\u2066"])
def test_no_control_character_of_a_log_reaches_the_terminal(hidden):
    text = f"op tma_partition {hidden} error: must be static\nInvalid __shared__ {hidden} write"
    found = tma.explain(text + "\nthe TMA kernel hangs")
    for shown in (str(found), repr(found), found._repr_html_()):
        assert not {*hidden} - {*"[2J]0;x"} & {*shown}


@pytest.mark.parametrize("piece", ["cuTensorMapEncodeTiled ", "xid (", "TMA must be ", "=" * 9])
def test_a_long_line_of_words_of_the_table_takes_linear_time(piece):
    before = time.process_time()
    tma.explain(piece * (200_000 // len(piece)))
    assert time.process_time() - before < 5


def test_a_dtype_without_bits_is_no_fault_of_the_producer():
    line = (
        "tma_dlpack: refused: rules=libcu++; tensor: dtype={{17, {bits}, 2}}, device={{2, 0}}, "
        "shape={{64, 64}}, strides={{64, 1}}; the tensor's elements have no bits; python -m "
        "tma_dlpack explain says why"
    )
    (violation,) = tma.explain(line.format(bits=0)).reports[0].violations
    assert (violation.rule, "producer" in violation.fix) == ("TENSOR_DTYPE", False)
    assert "x.view(torch.uint8)" in violation.fix
    assert "TENSOR_DTYPE" not in named(line.format(bits=4))

"""`postmortem` names one slip in kernels of other projects and in GEMMs of a torch process."""

from __future__ import annotations

import pytest

import tma_dlpack as tma

FULL, EMPTY = 0x38800, 0x38820  # of the first of four stages of grouped_gemm.cu

#: Slip -> for each barrier with waiting warps, causes before consequences: address, blocks, warps,
#: parity, rule, words of the message.
HANGS = {
    "triton_bytes": [
        (0xC400, 4, 16, 0, "HANG_BYTES", "17,408 bytes are expected, 16,384 came, and 1,024 are"),
    ],
    "triton_no_copy": [
        (0xC400, 4, 16, 0, "HANG_BYTES", "8,192 came, and 8,192 are missing (1 x 8,192: whole"),
    ],
    "triton_no_arm": [
        (0xC400, 4, 16, 0, "HANG_NOT_ANNOUNCED", "16,384 bytes came (2 x 8,192) that nobody"),
    ],
    "triton_count": [
        (0xC400, 4, 16, 0, "HANG_ARRIVALS", "1 of 2 arrivals came: it was initialised for 1 too"),
    ],
    "triton_parity": [
        (0xC400, 1, 1, 1, "HANG_MISSED", "3 warps of the same warpgroups went on to a wgmma"),
    ],
    "gemm_bytes": [
        (FULL, 2, 16, 0, "HANG_BYTES", "50,176 bytes are expected, 49,152 came, and 1,024 are"),
        (EMPTY, 2, 2, 0, "HANG_FOLLOWS", "may be those that wait at 0x38800"),
    ],
    "gemm_one_copy": [
        (FULL, 2, 16, 0, "HANG_BYTES", "32,768 came, and 16,384 are missing (2 x 8,192: whole co"),
        (EMPTY, 2, 2, 0, "HANG_FOLLOWS", "may be those that wait at 0x38800"),
    ],
    "gemm_no_arm": [
        (FULL, 2, 16, 0, "HANG_NOT_ANNOUNCED", "49,152 bytes came that nobody announced"),
        (EMPTY, 2, 2, 0, "HANG_FOLLOWS", "may be those that wait at 0x38800"),
    ],
    "gemm_full_count": [
        (FULL, 2, 16, 0, "HANG_ARRIVALS", "1 of 2 arrivals came: it was initialised for 1 too"),
        (EMPTY, 2, 2, 0, "HANG_FOLLOWS", "may be those that wait at 0x38800"),
    ],
    "gemm_empty_count": [
        (EMPTY, 2, 2, 0, "HANG_ARRIVALS", "4 of 5 arrivals came: it was initialised for 1 too"),
        (FULL, 2, 16, 1, "HANG_FOLLOWS", "may be those that wait at 0x38820"),
    ],
    "gemm_parity": [
        (FULL, 2, 16, 0, "HANG_CYCLE", "has arrived either; no phase need ever have ended"),
        (EMPTY, 2, 2, 0, "HANG_CYCLE", "has arrived either; no phase need ever have ended"),
    ],
    "gemm_other_parity": [
        (FULL, 2, 10, 0, "HANG_MISSED", "6 warps of the same warpgroups went on to a wgmma"),
        (0x38838, 2, 2, 0, "HANG_FOLLOWS", "may be those that wait at 0x38800"),
    ],
    # One block of the cluster never learns that its stages are free, so the other block misses
    # copies.
    "gemm_no_release": [
        (FULL, 1, 8, 1, "HANG_CYCLE", "(16,384 bytes of another block's copies came)"),
        (EMPTY, 1, 1, 0, "HANG_CYCLE", "either; some barrier has been through a phase"),
        (
            FULL,
            1,
            8,
            1,
            "HANG_FOLLOWS",
            "not armed its own barrier here: its warps wait at 0x38820",
        ),
        (0x38838, 1, 1, 0, "HANG_FOLLOWS", "may be those that wait at 0x38800"),
    ],
    "gemm_stage": [
        (0x38400, 1, 1, 1, "HANG_MISSED", "3 warps of the same warpgroups went on to a wgmma"),
        (0x38410, 2, 12, 0, "HANG_FOLLOWS", "may be those that wait at 0x38400 and 0x38430"),
        (0x38430, 2, 2, 1, "HANG_FOLLOWS", "3 of 4 arrivals came in this phase: the warps that"),
    ],
    "cutlass_bytes": [
        (0x400, 8, 64, 0, "HANG_BYTES", "1,024 bytes are missing (no whole copies)"),
        (0x438, 8, 8, 0, "HANG_FOLLOWS", "may be those that wait at 0x400"),
    ],
    "cutlass_count": [
        (0x438, 8, 8, 0, "HANG_ARRIVALS", "10 of 11 arrivals came: it was initialised for 1 too"),
        (0x400, 8, 64, 1, "HANG_FOLLOWS", "may be those that wait at 0x438"),
    ],
    "cutlass_no_release": [
        (0x450, 8, 8, 0, "HANG_ENDED", "10 of 10 arrivals are missing, and no warp is left to"),
    ],
}


@pytest.mark.parametrize("slip", HANGS)
def test_a_hang_is_named(others, slip):
    found = tma.postmortem(others / f"{slip}.core")
    hung = [b for b in found.barriers if b.rule]
    rows = [(b.address, b.blocks, b.waiting, b.parity, b.rule) for b in hung]
    assert rows == [row[:5] for row in HANGS[slip]]
    for barrier, row in zip(hung, HANGS[slip], strict=True):
        assert row[5] in barrier.message
        assert barrier.fix
    assert not found.faults


#: Slip -> kernel, instruction, rule, words of the message, number of warps.
FAULTS = {
    "triton_coordinate": ("matmul", "UTMALDG.2D", "COORDINATE_16B", "coordinate is 4, 8 bytes", 4),
    "triton_init": ("matmul", "SYNCS.ARRIVE.TRANS64", "BARRIER_INIT", "was never initialised", 4),
    "gemm_late_init": (
        "grouped_gemm", "SYNCS.ARRIVE.TRANS64", "BARRIER_INIT", "was never initialised", 2,
    ),
    "gemm_consumer_parity": (
        "grouped_gemm", "SYNCS.ARRIVE.TRANS64", "BARRIER_ARRIVALS", "waits for 0 more", 2,
    ),
}  # fmt: skip


@pytest.mark.parametrize("slip", FAULTS)
def test_a_fault_is_named(others, slip):
    (fault,) = tma.postmortem(others / f"{slip}.core").faults
    kernel, instruction, rule, said, alike = FAULTS[slip]
    assert (fault.kernel, fault.instruction, fault.rule) == (kernel, instruction, rule)
    assert said in fault.message
    assert fault.alike == alike
    assert fault.causes[0].is_sure


def test_every_dump_is_in_the_tables(others):
    assert {path.stem for path in others.glob("*.core")} == {*HANGS, *FAULTS}


def test_a_triton_kernels_wait_is_named_by_its_python_line(others):
    found = tma.postmortem(others / "triton_bytes.core")
    assert found.barriers[0].lines == ("/tmp/k/triton_slips.py:43",)
    assert [one.map.tx_bytes for one in found.maps] == [8192] * 3


def test_cutlass_waits_are_named_by_the_way_to_them_and_its_kernel_with_a_limit(others):
    found = tma.postmortem(others / "cutlass_count.core")
    assert found.kernels[0].name == "cutlass::device_kernel<...>"
    empty, full = found.barriers[:2]
    assert empty.lines[0] == full.lines[0]  # CUTLASS's wait function; the callers differ
    assert any("sm90_pipeline.hpp:513" in line for line in empty.lines)
    assert any("sm90_pipeline.hpp:451" in line for line in full.lines)
    assert max(map(len, str(found).splitlines())) <= 140  # its folders are long


@pytest.mark.parametrize("slip", ["gemm_stage", "gemm_other_parity", "triton_parity"])
def test_warps_that_went_past_a_wait_stand_at_the_wgmma(others, slip):
    standing = {row.what for row in tma.postmortem(others / f"{slip}.core").kernels[0].standing}
    assert "at a wgmma, which needs all four warps of its warpgroup" in standing


@pytest.mark.parametrize("slip", ["bytes", "coordinate"])
def test_kernels_of_two_gpus_are_told_apart(slip, unpack):
    found = tma.postmortem(unpack(f"two_gpus_{slip}"))
    both = [(f"copy on GPU {gpu}", (gpu + 1, 1, 1), gpu + 1) for gpu in (0, 1)]
    assert [(k.name, k.grid, k.blocks) for k in found.kernels] == both
    assert [one.kernel for one in found.maps] == [name for name, *_ in both]
    if slip == "bytes":
        lacks = [(b.kernel, b.blocks, b.waiting, b.bytes, b.rule) for b in found.barriers]
        assert lacks == [
            ("copy on GPU 0", 1, 2, 64, "HANG_BYTES"),
            ("copy on GPU 1", 2, 4, 128, "HANG_BYTES"),
        ]
    else:
        faults = [(f.kernel, f.alike, f.map.kernel, f.rule) for f in found.faults]
        assert faults == [(name, n, name, "COORDINATE_16B") for name, _, n in both]

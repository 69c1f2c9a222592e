"""Every result has HTML for a notebook: batches, verifications, bandwidths and refusals."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from draw_cases import numbered, pictured

import tma_dlpack as tma
from tma_dlpack import draw
from tma_dlpack.verification import VerifyReport, VerifyRow
from tma_dlpack.verification.bandwidth import BandwidthReport, BandwidthRow
from tma_dlpack.verification.pipeline import Pipeline

EVIL = "<script>alert(1)</script>"


def refused(*args, **options):
    try:
        tma.make_tma_descriptor(*args, **options)
    except tma.TmaPreconditionError as error:
        return error
    raise AssertionError("it was accepted")


def test_a_batch_shows_its_maps_and_how_many_layouts_they_have():
    batch = tma.make_tma_descriptors(
        [numbered((rows, 64), np.float16) for rows in (64, 128, 64)], (16, 64)
    )
    shown = batch._repr_html_()
    assert "3 maps of 128 bytes, 2 layouts, not launchable" in shown
    assert "<td>(128, 64)</td>" in shown
    assert f"<td>{batch[2].global_address:#x}</td>" in shown


def test_a_long_batch_is_cut_and_says_so():
    batch = tma.make_tma_descriptors(list(numbered((40, 16, 64))), (16, 32))
    shown = batch._repr_html_()
    assert "and 28 further ones" in shown
    assert shown.count("<tr>") == 1 + 12


def test_a_verification_shows_each_check_and_disagreements_in_full():
    rows = (VerifyRow("encode", 1000, 800, 0), VerifyRow("loads", 10, 9, 1, EVIL, "a note"))
    shown = VerifyReport("a GPU", 7, rows)._repr_html_()
    assert "✗ there are disagreements" in shown
    assert "<td>✓</td><td>encode</td><td>1000</td><td>800</td><td>0</td>" in shown
    assert "&lt;script&gt;alert(1)" in shown
    assert EVIL not in shown
    (finding,) = VerifyReport("a GPU", 7, rows).findings
    assert (finding.rule, finding.message) == ("VERIFY", "loads: 1 of 10 cases disagree")
    assert finding.evidence == (EVIL,)
    assert "✓ all agree" in VerifyReport("a GPU", 7, rows[:1])._repr_html_()


def test_bandwidths_are_bars_against_memcpy_and_a_table():
    row = BandwidthRow(
        (64, 64),
        128,
        tma.TmaSwizzle.bytes128,
        tma.TmaL2FetchSize.none,
        Pipeline(4, 2, 1, 1),
        2.4e12,
        0.96,
        False,
    )
    shown = BandwidthReport("a GPU", "FLOAT16 (64, 64)", 1 << 26, 2.5e12, (row,))._repr_html_()
    assert "<td>64x64</td><td>128</td><td>bytes128</td>" in shown
    assert "<td>✗ wrong</td>" in shown
    assert "memcpy, device to device: 2.50 TB/s (ratio 1)" in pictured(shown)


@pytest.mark.parametrize("function", ["batch_html", "verify_html", "bandwidth_html", "error_html"])
def test_what_is_no_such_result_is_refused(function):
    with pytest.raises(tma.TmaPreconditionError, match="is of type int; it must be a"):
        getattr(draw, function)(3)


# --- Refusals in a notebook -----------------------------------------------------------------------


def test_a_refusal_shows_the_users_line_and_no_frame_of_ours():
    error = refused(numbered((64, 64)), (16, 3))
    lines = error._render_traceback_()
    assert any("----> " in line and "tma.make_tma_descriptor(*args" in line for line in lines)
    assert not any("tma_dlpack/make" in line or "build.py" in line for line in lines)
    assert lines[-1] == f"TmaPreconditionError: {error}"


def test_in_a_notebook_the_findings_are_a_card_shown_once(monkeypatch):
    shown = []

    class Kernel:
        kernel = object()

    class Display:
        display = staticmethod(lambda data, raw: shown.append(data))

    class IPython:
        get_ipython = staticmethod(Kernel)
        display = Display

    monkeypatch.setitem(sys.modules, "IPython", IPython)
    error = refused(numbered((64, 64)), (16, 3))
    assert error._render_traceback_()[-1] == "TmaPreconditionError: BOX_INNER_16B"
    error._render_traceback_()
    (data,) = shown
    assert "violation BOX_INNER_16B" in data["text/html"]
    assert data["text/plain"] == str(error)


def test_what_is_unsupported_shows_its_message():
    tm = tma.make_tma_descriptor(numbered((64, 64)), (16, 32))
    with pytest.raises(tma.TmaUnsupportedError) as raised:
        _ = tm.ptr
    assert raised.value._render_traceback_()[-1].startswith("TmaUnsupportedError: this map is not")

"""Every kind of figure in a browser: no text overflows, overlaps or lacks contrast."""

from __future__ import annotations

import numpy as np
import pytest
import screens
from draw_cases import ALL, IM2COL, TILED, numbered
from screens import DARK, LIGHT

import course
import tma_dlpack as tma
from tma_dlpack import draw
from tma_dlpack.draw.figure import Figure
from tma_dlpack.explorer.widget import explore

sizes = pytest.mark.parametrize("width", [1280, 640])
schemes = pytest.mark.parametrize("scheme", [LIGHT, DARK])


WGMMA = tma.make_tma_descriptor(numbered((256, 128), np.float16), (64, 64), swizzle="bytes128")


def gallery() -> list[Figure | str]:
    """One figure of each kind, with its unusual cases."""
    interleaved, rank_5 = TILED["interleaved 16B"], TILED["rank 5"]
    first, second = TILED["a dense tile"].tensor_map, IM2COL["a volume"].tensor_map
    below = TILED["out of bounds below and right"]
    return [
        *(
            draw.tensor(case.tensor_map, case.coords)
            for case in (
                below,
                TILED["out of bounds above and left"],
                TILED["every second row of a box"],
                TILED["a vector"],
                rank_5,
                interleaved,
            )
        ),
        *(
            draw.shared(case.tile())
            for case in (
                below,
                TILED["a tall tile"],
                TILED["clipped within a chunk"],
                TILED["a tile at 0x480"],
                rank_5,
                interleaved,
                IM2COL["its last tap"],
            )
        ),
        draw.fields_of(first),
        draw.fields_of(rank_5.tensor_map),
        draw.fields_of(second),
        draw.diff(first, TILED["128B swizzle"].tensor_map),
        draw.diff(first, second),
        draw.bank_conflicts(first),
        draw.bank_conflicts(first, "row"),
        draw.bank_conflicts(first, lambda t: (t // 2, 0)),
        *(draw.walk(case.tile()) for case in IM2COL.values()),
        draw.tensor(tma.make_tma_descriptor(numbered((4096, 4096)), (64, 32)), (2048, 4064)),
        draw.tensor(rank_5.tensor_map, rank_5.coords, plane=(2, 3)),
        draw.compare(first, TILED["128B swizzle"].tensor_map),
        draw.access_steps(first),
        course.sixteen_bytes(numbered((4, 1733), "f2"), (4, 12)),
        draw.copy_motion(below.tile()),
        course.contrast(below.tile()),
        course.ask([["512", "1024"]], "How many bytes?", "1024", "All of the box."),
        course.ask(draw.shared(below.tile()), "Which is row 3?", "c3.8", "This.", blank=True),
        draw.barrier(blocks=2),
        draw.swizzle_bits(),
        draw.matrix(WGMMA),
        draw.matrix(WGMMA, major="MN"),
        draw.missing_fence("st.shared.u32", "cp.async.bulk.global"),
        draw.chain([("warp 4", "0x410", "phase 1"), ("0x410", "0x400", "512 bytes", True)]),
        draw.tensor_map_html(rank_5.tensor_map),
        draw.tensor_map_html(second),
        draw.tile_html(below.tile()),
        draw.report_html(tma.check_tma_descriptor(below.tensor, (16, 33), swizzle="bytes64")),
        draw.report_html(tma.check_tma_descriptor(below.tensor, (16, 32))),
        explore(below.tensor).still(),
    ]


@pytest.mark.slow
@sizes
@schemes
def test_no_label_of_any_figure_overflows_overlaps_or_fades(chromium, width, scheme):
    found = screens.audit(chromium, "gallery", draw.page("gallery", gallery()), width, scheme)
    assert found["wrong"] == []
    assert found["labels"] > 2000
    assert found["width"] == width
    assert found["dark"] == (scheme == DARK)


@schemes
def test_figures_as_files_of_their_own_have_no_label_out_of_place(chromium, scheme):
    case, column = TILED["128B swizzle"], IM2COL["its last tap"]
    drawn = [draw.figure((column if n == "walk" else case).tile(), n).svg() for n in draw.FIGURES]
    page = f'<!doctype html><body style="margin:0">{"<br>".join(drawn)}</body>'
    found = screens.audit(chromium, "files", page, 1280, scheme)
    assert found["wrong"] == []
    assert found["labels"] > 400


def test_the_audit_sees_what_is_wrong(chromium):
    """A page with misplaced labels, in which the check finds each kind of fault."""
    bad = (
        '<!doctype html><body style="width:2000px"><div class="tma">'
        '<svg role="img" width="200" height="100" font-size="16">'
        '<rect class="t-paper" width="200" height="100" fill="#ffffff"/>'
        '<text x="10" y="20">one</text><text x="12" y="22">two</text>'
        '<text x="190" y="90">outside</text><g><rect x="50" y="50" width="20" height="20" '
        'fill="#ffffff"/><text x="50" y="65">too long</text></g>'
        '<text x="10" y="90" fill="#eeeeee">pale</text></svg>'
        '<svg role="img" width="90" height="40" viewBox="0 0 180 80" font-size="18">'
        '<rect class="t-paper" width="9" height="9" fill="#ffffff"/>'
        '<text x="9" y="40">small</text></svg></div></body>'
    )
    wrong = " ".join(screens.audit(chromium, "bad", bad, 640, LIGHT)["wrong"])
    for said in (
        "'small' is 9.0 px high",
        "meets 'two'",
        "leaves its picture",
        "leaves its box",
        "contrast",
        "2008 wide",
    ):
        assert said in wrong


#: Return the number of highlighted cells, whether the other cells are dimmed, and the highlighted
#: texts.
LIT = """() => {
  const svg = document.querySelector(".tma-live").shadowRoot.querySelector("svg");
  const words = [...document.querySelectorAll(".tma-word.lit, .tma-word.near")];
  return [svg.querySelectorAll(".lit, .near").length, svg.classList.contains("dim"),
          words.map((word) => word.textContent)];
}"""


def test_words_of_a_sentence_light_what_they_speak_of_and_the_other_way(chromium):
    below = TILED["out of bounds below and right"]
    states = [c.state for b in draw.shared(below.tile()).layouts[0].blocks for c in all_chunks(b)]
    page = screens.open_page(chromium)
    page.set_content(draw.page("a box", [draw.tensor(below.tensor_map, below.coords)]))
    assert page.evaluate(LIT) == [0, False, []]
    copied, filled = page.locator(".tma-word").all()
    copied.focus()
    assert page.evaluate(LIT) == [states.count("data") + 1, True, ["288 are copied"]]
    filled.hover()
    assert page.evaluate(LIT) == [states.count("filled") + 1, True, ["224 others"]]
    page.locator("[data-k='c0.0']").first.hover()
    assert page.evaluate(LIT)[1:] == [False, ["288 are copied"]]
    screens.leave_page(page)


def all_chunks(block):
    return [chunk for line in block.lines for chunk in line.chunks]


def test_conflicts_vanish_while_the_swizzle_is_scrubbed(chromium):
    dense = tma.make_tma_descriptor(numbered((64, 8)), (64, 8))
    page = screens.open_page(chromium)
    page.set_content(draw.page("banks", [draw.bank_conflicts(dense)]))
    slider, seen = page.locator("input[type=range]"), []
    slider.focus()
    for _ in range(4):
        chosen = page.locator("input[type=radio]:checked").evaluate("e => e.parentNode.innerText")
        conflicts = page.evaluate(
            "() => document.querySelector('.tma-live').shadowRoot"
            ".querySelectorAll('.t-conflict[data-k]').length"
        )
        seen.append((chosen.strip(), slider.get_attribute("aria-valuetext"), conflicts))
        page.keyboard.press("ArrowRight")
    assert seen == [("none", "none", 4), *((n, n, 0) for n in ("bytes32", "bytes64", "bytes128"))]
    screens.leave_page(page)


def test_the_gallery_shows_every_kind_of_figure():
    kinds = {type(part) for part in gallery() if isinstance(part, Figure)}
    assert kinds == {
        draw.TensorBox,
        draw.SharedMemory,
        draw.MapBytes,
        draw.BankConflicts,
        draw.Im2colWalk,
        draw.AccessSteps,
        draw.Comparison,
        draw.CopyMotion,
        course.Contrast,
        course.Question,
        course.SixteenBytes,
        draw.BarrierPlay,
        draw.SwizzleBits,
        draw.MatrixAtoms,
        draw.Timeline,
        draw.WaitChain,
    }
    assert len(ALL) == len(TILED) + len(IM2COL)

"""The mbarrier: its model compared with measurements, its figures, and the page that plays them."""

from __future__ import annotations

import contextlib
import re
import xml.etree.ElementTree as ET
from itertools import permutations

import numpy as np
import pytest
import screens
from draw_cases import stills
from hypothesis import given
from hypothesis import strategies as st

import tma_dlpack as tma
from tma_dlpack import draw
from tma_dlpack.course import barrier_play, barrier_scenes
from tma_dlpack.course.barrier_model import MOST, Barrier, BarrierError, Do, Play, Wait
from tma_dlpack.course.barrier_scenes import MISTAKES, Setup
from tma_dlpack.course.swizzle_bits import COUNT
from tma_dlpack.draw.grid import WORDS, fitted
from tma_dlpack.geometry import SWIZZLES

SCENES = [(1, 1), (1, 2), (2, 1), (4, 1), (4, 2)]  # stages, blocks
ALL = {
    f"{stages} stages, {blocks} blocks, {mistake}": draw.barrier(
        mistake=mistake, stages=stages, blocks=blocks
    )
    for stages, blocks in SCENES
    for mistake in (None, *Setup(None, stages, blocks, 8192).possible)
}
BITS = {
    f"{s.name} at {at}": draw.swizzle_bits(s, 9, smem_offset=at)
    for s in SWIZZLES
    for at in (0, 384)
}
every_figure = pytest.mark.parametrize("figure", [*ALL.values(), *BITS.values()], ids=[*ALL, *BITS])

# --- The model, against what was measured --------------------------------------------------------

TILE, PIECES = 8192, 4


def one_load(*, arrivals=1, expected=TILE, parity=0, copies=(TILE,), whole=TILE):
    """Play the measured case: one thread arms the barrier and loads; a warp waits and reads."""
    play = Play(whole)

    def thread():
        play.init("full", arrivals)
        play.arrive("full", expected)
        for n, size in enumerate(copies):
            pieces = (size // PIECES,) * PIECES
            play.copy(f"engine {n}", [("tile", "full")], Do(2, "copy", tile=0), pieces)
        yield Do(1, "armed")

    def warp():
        yield Do(1, "starts")
        yield Wait("full", parity)
        yield Do(3, "reads", tile=0, slot="tile")

    play.start("thread 0", thread())
    play.start("warp", warp())
    play.run()
    return [bar.wrong for bar in play.bars if bar.wrong]


HANG, EARLY = ["waits forever"], "bytes not there"


@pytest.mark.parametrize(
    ("seen", "misuse"),
    [
        ([], {}),
        ([], {"copies": (TILE // 2, TILE // 2)}),
        (HANG, {"copies": ()}),
        (HANG, {"expected": TILE + 2048}),
        (HANG, {"expected": TILE + 16}),
        (HANG, {"arrivals": 2}),
        ([f"{TILE // 2} {EARLY}"], {"expected": TILE // 2}),
        ([f"{TILE} {EARLY}"], {"expected": 0}),
        ([f"{TILE} {EARLY}"], {"copies": (TILE, TILE), "whole": 2 * TILE}),
        ([f"{TILE} {EARLY}"], {"parity": 1}),
    ],
    ids=[
        "right",
        "right, two copies",
        "armed and no copy: hangs",
        "expects more bytes than arrive: hangs",
        "expects 16 bytes more: hangs",
        "initialised for 2 arrivals and 1 comes: hangs",
        "expects half of the bytes: no error",
        "expects none of the bytes: no error",
        "expects the bytes of one copy of two: no error",
        "waits for the other parity: no error",
    ],
)
def test_the_model_does_what_was_measured(seen, misuse):
    assert one_load(**misuse) == seen


def test_a_wait_at_a_barrier_that_was_never_initialised_is_a_launch_failure():
    play = Play(TILE)
    play.start("warp", (act for act in [Wait("full", 0)]))
    play.run()
    assert play.events == [(0, "warp", "✗ full was never initialised")]


@pytest.mark.parametrize("arrivals", [0, MOST + 1])
def test_arrivals_beyond_the_range_are_a_launch_failure_and_their_neighbours_are_not(arrivals):
    with pytest.raises(BarrierError, match=rf"{arrivals} arrivals are not in 1\.\.1048575"):
        Barrier.init(arrivals)
    assert Barrier.init(min(max(arrivals, 1), MOST)).pending == min(max(arrivals, 1), MOST)


def test_expected_bytes_beyond_the_range_are_a_launch_failure():
    assert Barrier.init(2).arrive(MOST).tx_bytes == MOST
    with pytest.raises(BarrierError, match="1048576 pending bytes are beyond 1048575"):
        Barrier.init(2).arrive(MOST + 1)


def test_more_arrivals_than_a_phase_expects_are_a_launch_failure():
    with pytest.raises(BarrierError, match="too many arrivals in phase 0"):
        Barrier.init(1).arrive(16).arrive()


def test_a_barrier_that_ends_a_wait_of_parity_1_at_once_blocks_it_a_phase_later():
    fresh = Barrier.init(1)
    assert [fresh.passes(0), fresh.passes(1)] == [False, True]
    second = fresh.arrive()
    assert [second.passes(0), second.passes(1)] == [True, False]
    assert [second.arrive().passes(0), second.arrive().passes(1)] == [False, True]


# --- Laws -----------------------------------------------------------------------------------------

sizes = st.integers(1, 64).map(lambda n: 16 * n)
operations = st.lists(st.one_of(st.none(), sizes, sizes.map(lambda n: -n)), max_size=40)


@given(arrivals=st.integers(1, 4), done=operations)
def test_a_phase_ends_exactly_when_neither_arrivals_nor_bytes_are_pending(arrivals, done):
    state, pending, tx_bytes = Barrier.init(arrivals), arrivals, 0
    for operation in done:  # None: arrive; a positive number: arrive and expect; negative: bytes
        before = state.phase
        if operation is not None and operation < 0:
            state, tx_bytes = state.complete_tx(-operation), tx_bytes + operation
        else:
            if not pending:
                with pytest.raises(BarrierError):
                    state.arrive(operation or 0)
                break
            state = state.arrive(operation or 0)
            pending, tx_bytes = pending - 1, tx_bytes + (operation or 0)
        ends = pending == 0 and tx_bytes == 0
        assert state.phase == before + ends
        pending = arrivals if ends else pending
        assert (state.arrivals, state.pending, state.tx_bytes) == (arrivals, pending, tx_bytes)
        assert state.passes(0) != state.passes(1)


@pytest.mark.parametrize("order", [*permutations(("arrive", 16, 32, 48))], ids=str)
def test_bytes_may_come_before_they_are_announced_in_any_order(order):
    state = Barrier.init(1)
    for n, operation in enumerate(order):
        assert state.phase == 0, n
        state = state.arrive(96) if operation == "arrive" else state.complete_tx(operation)
    assert state == Barrier(1, 1, 0, 1)


# --- The figures ----------------------------------------------------------------------------------

OUTCOMES = {
    (1, 1): {
        None: "right",
        "expects too little": "early read",
        "expects too much": "hang",
        "wrong parity": "early read, then hang",
        "initialised for 2": "hang",
        "no fence": "stale store",
    },
    (1, 2): {
        None: "right",
        "expects too little": "early read",
        "expects too much": "hang",
        "wrong parity": "early read",
        "initialised for 2": "hang",
    },
    (4, 1): {
        None: "right",
        "expects too little": "early read, then hang",
        "expects too much": "hang",
        "wrong parity": "early read, then hang",
        "initialised for 2": "hang",
        "empty parity": "hang",
        "never flipped": "hang",
        "not released": "hang",
    },
}


@pytest.mark.parametrize(("stages", "blocks"), OUTCOMES)
def test_each_mistake_has_its_outcome(stages, blocks):
    outcomes = OUTCOMES[stages, blocks]
    drawn = {m: draw.barrier(mistake=m, stages=stages, blocks=blocks) for m in outcomes}
    assert {m: figure.outcome for m, figure in drawn.items()} == outcomes
    assert (None, *drawn[None].setup.possible) == tuple(outcomes)


def test_every_mistake_can_be_made_somewhere_and_is_marked_in_the_code():
    assert {mistake for outcomes in OUTCOMES.values() for mistake in outcomes} == {None, *MISTAKES}
    for figure in ALL.values():
        marked = [line for line in str(figure).splitlines()[3:] if line.startswith("✗ ")]
        assert len(marked) == (figure.mistake is not None), figure.title


def states(figure, barrier):
    """Every state of one barrier as (phase, pending arrivals, pending bytes), each once."""
    found = [tuple(dict(f.states)[barrier])[1:] for f in figure.frames if barrier in dict(f.states)]
    found = [(phase, pending, tx_bytes) for pending, tx_bytes, phase in found]
    return [state for n, state in enumerate(found) if state not in found[:n]]


def test_the_numbers_of_one_tile():
    announced = [(0, 0, left) for left in (8192, 6144, 4096, 2048)]
    assert states(draw.barrier(), "full") == [(0, 1, 0), *announced, (1, 1, 0)]


def test_half_of_the_bytes_end_the_phase_early_and_the_rest_is_counted_in_the_next():
    figure = draw.barrier(mistake="expects too little")
    before = [(0, 1, 0), (0, 0, 4096), (0, 0, 2048)]
    assert states(figure, "full") == [*before, (1, 1, 0), (1, 1, -2048), (1, 1, -4096)]
    (early,) = (f for f in figure.frames if "4096 bytes not there" in " ".join(f.events))
    assert "full: phase 0 ends" in early.events
    assert dict(early.states)["full"] == Barrier(1, 1, 0, 1)


@pytest.mark.parametrize(
    ("mistake", "stuck"),
    [("expects too much", (0, 0, 8192)), ("initialised for 2", (0, 1, 0))],
)
def test_what_stays_pending_for_ever(mistake, stuck):
    figure = draw.barrier(mistake=mistake)
    assert states(figure, "full")[-1] == stuck
    ends = [e for e in figure.frames[-1].events if e.endswith("waits forever")]
    assert ends == [f"{lane}: waits forever" for lane in ("warp 1", "thread 0", "warp 2")]
    numbers = [
        c.text for c in figure.scenes()[0].items if c.style == "conflict" and c.text.isdigit()
    ]
    assert numbers == [str(n) for n in stuck[1:] if n]


def test_bytes_of_the_other_block_come_before_they_are_announced():
    figure = draw.barrier(blocks=2)
    first, second = (states(figure, f"full of {b}") for b in (0, 1))
    assert second[:4] == [(0, 1, 0), (0, 1, -2048), (0, 1, -4096), (0, 0, 10240)]
    assert first[:3] == [(0, 1, 0), (0, 0, 16384), (0, 0, 14336)]
    assert first[-1] == second[-1] == (1, 1, 0)


def test_a_ring_is_filled_ahead_and_then_waits_for_each_release():
    figure = draw.barrier(stages=4)
    said = [(f.at, event) for f in figure.frames for event in f.events]
    at_once = [e for _, e in said if e.startswith("producer: wait") and e.endswith("at once")]
    assert at_once == [f"producer: wait(empty[{s}], 1) passes at once" for s in range(4)]
    released = [at for at, e in said if e == "consumer: arrive(empty[0])"]
    second_loads = [at for at, e in said if e == "producer: arrive_expect_tx(full[0], 8192)"]
    assert second_loads[1:] == released[:2]
    waits = [e for _, e in said if e.startswith("consumer: wait")]
    assert waits[0] == "consumer: wait(full[0], 0)"
    assert all(e.endswith("passes at once") for e in waits[1:])  # always in time
    assert waits[4:6] == [f"consumer: wait(full[{s}], 1) passes at once" for s in (0, 1)]


@pytest.mark.parametrize("piece", [1, 4, 30], ids=["fast memory", "as drawn", "slow memory"])
@pytest.mark.parametrize("blocks", [1, 2])
def test_a_right_ring_is_right_at_any_speed(monkeypatch, piece, blocks):
    monkeypatch.setattr(barrier_scenes, "QUICK_PIECE", piece)
    for stages in range(2, 9):
        played = Setup(None, stages, blocks, 8192).played()
        assert [bar.wrong for bar in played.bars if bar.wrong] == []
        reads = [bar.act for bar in played.bars if getattr(bar.act, "slot", "")]
        tiles = [act.tile for act in reads]
        assert sorted(tiles) == sorted([*range(2 * stages + 1)] * blocks)


def test_a_store_without_a_fence_may_take_old_bytes():
    said = [event for frame in draw.barrier(mistake="no fence").frames for event in frame.events]
    assert "copy engine: reads tile, ✗ 8192 bytes may be old" in said
    right = [event for frame in draw.barrier().frames for event in frame.events]
    assert "copy engine: reads tile" in right


def test_a_thread_that_arrives_twice_in_a_phase_ends_the_play():
    figure = draw.barrier(stages=2, mistake="wrong parity")
    assert figure.outcome == "early read, then undefined"
    assert figure.frames[-1].events[-1] == "producer: ✗ too many arrivals in phase 0"


def test_a_map_brings_its_bytes():
    tm = tma.make_tma_descriptor(np.zeros((64, 64), np.float16), (3, 8))
    figure = draw.barrier(tm)
    assert figure.title == "mbarrier, one tile, 48 bytes: ✓ right"
    assert states(figure, "full")[1:] == [(0, 0, 48), (0, 0, 32), (0, 0, 16), (1, 1, 0)]
    assert draw.barrier(tma.load_tile(tm, (0, 0))) == figure


@pytest.mark.parametrize("tx_bytes", [16, 17 * 16, 232448, 100 * 16])
@pytest.mark.parametrize("blocks", [1, 2])
def test_the_outcomes_do_not_depend_on_the_size(tx_bytes, blocks):
    for mistake, outcome in OUTCOMES[1, blocks].items():
        setup = Setup(mistake, 1, blocks, tx_bytes)
        assert sum(setup.sizes) == tx_bytes
        figure = barrier_play._figure(setup)
        assert figure.outcome == outcome, mistake


@every_figure
def test_text_fits_100_columns_and_begins_with_the_title(figure):
    lines = str(figure).splitlines()
    assert lines[0] == figure.title
    assert max(map(len, lines)) <= 100


@every_figure
def test_no_word_is_cut(figure):
    for item in figure.scenes()[0].items:
        if item.text and item.style not in WORDS:
            assert fitted(item.text, item.columns - 1, item.rows) == item.text.split("\n")


@every_figure
def test_each_link_of_its_sentence_has_something_to_light(figure):
    """The page switches between these pictures above one sentence."""
    cells = [cell for cell in figure.scenes()[0].items if cell.key or cell.to]
    links = set(re.findall(r"\]\((.+?)\)", figure.sentence))
    assert len(links) == 2
    assert links <= {link for c in cells for link in (*c.to, f"is-{c.style}")}
    alike = ALL if isinstance(figure, draw.BarrierPlay) else BITS
    assert {other.sentence for other in alike.values()} == {figure.sentence}


@every_figure
def test_a_figure_is_well_formed_and_a_value(figure):
    assert ET.fromstring(figure.svg()).tag.endswith("svg")
    assert hash(figure) == hash(figure)
    assert figure.scenes()[0].width <= (780 if isinstance(figure, draw.BarrierPlay) else 850)


@pytest.mark.parametrize(
    "figure",
    [draw.barrier(), draw.barrier(stages=4), draw.barrier(blocks=2), draw.swizzle_bits()],
    ids=lambda figure: figure.title,
)
def test_the_fragment_with_all_its_switches_is_less_than_140_kilobytes(figure):
    fragment = figure.html()
    assert len(fragment.encode()) < 140_000  # two layouts of each choice
    assert fragment == figure.html()
    (picture,) = stills(fragment)
    assert ET.fromstring(picture).tag.endswith("svg")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"mistake": "cake"},
            "mistake is 'cake'; it must be a mistake of this kernel: expects too little, "
            "expects too much, wrong parity, initialised for 2, no fence",
        ),
        (
            {"mistake": "no fence", "stages": 2},
            "mistake is 'no fence'; it must be a mistake of this kernel: expects too little, "
            "expects too much, wrong parity, initialised for 2, empty parity, never flipped, "
            "not released",
        ),
        ({"stages": 9}, "stages is 9; it must be an integer in 1..8"),
        ({"stages": 0}, "stages is 0; it must be an integer in 1..8"),
        ({"blocks": 3}, "blocks is 3; it must be an integer in 1..2"),
        ({"blocks": 1.5}, "blocks is 1.5; it must be an integer in 1..2"),
        ({"tensor_map": 3}, "tensor_map is of type int; it must be a TensorMap or a Tile"),
    ],
)
def test_what_cannot_be_played_is_refused(arguments, message):
    with pytest.raises(tma.TmaPreconditionError) as refused:
        draw.barrier(**arguments)
    assert str(refused.value).splitlines()[0] == message


# --- The swizzle as bits --------------------------------------------------------------------------


def test_the_bits_that_each_swizzle_folds():
    assert {s.name: draw.swizzle_bits(s).folds for s in SWIZZLES} == {
        "none": (),
        "bytes32": ((7, 4),),
        "bytes64": ((8, 5), (7, 4)),
        "bytes128": ((9, 6), (8, 5), (7, 4)),
        "bytes128_atom_32B": ((8, 6), (7, 5)),
        "bytes128_atom_32B_flip_8B": ((8, 6), (7, 5), (7, 3)),
        "bytes128_atom_64B": ((7, 6),),
    }
    assert draw.swizzle_bits("bytes64").formula == "a ^ ((a >> 7 & 3) << 4)"


@pytest.mark.parametrize("smem_offset", [0, 128, 384, 896])
@pytest.mark.parametrize(
    ("swizzle", "columns"), [("bytes32", 16), ("bytes64", 32), ("bytes128", 64)]
)
def test_each_chunk_is_where_the_simulator_puts_it(swizzle, columns, smem_offset):
    rows = 1024 // (2 * columns)
    x = np.arange(rows * columns, dtype=np.uint16).reshape(rows, columns)
    tm = tma.make_tma_descriptor(x, (rows, columns), swizzle=swizzle)
    tile = tma.load_tile(tm, (0, 0), smem_offset=smem_offset)
    figure = draw.swizzle_bits(tile, smem_offset=smem_offset)
    for n in range(COUNT):
        held = tile.smem[figure.swizzled(n) :][:16].view(np.uint16)
        assert held.tolist() == list(range(8 * n, 8 * n + 8))


@pytest.mark.parametrize(
    ("swizzle", "before", "after"),
    [
        ("none", 8, 8),
        ("bytes32", 2, 1),
        ("bytes64", 4, 1),
        ("bytes128", 8, 1),
        ("bytes128_atom_32B", 8, 2),
        ("bytes128_atom_64B", 8, 4),
    ],
)
def test_conflicts_of_a_column(swizzle, before, after):
    figure = draw.swizzle_bits(swizzle)
    found = {(figure.ways(n, swizzled=False), figure.ways(n)) for n in range(COUNT)}
    assert found == {(before, after)}


def test_conflicts_are_those_of_the_figure_of_banks():
    tm = tma.make_tma_descriptor(np.zeros((64, 64), np.float16), (64, 64), swizzle="bytes128")
    steps = draw.access_steps(tm, tma.ldmatrix_addresses(tm, 0, 0, num=4))
    assert set(steps.degrees) == {draw.swizzle_bits(tm).ways(9)} == {1}


def test_a_tile_off_the_pattern_is_swizzled_by_its_address():
    starts = range(0, 1152, 128)
    wrong = [draw.swizzle_bits("bytes128", smem_offset=at).misplaced_chunks for at in starts]
    assert wrong == [0, *[64] * 7, 0]
    assert [
        draw.swizzle_bits("bytes32", smem_offset=at).misplaced_chunks for at in (0, 128, 256)
    ] == [
        0,
        64,
        0,
    ]
    assert "✗ the tile starts at 0x0080" in str(draw.swizzle_bits("bytes128", smem_offset=128))
    assert "✓ the tile starts at 0x0400" in str(draw.swizzle_bits("bytes128", smem_offset=1024))


def test_the_bits_of_a_chunk_are_drawn_before_and_after():
    figure = draw.swizzle_bits("bytes128", 30, smem_offset=384)
    cells = {c.key: c.text for c in figure.scenes()[0].items if c.key}
    address, swizzled = (
        "".join(cells[f"{name}{bit}"] for bit in range(9, -1, -1)) for name in ("in", "out")
    )
    assert (address, swizzled) == (f"{0x360:010b}", f"{0x300:010b}")
    assert (cells["inhex"], cells["outhex"]) == ("0x0360", "0x0300")
    assert (cells["inbanks"], cells["outbanks"]) == ("banks 24..27", "banks 0..3")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tensor_map": "bytes256"}, "tensor_map is 'bytes256'; it must be a map or one of none, "),
        ({"chunk": 64}, "chunk is 64; it must be an integer in 0..63"),
        ({"smem_offset": 64}, "smem_offset is 64; it must be a multiple of 128, not negative"),
        ({"smem_offset": -128}, "smem_offset is -128; it must be a multiple of 128, not negative"),
    ],
)
def test_bits_that_cannot_be_drawn_are_refused(arguments, message):
    with pytest.raises(tma.TmaPreconditionError) as refused:
        draw.swizzle_bits(**arguments)
    assert str(refused.value).startswith(message)


# --- In a browser ---------------------------------------------------------------------------------


@contextlib.contextmanager
def shown(chromium, *figures, width=1280, scheme="light"):
    """Open a page with figures; every error of the page fails the test."""
    errors = []
    page = screens.open_page(chromium, width, scheme)
    page.on("pageerror", hear := lambda error: errors.append(str(error)))
    page.set_content(draw.page("played", list(figures)))
    page.wait_for_selector(".tma-controls:not([hidden]) input[type=range]")
    yield page
    page.remove_listener("pageerror", hear)
    screens.leave_page(page)
    assert errors == []


def drag(page, value):
    page.evaluate(
        """(value) => {
          const slider = document.querySelector("input[type=range]");
          slider.value = value;
          slider.dispatchEvent(new Event("input"));
        }""",
        value,
    )


def test_the_switches_show_each_mistake_and_the_slider_each_frame(chromium):
    figures = {name: draw.barrier(mistake=name) for name in OUTCOMES[1, 1]}
    with shown(chromium, figures[None]) as page:
        for name, figure in figures.items():
            page.get_by_label(name or "right", exact=True).check()
            assert page.locator(".tma-title b").inner_text() == figure.title
            marked = page.locator(".tma-code .tma-wrong").all_inner_texts()
            assert [line[2:] for line in marked] == [
                a for a, b in zip(figure.code, figures[None].code, strict=True) if a != b
            ]
            for n, frame in enumerate(figure.frames):
                drag(page, n)
                assert page.locator(".tma-event").inner_text() == "; ".join(frame.events)
                state = "; ".join(page.locator(".tma-states code").all_inner_texts())
                full = frame.states[0][1]
                assert state.startswith(f"full: phase {full.phase}, {full.pending} arrival")
                assert f"and {full.tx_bytes} byte" in state
                lines = page.evaluate(
                    "[...document.querySelectorAll('.tma-code span')]"
                    ".flatMap((e, n) => e.matches('.tma-now') ? [n] : [])"
                )
                assert tuple(lines) == frame.lines
                assert page.locator(".tma-cover").count() == 2
            drag(page, len(figure.frames))
            assert page.locator(".tma-cover").count() == 0


def test_play_goes_through_all_frames_and_stops(chromium):
    figure = draw.barrier(mistake="initialised for 2")
    with shown(chromium, figure) as page:
        page.clock.install()
        page.get_by_role("button", name="play").click()
        assert page.locator(".tma-event").inner_text() == "; ".join(figure.frames[0].events)
        page.clock.run_for(700 * (len(figure.frames) + 2))
        assert page.get_by_role("button").inner_text() == "▶ play"
        assert page.locator(".tma-event").inner_text() == " ".join(figure.setup.lesson)


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (900, "dark")])
def test_letters_on_a_page_are_at_least_10_px_high_and_as_dark_as_it(chromium, width, scheme):
    figures = draw.barrier(stages=4), draw.swizzle_bits()
    with shown(chromium, *figures, width=width, scheme=scheme) as page:
        for host in page.locator(".tma-live").all():
            assert host.evaluate(
                "(h) => { const s = h.shadowRoot.querySelector('svg');"
                "return 10 * s.getBoundingClientRect().width / s.viewBox.baseVal.width }"
            ) >= 10 * min(1, width / 905)
            paper = host.evaluate(
                "(h) => getComputedStyle(h.shadowRoot.querySelector('.t-paper')).fill"
            )
            assert paper == {"light": "rgb(255, 255, 255)", "dark": "rgb(21, 25, 31)"}[scheme]
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        keys = "[...document.querySelectorAll('.tma-controls :is(input, button)')]"
        assert page.evaluate(f"{keys}.every((e) => e.dataset.lmSuppressShortcuts === 'true')")


#: Key of a cell -> the cell's text.
READ = """() => {
  const cells = document.querySelector(".tma-live").shadowRoot.querySelectorAll("g > [data-k]");
  const text = (cell) => cell.parentNode.querySelector("text").textContent;
  return Object.fromEntries([...cells].map((cell) => [cell.dataset.k, text(cell)]));
}"""
#: Return the corners of each chunk's cell before and after the move.
PLACES = """() => {
  const svg = document.querySelector(".tma-live").shadowRoot;
  const corner = (e) => [e.getBoundingClientRect().x, e.getBoundingClientRect().y];
  return [...Array(64).keys()].map((n) =>
    [...svg.querySelectorAll(`[data-k=c${n}]`)].map(corner));
}"""


def test_a_click_shows_the_bits_of_a_chunk_and_the_slider_moves_the_tile(chromium):
    with shown(chromium, draw.swizzle_bits("bytes128")) as page:
        for name, chunk, at in (
            ("bytes64", 13, 128),
            ("bytes128_atom_32B", 30, 896),
            ("none", 5, 0),
        ):
            figure = draw.swizzle_bits(name, chunk, smem_offset=at)
            page.get_by_label(name, exact=True).check()
            drag(page, at)
            page.locator(f"[data-k=c{chunk}]").first.click(force=True)
            cells = page.evaluate(READ)
            drawn = {c.key: c.text for c in figure.scenes()[0].items if c.key and c.text}
            for key, text in drawn.items():
                assert cells[key] == text, key
            assert page.locator(".tma-event div").all_inner_texts() == list(figure.facts())
            page.wait_for_timeout(400)  # chunks move to their places
            both = page.evaluate(PLACES)
            before, after = zip(*both, strict=True)
            shift = sorted(x for x, _ in after)[0] - sorted(x for x, _ in before)[0]
            for n in range(COUNT):
                x, y = before[figure.place(n)]
                assert after[n] == pytest.approx([x + shift, y], abs=0.6)


def test_arrow_keys_go_from_chunk_to_chunk(chromium):
    with shown(chromium, draw.swizzle_bits("bytes128")) as page:
        page.locator(".tma-live svg").focus()
        for key, chunk in (("ArrowDown", 17), ("ArrowRight", 18), ("ArrowUp", 10)):
            page.keyboard.press(key)
            address = draw.swizzle_bits("bytes128", chunk).address(chunk)
            assert page.evaluate(READ)["inhex"] == f"{address:#06x}"


@pytest.mark.parametrize(("width", "scheme"), [(1280, screens.LIGHT), (640, screens.DARK)])
def test_no_label_overflows_overlaps_or_fades(chromium, width, scheme):
    figures = [
        draw.barrier(),
        draw.barrier(mistake="expects too little"),
        draw.barrier(mistake="wrong parity"),
        draw.barrier(blocks=2),
        draw.barrier(stages=4, mistake="expects too little"),
        draw.swizzle_bits(),
        draw.swizzle_bits("bytes128_atom_32B_flip_8B", smem_offset=128),
    ]
    found = screens.audit(chromium, "barrier", draw.page("barrier", figures), width, scheme)
    assert found["wrong"] == []
    assert found["labels"] > 500

"""`bench call`: the contents of its tables, with tiny rounds. No time is asserted."""

import pytest

from bench import __main__ as cli
from bench import peers
from bench.call import OTHER_CALLS, OURS, main, measure
from bench.call_targets import targets
from bench.imports import import_ms
from bench.timing import CLOCKS, Row, time_rows
from tma_dlpack import driver

torch = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def bench():
    return measure(rounds=2, sample_ms=0.01, imports=0)


def rows_of(bench, group):
    return [t.row.label for t in bench.timings if t.row.group == group]


# -- timing --------------------------------------------------------------------------------------


def test_rows_are_run_round_by_round():
    ran = []
    rows = [
        Row("g", name, f"ran.append({name!r})", {"ran": ran}, setup="1", number=2) for name in "ab"
    ]
    time_rows(rows, rounds=3, sample_ms=1)
    assert "".join(ran) == "aabb" * 3


def test_setup_runs_once_a_round_and_gives_names_to_the_statement():
    begun, used = [], []
    row = Row(
        "g", "", "used.append(next(left))", {"begun": begun, "used": used},
        setup="begun.append(1); left = iter(range(5))", number=5,
    )  # fmt: skip
    time_rows([row], rounds=2, sample_ms=1)
    assert (len(begun), used) == (2, [0, 1, 2, 3, 4] * 2)


@pytest.mark.parametrize("clock", CLOCKS)
def test_times_are_of_one_of_the_things_that_a_run_makes(clock):
    statement, names = "sorted(numbers)", {"numbers": list(range(5000, 0, -1))}
    rows = [Row("g", str(per), statement, names, per=per) for per in (1, 100)]
    whole, each = time_rows(rows, rounds=5, sample_ms=2, clock=clock)
    assert whole.low_us <= whole.median_us <= whole.high_us
    assert 0 < each.median_us < whole.median_us / 10


# -- what is measured ----------------------------------------------------------------------------


@pytest.mark.parametrize("subject", ["torch cpu", "numpy", "jax cpu"])
def test_each_kind_of_host_tensor_has_a_table_with_our_call_and_the_bare_one(bench, subject):
    pytest.importorskip(subject.split()[0])
    labels = rows_of(bench, f"a repeated call, {subject} tensor")
    assert labels == rows_of(bench, f"a new shape at every call, {subject} tensor")
    assert labels[:2] == [OURS, "bare __dlpack__"]
    assert ("torch attributes, unchecked" in labels) == (subject == "torch cpu")


def test_our_other_calls_are_all_there(bench):
    labels = rows_of(bench, OTHER_CALLS)
    for label in (
        "make and bytes(map), torch cpu",
        "make_im2col_descriptor, torch cpu",
        "check, accepted, torch cpu",
        "make with shape, strides, offset, torch cpu",
        "make and tx_bytes, torch cpu",
        "refused by two rules, torch cpu",
        "im2col_corners, torch cpu",
        "make_conv_descriptor, torch cpu",
        "suggest, torch cpu",
        "_repr_html_ of a map, torch cpu",
        "make_tma_descriptors of 256, each, torch cpu",
        "with_address(tensor), torch cpu",
        "with_address(int)",
        "ptr, asked again",
    ):
        assert label in labels
    assert all(t.median_us > 0 for t in bench.timings)


@pytest.mark.skipif(driver.is_available(), reason="asks what is missing without a GPU")
def test_what_needs_a_gpu_is_named_as_skipped(bench):
    said = {s.what: s.why for s in bench.skipped}
    assert said["torch cuda"] == "needs a GPU"
    for peer in ("cuda.core view + as_tensor_map", "cuda.bindings by hand"):
        assert said[peer] == "needs a GPU" or said[peer].endswith("is not installed")


def test_the_shapes_of_a_round_are_all_different(bench):
    rows = [t.row for t in bench.timings if t.row.group.startswith("a new shape")]
    assert rows
    for row in rows:
        assert len({tuple(x.shape) for x in row.names["views"]}) == row.number


def test_a_peer_that_refuses_the_tensor_is_told(monkeypatch):
    def refuses():
        def call(x):
            raise TypeError("no float16\nand more")

        return call

    monkeypatch.setattr(peers, "PEERS", (peers.Peer("a peer", lambda subject: True, refuses),))
    subject = peers.Subject("torch cpu", torch.zeros(2), "x.__dlpack__()")
    assert str(list(peers.peer_rows(subject))[-1]) == "a peer, torch cpu: TypeError: no float16"


@pytest.mark.parametrize("lane", ["compiled", "Python"])
def test_targets_are_those_that_could_be_measured(bench, lane):
    found = {name: (limit, unit) for name, _, limit, unit in targets(bench.median_us, (), lane)}
    limits = {"compiled": (0.15, 0.18, 0.2), "Python": (15, 15, 15)}[lane]
    assert found["torch cpu, repeated, over torch's bare"] == (limits[0], "")
    assert found["torch cpu, new shapes, over torch's bare"] == (limits[1], "")
    assert found["numpy, repeated, over torch's bare"] == (limits[2], "")
    refused = {"compiled": (15, ""), "Python": None}[lane]
    assert found.get("refused, as text, torch cpu") == refused
    assert found["make with ragged, torch cpu"] == ({"compiled": 0.3, "Python": 20}[lane], "")
    assert "import tma_dlpack beyond NumPy" not in found
    assert "import tma_dlpack beyond NumPy" in {
        name for name, *_ in targets(bench.median_us, (1.0, 1.0, 1.0), lane)
    }


def test_all_lanes_are_timed_one_after_the_other(capfd):
    pytest.importorskip("tma_dlpack.native._core")
    assert main([*TINY, "--imports", "0", "--all-lanes"]) == 0
    text = capfd.readouterr().out
    assert text.index(", compiled\n") < text.index(", Python\n")


# -- what is printed -----------------------------------------------------------------------------

TINY = ["--rounds", "1", "--sample-ms", "0.01"]


def test_the_command_prints_tables_what_is_missing_and_targets(capsys):
    assert main([*TINY, "--imports", "0"]) == 0
    text = capsys.readouterr().out
    assert "a repeated call, torch cpu tensor" in text
    assert "\ntargets" in text
    assert max(map(len, text.splitlines())) <= 100


def test_the_command_line_reaches_the_bench(capsys):
    assert cli.main(["call", *TINY, "--imports", "1", "--clock", "thread"]) == 0
    assert "import tma_dlpack beyond NumPy: " in capsys.readouterr().out


def test_imports_are_timed_in_other_processes():
    median, low, high = import_ms(2)
    assert 0 < low <= median <= high

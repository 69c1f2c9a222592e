"""Numbers of any length: check_* returns a report, and other functions raise `TmaError`."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import numpy as np
import pytest

import tma_dlpack as tma

X = np.zeros((64, 64), np.float32)
IMAGES = np.zeros((2, 14, 14, 64), np.float32)
MAP = tma.make_tma_descriptor(X, (16, 32))
MATRIX_MAP = tma.make_tma_descriptor(X.astype(np.float16), (64, 64), swizzle="bytes128")

#: The first number has more digits than Python converts to text.
NUMBERS = {"10**5000": 10**5000, "-10**5000": -(10**5000), "2**64": 1 << 64, "2**511": 1 << 511}

CHECKS = {
    "box_sizes": lambda n: tma.check_tma_descriptor(X, (n, 32)),
    "elem_strides": lambda n: tma.check_tma_descriptor(X, (16, 32), (n, 1)),
    "swizzle": lambda n: tma.check_tma_descriptor(X, (16, 32), swizzle=n),
    "data_type": lambda n: tma.check_tma_descriptor(X, (16, 32), data_type=n),
    "rules": lambda n: tma.check_tma_descriptor(X, (16, 32), rules=n),
    "allow": lambda n: tma.check_tma_descriptor(X, (16, 32), allow=n),
    "shape": lambda n: tma.check_tma_descriptor(X, (16, 32), shape=(n, 64)),
    "strides": lambda n: tma.check_tma_descriptor(X, (16, 32), shape=(64, 64), strides=(n, 1)),
    "offset": lambda n: tma.check_tma_descriptor(X, (16, 32), offset=n),
    "target": lambda n: tma.check_tma_descriptor(X, (16, 32), target=n),
    "corner": lambda n: tma.check_im2col_descriptor(IMAGES, (n, -1), (-1, -1), 64, 32),
    "channels": lambda n: tma.check_im2col_descriptor(IMAGES, (-1, -1), (-1, -1), n, n),
    "message": lambda n: tma.check_tma_descriptor(Raising(n), (16, 32)),
    "interface shape": lambda n: tma.check_tma_descriptor(Interface((n, 64), (256, 4)), (16, 32)),
    "interface strides": lambda n: tma.check_tma_descriptor(Interface((64, 64), (n, 4)), (16, 32)),
    "interface address": lambda n: tma.check_tma_descriptor(
        Interface((64, 64), (256, 4), n), (16, 32)
    ),
}
CALLS = {
    "coords": lambda n: tma.load_tile(MAP, (n, 0)),
    "many coords": lambda n: tma.load_tiles(MAP, [(n, 0)]),
    "coords of a store": lambda n: tma.store_tile(MAP, (n, 0), np.zeros((16, 32), np.float32)),
    "smem_offset": lambda n: tma.load_tile(MAP, (0, 0), smem_offset=n),
    "with_address": lambda n: MAP.with_address(n),
    "driver's address": lambda n: tma.driver_replace_address(MAP, n),
    "driver's global_dim": lambda n: tma.driver_encode_tiled(
        7, 2, 4096, (n, 64), (256,), (32, 16), (1, 1)
    ),
    "driver's rank": lambda n: tma.driver_encode_tiled(
        7, n, 4096, (64, 64), (256,), (32, 16), (1, 1)
    ),
    "replace": lambda n: MAP.replace(rank=n),
    "replace box": lambda n: MAP.replace(box_dim={0: n}),
    "replace ordinal": lambda n: MAP.replace(box_dim={n: 1}),
    "matrix_descriptor": lambda n: tma.matrix_descriptor(MATRIX_MAP, smem_address=n),
    "ldmatrix_addresses": lambda n: tma.ldmatrix_addresses(MATRIX_MAP, n, 0),
    "draw": lambda n: tma.draw.tensor(MAP, (n, 0)),
    "from_bytes": lambda n: tma.TensorMap.from_bytes(n),
    "verify seed": lambda n: tma.verify(-abs(n)),
}


class Raising:
    """A producer whose error has a number as its argument."""

    def __init__(self, number):
        self.number = number

    def __dlpack__(self, **keywords):
        raise ValueError(self.number)


class Interface:
    """A producer with nothing but ``__cuda_array_interface__``."""

    def __init__(self, shape, strides, address=4096):
        self.__cuda_array_interface__ = {
            "version": 3,
            "typestr": "<f4",
            "shape": shape,
            "strides": strides,
            "data": (address, False),
        }


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("argument", CHECKS)
def test_a_check_reports_numbers_of_any_length(argument, number):
    report = CHECKS[argument](NUMBERS[number])
    assert not report.ok
    assert str(report).startswith("refused: ")
    assert "<" in report._repr_html_()
    fixed = report.fixed()
    assert fixed is None or all(f"{value}" != "" for value in fixed.values())


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("call", CALLS)
def test_a_verb_refuses_numbers_of_any_length_in_words(call, number):
    with pytest.raises(tma.TmaError) as caught:
        CALLS[call](NUMBERS[number])
    assert 0 < len(str(caught.value)) < 3000


def run(code):
    """The output of a program."""
    code = textwrap.dedent(code)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_the_shortest_limit_of_digits_that_python_takes_is_enough():
    assert (
        run("""
        import sys
        import numpy as np, tma_dlpack as tma
        sys.set_int_max_str_digits(640)
        print(tma.check_tma_descriptor(np.zeros((64, 64), np.float32), (10**600, 32)).ok)
    """)
        == "False"
    )


class Unreadable(list):
    """A list that raises when it is read."""

    def __iter__(self):
        raise OSError("no entries")

    def __len__(self):
        raise OSError("no length")


class Closed:
    """An object whose attributes all raise, except its class."""

    def __getattribute__(self, name):
        if name == "__class__":
            return Closed
        raise RuntimeError(f"no {name}")


@pytest.mark.parametrize("name", ["kernel_size", "padding", "stride", "dilation"])
def test_a_list_that_raises_is_no_list_for_a_convolution(name):
    words = {"kernel_size": 3, "channels_per_pixel": 32, "pixels_per_column": 8, name: Unreadable()}
    report = tma.check_conv_descriptor(IMAGES, words.pop("kernel_size"), **words)
    assert report.violations[0].argument == name
    assert report.violations[0].rule == "ARGUMENT"


def test_data_whose_attributes_raise_is_no_tile():
    with pytest.raises(tma.TmaPreconditionError, match="data is"):
        tma.store_tile(MAP, (0, 0), Closed())

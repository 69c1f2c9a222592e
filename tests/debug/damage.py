"""Printouts of valid encodes, damaged as pasted logs are; `explain` must not report a fault.

`damaged(seed)` returns such a text, and the encodes whose printouts the text contains.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable

from printed_forms import SHOWN, SIZES, Encode, deepgemm


class Dice(random.Random):
    """A generator of random numbers with the type of the current printout."""

    data_type = 0


SPANS = (1 << 30, 32, 64, 128)


def valid_encode(rnd: Dice, rank: int | None = None) -> Encode:
    """Return arguments that the driver accepts, often with entries that only just fit."""
    rank = rank or rnd.choice((1, 2, 2, 2, 3, 3, 4, 5))
    data_type = rnd.randrange(13)
    size = SIZES[data_type]
    interleave = rnd.choice((0, 0, 0, 0, 1, 2)) if rank >= 3 else 0
    unit = 32 if interleave == 2 else 16
    swizzle = 1 if interleave == 2 else rnd.randrange(4)
    widest = 256 if interleave or swizzle == 0 else min(256, SPANS[swizzle] // size)
    inner = 16 // size * rnd.randint(1, max(1, widest * size // 16))
    box = [min(inner, 256 // (16 // size) * (16 // size))]
    budget = 200_000 // (box[0] * size)
    for _ in range(1, rank):
        box.append(rnd.choice([n for n in (1, 1, 3, 8, 64, 100, 128, 256) if n <= budget]))
        budget //= box[-1]
    dims = [rnd.choice((1, 7, 64, 128, 1000, 4096, 131072, 1 << 32)) for _ in range(rank)]
    strides, step = [], dims[0] * size
    for i in range(1, rank):
        step = min(-(-step // unit) * unit, (1 << 40) - unit)
        strides.append(rnd.choice((step, step, step, step, 0, unit * rnd.randint(1, 5000))))
        step *= dims[i]
    return Encode(
        data_type=data_type,
        global_address=rnd.choice((0x7F3B8A000000, 0x302000000)) + 32 * rnd.randrange(1 << 24),
        global_dim=tuple(dims),
        global_strides=tuple(strides),
        box_dim=tuple(box),
        element_strides=tuple(rnd.choice((1, 1, 1, 1, 2)) for _ in range(rank)),
        interleave=interleave,
        swizzle=swizzle,
        l2_promotion=rnd.randrange(4),
        oob_fill=rnd.choice((0, 0, 1)) if 6 <= data_type <= 12 else 0,
    )


# -- kinds of damage ------------------------------------------------------------------------------


Damage = Callable[[str, Dice], str]
LOGGER = (
    "rank: 9",
    "[mpi] rank: 3",
    "size: 77",
    "box: 3",
    "box: 3 5",
    "shape: 5 5 5",
    "stride: 3",
    "INFO loss 3.25 dim 7",
    "2026-05-01 18:52:10 INFO [core.py:12] step 4 of 9",
    "shape=(1, 2) stride=(2, 1)",
    "the box must be 16 bytes: boxDim[0] * elementSize must be a multiple of 16 bytes",
    "strides:",
    "Loading weights:  12%|#####     | 3/24",
    "dtype: uint8",
)


def drop_lines(text: str, rnd: Dice) -> str:
    lines = text.splitlines(keepends=True)
    for _ in range(min(len(lines), rnd.randint(1, 3))):
        del lines[rnd.randrange(len(lines))]
    return "".join(lines)


def mask_address(text: str, rnd: Dice) -> str:
    mask = rnd.choice(("*", "x", "X", "?", "#"))

    def masked(found: re.Match[str]) -> str:
        kept = rnd.randint(2, len(found[0]) - 1)
        hidden = mask * (len(found[0]) - kept)
        return rnd.choice(
            (found[0][:kept] + hidden, found[0][:kept] + "...", "0x" + mask * 8, "<redacted>", "…")
        )

    return re.sub(r"0x[0-9a-f]{7,}", masked, text)


def mask_number(text: str, rnd: Dice) -> str:
    """Hide a part of one number."""
    numbers = list(re.finditer(r"(?<![\w.])\d{2,}(?![\w.])", text))
    if not numbers:
        return text
    found = rnd.choice(numbers)
    kept = rnd.randrange(len(found[0]))
    hidden = rnd.choice(("*", "X", "?", "x")) * (len(found[0]) - kept)
    return text[: found.start()] + found[0][:kept] + hidden + text[found.end() :]


def break_lines(text: str, rnd: Dice) -> str:
    """Break lines as a terminal of a random width does."""
    width = rnd.randint(17, 60)
    lines = text.splitlines()
    return "".join(
        line[i : i + width] + "\n" for line in lines for i in range(0, max(1, len(line)), width)
    )


def break_somewhere(text: str, rnd: Dice) -> str:
    for _ in range(rnd.randint(1, 3)):
        at = rnd.randrange(len(text))
        text = text[:at] + "\n" + text[at:]
    return text


def change_indices(text: str, rnd: Dice) -> str:
    """Number the entries from 1, in hex or by a name, or print their count in the brackets."""
    how = rnd.randrange(5)
    if how == 0:
        return re.sub(r"\[(\d)\](?= *=)", lambda m: f"[{int(m[1]) + 1}]", text)
    if how == 1:
        return re.sub(r"\[(\d)\](?= *=)", r"[0x\1]", text)
    if how == 2:
        return re.sub(r"\[(\d)\](?= *=)", rnd.choice(("[...]", "[i]", "[]")), text, count=2)
    if how == 3:
        return re.sub(r"(?<=[mshe])( +)\(([\d,]+)\)", r"[5]: \2", text).replace(",", ", ")
    return re.sub(r"\[(\d)\](?= *=)", lambda m: f"[{int(m[1]) + 1}]", text, count=1)


def reorder(text: str, rnd: Dice) -> str:
    lines = text.splitlines(keepends=True)
    rnd.shuffle(lines)
    return "".join(lines)


def truncate(text: str, rnd: Dice) -> str:
    return text[: rnd.randrange(len(text))]


def lose_the_beginning(text: str, rnd: Dice) -> str:
    return text[rnd.randrange(len(text)) :]


def group_digits(text: str, rnd: Dice) -> str:
    """Write numbers of a text with separators of thousands."""
    sign = rnd.choice((",", ",", ",", "_", "'", "\u202f", " "))
    share = rnd.choice((0.3, 1))

    def grouped(found: re.Match[str]) -> str:
        return f"{int(found[0]):,}".replace(",", sign) if rnd.random() < share else found[0]

    return re.sub(r"(?<![\w.])\d{4,}(?![\w.])", grouped, text)


def in_units(text: str, rnd: Dice) -> str:
    """Write numbers of a text in KiB, MiB or with a name."""
    form = rnd.choice(("{} KiB", "{}KiB", "{}K", "{} KB", "{}k"))

    def short(found: re.Match[str]) -> str:
        whole, rest = divmod(int(found[0]), 1024)
        return found[0] if rest else form.format(whole)

    return re.sub(r"(?<![\w.])\d{4,}(?![\w.])", short, text)


def in_elements(text: str, rnd: Dice) -> str:
    """Add text that gives another unit of the strides."""
    unit = rnd.choice(("(elements)", "(in elements)", "(KiB)", "(x16 bytes)", "(rows)"))

    def counted(found: re.Match[str]) -> str:
        numbers = re.sub(r"\d+", lambda m: str(int(m[0]) // SIZES[rnd.data_type]), found[2])
        return f"{found[1]} {unit}: {numbers}"

    return re.sub(
        r"(\b(?:\w*global_?[sS]trides?|strides))(?: *[:=]? *)([\[({][\d, ]*[\])}])", counted, text
    )


def with_sizes(text: str, rnd: Dice) -> str:
    """Print lists as debuggers show vectors."""
    form = rnd.choice(("size={n} ", "len={n} ", "std::vector of length {n}, capacity {n} = "))

    def sized(found: re.Match[str]) -> str:
        return form.format(n=found[0].count(",") + 1) + found[0]

    return re.sub(r"(?<!\w)(?:\[\d+,[\d, ]+\]|\{\d+,[\d, ]+\}|\(\d+,[\d, ]+\))", sized, text)


def add_lines(text: str, rnd: Dice) -> str:
    """Insert lines of a logger into the printout, and drop a line of the printout."""
    lines = text.splitlines(keepends=True)
    if rnd.random() < 0.5:
        del lines[rnd.randrange(len(lines))]
    for _ in range(rnd.randint(1, 4)):
        lines.insert(rnd.randrange(len(lines) + 1), rnd.choice(LOGGER) + "\n")
    return "".join(lines)


def join_lines(text: str, rnd: Dice) -> str:
    return text.replace("\n", rnd.choice((" ", "  ", " | ", "; ")))


def prefix_some(text: str, rnd: Dice) -> str:
    prefix = rnd.choice(("[rank3]: ", "INFO 05-01 10:11:12 ", "> ", "(pid=12) "))
    return "".join(
        (prefix if rnd.random() < 0.6 else "") + line for line in text.splitlines(keepends=True)
    )


DAMAGES: tuple[Damage, ...] = (
    drop_lines, mask_address, mask_number, break_lines, break_somewhere, change_indices, reorder,
    truncate, lose_the_beginning, group_digits, in_units, in_elements, with_sizes, add_lines,
    join_lines, prefix_some,
)  # fmt: skip


# -- several printouts ----------------------------------------------------------------------------


def in_words(text: str) -> list[str]:
    """Return the pieces that a process writes at once, as C++ streams do."""
    return re.findall(r"\n|[A-Za-z_][\w ]*:? *|[(),]|[^\s(),]+| +", text)


def woven(parts: list[list[str]], lengths: list[int], rnd: random.Random) -> str:
    """Mix the pieces of several texts."""
    taken: list[str] = []
    while any(parts):
        part = rnd.choice([p for p in parts if p])
        count = rnd.choice(lengths)
        taken += part[:count]
        del part[:count]
    return "".join(taken)


def interleaved(texts: list[str], rnd: Dice) -> str:
    """Mix several texts by lines, runs of lines, or words."""
    if rnd.random() < 0.3:
        return woven([*map(in_words, texts)], [1, 2, 3, 6, 20, 40], rnd)
    lines = [t.splitlines(keepends=True) for t in texts]
    return woven(lines, rnd.choice(([1], [1, 1, 2, 3], [1, 4, 9, 14])), rnd)


def printed(rnd: Dice) -> tuple[str, Encode]:
    printer = rnd.choice(list(SHOWN))
    rank = rnd.choice((2, 3)) if printer is deepgemm else None
    encode = valid_encode(rnd, rank)
    rnd.data_type = encode.data_type
    implied = {"interleave": 0, "l2_promotion": 2, "element_strides": (1,) * encode.rank}
    if not {"interleave", "element_strides"} <= SHOWN[printer]:
        changes = {k: v for k, v in implied.items() if k not in SHOWN[printer]}
        if encode.interleave and "interleave" in changes:
            changes |= {"swizzle": 0, "box_dim": (16 // encode.size, *(1,) * (encode.rank - 1))}
        encode = encode.but(**changes)
    return printer(encode), encode


def damaged(seed: int) -> tuple[str, list[Encode], str]:
    """Return a damaged printout, the encodes in it, and the names of the damages."""
    rnd = Dice(seed)
    if rnd.random() < 0.15:
        first, encode = printed(rnd)
        printer = next(p for p in SHOWN if p(encode) == first)
        other = valid_encode(rnd, encode.rank)
        if "interleave" not in SHOWN[printer]:
            other = other.but(interleave=0, swizzle=0, element_strides=(1,) * other.rank)
            other = other.but(box_dim=(16 // other.size, *(1,) * (other.rank - 1)))
        return interleaved([first, printer(other)], rnd), [encode, other], "interleaved"
    text, encode = printed(rnd)
    text = rnd.choice(("", "", "Traceback:\n")) + text + rnd.choice(("", "", "exit status 1\n"))
    done = rnd.sample(DAMAGES, rnd.choice((1, 1, 1, 2)))
    if break_lines in done or break_somewhere in done:
        done = done[:1]  # mixing halves of numbers would make other numbers
    for damage in done:
        text = damage(text or "\n", rnd)
    return text, [encode], " and ".join(damage.__name__ for damage in done)

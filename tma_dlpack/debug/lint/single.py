"""Rules about single instructions, with and without the maps of a launch.

Rules that need no maps of a launch check the state space of a map, the alignment of addresses, and
instructions that need a cluster or a certain architecture. The maps of a launch come from a trace,
or the caller passes a sequence of maps. The n-th map of this sequence is the kernel's n-th
parameter that has 128 bytes. A copy whose rank or mode differs from its map is an error (measured:
the copy ends in error 715). Two mistakes are only warnings: the bytes that a barrier expects are
not a sum of the copies' bytes, or no map has the swizzle of a descriptor.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import gcd, prod
from pathlib import Path
from typing import Any, Final

from tma_dlpack.debug.core import INSTRUCTIONS, coerce, errors, targets, tma
from tma_dlpack.debug.lint.events import Access, Events, event_of
from tma_dlpack.debug.lint.rules import Mistake
from tma_dlpack.debug.names import demangled
from tma_dlpack.ptx.parse import Function, Instruction
from tma_dlpack.ptx.values import Symbol, Value, Values, number_of

# -- alone ---------------------------------------------------------------------------------------

#: Name of the mistake | rule | highest severity | message | fix.
_WORDS: Final = {
    name: words
    for name, *words in coerce.rows("""
local | MAP_SPACE | error | the tensor map is copied from local memory, where TMA cannot read it: a
    parameter by value that is not __grid_constant__, or a local variable; the copy ends in error
    700 | declare the parameter const __grid_constant__ CUtensorMap and pass its address
shared | MAP_SPACE | error | the tensor map is in shared memory, where TMA cannot read it; the
    copy ends in error 700 | publish it in global memory (tensormap.cp_fenceproxy), or pass it as a
    __grid_constant__ parameter
size | BULK_SIZE | error | a bulk copy has {count} bytes, not a multiple of 16, so its behavior
    is undefined | copy a multiple of 16 bytes from 16-byte-aligned addresses
misaligned | ALIGNMENT | error | {what} is {offset} bytes after a multiple of {least}, because of
    its declaration and the number added to it, and needs a multiple of {needed}: the copy ends in
    error 716 | declare alignas({needed}), and add multiples of {needed} bytes
underaligned | ALIGNMENT | warning | {what} needs a multiple of {needed} bytes, and is in {array},
    which is declared with an alignment of {declared}: where it is placed decides whether the copy
    ends in error 716 | declare {array} alignas({needed}), and add multiples of {needed} bytes
dynamic | ALIGNMENT | note | {what} needs a multiple of {needed} bytes, and is in dynamic shared
    memory that is declared with an alignment of {declared}: PTX promises no more than that |
    declare it extern __shared__ __align__({needed}), or round the address up
pattern | ALIGNMENT | note | {what} is loaded with swizzle {swizzle}, whose pattern repeats every
    {needed} bytes of the address, and is aligned to {declared}: right if the reader swizzles by
    the address, not by the place in the tile | declare alignas({needed})
window | CLUSTER | warning | an address that mapa made is used as .shared::cta, which is this
    block's own memory | {opcode} with .shared::cluster
acquire | MAP_ACQUIRE | warning | the tensor map is in global memory and no thread acquires it:
    right if it was copied there before the launch, else the copy may use what was there before |
    fence.proxy.tensormap::generic.acquire.gpu [map], 128 before the copy, or a __grid_constant__
    parameter
leak | TMEM_LEAK | warning | tensor memory is allocated and the kernel never deallocates it: the
    allocation of the next block on this multiprocessor may never end | tcgen05.dealloc by the warp
    that allocated, before the kernel ends
letter | CLUSTER | error | {instruction} does not exist on {target}: the code is refused by ptxas |
    compile for {target}a (-arch={target}a)
cluster | CLUSTER | warning | the kernel reaches other blocks of a cluster, and nothing in it says
    that it is launched as one: a copy to a block that is not there ends in error 715 |
    declare __cluster_dims__, or launch with cudaLaunchAttributeClusterDimension
rank | MAP_MISMATCH | error | the copy is {asked}-D and its map has rank {map.rank}: error 715 |
    use the instruction for a {map.kind} map of rank {map.rank}, or its map
kind | MAP_MISMATCH | error | the copy is {asked} and its map is {map.kind}: error 715 |
    use the instruction for a {map.kind} map of rank {map.rank}, or its map
bytes | MAP_MISMATCH | warning | a barrier expects {count} bytes, and no sum of this kernel's copies
    ({copies} bytes each) gives that: the wait never ends, or ends too early | expect the bytes of
    the copies: TensorMap.tx_bytes of each
swizzle | MAP_MISMATCH | warning | the matrix descriptor says swizzle {asked}, and the maps that are
    loaded have {had}: the product is of other elements | make the descriptor of the map:
    tma.matrix_descriptor(tensor_map).value
""")
}


def _mistake(name: str, code: Instruction, is_sure: bool = True, **shown: Any) -> Mistake:
    rule, most, message, fix = _WORDS[name]
    severity = most if is_sure or most != "error" else "warning"
    return Mistake(rule, severity, code, None, message.format(**shown), fix.format(**shown))


#: Instructions that ptxas accepts only for architectures with a letter, such as sm_90a.
_NEEDS_LETTER = re.compile(r"wgmma\.|tcgen05\.|setmaxnreg|tensormap\.replace")
_PLAIN_TARGET = re.compile(r"sm_(9\d|1[0-2]\d)$")
_BULK = re.compile(r"cp\.(reduce\.)?async\.bulk\.(shared|global)")
_OWN_WINDOW = re.compile(r"(mbarrier|ld|st|red|atom)\S*\.shared::cta\b")
_CLUSTER_BLOCKS = re.compile(
    r"\.reqnctapercluster\s+(\d{1,2})(?:\s*,\s*(\d{1,2}))?(?:\s*,\s*(\d{1,2}))?"
)
_KNOWS_CLUSTERS = re.compile(r"%cluster|%nclusterid|%is_explicit_cluster")
_DECLARES_CLUSTER = re.compile(r"\.(explicitcluster|reqnctapercluster|maxclusterrank)\b")


def alone(events: Events) -> Iterator[Mistake]:
    """Yield the mistakes of single instructions that can be found without the maps of a launch."""
    yield from _spaces(events)
    yield from _clusters(events)
    yield from _operands(events)
    yield from _unaligned(events)
    yield from _unacquired(events)
    opcodes = [(code.opcode, code) for code in events.flow.values.function.code]
    allocates = [code for opcode, code in opcodes if opcode.startswith("tcgen05.alloc")]
    ends = ("tcgen05.dealloc", "call")
    if allocates and not any(opcode.startswith(ends) for opcode, _ in opcodes):
        yield _mistake("leak", allocates[0])


def _operands(events: Events) -> Iterator[Mistake]:
    """Yield wrong constant sizes of bulk copies, and remote addresses used as local addresses."""
    values = events.flow.values
    for code in values.function.code:
        if _BULK.match(code.opcode):
            terms, count = values.operand("".join(code.split()[2:3]))
            if not terms and count % 16:
                yield _mistake("size", code, count=count)
        elif _OWN_WINDOW.match(code.opcode):
            terms, _ = values.address(code.address())
            if len(terms) == 1 and terms[0][0].op == "mapa":
                yield _mistake("window", code, opcode=code.opcode.partition(".shared")[0])


#: Required alignment of an address in shared memory, in bytes (PTX ISA 9.0, cp.async.bulk.tensor,
#: cp.async.bulk, mbarrier). For maps with a swizzle, 128 bytes are enough, too (measured on sm_90).
_OF_TENSOR, _OF_BULK, _OF_BARRIER = 128, 16, 8


def _shared_operands(code: Instruction) -> Iterator[tuple[str, str, int]]:
    """Yield the operands in shared memory: (description, operand, required alignment)."""
    event = event_of(code.opcode)
    needed = _OF_TENSOR if ".tensor" in code.opcode else _OF_BULK
    if event in ("load", "send"):
        yield "the destination of a copy", code.address(0), needed
        yield "the mbarrier of a copy", code.address(2), _OF_BARRIER
    if event in ("store", "send"):
        yield "the source of a copy", code.address(1), needed
    if code.opcode.startswith("mbarrier.") and event in ("init", "use", "arrive", "await"):
        yield "an mbarrier", code.address(0), _OF_BARRIER


def _unaligned(events: Events) -> Iterator[Mistake]:
    """Yield addresses whose declaration and offset do not guarantee the required alignment."""
    values, seen = events.flow.values, set()
    for code in values.function.code:
        if not code.opcode.startswith(("cp.", "mbarrier.")):
            continue
        for what, text, needed in _shared_operands(code):
            terms, offset = values.address(text) if text else ((), 0)
            name, declared = _declared(values, terms)
            # the address is a multiple of `least`, plus the offset
            least = gcd(declared, needed, *(factor for _, factor in terms if factor != 1))
            if not name or (name, offset % needed, needed) in seen:
                continue
            seen.add((name, offset % needed, needed))
            words: dict[str, Any] = {
                "what": what,
                "needed": needed,
                "array": name,
                "declared": declared,
            }
            is_alone, is_dynamic = len(terms) == 1, name in values.module.unsized
            if offset % least:
                yield _mistake("misaligned", code, **words, offset=offset % least, least=least)
            elif is_alone and declared < needed:
                is_start = is_dynamic and offset % needed == 0
                yield _mistake("dynamic" if is_start else "underaligned", code, **words)


def _declared(values: Values, terms: Sequence[tuple[Symbol, int]]) -> tuple[str, int]:
    """Return the shared array that contains an address, and the array's alignment; "" if unknown.

    Terms with a factor may be added to the array, for example an index. An address with two terms
    without a factor is skipped, because the sum of both terms may be aligned although the array is
    not.
    """
    named = [s for s, factor in terms if factor == 1]
    if len(named) != 1 or named[0].op != "name":
        return "", 1
    space, _, name = next(iter(named[0].origins)).partition(":")
    known = values.function.alignments.get(name) or values.module.alignments.get(name)
    return (name, known) if space == "shared" and known else ("", 1)


def _unacquired(events: Events) -> Iterator[Mistake]:
    """Yield the first copy with a map in global memory if no map is acquired or changed."""
    accesses = events.accesses
    there = {event.what for block in events.blocks for event in block}
    if there & {"acquire", "replace", "publish", "call"}:
        return
    for access in (a for a in accesses if a.what == "map_use" and a.terms):
        is_pointer = any(symbol.op == "parameter" for symbol, _ in access.terms or ())
        if is_pointer or any(origin.startswith("global:") for origin in access.origins):
            yield _mistake("acquire", access.first)
            return


def _spaces(events: Events) -> Iterator[Mistake]:
    """Yield the maps whose address is in local or shared memory."""
    for access in events.accesses:
        if access.what != "map_use":
            continue
        spaces = {origin.partition(":")[0] for origin in access.origins}
        for space in ("local", "shared"):
            if space in spaces:
                yield _mistake(space, access.first, len(spaces) == 1)


def cluster_blocks(function: Function) -> int:
    """Return the number of blocks in the clusters that a kernel declares.

    The result is 0 if the kernel has no declaration of its clusters.
    """
    declared = _CLUSTER_BLOCKS.search(function.header)
    return prod(int(number or 1) for number in declared.groups()) if declared else 0


def _knows_clusters(function: Function) -> bool:
    """Return whether the code of a function shows that the function is launched with clusters."""
    return (
        not function.is_entry
        or bool(_DECLARES_CLUSTER.search(function.header))
        or any(_KNOWS_CLUSTERS.search(c.operands) or "barrier.cluster" in c.opcode
               for c in function.code)
    )  # fmt: skip


def _clusters(events: Events) -> Iterator[Mistake]:
    """Yield multicast without a cluster, and instructions that need a target such as sm_90a."""
    function, target = events.flow.values.function, events.flow.values.module.target
    plain = bool(_PLAIN_TARGET.match(target))
    multicast = []
    for code in function.code:
        if plain and _NEEDS_LETTER.match(code.opcode):
            yield _mistake("letter", code, instruction=code.opcode.split(".")[0], target=target)
        if ".multicast::cluster" in code.opcode or code.opcode.startswith("mapa"):
            multicast.append(code)
    if not _knows_clusters(function):
        yield from (_mistake("cluster", code) for code in multicast)


# -- with the maps of a launch --------------------------------------------------------------------

_RANK = re.compile(r"\.tensor\.([1-5])d(?!.*(?:gather4|scatter4))")
_OF_128_BYTES = re.compile(rf"\.param\b[^,()]*?([A-Za-z_$%][\w$]*)\s*\[{targets.MAP_BYTES}\]")
_MOST_BYTES = 1 << 20  # an mbarrier can expect at most this number minus 1

#: (index of a parameter, offset in it) -> the maps that were passed there.
Places = dict[tuple[int, int], list[tma.TensorMap]]


class LaunchedMaps:
    """The maps with which each kernel was launched."""

    def __init__(self, maps: Any) -> None:
        self._by_kernel: dict[str, Places] = {}
        self._in_order: tuple[tma.TensorMap, ...] = ()
        if isinstance(maps, (list, tuple)) and all(isinstance(m, tma.TensorMap) for m in maps):
            self._in_order = tuple(maps)
        else:
            self._read(maps)

    def _read(self, maps: Any) -> None:
        from tma_dlpack.debug.trace.result import Trace

        if isinstance(maps, (str, Path)):
            maps = Trace.from_json(Path(maps).read_text(encoding="utf-8", errors="replace"))
        if not isinstance(maps, Trace):
            must = "be a Trace, the path of one (trace --json), or a sequence of TensorMap"
            raise errors.argument_error(
                "maps", f"maps is a {type(maps).__name__}", must, "pass a Trace"
            )
        for traced in maps.maps:
            tensor_map = traced.tensor_map()
            if tensor_map is None:
                continue
            for use in traced.uses:
                places = self._by_kernel.setdefault(use.name, defaultdict(list))
                places[use.parameter, use.offset].append(tensor_map)

    def of(self, function: Function) -> Places:
        """Return the maps of a kernel by parameter and offset; {} if no map is known."""
        if self._in_order:
            names = _OF_128_BYTES.findall(function.header)
            numbers = [function.parameters.index(name) for name in names]
            return {(n, 0): [m] for n, m in zip(numbers, self._in_order, strict=False)}
        places = self._by_kernel.get(function.name)
        readable = demangled([function.name])[function.name]  # a trace has demangled names
        return places or self._by_kernel.get(readable, {})


def with_maps(events: Events, launched: LaunchedMaps) -> Iterator[Mistake]:
    """Compare a kernel's instructions with the maps of its launches, and yield the mistakes."""
    values = events.flow.values
    places = launched.of(values.function)
    if not places:
        return
    loaded: list[tma.TensorMap] = []
    sums: set[int] | None = set()
    for access in events.accesses:
        if access.what == "map_use":
            found = _maps_of(access, values.function, places)
            for tensor_map in found:
                yield from _copy(access.first, tensor_map)
                yield from _pattern(access.first, values, tensor_map)
            if event_of(access.first.opcode) == "load":
                loaded += found
                sums = None if sums is None or not found else sums | {m.tx_bytes for m in found}
        elif access.what == "load" and ".tensor" not in access.first.opcode:
            sizes = {number_of("".join(code.split()[2:3])) or 0 for code in access.code}
            sums = None if sums is None or min(sizes) <= 0 else sums | sizes
    if sums:
        yield from _expected(values, sums)
    if loaded:
        yield from _descriptors(values, {m.swizzle for m in loaded})


def bytes_of_copies(
    events: Events, launched: LaunchedMaps | None
) -> Callable[[Instruction], int | None]:
    """Return a function that returns a copy's number of bytes, or None if the number is unknown.

    The instruction of a plain copy contains this number. For a tensor copy, the map determines the
    number.
    """
    places = launched.of(events.flow.values.function) if launched else {}
    maps: dict[int, set[int]] = defaultdict(set)
    for access in events.accesses:
        if access.what == "map_use" and places:
            for code in access.code:
                sizes = {m.tx_bytes for m in _maps_of(access, events.flow.values.function, places)}
                maps[code.line] |= sizes

    def bytes_of(code: Instruction) -> int | None:
        if ".tensor" in code.opcode:
            sizes = maps[code.line]
            return next(iter(sizes)) if len(sizes) == 1 else None
        terms, size = events.flow.values.operand("".join(code.split()[2:3]))
        return None if terms or "bulk" not in code.opcode else size

    return bytes_of


def _maps_of(access: Access, function: Function, places: Places) -> list[tma.TensorMap]:
    names = [origin.partition(":")[2] for origin in access.origins if origin[:6] == "param:"]
    if len(names) != 1 or names[0] not in function.parameters:
        return []
    number = function.parameters.index(names[0])
    return [m for offset, _ in access.spans for m in places.get((number, offset), ())]


def _copy(code: Instruction, tensor_map: tma.TensorMap) -> Iterator[Mistake]:
    """Compare the rank and the mode of a copy with its map."""
    asked = _RANK.search(code.opcode)
    if asked and int(asked[1]) != tensor_map.rank:
        yield _mistake("rank", code, asked=asked[1], map=tensor_map)
    kind = "im2col" if ".im2col" in code.opcode else "tiled"
    if kind != tensor_map.kind.partition("_")[0]:
        yield _mistake("kind", code, asked=kind, map=tensor_map)


def _pattern(code: Instruction, values: Values, tensor_map: tma.TensorMap) -> Iterator[Mistake]:
    """Compare the alignment of a tile's array with the period of the map's swizzle pattern."""
    needed = tensor_map.smem_alignment  # bytes after which the pattern repeats
    for what, text, least in _shared_operands(code):
        terms, _ = values.address(text) if text else ((), 0)
        name, declared = _declared(values, terms)
        if least == _OF_TENSOR <= declared < needed and name not in values.module.unsized:
            swizzle = tma.TmaSwizzle(tensor_map.swizzle).name
            words: dict[str, Any] = {
                "what": what,
                "needed": needed,
                "declared": declared,
                "swizzle": swizzle,
            }
            yield _mistake("pattern", code, **words)


def _expected(values: Values, sums: set[int]) -> Iterator[Mistake]:
    """Compare the bytes that barriers expect with the sums of the copies' bytes."""
    reachable = _sums_of(sums)
    for code in values.function.code:
        if "expect_tx" not in code.opcode or not code.opcode.startswith("mbarrier"):
            continue
        terms, count = values.operand(code.split()[-1])
        if terms or not 0 < count < _MOST_BYTES or count in reachable:
            continue
        yield _mistake("bytes", code, count=count, copies=", ".join(map(str, sorted(sums))))


def _sums_of(sizes: Iterable[int]) -> set[int]:
    """Return every sum of sizes that an mbarrier can expect; a size may occur several times."""
    step = min(sizes)
    least: dict[int, int] = {0: 0}  # remainder modulo `step` -> the least sum
    work = [0]
    while work:
        at = work.pop()
        for size in sizes:
            total = at + size
            if total < _MOST_BYTES and total < least.get(total % step, _MOST_BYTES):
                least[total % step] = total
                work.append(total)
    return {n for start in least.values() for n in range(start, _MOST_BYTES, step)}


def _descriptors(values: Values, swizzles: set[int]) -> Iterator[Mistake]:
    """Compare the swizzles in constant matrix descriptors with the swizzles of the maps."""
    for code in values.function.code:
        name = code.opcode.partition(".")[0]
        if name not in INSTRUCTIONS or ".mma" not in code.opcode:
            continue
        layouts = {number: swizzle for swizzle, number in INSTRUCTIONS[name].layout_types.items()}
        at = next(f for f in INSTRUCTIONS[name].fields if f.name == "layout type")
        for word in code.split():
            for constant in _constants(values.of.get(word), 0):
                number = (constant & (1 << 64) - 1) >> at.first_bit
                swizzle = layouts.get(number)
                if number and swizzle is not None and swizzle not in swizzles:
                    had = ", ".join(sorted(tma.TmaSwizzle(s).name for s in swizzles))
                    yield _mistake("swizzle", code, asked=swizzle.name, had=had)


def _constants(value: Value | None, depth: int) -> Sequence[int]:
    """Return the constants in a value that is computed by additions and OR operations."""
    if value is None or depth > 4:
        return ()
    inner = [a for symbol, _ in value[0] if symbol.op in ("or", "sum") for a in symbol.arguments]
    return [value[1], *(number for a in inner for number in _constants(a, depth + 1))]

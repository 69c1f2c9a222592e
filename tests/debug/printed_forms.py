"""Functions that print an encode's arguments in the formats of other projects, for `explain`.

Each function has the words, order, units and padding of a project, from the project's source
(looked up on 2026-11-21; words.txt in `tma_dlpack.debug.explain` names the files). The texts were
written for these tests.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import tma_dlpack as tma

#: The driver's arguments, in its order.
ORDER = (
    "data_type",
    "rank",
    "global_address",
    "global_dim",
    "global_strides",
    "box_dim",
    "element_strides",
    "interleave",
    "swizzle",
    "l2_promotion",
    "oob_fill",
)
SIZES = {0: 1, 1: 2, 2: 4, 3: 4, 4: 8, 5: 8, 6: 2, 7: 4, 8: 8, 9: 2, 10: 4, 11: 4, 12: 4}
NAMES = [
    "UINT8",
    "UINT16",
    "UINT32",
    "INT32",
    "UINT64",
    "INT64",
    "FLOAT16",
    "FLOAT32",
    "FLOAT64",
    "BFLOAT16",
    "FLOAT32_FTZ",
    "TFLOAT32",
    "TFLOAT32_FTZ",
]
SWIZZLES = ("NONE", "32B", "64B", "128B")
L2 = ("NONE", "L2_64B", "L2_128B", "L2_256B")


@dataclass(frozen=True)
class Encode:
    """The driver's arguments of a tiled encode, innermost first."""

    data_type: int
    global_address: int
    global_dim: tuple[int, ...]
    global_strides: tuple[int, ...]
    box_dim: tuple[int, ...]
    element_strides: tuple[int, ...] = ()
    interleave: int = 0
    swizzle: int = 0
    l2_promotion: int = 0
    oob_fill: int = 0

    def __post_init__(self) -> None:
        if not self.element_strides:
            object.__setattr__(self, "element_strides", (1,) * self.rank)

    @property
    def rank(self) -> int:
        return len(self.global_dim)

    @property
    def size(self) -> int:
        return SIZES[self.data_type]

    def but(self, **changes: Any) -> Encode:
        return replace(self, **changes)


GOOD = Encode(9, 0x7F3B_8A00_0000, (4096, 128), (8192,), (64, 128), swizzle=3, l2_promotion=2)


def driver_says(e: Encode, target: str = "sm_90") -> list[str]:
    """Return the rules that the arguments break, according to `driver_encode_*`."""
    arguments = (getattr(e, name) for name in ORDER)
    try:
        tma.driver_encode_tiled(*arguments, target=target, encoder="model")
    except tma.TmaPreconditionError as error:
        return [v.rule for v in error.violations]
    return []


def five(values: tuple[int, ...], padding: int) -> tuple[int, ...]:
    return (*values, *(padding,) * (5 - len(values)))


def _round(values: tuple[int, ...]) -> str:
    return "(" + ",".join(map(str, values)) + ")"


def _square(values: tuple[int, ...]) -> str:
    return "[" + ", ".join(map(str, values)) + "]"


def cutlass(e: Encode, result: int = 1) -> str:
    return f"""\
TMA Desc Addr:   0x7ffd00aa1100
format         {e.data_type}
dim            {e.rank}
gmem_address   {e.global_address:#x}
globalDim      {_round(five(e.global_dim, 1))}
globalStrides  {_round(five((e.size, *e.global_strides), 0))}
boxDim         {_round(five(e.box_dim, 1))}
elementStrides {_round(five(e.element_strides, 1))}
interleave     {e.interleave}
swizzle        {e.swizzle}
l2Promotion    {e.l2_promotion}
oobFill        {e.oob_fill}
Error: Failed to initialize the TMA descriptor {result}
"""


def tilelang(e: Encode, result: int = 1) -> str:
    return f"""\
tvm.error.InternalError: Failed to initialize the TMA descriptor {result} (it says why)
TMA Desc Addr:   0x7ffd00aa1100 (mod64=0)
format         {e.data_type} (CU_TENSOR_MAP_DATA_TYPE_{NAMES[e.data_type]})
dim            {e.rank}
gmem_address   {e.global_address:#x} (mod16={e.global_address % 16}, mod32={e.global_address % 32})
globalDim      {_square(e.global_dim)}
globalStridesRaw {_square((e.size, *e.global_strides))}
cudaGlobalStrides {_square(e.global_strides)}
boxDim         {_square(e.box_dim)}
elementStrides {_square(e.element_strides)}
interleave     {e.interleave} (CU_TENSOR_MAP_INTERLEAVE_SOME)
swizzle        {e.swizzle} (CU_TENSOR_MAP_SWIZZLE_SOME)
l2Promotion    {e.l2_promotion} (CU_TENSOR_MAP_L2_PROMOTION_SOME)
oobFill        {e.oob_fill} (CU_TENSOR_MAP_FLOAT_OOB_FILL_SOME)
"""


def triton(e: Encode, words: str = "invalid argument") -> str:
    return f"""\
RuntimeError: Triton Error [CUDA]: Failed to create tensor map descriptor: {words}
elemType={e.data_type} rank={e.rank} global_address={e.global_address:#x} elemSize={e.size} \
swizzle={e.swizzle} padding={e.oob_fill}
shape={_square(e.global_dim)}
strides={_square(e.global_strides)}
blockSize={_square(e.box_dim)} elementStrides={_square(e.element_strides)} fill={e.oob_fill}
"""


def triton_one_stride_more(e: Encode) -> str:
    """Print the entry after the last stride too, as some copies of this code do."""
    last = (e.global_strides or (e.size,))[-1] * e.global_dim[-1]
    return triton(e).replace(
        f"\nstrides={_square(e.global_strides)}", f"\nstrides={_square((*e.global_strides, last))}"
    )


def trtllm(e: Encode, words: str = "invalid argument") -> str:
    """Print 5, 4, 5 and 5 entries for any rank, as attention kernels do; the rest is random."""
    dirt = (3806834432, 273, 49152, 32, 7)
    return f"""\
Error: Failed to initialize the TMA descriptor due to {words}
tmaFormat: {e.data_type} dim: {e.rank} gmem: {e.global_address:#x}
Shape: {" ".join(map(str, (*e.global_dim, *dirt)[:5]))}
Stride: {" ".join(map(str, (*e.global_strides, *dirt)[:4]))}
tileShapes: {" ".join(map(str, (*e.box_dim, *dirt)[:5]))}
tileStrides: {" ".join(map(str, (*e.element_strides, *dirt)[:5]))}
swizzleType: {e.swizzle}
"""


def trtllm_exact(e: Encode) -> str:
    lists = [
        " ".join(map(str, v)) + " "
        for v in (e.global_dim, e.global_strides, e.box_dim, e.element_strides)
    ]
    return f"""\
RuntimeError: Error: Failed to initialize the TMA descriptor 1
tmaFormat: {e.data_type} dim: {e.rank} gmem: {e.global_address:#x}
Shape: {lists[0]}
Stride: {lists[1]}
tileShapes: {lists[2]}
tileStrides: {lists[3]}
swizzleType: {e.swizzle}
(in /opt/somewhere/create.cuh:7)
"""


def deepgemm(e: Encode) -> str:
    """Print strides in elements and the swizzle in bytes, without type and address."""
    dimensions = "" if e.rank == 2 else f"{e.rank}D "
    strides = " ".join(str(s // e.size) for s in e.global_strides)
    return (
        f"Making {dimensions}TMA desc: global memory: {' '.join(map(str, e.global_dim))}, shared "
        f"memory: {' '.join(map(str, e.box_dim))}, outer stride: {strides}, swizzle: "
        f"{(0, 32, 64, 128)[e.swizzle]}{' (base: 0)' * (e.rank == 2)}, elem size: {e.size}\n"
    )


def thunderkittens(e: Encode, words: str = "invalid argument") -> str:
    """Print decimal addresses, also before each list."""
    return f"""\
RuntimeError: Error in tile TMA descriptor creation: {words}
Parameters:
  batch: 1
  depth: 1
  rows: 4096
  cols: 100
  ST::rows: 64
  ST::cols: 64
cuTensorMapEncodeTiled arguments:
  tma_map: 140730679700288
  tma_format: {e.data_type}
  tma_dim: {e.rank}
  global_addr: {e.global_address}
  global_addr memory type: valid device memory
  gmem_shape: 140730679700000 {_square(five(e.global_dim, 0))}
  gmem_stride: 140730679700040 {_square(five(e.global_strides, 0)[:4])}
  smem_shape: 140730679700080 {_square(five(e.box_dim, 0))}
  smem_stride: 140730679700100 {_square(five(e.element_strides, 1))}
  tma_interleave: {e.interleave}
  tma_swizzle: {e.swizzle}
  tma_l2Promotion: {e.l2_promotion}
  tma_oobFill: {e.oob_fill}
"""


def kerutils(e: Encode) -> str:
    return f"""\
Failed to create tensormap
Dim: {e.rank}
size: {" ".join(map(str, e.global_dim))}\x20
strides: {" ".join(map(str, e.global_strides))}\x20
box_size: {" ".join(map(str, e.box_dim))}\x20
element_strides: {" ".join(map(str, e.element_strides))}\x20
global ptr: {e.global_address:#x}
data_type: {e.data_type}
swizzle_mode: {e.swizzle}
l2_promotion: {e.l2_promotion}
interleave_mode: {e.interleave}
oob_fill: {e.oob_fill}
"""


def xla(e: Encode) -> str:
    lists = [
        ",".join(map(str, v))
        for v in (e.global_dim, e.global_strides, e.box_dim, e.element_strides)
    ]
    return (
        f"TmaDescriptor{{element_size: {e.size}, rank: {e.rank}, global_dims: {{{lists[0]}}}, "
        f"global_strides: {{{lists[1]}}}, box_dims: {{{lists[2]}}}, element_strides: "
        f"{{{lists[3]}}}, interleave: {e.interleave}, swizzle: {e.swizzle}, l2_promotion: "
        f"{e.l2_promotion}, float_oob_fill: {e.oob_fill}}}\n"
    )


def header(e: Encode) -> str:
    """Print the one line that tma_dlpack.h throws."""
    lists = [
        "{" + ", ".join(map(str, v)) + "}"
        for v in (e.global_dim, e.global_strides, e.box_dim, e.element_strides)
    ]
    return (
        f"terminate called: tma_dlpack: refused: cuTensorMapEncodeTiled(tensorDataType="
        f"{e.data_type}, tensorRank={e.rank}, globalAddress={e.global_address:#x}, globalDim="
        f"{lists[0]}, globalStrides={lists[1]}, boxDim={lists[2]}, elementStrides={lists[3]}, "
        f"interleave={e.interleave}, swizzle={e.swizzle}, l2Promotion={e.l2_promotion}, oobFill="
        f"{e.oob_fill})\n"
    )


def driver_lines(e: Encode) -> str:
    """Print the message of `TmaDriverError`, with one entry per line."""
    lines = ["cuTensorMapEncodeTiled returned CUDA_ERROR_INVALID_VALUE (1)"]
    lines.append(f"  tensorDataType = CU_TENSOR_MAP_DATA_TYPE_{NAMES[e.data_type]} ({e.data_type})")
    lines.append(f"  tensorRank = {e.rank}")
    lines.append(f"  globalAddress = {e.global_address:#x}")
    for name, values in (
        ("globalDim", e.global_dim),
        ("globalStrides", e.global_strides),
        ("boxDim", e.box_dim),
        ("elementStrides", e.element_strides),
    ):
        lines += [f"  {name}[{i}] = {v}" for i, v in enumerate(values)]
    lines.append(f"  interleave = CU_TENSOR_MAP_INTERLEAVE_NONE ({e.interleave})")
    lines.append(f"  swizzle = CU_TENSOR_MAP_SWIZZLE_{SWIZZLES[e.swizzle]} ({e.swizzle})")
    lines.append(f"  l2Promotion = CU_TENSOR_MAP_L2_PROMOTION_{L2[e.l2_promotion]}")
    lines.append(f"  oobFill = {e.oob_fill}\n")
    return "\n".join(lines)


def as_json(e: Encode) -> str:
    return json.dumps(
        {
            "tensorDataType": e.data_type,
            "tensorRank": e.rank,
            "globalAddress": hex(e.global_address),
            "globalDim": e.global_dim,
            "globalStrides": e.global_strides,
            "boxDim": e.box_dim,
            "elementStrides": e.element_strides,
            "interleave": e.interleave,
            "swizzle": e.swizzle,
            "l2Promotion": e.l2_promotion,
            "oobFill": e.oob_fill,
        },
        indent=2,
    )


def cuda_bindings(e: Encode) -> str:
    """Print the objects of cuda.bindings, as a user's script does."""

    def wrapped(values: tuple[int, ...], name: str) -> str:
        return "[" + ", ".join(f"<{name} {v}>" for v in values) + "]"

    return f"""\
failed: <CUresult.CUDA_ERROR_INVALID_VALUE: 1>
tensor_data_type = <CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_{NAMES[e.data_type]}: {e.data_type}>
rank = {e.rank}
global_address = {e.global_address}
global_dim = {wrapped(e.global_dim, "cuuint64_t")}
global_strides = {wrapped(e.global_strides, "cuuint64_t")}
box_dim = ({"".join(f"cuuint32_t({v}), " for v in e.box_dim)})
element_strides = {list(e.element_strides)}
interleave = <CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE: {e.interleave}>
swizzle = CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_{SWIZZLES[e.swizzle]}
l2_promotion = CU_TENSOR_MAP_L2_PROMOTION_{L2[e.l2_promotion]}
oob_fill = {e.oob_fill}
"""


def host_source(e: Encode) -> str:
    """Print the host code that TileLang generates, with the tensor's name before each variable."""

    def listed(values: tuple[int, ...]) -> str:
        return "{" + ",".join(map(str, values)) + "}"

    return f"""\
\tCUtensorMap A_desc;
\tCUtensorMapDataType A_desc_type= (CUtensorMapDataType){e.data_type};
\tcuuint32_t A_desc_tensorRank= {e.rank};
\tvoid *A_desc_globalAddress= A;
\tcuuint64_t A_desc_globalDim[{e.rank}]= {listed(e.global_dim)};
\tcuuint64_t A_desc_globalStride[{e.rank}]= {listed((e.size, *e.global_strides))};
\tcuuint32_t A_desc_boxDim[{e.rank}]= {listed(e.box_dim)};
\tcuuint32_t A_desc_elementStrides[{e.rank}]= {listed(e.element_strides)};
\tCUtensorMapInterleave A_desc_interleave= (CUtensorMapInterleave){e.interleave};
\tCUtensorMapSwizzle A_desc_swizzle= (CUtensorMapSwizzle){e.swizzle};
\tCUtensorMapL2promotion A_desc_l2Promotion= (CUtensorMapL2promotion){e.l2_promotion};
\tCUtensorMapFloatOOBfill A_desc_oobFill= (CUtensorMapFloatOOBfill){e.oob_fill};
\tCUresult A_desc_result = CUTLASS_CUDA_DRIVER_WRAPPER_CALL(cuTensorMapEncodeTiled)(
    &A_desc, A_desc_type, A_desc_tensorRank, A_desc_globalAddress, A_desc_globalDim, \
A_desc_globalStride + 1, A_desc_boxDim, A_desc_elementStrides, A_desc_interleave, A_desc_swizzle);
"""


_ALL = frozenset(ORDER)
_OPTIONS = frozenset({"interleave", "l2_promotion", "oob_fill"})

#: Each printing function, and the arguments that it prints.
SHOWN = {
    cutlass: _ALL,
    tilelang: _ALL,
    triton: _ALL - {"interleave", "l2_promotion"},
    triton_one_stride_more: _ALL - {"interleave", "l2_promotion"},
    trtllm: _ALL - _OPTIONS,
    trtllm_exact: _ALL - _OPTIONS,
    deepgemm: _ALL - _OPTIONS - {"data_type", "global_address", "element_strides"},
    thunderkittens: _ALL,
    kerutils: _ALL,
    xla: _ALL - {"data_type", "global_address"},
    header: _ALL,
    driver_lines: _ALL,
    as_json: _ALL,
    cuda_bindings: _ALL,
    host_source: _ALL - {"global_address"},
}

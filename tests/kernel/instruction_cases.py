"""PTX instructions with difficult operands: the table, a kernel per instruction, and operands.

Each line of `TABLE` is ``operations | types | operands | result``: `%` in an operation is the type,
which else is appended. Operands and results are ``t`` (the type), ``w`` (twice as wide), ``p`` (a
predicate), ``i`` (a small number, for shifts) or a type. `tests/golden/ptx_h100.npz` has what an
H100 computes for them.
"""

import numpy as np

TABLE = """
add sub mul.lo mul.hi div rem min max|u16 s16 u32 s32 u64 s64|tt
mad.lo mad.hi|u16 s16 u32 s32 u64 s64|ttt
sad|u16 s16 u32 s32 u64 s64|ttt
mul.wide|u16 s16 u32 s32|tt|w
mad.wide|u16 s16 u32 s32|ttw|w
mul24.lo mul24.hi|u32 s32|tt
mad24.lo|u32 s32|ttt
add.sat sub.sat|s32|tt
abs neg|s16 s32 s64|t
and or xor|b16 b32 b64 pred|tt
not|b16 b32 b64 pred|t
cnot|b16 b32 b64|t
shl|b16 b32 b64|ti
shr|b16 b32 b64 u16 s16 u32 s32 u64 s64|ti
shf.l.wrap shf.l.clamp shf.r.wrap shf.r.clamp|b32|tti
bfe|u32 s32 u64 s64|tii
bfi|b32 b64|ttii
bfind bfind.shiftamt|u32 s32 u64 s64|t|u32
brev|b32 b64|t
popc clz|b32 b64|t|u32
prmt prmt.%.f4e prmt.%.b4e prmt.%.rc8 prmt.%.ecl prmt.%.ecr prmt.%.rc16|b32|tti
dp4a.u32.% dp4a.s32.% dp2a.lo.u32.% dp2a.hi.s32.%|u32 s32|b32 b32 s32|s32
bmsk.clamp bmsk.wrap|b32|ii|b32
szext.clamp szext.wrap|u32 s32|ti
min max add|u16x2 s16x2|tt
min.relu max.relu|s16x2 s32|tt
setp.eq setp.ne setp.lt setp.le setp.gt setp.ge|u16 s16 u32 s32 u64 s64 f32 f64 f16 bf16|tt|p
setp.lo setp.ls setp.hi setp.hs|u32 u64|tt|p
setp.equ setp.neu setp.ltu setp.leu setp.gtu setp.geu setp.num setp.nan|f32 f64 f16|tt|p
setp.lt.and setp.ge.or setp.ne.xor|s32 f32|ttp|p
set.lt.u32 set.ne.s32|s32 f32 u64 f16|tt|b32
set.ge.f32|s32 f32 u64|tt|b32
set.lt.f16 set.geu.f16|f16|tt|b16
set.gt.f16x2|f16x2|tt|b32
selp|b16 b32 b64 f32 f64|ttp
slct.%.s32 slct.%.f32|b16 b32 b64|t t u32
add.rz add.rm add.rp sub.rz mul.rz mul.rm mul.rp|f32|tt
add.rn sub.rn mul.rn|f32 f64|tt
add.ftz sub.ftz mul.ftz add.sat mul.sat|f32|tt
add.rn sub.rn mul.rn|f16 f16x2 bf16 bf16x2|tt
add.sat mul.sat|f16 f16x2|tt
fma.rn|f16 f16x2 bf16 bf16x2 f32 f64|ttt
fma.rz fma.rm fma.rp|f32|ttt
fma.rn.ftz fma.rn.sat|f32|ttt
fma.rn.relu|f16 f16x2 bf16x2|ttt
min max|f16 f16x2 bf16 bf16x2 f32 f64|tt
min.NaN max.NaN|f16 f16x2 bf16 bf16x2 f32|tt
min.ftz max.ftz|f32|tt
min.xorsign.abs max.NaN.xorsign.abs|f16 bf16x2 f32|tt
abs neg|f16 f16x2 bf16 bf16x2 f32 f64|t
abs.ftz neg.ftz|f32|t
copysign|f32 f64|tt
testp.finite testp.infinite testp.number|f32 f64|t|p
testp.notanumber testp.normal testp.subnormal|f32 f64|t|p
rcp.rn sqrt.rn|f32 f64|t
rcp.rz rcp.rm rcp.rp sqrt.rz sqrt.rm sqrt.rp|f32|t
div.rn|f32 f64|tt
div.rz div.rm div.rp|f32|tt
div.full div.approx|f32|tt
rcp.approx sqrt.approx rsqrt.approx ex2.approx|f32|t
lg2.approx sin.approx cos.approx tanh.approx|f32|t
rcp.approx.ftz sqrt.approx.ftz rsqrt.approx.ftz|f32|t
ex2.approx.ftz lg2.approx.ftz sin.approx.ftz|f32|t
rsqrt.approx|f64|t
ex2.approx tanh.approx|f16 f16x2|t
ex2.approx.ftz|bf16 bf16x2|t
tanh.approx|bf16 bf16x2|t
cvt.u8 cvt.s8 cvt.u16 cvt.s16 cvt.u32 cvt.s32 cvt.u64 cvt.s64|u8 s8 u16 s16 u32 s32 u64 s64|t|@
cvt.sat.u8 cvt.sat.s8 cvt.sat.u16|s16 u32 s32 u64 s64|t|@
cvt.sat.s16|u32 s32 u64 s64|t|@
cvt.sat.u32|s16 s32 u64 s64|t|@
cvt.sat.s32|u32 u64 s64|t|@
cvt.rni.s32 cvt.rzi.s32 cvt.rmi.s32|f16 bf16 f32 f64|t|@
cvt.rpi.s32 cvt.rzi.u32 cvt.rni.u64 cvt.rzi.s64|f16 bf16 f32 f64|t|@
cvt.rzi.u8 cvt.rni.s8 cvt.rzi.s16 cvt.rpi.u16 cvt.rzi.sat.s8|f32 f16|t|@
cvt.rn.f16 cvt.rz.f16 cvt.rm.f16 cvt.rp.f16|u32 s32 u64 s64 s16|t|@
cvt.rn.f32 cvt.rz.f32 cvt.rp.f32 cvt.rm.f64|u32 s32 u64 s64 s16|t|@
cvt.rn.bf16|u32 s32 s64|t|@
cvt.rni.f32 cvt.rzi.f32 cvt.rmi.f32 cvt.rpi.f32 cvt.rni.ftz.f32 cvt.sat.f32|f32|t|@
cvt.rn.f16 cvt.rz.f16 cvt.rm.f16 cvt.rp.f16|f32 f64|t|@
cvt.rn.sat.f16|f32|t|@
cvt.rn.bf16 cvt.rz.bf16 cvt.rn.relu.bf16 cvt.rn.f16|f32|t|@
cvt.rn.relu.f16 cvt.rna.tf32 cvt.rn.tf32 cvt.rz.tf32|f32|t|@
cvt.rn.f32 cvt.rz.f32 cvt.rm.f32 cvt.rp.f32 cvt.rn.ftz.f32 cvt.rzi.f64|f64|t|@
cvt.f32 cvt.f64|f16 bf16|t|@
cvt.f64 cvt.ftz.f64|f32|t|@
cvt.rni.f16 cvt.sat.f16|f16|t|@
cvt.rn.f16x2 cvt.rz.f16x2 cvt.rn.relu.f16x2|f32|tt|b32
cvt.rn.bf16x2 cvt.rz.bf16x2 cvt.rn.relu.bf16x2|f32|tt|b32
cvt.rn.satfinite.e4m3x2 cvt.rn.satfinite.e5m2x2 cvt.rn.satfinite.relu.e4m3x2|f32|tt|b16
cvt.rn.satfinite.e4m3x2 cvt.rn.satfinite.e5m2x2 cvt.rn.satfinite.relu.e5m2x2|f16x2|t|b16
cvt.rn.f16x2 cvt.rn.relu.f16x2|e4m3x2 e5m2x2|t|b32
cvt.pack.sat.u16.s32 cvt.pack.sat.s16.s32|-|s32 s32|b32
cvt.pack.sat.u8.s32.b32 cvt.pack.sat.s8.s32.b32|-|s32 s32 b32|b32
"""
HEADER = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 x)
{
.reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %w<9>; .reg .b64 %d<9>; .reg .b64 %a;
ld.param.u64 %a, [x]; mov.u32 %w8, %tid.x; mul.wide.u32 %d8, %w8, 8;
add.u64 %a, %a, %d8;"""
LANES, KEPT = 256, 64
WIDE = {"16": "32", "32": "64"}


def bits(kind):
    kind = {"i": "u32", "p": "pred"}.get(kind, kind)
    if kind == "pred":
        return 1
    if kind[-2:] == "x2":
        return 2 * bits(kind[:-2])
    return {"tf32": 32, "e4m3": 8, "e5m2": 8, "bf16": 16}.get(kind) or int(kind[1:])


def cases():
    """Return (instruction, types of its operands, type of its result) of each case."""
    found = []
    for line in TABLE.strip().splitlines():
        operations, types, operands, result = (line + "||").split("|")[:4]
        for operation in operations.split():
            for kind in types.split():
                name = operation.replace("%", kind)
                if name == operation and kind != "-":
                    name += "." + kind
                words = operands.split() if " " in operands else list(operands)
                kinds = []
                for word in [*words, result or "t"]:
                    if word == "w":
                        word = kind[0] + WIDE[kind[1:]]
                    if word == "@":
                        word = operation.split(".")[-1]
                    kinds.append(kind if word == "t" else word)
                found.append((name, kinds[:-1], kinds[-1]))
    return found


def kernel(name, sources, result):
    """Return PTX that computes an instruction in each thread; operands are 64 bits apart."""
    lines = [HEADER]
    names = []
    for n, kind in enumerate([result, *sources]):
        size = max(bits(kind), 16)
        letter = {16: "h", 32: "w", 64: "d"}[size]
        if bits(kind) == 1:
            names.append(f"%p{n}")
            if n:
                lines.append(
                    f"ld.global.u32 %w{n}, [%a+{8 * LANES * n}]; setp.ne.u32 %p{n}, %w{n}, 0;"
                )
            continue
        names.append(f"%{letter}{n}")
        if n:
            lines.append(f"ld.global.b{size} %{letter}{n}, [%a+{8 * LANES * n}];")
    lines.append(f"{name} {', '.join(names)};")
    out = names[0]
    if out[1] == "p":
        lines.append("selp.u32 %w0, 1, 0, %p0;")
        out = "%w0"
    lines.append(f"st.global.b{ {'h': 16, 'w': 32, 'd': 64}[out[1]] } [%a], {out};")
    return "\n".join([*lines, "ret;", "}"])


def special(kind):
    """Return difficult values of a type, as floats or integers."""
    if kind[0] in "usb" and kind[:2] != "bf":
        n = bits(kind)
        return [
            0,
            1,
            2,
            3,
            7,
            31,
            32,
            (1 << n) - 1,
            (1 << n - 1) - 1,
            1 << n - 1,
            (1 << n) - 2,
            255,
        ]
    return [
        *(0.0, -0.0, 1, -1, 0.5, -0.5, 1.5, 2.5, -2.5, 3.7, np.inf, -np.inf, np.nan, 1e-40, -1e-40),
        *(1e-7, -6e-8, 65504, 65520, 1e38, -1e38, 448, 464, 480, 57344, 61440, 127.5, 128.5, 255.5),
        *(2147483520.0, 2147483648.0, 4294967296.0, -2147483904.0, 9.3e18, 2e19, 1e-310, 1e300),
    ]


def operand(kind, seed):
    """Return bits of operands: one third each of difficult, random and medium values."""
    kind = {"p": "pred"}.get(kind, kind)
    draw = np.random.RandomState(seed)
    words = draw.randint(0, 1 << 62, LANES).astype(np.uint64) * np.uint64(4) + np.uint64(3)
    words ^= words >> np.uint64(31)
    which = draw.randint(0, 3, LANES)
    if kind == "i":
        return np.where(which > 0, draw.randint(0, 70, LANES), words % 2**32).astype(np.uint64)
    if kind == "pred":
        return words >> np.uint64(9) & np.uint64(1)
    if kind[-2:] == "x2":
        one = bits(kind[:-2])
        if kind[0] == "e":
            return words
        low, high = operand(kind[:-2], seed + 7), operand(kind[:-2], seed + 8)
        return low | high << np.uint64(one)
    hard = draw.choice(len(special(kind)), LANES)
    with np.errstate(all="ignore"):
        if kind[0] in "usb" and kind[:2] != "bf":
            hard = np.array(special(kind), np.uint64)[hard]
            middle = (draw.randint(-999, 1000, LANES)).astype(np.int64).view(np.uint64)
        else:
            hard = encoded(np.array(special(kind))[hard], kind)
            middle = encoded(draw.uniform(-99, 99, LANES), kind)
    found = np.where(which == 0, hard, np.where(which == 1, words, middle))
    return found & np.uint64((1 << max(16, bits(kind))) - 1)


def encoded(values, kind):
    if kind == "bf16":
        return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint64)
    kind = {"f16": np.float16, "f32": np.float32, "f64": np.float64}[kind]
    found = values.astype(kind)
    return found.view(f"u{found.itemsize}").astype(np.uint64)


def operands(name, sources):
    """Return the kernel's memory: an empty result, then its operands."""
    seed = sum(ord(letter) * (n + 1) for n, letter in enumerate(name))
    rows = [operand(kind, seed + 31 * n) for n, kind in enumerate(sources)]
    return np.stack([np.zeros(LANES, np.uint64), *rows])

"""The preconditions: a table of rules in the order of libcu++'s code. `check` is the engine.

A rule belongs to sets of rules:

``"libcu++"``     what `cuda::make_tma_descriptor` asks (NVIDIA/cccl at `CCCL_COMMIT`), and last
                  what the driver asks beyond it, because libcu++ hands its result to the driver
``"driver"``      what the driver asks, as `make_tma_descriptor(rules="driver")` holds it
``"documented"``  the CUDA driver API document
``"measured"``    the driver's own verdict on sm_90, as `driver_encode_*` holds it
                  [H200, driver 580.159.04 (CUDA 13.0), 2026-11-20; tests/golden]

Chapters: `rule` (what a rule is), `tensor` (device, rank, address, data type, sizes, strides),
`tile` (interleave, swizzle), `box` (box, element strides), `im2col`. A call becomes a `request` by
`parse`, which reads its arguments with `reader`; `check` holds it against the rules; `report` shows
what it found and searches for arguments that would be accepted, by the `repairs` of the rules;
`words` is what fixes say, in the words of the tensor's framework; `advice` is for accepted calls.

A new rule is a row of its chapter, at libcu++'s place (`step`), and a pair of requests on either
side of it in tests/rules/test_rules.py, which says what is missing. It then appears in reports, in
`fixed()`, in `rules()` and, if libcu++ alone has it, in `allow=`. An advice is a row of
`advice` and a pair in tests/rules/test_advice.py.

May import types, dlpack and encoding.
"""

from __future__ import annotations

from tma_dlpack.rules.box import BOX_RULES
from tma_dlpack.rules.im2col import IM2COL_RULES
from tma_dlpack.rules.rule import CCCL_COMMIT, DRIVER_STEPS, AnyRule, Rule, RulePerEntry
from tma_dlpack.rules.tensor import TENSOR_RULES
from tma_dlpack.rules.tile import TILE_RULES

__all__ = ["ALLOWABLE", "CCCL_COMMIT", "RULES", "AnyRule", "Rule", "RulePerEntry"]

#: Every rule, in libcu++'s order.
RULES: tuple[AnyRule, ...] = tuple(
    sorted((*TENSOR_RULES, *TILE_RULES, *BOX_RULES, *IM2COL_RULES), key=lambda rule: rule.step)
)

#: The ids that `allow=` takes: rules that libcu++ has and the driver has not.
ALLOWABLE: tuple[str, ...] = tuple(
    rule.id
    for rule in RULES
    if "libcu++" in rule.sets and "driver" not in rule.sets and rule.step < DRIVER_STEPS
)

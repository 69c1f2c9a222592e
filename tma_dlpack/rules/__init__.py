"""The preconditions of a call: a table of rules in the order of libcu++'s code.

A rule belongs to one or more sets of rules:

``"libcu++"``     what `cuda::make_tma_descriptor` requires (NVIDIA/cccl at `CCCL_COMMIT`), and last
                  what the driver requires beyond it, because libcu++ calls the driver
``"driver"``      what the driver requires, for `make_tma_descriptor(rules="driver")`
``"documented"``  what the CUDA driver API documentation requires
``"measured"``    what the driver refuses for sm_90, for `driver_encode_*`
                  [H200, driver 580.159.04 (CUDA 13.0), 2026-11-20; tests/golden]

`rule.py` defines a row. The rows are in `tensor.py` (device, rank, address, data type, sizes,
strides), `tile.py` (interleave, swizzle), `box.py` (box, element strides) and `im2col.py`.
`parse.py` turns the arguments of a call into a `Request` (`request.py`), with `reader.py`;
`check.py` evaluates the rows; `report.py` is the result, and searches for arguments that would be
accepted, with the `repair` of each rule (`repairs.py`). `words.py` writes fixes for the tensor's
framework. `advice.py` has the rows for accepted calls.

May import: types, dlpack, encoding. Imported by: tensor_map, make and everything below.

A new rule: copy the nearest row in its file. Give it an `id`, a `step` in libcu++'s order, `on`,
`why`, `holds`, `found`, `must`, `fix`, and a source (`libcudacxx=`, `documented=True` or
`source=`). `sets` defaults to all four. `reads` names the arguments that it needs, `after` the
rules that must hold first. If a rule of `make_*` calls is also one of `driver_encode_*`, use
``r.argument(name)`` in its texts. A requirement that the short cut could let pass must also be
tested in make/accept.py and include/tma_dlpack_make.h. Then add to tests/rules/test_rules.py a pair
of calls, one on each side of the rule; a test there fails for rules without a pair. The rule
appears by itself in reports, `fixed()`, `tma.rules()` and, if only libcu++ has it, in `allow=`.

A new advice: a row in `advice.py`, and a pair of calls in tests/rules/test_advice.py.
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

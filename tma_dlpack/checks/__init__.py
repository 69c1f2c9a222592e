"""The preconditions of a call: a table of rules in the order of libcu++'s code.

A rule belongs to one or more sets of rules:

``"libcu++"``     what `cuda::make_tma_descriptor` requires (NVIDIA/cccl at `CCCL_COMMIT`), and last
                  what the driver requires beyond it, because libcu++ calls the driver
``"driver"``      what the driver requires, for `make_tma_descriptor(rules="driver")`
``"documented"``  what the CUDA driver API documentation requires
``"measured"``    what the driver refuses for sm_90, for `driver_encode_*`
                  [H200, driver 580.159.04 (CUDA 13.0), 2026-11-20; tests/golden]

`rule.py` defines a row. The rows are in `tensor.py` (device, rank, address, sizes, strides),
`data_type.py`, `tile.py` (interleave, swizzle), `box.py`, `elem_strides.py` and `im2col.py`.
`parse.py` turns the arguments of a call into a `Request` (`request.py`), with `reader.py`;
`check.py` evaluates the rows; `report.py` is the result, and searches for arguments that would be
accepted, with the `repair` of each rule (`repairs.py`). `names.py` names arguments as the call
does; `words.py` writes fixes for the tensor's framework. `advice.py` has the rows for accepted
calls.

A new rule takes four steps:

1. Copy the nearest row in its file. Give it an `id`, a `step` in libcu++'s order, `on`, `why`,
   `holds`, `found`, `must`, `fix`, and `asks` if `must` is a function. Name the source:
   `libcudacxx=` (required for rules that libcu++ has: `tma.rules()` reads it), `documented=True`,
   or `source=`. `sets` defaults to all four. `reads` names the arguments that it needs, `after` the
   rules that must hold first. Write ``names.argument(r, name)`` in texts that `driver_encode_*`
   shows too.
2. Give it a `repair` from `repairs.py`: without one, `fixed()` can only switch the rule off.
3. The short cut does not read this table. If it would accept what the rule refuses, add the
   condition to make/accept.py and to include/tma_dlpack_make.h (the compiled one).
4. Add a pair of calls, one on each side of the rule, to tests/checks/test_rules.py: two tests there
   fail for a rule without a pair.

The rule then appears in reports, in `fixed()`, in `tma.rules()` and, if only libcu++ has it, in
`allow=`, without further changes.

A new advice: a row in `advice.py`, and a pair of calls in tests/checks/test_advice.py.
"""

from __future__ import annotations

from tma_dlpack.checks.box import BOX_RULES
from tma_dlpack.checks.data_type import DATA_TYPE_RULES
from tma_dlpack.checks.elem_strides import ELEM_STRIDE_RULES
from tma_dlpack.checks.im2col import IM2COL_RULES
from tma_dlpack.checks.recipes import RECIPE_RULES
from tma_dlpack.checks.rule import CCCL_COMMIT, DRIVER_STEPS, Rule
from tma_dlpack.checks.tensor import TENSOR_RULES
from tma_dlpack.checks.tile import TILE_RULES

#: Every rule, in libcu++'s order.
RULES: tuple[Rule, ...] = tuple(
    sorted(
        (
            *TENSOR_RULES,
            *DATA_TYPE_RULES,
            *TILE_RULES,
            *BOX_RULES,
            *ELEM_STRIDE_RULES,
            *IM2COL_RULES,
            *RECIPE_RULES,
        ),
        key=lambda rule: rule.step,
    )
)

#: The ids that `allow=` takes: rules that libcu++ has and the driver has not.
ALLOWABLE: tuple[str, ...] = tuple(
    rule.id
    for rule in RULES
    if "libcu++" in rule.sets and "driver" not in rule.sets and rule.step < DRIVER_STEPS
)

"""The vocabulary: enums, errors, limits, data types, targets, reading of plain values.

May import: nothing of the package. Imported by: everything.

A new data type: a member in `enums.TensorMapDataType` (two lines: the short name and the header's),
its row in `dtypes.DATA_TYPES` at the same index (`ptx_elemtype` is its number in the encoded bits,
unique), and the DLPack types that become it by default in `dtypes._FROM_DLPACK`. Python then
checks, encodes, decodes and simulates it. The compiled short cut has its own tables in
include/tma_dlpack_make.h (`tma_dlpack_type_row`, `tma_dlpack_own_type`): without a row there, it
leaves the type to the rules. tests/types has the tables of the headers written out once more; add
the type there too. A limit: a named constant in `limits`, with its source; rules and the short
cut read it there. A new target: a preset in `target.TARGETS`; list its compute capability in
`DERIVED_CAPABILITIES` only when the layout of its maps has been derived. A new enum: its class and
its row in `enums.C_ENUMS`, from which `parse` and `c_name` work. Classes that users see get
`@public`, so that tracebacks and `help()` say `tma_dlpack`.
"""

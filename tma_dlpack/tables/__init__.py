"""Tables that other packages read: enums, limits, data types, targets, bit fields, refusals.

The package also has `EncodeArguments` (the driver's arguments) and the classes of the errors.

To add

- a data type: add a member to `enums.TensorMapDataType` (two lines: the short name and the name in
  cuda.h). Add a row to `dtypes.DATA_TYPES`; the index of the row must equal the member's value.
  The row's `ptx_elemtype` is the number of the type in PTX, and must be unique. To
  `dtypes._EXPORTED`, add the DLPack types for which the new data type is the default;
- a limit: add a named constant to `targets`, with its source;
- a target: add a preset to `targets.TARGETS`;
- a field of the 128 bytes: add a row to `bits.FIELDS`, and a golden case with its provenance to
  tests/golden. If `EncodeArguments` has no member with the field's name, compute the field in
  `bits._computed`;
- an enum: add its class to `enums`, and a row to `enums.C_ENUMS`;
- a refusal of an argument or a file: add a row to `refusals`, raise its error with
  ``REFUSALS["ID"].error(argument, found)``. To `PAIRS` in tests/copies/test_every_refusal.py, add a
  call that is refused and a call that is accepted;
- a refusal of a copy: see `tma_dlpack.copies`.
"""

"""The vocabulary: enums, limits, data types, targets, bit fields, the driver's arguments, errors.

A new data type: a member in `enums.TensorMapDataType` (two lines: the short name and the header's),
its row in `dtypes.DATA_TYPES` at the same index (`ptx_elemtype` is its number in the encoded bits,
unique), and the DLPack types that become it by default in `dtypes._EXPORTED`. A limit: a named
constant in `limits`, with its source. A new target: a preset in `targets.TARGETS`. A new field of
the 128 bytes: a row of `fields.FIELDS`, its value in `bits._computed` unless it is an argument of
the same name, and a golden case with provenance in tests/golden. A new enum: its class and its row
in `enums.C_ENUMS`. A new refusal of an argument or a file: a row of `refusals`, raised by
``REFUSALS["ID"].error(argument, found)``, and a pair in tests/copies/test_every_refusal.py.
"""

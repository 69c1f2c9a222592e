"""The vocabulary: enums, errors, limits, data types, targets, reading of plain values."""

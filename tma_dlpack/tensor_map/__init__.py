"""`TensorMap`: the 128 bytes of a map, its attributes, and the forms that launchers take.

`map.py` has the public class. Its base classes are in two files. The class in `storage.py` stores
the bytes at an aligned address; `native/map.h` has the same class in C. The class in
`attributes.py` has the attributes, whose values come from the driver's arguments. `description.py`
computes these arguments when an attribute is first used, so making a map is fast. `description.py`
also checks the address that replaces a map's address. `ptx_replace.py` implements `replace()` and
`replace_cuda()`. `text.py` converts a map to text, to C++, and to an argument of a numba kernel.

To add a launcher, add a function to `storage.py` and an `as_...` method to `map.py`. To add an
attribute, add a property to `attributes.py`, a row to `text.map_rows`, and the name to the
docstring of `TensorMap`.
"""

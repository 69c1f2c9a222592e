"""`TensorMap`: the 128 bytes of a map, its attributes, and the forms that launchers take.

`map.py` has the public class. Its base classes are in two files. `storage.py` stores the bytes at
an aligned address; `native/map.h` is the same class in C. `attributes.py` has the attributes, which
it reads from the driver's arguments. `description.py` computes these arguments when an attribute is
first used, so making a map is fast. It also checks a new address. `ptx_replace.py` implements
`replace()` and `replace_cuda()`. `text.py` converts a map to text, to C++, and to an argument of a
numba kernel.

To add a launcher, add a function to `storage.py` and an `as_...` method to `map.py`. To add an
attribute, add a property to `attributes.py`, a row to `text.map_rows`, and the name to the
docstring of `TensorMap`.
"""

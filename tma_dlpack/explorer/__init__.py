"""The explorer: a page in which users drag a box on a tensor and see the tensor map that results.

The page is an HTML file. The function `explore` shows the page in a notebook. The page checks and
encodes maps with the C core, which is native/page.c compiled to WebAssembly. The script `core.js`
calls the C core. Other scripts simulate TMA copies and draw pictures of the copies.

- `model.js` has the functions that check, encode and simulate maps.
- `host.js` has the back end of the page. The front end, `explorer.js`, calls the back end.
- `page.py` makes the page from the scripts.
- `widget.py` shows the page in a notebook with anywidget, for one of the notebook's tensors.
- The page's state describes a map. `choice.py` makes this map in Python.
"""

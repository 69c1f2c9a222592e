"""The explorer: a page in which users drag a box on a tensor and see the tensor map that results.

The page is an HTML file, which `explore` shows in a notebook. The page checks and encodes maps with
the C core, which is native/page.c compiled to WebAssembly. `core.js` calls the C core. The page
simulates and draws copies in JavaScript.

- `model.js` documents the functions that check and simulate.
- `host.js` documents the back end that the front end, `explorer.js`, calls.
- `page.py` joins the scripts to a page.
- `widget.py` shows the page in a notebook, as an anywidget, for a tensor of the notebook.
- `choice.py` makes the map of the page's state in Python.
"""

// The explorer as an anywidget. The widget shows the page with the state and the tensor of the Python object
// `Explorer`. If the browser does not allow WebAssembly, `render` draws nothing, so the notebook shows the still
// pictures.
export default {
  async render({ model, el }) {
    await tmaCore.ready;
    const explorer = new Explorer(new Host(new Kernel(model), model.get("about")), el);
    return () => explorer.dispose();
  },
};

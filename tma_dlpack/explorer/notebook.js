// The explorer as an anywidget. The widget shows the page with the state and the tensor of the Python object `Explorer`.
// Without WebAssembly, `render` draws nothing, and the notebook shows the still picture.
export default {
  async render({ model, el }) {
    await tmaCore.ready;
    const explorer = new Explorer(new Host(new Kernel(model), model.get("about")), el);
    return () => explorer.dispose();
  },
};

// The explorer as an anywidget: the page, with the state and the tensor of Python's Explorer. Without
// WebAssembly nothing is drawn here, and the still picture stays.
export default {
  async render({ model, el }) {
    await tmaCore.ready;
    const explorer = new Explorer(new Host(new Kernel(model), model.get("about")), el);
    return () => explorer.dispose();
  },
};

// The explorer as an anywidget: the page, with the state and the tensor of Python's Explorer.
export default {
  render({ model, el }) {
    const explorer = new Explorer(new Host(new Kernel(model), model.get("about")), el);
    return () => explorer.dispose();
  },
};

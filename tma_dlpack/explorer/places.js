// Classes that store the state of the explorer: in the address of the page, in the kernel of a notebook, or not at all.

// Stores the state in the address of the page, so that the browser's button Back undoes a change.
class AddressBar {
  constructor(first) { Object.assign(this, { first, hasLink: true }); }
  read() { return location.hash.length > 1 ? location.hash : this.first; }
  listen(act) { addEventListener("hashchange", act); }
  // isMore: whether the change continues the previous change, so that both changes become one entry of the history.
  write(address, isMore) {
    try {
      history[isMore ? "replaceState" : "pushState"](null, "", address);
    } catch {
      Object.assign(this, { hasLink: false, write() {} });  // the address of this document cannot be changed
    }
  }
}

// Stores no state, for a page without an address of its own, such as the page in a stored notebook.
class Nowhere {
  constructor(first) { this.first = first; }
  read() { return this.first; }
  listen() {}
  write() {}
}

// Stores the state in the trait `state` of an anywidget. The Python object `Explorer` reads and sets the trait.
class Kernel {
  constructor(model) { this.model = model; }
  read() { return (this.last = this.model.get("state")); }
  listen(act) {
    this.model.on("change:state", () => this.model.get("state") === this.last || act());
    this.model.on("msg:custom", ({ page }) => page && download(URL.createObjectURL(new Blob([page], { type: "text/html" })), "explorer.html"));
  }
  write(address) {
    this.last = address;
    this.model.set("state", address);
    this.model.save_changes();
  }
  savePage() { this.model.send({ do: "page" }); }  // Python sends the page back, and the listener downloads it
}

// The places that store the state of the explorer: the address of the page, the kernel of a notebook, or no place.

// The address of the page. The browser's button Back undoes a change.
class AddressBar {
  constructor(first) { Object.assign(this, { first, hasLink: true }); }
  read() { return location.hash.length > 1 ? location.hash : this.first; }
  listen(act) { addEventListener("hashchange", act); }
  // isMore: whether the change continues the last change, so that both are one entry of the history.
  write(address, isMore) {
    try {
      history[isMore ? "replaceState" : "pushState"](null, "", address);
    } catch {
      Object.assign(this, { hasLink: false, write() {} });  // the address of this document cannot be changed
    }
  }
}

// The place of a page without an address of its own, such as the page in a stored notebook.
class Nowhere {
  constructor(first) { this.first = first; }
  read() { return this.first; }
  listen() {}
  write() {}
}

// The trait `state` of an anywidget, which the Python object `Explorer` reads and sets.
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

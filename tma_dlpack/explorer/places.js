// Where the state of the explorer is kept: in the page's address, in a notebook's kernel, or nowhere.

// The address of the page, whose history undoes a change.
class AddressBar {
  constructor(first) { Object.assign(this, { first, hasLink: true }); }
  read() { return location.hash.length > 1 ? location.hash : this.first; }
  listen(act) { addEventListener("hashchange", act); }
  // isMore: of the change that was written last.
  write(address, isMore) {
    try {
      history[isMore ? "replaceState" : "pushState"](null, "", address);
    } catch {
      Object.assign(this, { hasLink: false, write() {} });  // a document without an address of its own
    }
  }
}

// A page without an address, such as one in a stored notebook.
class Nowhere {
  constructor(first) { this.first = first; }
  read() { return this.first; }
  listen() {}
  write() {}
}

// The trait `state` of an anywidget, which Python's Explorer reads and sets.
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
  savePage() { this.model.send({ do: "page" }); }  // which Python writes
}

// Starts the page: the address has the state, or the file's own state is used.
const hash = location.hash.length > 1 ? location.hash : globalThis.tmaState || FIRST_STATE;
const canKeep = location.protocol !== "about:" && location.protocol !== "data:";
widget.render({ model: new Host(hash, { keepsAddress: canKeep }), el: document.getElementById("explorer") });

// Judges clicks on the cells of a question. Without scripts its folded answer is all there is.
const keyAt = (node) => (node.closest?.("[data-k]") ||
  node.closest?.("g")?.querySelector(":scope > [data-k]"))?.dataset.k;

const addVerdict = (box) => {
  const verdict = document.createElement("div");
  verdict.className = "tma-verdict";
  verdict.setAttribute("aria-live", "polite");
  verdict.style.cssText = "margin:4px 0;padding:4px 10px;border-left:5px solid;max-width:62em";
  verdict.hidden = true;
  box.querySelector("details").before(verdict);
};

const judge = (box, key) => {
  if (!key) return;
  const { right, because, hints, otherwise } = JSON.parse(box.dataset.ask);
  const isRight = right.includes(key), verdict = box.querySelector(".tma-verdict");
  verdict.textContent = isRight ? `✓ Right. ${because}` : `✗ ${hints[key] || otherwise}`;
  verdict.style.borderColor = isRight ? "#2da44e" : "#d1242f";
  verdict.dataset.right = isRight;
  verdict.hidden = false;
};

for (const box of document.querySelectorAll(".tma-ask:not([data-ready])")) {
  box.dataset.ready = "";
  addVerdict(box);
  // An exported notebook shows the code of the question, and in it the answer; JupyterLab folds it.
  const input = box.closest("body.jp-Notebook .jp-CodeCell")?.querySelector(".jp-Cell-inputWrapper");
  if (input) input.style.display = "none";
  box.addEventListener("click", (event) => judge(box, keyAt(event.composedPath()[0])));
  box.addEventListener("keydown", (event) => {  // arrows choose a cell, as in every figure
    if (event.key === "Enter" && !event.shiftKey)
      judge(box, box.closest(".tma").tmaLinked?.pinned);
  });
}

// Judge clicks on the cells of a question. Without scripts, only the folded answer remains.

// Return the key of the cell at a node. The node of a cell's text has no key. For this node, return
// the key of the cell in the same SVG group.
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
  if (!key) return;  // the click was on no cell
  const { right, because, hints, otherwise } = JSON.parse(box.dataset.ask);
  const isRight = right.includes(key), verdict = box.querySelector(".tma-verdict");
  verdict.textContent = isRight ? `✓ Right. ${because}` : `✗ ${hints[key] || otherwise}`;
  verdict.style.borderColor = isRight ? "#2da44e" : "#d1242f";
  verdict.dataset.right = isRight;
  verdict.hidden = false;
  unfold(box);
};

// Return the notebook cells that contain an answer, from this question to the next question. The
// source and output of these cells stay folded until the reader tries the question.
// <details> folds the output. JupyterLab and the site fold the source. In an exported page, `fold`
// hides the source.
const answersOf = (box) => {
  const cells = [];
  let cell = box.closest(".jp-Cell,.cell")?.nextElementSibling;
  for (; cell && !cell.querySelector(".tma-ask"); cell = cell.nextElementSibling)
    if (cell.querySelector("details.tma-answer")) cells.push(cell);
  return cells;
};

const fold = (box) => {
  for (const cell of answersOf(box))
    cell.querySelector(".jp-Cell-inputWrapper").style.display = "none";
};

const unfold = (box) => {
  for (const cell of answersOf(box)) {
    for (const part of cell.querySelectorAll("details.tma-answer,:scope > details")) part.open = true;
    const input = cell.querySelector(".jp-Cell-inputWrapper");
    if (input) input.style.display = "";
    // JupyterLab replaces folded source by a placeholder. A click on the placeholder unfolds it.
    input?.querySelector(".jp-InputPlaceholder")?.click();
  }
};

for (const box of document.querySelectorAll(".tma-ask:not([data-ready])")) {
  box.dataset.ready = "";
  box.querySelector(".tma-unjudged").remove();  // clicks are judged from now on
  addVerdict(box);
  // An exported notebook would show the code of the question, which contains the answer.
  const input = box.closest("body.jp-Notebook .jp-CodeCell")?.querySelector(".jp-Cell-inputWrapper");
  if (input) {
    input.style.display = "none";
    if (document.readyState === "loading") addEventListener("DOMContentLoaded", () => fold(box));
    else fold(box);
  }
  box.querySelector("details").addEventListener("toggle", () => unfold(box));
  box.addEventListener("click", (event) => judge(box, keyAt(event.composedPath()[0])));
  box.addEventListener("keydown", (event) => {  // arrow keys choose a cell, and Enter judges it
    if (event.key === "Enter" && !event.shiftKey)
      judge(box, box.closest(".tma").tmaLinked?.pinned);
  });
}

// Figures: a mark tells its numbers under the pointer. With a figure in focus, the arrow keys go from mark to mark.

const tip = make("div", { className: "tip" });
tip.setAttribute("role", "status");
document.body.append(tip);
const tips = new WeakMap();
let lit = null;

// A mark keeps its text in a title, which browsers without scripts show. Here it is taken out, so that it is not shown twice.
function textOf(mark) {
  const title = mark.querySelector(":scope > title");
  if (title) {
    tips.set(mark, title.textContent);
    title.remove();
  }
  return tips.get(mark);
}

function showTip(mark) {
  hideTip();
  tip.textContent = textOf(mark);
  mark.classList.add("lit");
  lit = mark;
  const box = mark.getBoundingClientRect(), room = tip.getBoundingClientRect();
  const left = box.left + box.width / 2 - room.width / 2, above = box.top - room.height - 8;
  tip.style.left = `${Math.max(4, Math.min(left, root.clientWidth - room.width - 4))}px`;
  tip.style.top = `${above > 4 ? above : Math.min(box.bottom + 8, window.innerHeight - room.height - 4)}px`;
}

function hideTip() {
  lit?.classList.remove("lit");
  lit = null;
  tip.textContent = "";
}

document.addEventListener("pointerover", (event) => {
  const mark = event.target.closest?.(".mark");
  if (mark) showTip(mark);
  else if (lit) hideTip();
});
document.addEventListener("scroll", hideTip, { passive: true });
document.addEventListener("unit", hideTip);

all("svg.chart").forEach((chart) => {
  if (!chart.querySelector(".mark")) return;
  chart.setAttribute("tabindex", "0");
  const label = chart.getAttribute("aria-label");
  chart.setAttribute("aria-label", `${label} The arrow keys read the marks one by one.`);
  chart.addEventListener("blur", hideTip);
  chart.addEventListener("keydown", (event) => {
    if (event.key === "Escape") return hideTip();
    const marks = all(".mark", chart).filter((mark) => mark.getClientRects().length > 0);
    const at = marks.indexOf(lit), last = marks.length - 1;
    const next = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: last }[event.key];
    if (next === undefined || last < 0) return;
    event.preventDefault();
    showTip(marks[Math.max(0, Math.min(next, last))]);
  });
});

// Figures: a mark tells its numbers under the pointer. With a figure in focus, the arrow keys go from mark to mark. Each can be
// saved.

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

// Every figure as a file. It is saved as it is shown, but always light on white, with what the style sheet says written into it.
const STYLES = [
  "fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "stroke-dasharray", "stroke-linejoin", "paint-order",
  "font-family", "font-size", "font-weight", "text-anchor",
];

function standalone(chart) {
  const theme = root.dataset.theme, [x, y, width, height] = chart.getAttribute("viewBox").split(" ");
  root.dataset.theme = "light";
  const copy = chart.cloneNode(true), pairs = [chart, ...all("*", chart)].map((shown, i) => [shown, [copy, ...all("*", copy)][i]]);
  pairs.forEach(([shown, saved]) => {
    const style = getComputedStyle(shown);
    if (style.display === "none" || style.visibility === "hidden") return saved.remove();
    const around = shown === chart ? {} : getComputedStyle(shown.parentElement);  // these styles are handed down
    STYLES.filter((name) => saved.hasAttribute(name) || style[name] !== around[name]).forEach((name) => {
      saved.setAttribute(name, style[name]);
    });
    ["class", "data-experts", "tabindex", "role", "aria-label"].forEach((name) => saved.removeAttribute(name));
  });
  if (theme === undefined) delete root.dataset.theme; else root.dataset.theme = theme;
  const paper = document.createElementNS(chart.namespaceURI, "rect");
  Object.entries({ x, y, width, height, fill: "#ffffff" }).forEach(([name, value]) => paper.setAttribute(name, value));
  const title = document.createElementNS(chart.namespaceURI, "title");
  title.textContent = captionOf(chart);
  copy.prepend(title, paper);
  Object.entries({ width, height }).forEach(([name, value]) => copy.setAttribute(name, value));
  return { text: new XMLSerializer().serializeToString(copy), width: Number(width), height: Number(height) };
}

const captionOf = (chart) => chart.closest("figure").querySelector("figcaption").textContent.trim();

function save(chart, ending, address) {
  const name = captionOf(chart).toLowerCase().split(/[.:;]/)[0].replace(/[^\p{L}\p{N}]+/gu, "-").slice(0, 48).replace(/^-|-$/g, "");
  make("a", { href: address, download: `${name || "figure"}.${ending}` }).click();
}

// Of a picture of points, so many for each unit of the drawing.
const SHARPNESS = 3;

function saveSvg(chart) {
  save(chart, "svg", `data:image/svg+xml;charset=utf-8,${encodeURIComponent(standalone(chart).text)}`);
}

async function savePng(chart) {
  const { text, width, height } = standalone(chart), image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await image.decode();
  const canvas = make("canvas", { width: SHARPNESS * width, height: SHARPNESS * height });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  save(chart, "png", canvas.toDataURL("image/png"));
}

all("figure svg.chart").forEach((chart) => {
  const line = make("div", { className: "copy" });
  Object.entries({ SVG: saveSvg, PNG: savePng }).forEach(([name, action]) => {
    const button = make("button", { type: "button", textContent: name, title: `Save this figure as ${name}` });
    button.setAttribute("aria-label", `Save the figure as ${name}: ${captionOf(chart)}`);
    button.addEventListener("click", () => action(chart));
    line.append(button);
  });
  chart.closest("figure").append(line);
});

// Tables: a heading sorts by its column, and long tables can be filtered.

// Tables with more rows get a box that filters them.
const FILTERED_ROWS = 8;

const shownText = (cell) => (cell.querySelector(".in-discount") ?? cell).textContent.trim();

function numberOf(cell) {
  if (cell.dataset.key !== undefined) return cell.dataset.key === "" ? NaN : Number(cell.dataset.key);
  const found = shownText(cell).replaceAll(",", "").match(/^[≥<=\s]*([-−+]?\d[\d.]*(e[-+]?\d+)?)/);
  return found ? Number(found[1].replace("−", "-")) : NaN;
}

// Numbers as numbers where most cells are numbers, else text as text. What is missing comes last, whichever way.
function sortRows(body, column, sign) {
  const rows = [...body.rows].map((row) => ({ row, number: numberOf(row.cells[column]), text: shownText(row.cells[column]) }));
  const numeric = rows.filter((item) => !Number.isNaN(item.number)).length * 2 > rows.length;
  const missing = (item) => (numeric ? Number.isNaN(item.number) : item.text === "–");
  rows.sort((a, b) => {
    if (missing(a) || missing(b)) return missing(a) - missing(b);
    return sign * (numeric ? a.number - b.number : a.text.localeCompare(b.text, undefined, { numeric: true }));
  });
  body.append(...rows.map((item) => item.row));
}

function makeSortable(table) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = make("button", { type: "button" });
    if (!head.textContent.trim()) button.setAttribute("aria-label", `column ${column + 1}`);
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
      sortRows(table.tBodies[0], column, sign);
    });
  });
}

function makeFilterable(table) {
  const rows = [...table.tBodies[0].rows];
  const box = make("input", { type: "search", autocomplete: "off" }), count = make("output");
  const label = make("label", { textContent: "Filter rows " }), line = make("div", { className: "filter" });
  const show = () => {
    const wanted = box.value.trim().toLowerCase();
    rows.forEach((row) => row.classList.toggle("missed", !row.textContent.toLowerCase().includes(wanted)));
    const seen = rows.filter((row) => !row.classList.contains("missed") && !row.classList.contains("off")).length;
    count.textContent = seen === rows.length ? "" : `${seen} of ${rows.length} rows`;
  };
  label.append(box);
  line.append(label, count);
  table.parentElement.before(line);
  box.addEventListener("input", show);
  document.addEventListener("experts", show);
}

all("table").forEach((table) => {
  const rows = table.tBodies[0]?.rows.length ?? 0;
  if (rows > 1) makeSortable(table);
  if (rows > FILTERED_ROWS) makeFilterable(table);
});

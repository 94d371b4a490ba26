// Tables: a heading sorts by its column, long tables can be filtered, and all can be copied as CSV and LaTeX.

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

// What a table shows: the rows and columns that are not hidden and hold text, each look-ahead in the unit that is chosen.
function shownCells(table) {
  const hidden = (item) => item.classList.contains("off") || item.classList.contains("missed");
  const other = root.dataset.unit === "steps" ? "in-discount" : "in-steps";
  const text = (cell) => {
    const copy = cell.cloneNode(true);
    all(`.${other}, .in-both, svg, .choice:not(.on)`, copy).forEach((item) => item.remove());
    const choices = all(".choice", copy);
    return (choices.length ? choices.map((item) => item.textContent).join(", ") : copy.textContent).trim().replace(/\s+/g, " ");
  };
  const heads = [...table.tHead.rows[0].cells];
  const columns = heads.map((head, k) => k).filter((k) => !hidden(heads[k]) && !heads[k].classList.contains("bar"));
  const rows = [table.tHead.rows[0], ...[...table.tBodies[0].rows].filter((row) => !hidden(row))];
  return rows.map((row) => columns.map((k) => text(row.cells[k])));
}

// Quotes around what holds a comma, a quote or a line break. Numbers are written as programs read them.
function asCsv(rows) {
  const field = (text) => {
    const whole = /^[-−]?\d{1,3}(,\d{3})+(\.\d+)?$/.test(text) ? text.replaceAll(",", "") : text;
    const plain = whole === "–" ? "" : whole.replace(/^−(?=\d)/, "-");
    return /[",\r\n]/.test(plain) ? `"${plain.replaceAll('"', '""')}"` : plain;
  };
  return rows.map((row) => row.map(field).join(",")).join("\n") + "\n";
}

const LATEX = {
  "\\": "\\textbackslash{}", "{": "\\{", "}": "\\}", "&": "\\&", "%": "\\%", "$": "\\$", "#": "\\#", "_": "\\_",
  "~": "\\textasciitilde{}", "^": "\\textasciicircum{}", "<": "$<$", ">": "$>$", "≥": "$\\geq$", "≤": "$\\leq$", "−": "$-$",
  "–": "--", "±": "$\\pm$", "×": "$\\times$", "γ": "$\\gamma$", "λ": "$\\lambda$", "χ": "$\\chi$", "²": "$^2$", "…": "\\ldots{}",
};

// A table for booktabs; a column of numbers is set to the right.
function asLatex(table, rows) {
  const safe = (text) => [...text].map((sign) => LATEX[sign] ?? sign).join("");
  const heads = [...table.tHead.rows[0].cells].filter((head) => !head.classList.contains("off") && !head.classList.contains("bar"));
  const columns = heads.map((head) => (head.classList.contains("number") ? "r" : "l")).join("");
  const lines = rows.map((row) => `  ${row.map(safe).join(" & ")} \\\\`);
  const title = table.caption?.textContent.trim() || table.getAttribute("aria-label") || "";
  return [
    "% needs \\usepackage{booktabs}", "\\begin{table}", ...(title ? [`  \\caption{${safe(title)}}`] : []),
    `  \\begin{tabular}{${columns}}`, "  \\toprule", lines[0], "  \\midrule", ...lines.slice(1), "  \\bottomrule", "  \\end{tabular}",
    "\\end{table}", "",
  ].join("\n");
}

// The browser's clipboard, or the older way where a page may not use it.
async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = make("textarea", { value: text });
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

function copyButtons(after, texts) {
  const line = make("div", { className: "copy" });
  Object.entries(texts).forEach(([name, text]) => {
    const button = make("button", { type: "button", textContent: name });
    button.addEventListener("click", async () => {
      const done = await copyText(text());
      button.textContent = done ? "Copied" : "Not copied";
      setTimeout(() => { button.textContent = name; }, 1500);
    });
    line.append(button);
  });
  after.after(line);
}

all("table").forEach((table) => {
  if (!table.tHead || !table.tBodies[0]) return;
  copyButtons(table.parentElement, {
    "Copy CSV": () => asCsv(shownCells(table)),
    "Copy LaTeX": () => asLatex(table, shownCells(table)),
  });
});
all("blockquote, pre").forEach((quote) => copyButtons(quote, { "Copy text": () => quote.textContent }));

all("table").forEach((table) => {
  const rows = table.tBodies[0]?.rows.length ?? 0;
  if (rows > 1) makeSortable(table);
  if (rows > FILTERED_ROWS) makeFilterable(table);
});

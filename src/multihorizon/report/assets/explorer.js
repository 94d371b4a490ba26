// The best actions by look-ahead: a slider goes through discounts, and actions that are best there are shown.
// The data are numbers only: where the best actions change, and which pairs of state and action come and go there.

// Positions of the slider.
const POSITIONS = 1000;

all(".explorer").forEach((explorer) => {
  const data = JSON.parse(explorer.querySelector("script").textContent);
  const slider = explorer.querySelector("input[type=range]"), said = explorer.querySelector("output");
  const choices = all(".choices", explorer).map((drawn) => all(".choice", drawn));
  let gamma = data.start, shown = -1;

  const horizon = (discount) => {
    const longest = data.steps ?? Infinity;
    if (discount >= 1) return longest;
    return (1 - discount ** longest) / (data.timed ? -Math.log(discount) : 1 - discount);
  };
  const place = (discount) => {
    if (root.dataset.unit !== "steps") return discount;
    const reach = Math.min(Math.max(horizon(discount), data.nearest), data.farthest);
    return Math.log(reach / data.nearest) / Math.log(data.farthest / data.nearest);
  };
  const at = (share) => {
    let low = 0, high = 1;
    for (let i = 0; i < 60; i += 1) {
      const middle = (low + high) / 2;
      if (place(middle) < share) low = middle; else high = middle;
    }
    return high > 1 - 1e-9 ? 1 : high;
  };
  const number = (discount) => {
    const found = horizon(discount);
    if (found > 1e6) return found === Infinity ? "unlimited" : "over a million";
    if (found >= 1000) return Math.round(found).toLocaleString("en");
    return found > 0 && found < 0.95 ? String(Number(found.toPrecision(2))) : found.toFixed(1);
  };
  const asText = (discount) => {
    const found = horizon(discount);
    return root.dataset.unit === "discount" ? discount.toFixed(4) : found < 100 ? found.toFixed(2) : number(discount);
  };
  const stretch = () => data.changes.findLastIndex((change) => change <= gamma);

  const bestIn = (number) => {
    const on = new Set();
    for (let i = 0; i <= number; i += 1) data.toggles[i].forEach((pair) => { if (!on.delete(pair)) on.add(pair); });
    return on;
  };

  function show() {
    const current = stretch();
    if (current !== shown) {
      const on = bestIn(current), before = shown < 0 ? on : bestIn(shown);
      choices.forEach((drawn) => drawn.forEach((choice, pair) => {
        choice.classList.toggle("on", on.has(pair));
        choice.classList.toggle("new", on.has(pair) && !before.has(pair));
      }));
      shown = current;
    }
    slider.value = Math.round(place(gamma) * POSITIONS);
    const from = asText(data.changes[current]), to = asText(data.changes[current + 1] ?? 1);
    const own = root.dataset.unit === "steps" ? `${number(gamma)} ${data.many}` : `γ = ${gamma.toFixed(4)}`;
    const nth = `${current + 1} of ${data.changes.length}`;
    said.textContent = `Shown at ${own}. The best actions stay the same from ${from} to ${to} (interval ${nth}).`;
    slider.setAttribute("aria-valuetext", own);
  }
  function go(discount) {
    gamma = Math.max(0, Math.min(discount, 1));
    show();
  }

  slider.max = POSITIONS;
  slider.addEventListener("input", () => go(at(slider.value / POSITIONS)));
  const middle = (i) => (data.changes[i] + (data.changes[i + 1] ?? 1)) / 2;
  explorer.querySelector("button.before").addEventListener("click", () => go(middle(Math.max(stretch() - 1, 0))));
  explorer.querySelector("button.after").addEventListener("click", () => {
    go(middle(Math.min(stretch() + 1, data.changes.length - 1)));
  });
  explorer.querySelector("select")?.addEventListener("change", (event) => {
    if (event.target.value !== "") go(Number(event.target.value));
  });
  document.addEventListener("unit", show);
  show();
});

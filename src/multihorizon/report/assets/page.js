"use strict";
// Without this script the page shows every number. The script adds ways to look at them.
// Labels of users are only ever read from the page and written as text, never as markup.

const root = document.documentElement;
const all = (selector, within = document) => [...within.querySelectorAll(selector)];
const make = (tag, properties = {}) => Object.assign(document.createElement(tag), properties);
const tell = (event) => document.dispatchEvent(new Event(event));

all(".controls").forEach((controls) => { controls.hidden = false; });

// The theme: as the system has it, or as chosen.
all("select.theme").forEach((choice) => choice.addEventListener("change", () => { root.dataset.theme = choice.value; }));

// Look-ahead as a discount or in steps: the style sheet hides the other one.
root.dataset.unit = "discount";
all("input.unit").forEach((choice) => choice.addEventListener("change", () => {
  root.dataset.unit = choice.value;
  tell("unit");
}));

// Experts: what belongs to one who is not chosen is hidden, in tables and in figures.
all(".chooser").forEach((chooser) => {
  const boxes = all("li input", chooser), count = chooser.querySelector("output"), find = chooser.querySelector("input.find");
  const items = all("[data-experts]").map((item) => [item, item.dataset.experts.split(" ")]);
  const show = () => {
    const absent = new Set(boxes.filter((box) => !box.checked).map((box) => box.value));
    items.forEach(([item, experts]) => item.classList.toggle("off", experts.some((expert) => absent.has(expert))));
    count.textContent = absent.size ? `${boxes.length - absent.size} of ${boxes.length}` : `all ${boxes.length}`;
    tell("experts");
  };
  const set = (checked) => {
    boxes.filter((box) => !box.closest("li").hidden).forEach((box) => { box.checked = checked; });
    show();
  };
  boxes.forEach((box) => box.addEventListener("change", show));
  chooser.querySelector("button.every").addEventListener("click", () => set(true));
  chooser.querySelector("button.none").addEventListener("click", () => set(false));
  find.addEventListener("input", () => {
    const wanted = find.value.trim().toLowerCase();
    boxes.forEach((box) => {
      const row = box.closest("li");
      row.hidden = !row.textContent.toLowerCase().includes(wanted);
    });
  });
});

// For the HTML components (`element`, with `trigger` and `watch` from Gradio) of a run's result.
// What carries the class "ask" sends its data as numbers: a cell of the confusion, a dish, a photo.
const OTHERS = "#results-confusion .ask, #results-dishes .ask";
const numbersOf = (button) =>
  Object.fromEntries(Object.entries(button.dataset).map(([name, text]) => [name, Number(text)]));
const press = (button) => {
  const photo = "photo" in button.dataset;
  for (const other of photo ? element.querySelectorAll("[aria-pressed]") : document.querySelectorAll(OTHERS))
    other.setAttribute("aria-pressed", other === button);
};
const ask = (data) => {
  document.dispatchEvent(new CustomEvent("results-asked",
    { detail: "photo" in data ? "results-attention" : "results-photos" }));
  trigger("click", data);
};
element.addEventListener("click", (event) => {
  const button = event.target.closest(".ask");
  if (!button) return;
  if (!("more" in button.dataset)) press(button);
  ask(numbersOf(button));
});

// What was asked for comes into view when it is there, as on a phone it lies below.
const part = element.closest("#results-photos, #results-attention");
let awaited = false;
document.addEventListener("results-asked", ({ detail }) => { awaited = detail === part?.id; });
watch("value", () => {
  if (!awaited) return;
  awaited = false;
  requestAnimationFrame(() => {
    const { top } = element.getBoundingClientRect();
    if (top >= 0 && top < 0.7 * innerHeight) return;
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    element.scrollIntoView({ behavior: still ? "auto" : "smooth", block: "start" });
  });
});

// The arrow keys walk over the table; one of its buttons is reached by the tabulator.
element.addEventListener("keydown", (event) => {
  const all = [...element.querySelectorAll("table.confusion .ask")];
  const at = all.indexOf(document.activeElement);
  const move = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
  if (at < 0 || !move[event.key]) return;
  event.preventDefault();
  const [down, right] = move[event.key];
  const place = (button) => [Number(button.dataset.actual), Number(button.dataset.predicted)];
  const [row, column] = place(all[at]);
  let best = null, least = Infinity;
  for (const button of all) {
    const [r, c] = place(button);
    const along = (r - row) * down + (c - column) * right;
    const aside = Math.abs(r - row) * Math.abs(right) + Math.abs(c - column) * Math.abs(down);
    if (along > 0 && 100 * aside + along < least) [best, least] = [button, 100 * aside + along];
  }
  if (!best) return;
  all[at].tabIndex = -1;
  best.tabIndex = 0;
  best.focus();
});

// All cells of many dishes as one picture.
const REACH = 12; // CSS pixels around the pointer in which a cell with photos is found
const said = ([actual, predicted, count], names) => actual === predicted
  ? `${names[actual]} recognised: ${count}` : `${names[actual]} taken for ${names[predicted]}: ${count}`;
const parsed = new WeakMap();
const cellsOf = (picture) => {
  if (!parsed.has(picture)) parsed.set(picture, {
    names: JSON.parse(picture.dataset.names), cells: JSON.parse(picture.dataset.cells) });
  return parsed.get(picture);
};
const cellAt = (picture, event) => {
  const { names, cells } = cellsOf(picture);
  const frame = picture.querySelector("img").getBoundingClientRect();
  const size = frame.width / names.length;
  const x = event.clientX - frame.left, y = event.clientY - frame.top;
  let best = null, least = Math.max(REACH, size);
  for (const cell of cells) {
    const far = Math.hypot((cell[1] + 0.5) * size - x, (cell[0] + 0.5) * size - y);
    if (far < least) [best, least] = [cell, far];
  }
  return best;
};
const mark = (picture, cell) => {
  const { names } = cellsOf(picture), frame = picture.querySelector("i");
  frame.hidden = !cell;
  if (!cell) return;
  const share = 100 / names.length;
  frame.style.cssText = `left: ${cell[1] * share}%; top: ${cell[0] * share}%; width: ${share}%; height: ${share}%`;
  picture.at = cell;
  element.querySelector(".readout").textContent = said(cell, names);
};
const pictureOf = (event) => event.target.closest?.(".all-cells");
element.addEventListener("pointermove", (event) => {
  const picture = pictureOf(event);
  if (picture) mark(picture, cellAt(picture, event));
});
element.addEventListener("click", (event) => {
  const picture = pictureOf(event), cell = picture && cellAt(picture, event);
  if (!cell) return;
  mark(picture, cell);
  press(picture);
  ask({ actual: cell[0], predicted: cell[1] });
});
element.addEventListener("keydown", (event) => {
  const picture = pictureOf(event);
  if (!picture) return;
  const { cells } = cellsOf(picture), at = picture.at ?? cells[0];
  if (!at) return;
  if (event.key === "Enter" || event.key === " ") {
    event.preventDefault();
    ask({ actual: at[0], predicted: at[1] });
    return;
  }
  const [along, sign] = { ArrowLeft: [1, -1], ArrowRight: [1, 1], ArrowUp: [0, -1],
    ArrowDown: [0, 1] }[event.key] ?? [];
  if (sign === undefined) return;
  event.preventDefault();
  let next = null;
  for (const cell of cells) {
    const step = (cell[along] - at[along]) * sign;
    if (step > 0 && cell[1 - along] === at[1 - along]
      && (!next || step < (next[along] - at[along]) * sign)) next = cell;
  }
  mark(picture, next ?? at);
});

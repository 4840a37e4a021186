// Pictures of the grid inside one HTML component (`element`, with `trigger` and `watch` from Gradio).
// A click, or an arrow key and the space bar, on a "choose" picture triggers { patch }; on a "brush"
// picture it takes the patches under it away or gives them back and triggers { removed }.
const numbers = (text) => (text ? text.split(" ").map(Number) : []);
const picture = () => element.querySelector("svg.stage");
let painting = null; // { svg, removed, taking, before } while the pointer is down on a brush picture
let cursor = null; // the patch that the keyboard is on

const patchAt = (svg, event) => {
  const [width, height] = numbers(svg.dataset.size);
  const [left, top, right, bottom] = numbers(svg.dataset.box);
  const [rows, columns] = numbers(svg.dataset.grid);
  const frame = svg.getBoundingClientRect();
  const x = ((event.clientX - frame.left) / frame.width) * width;
  const y = ((event.clientY - frame.top) / frame.height) * height;
  const column = Math.floor(((x - left) / (right - left)) * columns);
  const row = Math.floor(((y - top) / (bottom - top)) * rows);
  return row >= 0 && row < rows && column >= 0 && column < columns ? row * columns + column : null;
};
const mark = (svg, patch) => {
  const columns = numbers(svg.dataset.grid)[1];
  for (const frame of svg.querySelectorAll(".chosen")) {
    frame.setAttribute("x", patch % columns);
    frame.setAttribute("y", Math.floor(patch / columns));
    frame.removeAttribute("display");
  }
};
const cover = (svg, removed) => {
  const columns = numbers(svg.dataset.grid)[1];
  const squares = [...removed].map((p) => `M${p % columns} ${Math.floor(p / columns)}h1v1h-1z`);
  svg.querySelector(".gone").setAttribute("d", squares.join(""));
};
// One question at a time, so that answers cannot overtake each other; then the latest.
const PATIENCE = 5000; // milliseconds until a question without an answer counts as lost
let asked = 0, next = null;
const send = (removed) => {
  if (Date.now() - asked < PATIENCE) { next = [...removed]; return; }
  asked = Date.now();
  next = null;
  trigger("click", { removed: [...removed] });
};
const answered = () => {
  asked = 0;
  const svg = picture();
  if (!next || !svg) return;
  svg.dataset.removed = next.join(" ");
  cover(svg, next);
  send(next);
};

element.addEventListener("click", (event) => {
  const svg = event.target.closest("svg.stage.choose");
  const patch = svg && patchAt(svg, event);
  if (svg && patch !== null) {
    mark(svg, patch);
    trigger("click", { patch });
  }
});

element.addEventListener("pointerdown", (event) => {
  const svg = event.target.closest("svg.stage.brush");
  const patch = svg && patchAt(svg, event);
  if (!svg || patch === null || event.button) return;
  const before = numbers(svg.dataset.removed);
  painting = { svg, before, removed: new Set(before), taking: !before.includes(patch) };
  paint(event);
});
const paint = (event) => {
  const patch = patchAt(painting.svg, event);
  if (patch === null) return;
  if (painting.taking) painting.removed.add(patch);
  else painting.removed.delete(patch);
  cover(painting.svg, painting.removed);
};
element.addEventListener("pointermove", (event) => painting && paint(event));
const done = () => {
  if (painting) send(painting.removed);
  painting = null;
};
element.addEventListener("pointerup", done);
element.addEventListener("pointerleave", done);
element.addEventListener("pointercancel", () => { // the finger turned out to scroll
  if (painting) cover(painting.svg, painting.before);
  painting = null;
});

// The keyboard stays on `element`, because its pictures are replaced with every answer.
const takeKeys = () => {
  const svg = picture();
  if (!svg?.dataset.keys) return;
  element.tabIndex = 0;
  element.setAttribute("role", "group");
  element.setAttribute("aria-label", svg.dataset.keys);
  if (cursor !== null) mark(svg, cursor);
};
takeKeys();
watch("value", () => { takeKeys(); answered(); });
const MOVES = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
element.addEventListener("keydown", (event) => {
  const svg = picture();
  if (event.target !== element || !svg) return;
  const [rows, columns] = numbers(svg.dataset.grid);
  const move = MOVES[event.key];
  if (move) {
    event.preventDefault();
    const from = cursor ?? Number(svg.dataset.chosen);
    const row = Math.min(rows - 1, Math.max(0, Math.floor(from / columns) + move[0]));
    const column = Math.min(columns - 1, Math.max(0, (from % columns) + move[1]));
    cursor = row * columns + column;
    mark(svg, cursor);
    if (svg.matches(".choose")) trigger("click", { patch: cursor });
  } else if (event.key === " " && svg.matches(".brush")) {
    event.preventDefault();
    cursor ??= Number(svg.dataset.chosen);
    const removed = new Set(numbers(svg.dataset.removed));
    if (!removed.delete(cursor)) removed.add(cursor);
    svg.dataset.removed = [...removed].join(" "); // for the next key, before the answer is here
    cover(svg, removed);
    send(removed);
  }
});
for (const kind of ["pointerdown", "focusout"])
  element.addEventListener(kind, () => { cursor = null; });

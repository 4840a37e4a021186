// The tour's stops as buttons inside one HTML component (`element`, with `trigger` and `watch` from
// Gradio). A click sends { stop }; so do the arrow keys, wherever they mean nothing else.
const stops = () => [...element.querySelectorAll("[data-stop]")];
const open = () => stops().findIndex((button) => button.hasAttribute("aria-current"));
let wanted = null; // the stop asked for last, until it is there
let held = false; // the focus is on a stop
let below = false; // the button was pressed that lies under what it changes

const go = (key) => {
  wanted = key;
  trigger("click", { stop: key });
};
element.addEventListener("click", (event) => {
  const button = event.target.closest("[data-stop]");
  if (!button) return;
  held = document.activeElement === button;
  go(button.dataset.stop);
});
const step = (by) => {
  const all = stops();
  const from = wanted ? all.findIndex((button) => button.dataset.stop === wanted) : open();
  const next = all[from + by];
  if (next) go(next.dataset.stop);
};
document.addEventListener("click", (event) => {
  if (!element.isConnected) return; // drawn anew meanwhile
  const by = Number(event.target.closest?.("#tour-steps button")?.id === "tour-next")
    - Number(event.target.closest?.("#tour-steps button")?.id === "tour-previous");
  below = Boolean(by);
  if (by) step(by);
});
const BUSY = "input, textarea, select, [role=group], [role=tab], [role=listbox], [contenteditable], pre";
document.addEventListener("keydown", (event) => {
  if (!element.isConnected || !element.offsetParent) return;
  if (event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
  const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  const inside = element.contains(event.target);
  if (!by || (!inside && event.target.closest?.(BUSY))) return;
  event.preventDefault();
  held = inside;
  step(by);
});
watch("value", () => {
  const now = stops()[open()];
  if (now?.dataset.stop === wanted) wanted = null;
  if (held) now?.focus();
  if (below && element.getBoundingClientRect().top < 0) element.scrollIntoView();
  below = false;
});

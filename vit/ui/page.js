// What the page does in the browser beside what Gradio does.

// Gradio drops what a browser does not call an image (a text file, or a HEIC photo on most systems)
// with a notice of its own. Named an image it travels on to `vit.images`, which knows what to say.
const named = (file) => file.type.startsWith("image/") ? file
  : new File([file], file.name, { type: "image/jpeg", lastModified: file.lastModified });
const renamed = (files) => {
  const transfer = new DataTransfer();
  for (const file of files) transfer.items.add(named(file));
  return transfer;
};
const strange = (files) => [...(files ?? [])].some((file) => !file.type.startsWith("image/"));
document.addEventListener("change", ({ target }) => {
  if (target.matches?.("#photo input[type=file]") && strange(target.files))
    target.files = renamed(target.files).files;
}, true);
document.addEventListener("drop", (event) => {
  const target = event.target.closest?.("#photo .upload-container");
  if (!target || !strange(event.dataTransfer?.files)) return;
  event.preventDefault();
  event.stopImmediatePropagation();
  const dataTransfer = renamed(event.dataTransfer.files);
  event.target.dispatchEvent(
    new DragEvent("drop", { dataTransfer, bubbles: true, cancelable: true }));
}, true);

// Gradio's icon for a file only goes back to the upload, and takes the photo that is there away for
// it. Here it opens the dialog, and the photo stays until another one is chosen.
document.addEventListener("click", (event) => {
  const icon = event.target.closest?.('#photo [aria-label="Upload file"].selected');
  const input = document.querySelector("#photo input[type=file]");
  if (!icon || !input) return;
  event.preventDefault();
  event.stopImmediatePropagation();
  input.click();
}, true);

// A button anywhere on the page that opens a tab; on a narrow screen that may be in Gradio's menu.
document.addEventListener("click", (event) => {
  const name = event.target.closest?.("[data-opens]")?.dataset.opens;
  if (!name) return;
  const tabs = [...document.querySelectorAll("[role=tab], .overflow-dropdown button")];
  tabs.find((tab) => tab.textContent.trim() === name)?.click();
  window.scrollTo({ top: 0 });
});

// What a model tells of itself lies over the page: a click beside it, or Escape, puts it away.
const put = (kept) => document.querySelectorAll("#facts .why[open]")
  .forEach((card) => { if (!card.contains(kept)) card.open = false; });
document.addEventListener("click", ({ target }) => put(target));
document.addEventListener("keydown", ({ key }) => { if (key === "Escape") put(null); });

// The arrow keys go from tab to tab; Enter opens the one that has the focus.
document.addEventListener("keydown", (event) => {
  const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  const tab = event.target.closest?.("[role=tablist] [role=tab]");
  if (!by || !tab || event.altKey || event.ctrlKey || event.metaKey) return;
  const tabs = [...tab.closest("[role=tablist]").querySelectorAll("[role=tab]")];
  const next = tabs[tabs.indexOf(tab) + by];
  if (!next) return;
  event.preventDefault();
  next.focus();
});

// A list of choices is closed when the focus leaves it. Gradio closes it then, but its handler of
// the same Tab comes after and opens it again.
document.addEventListener("keydown", (event) => {
  if (event.key === "Tab" && event.target.matches?.("input[role=combobox]"))
    event.stopImmediatePropagation();
}, true);

// A link to the API's page, `?view=api`. Gradio shows it only after a click, and takes the first
// one for the wish to close what is not there; so it is asked without, and then clicked.
const linked = new URL(location.href);
if (linked.searchParams.get("view") === "api") {
  linked.searchParams.delete("view");
  history.replaceState(history.state, "", linked);
  const look = setInterval(() => {
    const button = document.querySelector("footer .show-api");
    if (!button) return;
    clearInterval(look);
    button.click();
  }, 100);
}

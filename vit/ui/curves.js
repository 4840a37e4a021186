// Draws loss and accuracy of runs in `element` (with `props` and `watch` from Gradio), and adds to
// what is drawn when more comes. The value is JSON: { live, runs: [{ id, title, steps, from: [step,
// epochs], losses: [[step, loss]], epochs: [[step, train, val, right, photos, and
// of the training photos as they were met: right, photos]] }] }.
const COLOURS = ["#d9480f", "#0072b2", "#009e73", "#cc79a7", "#b08900", "#56b4e9", "#776c62", "#8856a7"];
const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 520, HEIGHT = 250, LEFT = 46, RIGHT = 12, TOP = 12, BOTTOM = 34;
const root = element.querySelector(".learning");
let live = true, runs = new Map();

const make = (name, attributes, parent, text) => {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  parent?.append(node);
  return node;
};
const panel = (title) => {
  const figure = document.createElement("figure");
  const caption = document.createElement("figcaption");
  const svg = make("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img" }, null);
  const read = document.createElement("p");
  read.className = "read";
  figure.append(caption, svg, read);
  root.append(figure);
  const parts = { figure, caption, svg, read, title };
  for (const name of ["grid", "lines", "cursor"]) parts[name] = make("g", { class: name }, svg);
  svg.addEventListener("pointermove", (event) => point(parts, event));
  svg.addEventListener("pointerleave", () => { parts.cursor.replaceChildren(); read.textContent = ""; });
  return parts;
};
const loss = panel("Loss"), right = panel("Right answers");

const ticks = (low, high, count) => {
  const rough = (high - low) / count || 1, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + step * 1e-6; at += step) found.push(at);
  return found;
};
const short = (number) => String(+number.toPrecision(3));
const path = (points, x, y) =>
  points.map(([a, b], i) => `${i ? "L" : "M"}${x(a).toFixed(1)} ${y(b).toFixed(1)}`).join("");

const axes = (parts, xs, ys, name, percent) => {
  const x = (at) => LEFT + ((at - xs[0]) / (xs[1] - xs[0] || 1)) * (WIDTH - LEFT - RIGHT);
  const y = (at) => HEIGHT - BOTTOM - ((at - ys[0]) / (ys[1] - ys[0] || 1)) * (HEIGHT - TOP - BOTTOM);
  const key = JSON.stringify([xs, ys]);
  if (parts.key !== key) {
    parts.key = key;
    parts.grid.replaceChildren();
    for (const at of ticks(...ys, 4)) {
      make("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: y(at), y2: y(at) }, parts.grid);
      make("text", { x: LEFT - 6, y: y(at) + 4, "text-anchor": "end" }, parts.grid,
        percent ? `${short(100 * at)} %` : short(at));
    }
    for (const at of ticks(...xs, 5)) {
      if (at !== Math.round(at)) continue;
      make("text", { x: x(at), y: HEIGHT - BOTTOM + 16, "text-anchor": "middle" }, parts.grid, short(at));
    }
    make("text", { x: WIDTH - RIGHT, y: HEIGHT - 3, "text-anchor": "end" }, parts.grid, name);
  }
  parts.x = x; parts.y = y; parts.xs = xs;
  return [x, y];
};
const line = (parts, key, attributes, points) => {
  let node = parts.lines.querySelector(`[data-key="${key}"]`);
  if (!node) node = make("path", { "data-key": key, ...attributes }, parts.lines);
  node.setAttribute("d", points);
};
const legend = (parts, entries) => {
  const key = JSON.stringify(entries);
  if (parts.legend === key) return;
  parts.legend = key;
  parts.caption.replaceChildren(parts.title, ...entries.map(([name, colour, kind]) => {
    const entry = document.createElement("span");
    entry.className = `key ${kind}`;
    entry.style.setProperty("--colour", colour);
    entry.textContent = name;
    return entry;
  }));
};

const draw = () => {
  const all = [...runs.values()];
  root.classList.toggle("nothing", !all.some((run) => run.losses.length || run.epochs.length));
  const last = Math.max(1, ...all.map((run) => run.steps || run.losses.at(-1)?.[0] || 1));
  const values = all.flatMap((run) => [...run.losses.map((p) => p[1]), ...run.epochs.map((e) => e[2])]);
  // A single wild step must not flatten the rest.
  const sorted = values.slice().sort((a, b) => a - b);
  const top = Math.max(sorted[Math.floor(0.99 * (sorted.length - 1))] ?? 1, ...all.flatMap((run) => run.epochs.map((e) => e[2])), 0.01);
  const room = ticks(0, top * 1.05, 4);
  const high = Math.max(top * 1.05, room.at(-1) ?? 0);
  const [x, y] = axes(loss, [0, last], [0, high], "step");
  const lows = all.flatMap((run) => run.epochs.flatMap((e) => e[6] ? [e[3] / e[4], e[5] / e[6]] : [e[3] / e[4]]));
  const low = lows.length ? Math.max(0, Math.floor((Math.min(...lows) - 0.05) * 10) / 10) : 0;
  const [u, v] = axes(right, [0, last], [low, 1], "step", true);
  all.forEach((run, index) => {
    const colour = COLOURS[index % COLOURS.length], own = live ? COLOURS[1] : colour;
    const css = encodeURIComponent(run.id);
    const clip = (points) => points.map(([a, b]) => [a, Math.min(b, high)]);
    line(loss, `${css} steps`, { class: "raw", stroke: colour }, path(clip(run.losses), x, y));
    line(loss, `${css} train`, { class: "train", stroke: colour }, path(clip(run.epochs.map((e) => [e[0], e[1]])), x, y));
    line(loss, `${css} val`, { class: "val", stroke: own }, path(clip(run.epochs.map((e) => [e[0], e[2]])), x, y));
    const met = run.epochs.filter((e) => e[6]);
    line(right, `${css} train`, { class: "train", stroke: colour }, path(met.map((e) => [e[0], e[5] / e[6]]), u, v));
    line(right, `${css} val`, { class: "val", stroke: own }, path(run.epochs.map((e) => [e[0], e[3] / e[4]]), u, v));
    const dots = run.epochs.map((e) => `M${u(e[0]).toFixed(1)} ${v(e[3] / e[4]).toFixed(1)}h0`).join("");
    line(right, `${css} dots`, { class: "dots", stroke: own }, dots);
  });
  legend(loss, live ? [["training", COLOURS[0], "full"], ["validation", COLOURS[1], "dashed"]]
    : all.map((run, i) => [run.title, COLOURS[i % COLOURS.length], "full"]).concat([["validation", "var(--body-text-color-subdued)", "dashed"]]));
  legend(right, live ? [["training, as it learns", COLOURS[0], "full"], ["validation", COLOURS[1], "dashed"]]
    : all.map((run, i) => [run.title, COLOURS[i % COLOURS.length], "full"]).concat([["validation", "var(--body-text-color-subdued)", "dashed"]]));
  const said = all.filter((run) => run.epochs.length).map((run) => {
    const e = run.epochs.at(-1);
    return `${run.title}: after ${e[0]} steps training loss ${short(e[1])}, validation loss ${short(e[2])}, ${e[3]} of ${e[4]} right${e[6] ? `, ${e[5]} of ${e[6]} in training` : ""}`;
  }).join("; ");
  loss.svg.setAttribute("aria-label", `Loss over steps. ${said}`);
  right.svg.setAttribute("aria-label", `Share of right answers over steps. ${said}`);
};

const point = (parts, event) => {
  const frame = parts.svg.getBoundingClientRect();
  const at = ((event.clientX - frame.left) / frame.width) * WIDTH;
  const near = (points) => points.reduce((best, p) =>
    !best || Math.abs(parts.x(p[0]) - at) < Math.abs(parts.x(best[0]) - at) ? p : best, null);
  const said = [];
  let step = null;
  for (const run of runs.values()) {
    const epoch = near(run.epochs), one = near(run.losses);
    const name = runs.size > 1 ? `${run.title}: ` : "";
    if (parts === loss && (one || epoch)) {
      step ??= (one ?? epoch)[0];
      said.push(`${name}${one ? `step ${one[0]}, training ${short(one[1])}` : ""}${epoch ? `, validation ${short(epoch[2])}` : ""}`);
    } else if (parts === right && epoch) {
      step ??= epoch[0];
      const met = epoch[6] ? `, as it learns ${epoch[5]} of ${epoch[6]}` : "";
      said.push(`${name}step ${epoch[0]}, validation ${epoch[3]} of ${epoch[4]} right${met}`);
    }
  }
  parts.cursor.replaceChildren();
  if (step !== null) {
    make("line", { x1: parts.x(step), x2: parts.x(step), y1: TOP, y2: HEIGHT - BOTTOM }, parts.cursor);
    parts.read.textContent = said.join(" · ");
  }
};

const take = () => {
  let more;
  try { more = JSON.parse(props.value || '{"runs": [], "live": true}'); } catch { return; }
  live = more.live;
  const kept = new Map();
  for (const run of more.runs) {
    const had = runs.get(run.id), [step, epochs] = run.from;
    const fits = had && step && (had.losses.at(-1)?.[0] ?? 0) >= step && had.epochs.length >= epochs;
    const known = fits ? had.losses.at(-1)?.[0] ?? 0 : 0;
    kept.set(run.id, {
      ...run,
      steps: run.steps || (fits ? had.steps : 0),
      losses: [...(fits ? had.losses : []), ...run.losses.filter(([at]) => at > known)],
      epochs: [...(fits ? had.epochs.slice(0, epochs) : []), ...run.epochs],
    });
  }
  for (const id of runs.keys()) if (!kept.has(id)) {
    for (const parts of [loss, right]) parts.lines.querySelectorAll(`[data-key^="${encodeURIComponent(id)} "]`).forEach((n) => n.remove());
  }
  if ([...kept.keys()].join() !== [...runs.keys()].join()) for (const parts of [loss, right]) parts.lines.replaceChildren();
  runs = kept;
  draw();
};
if (element.closest("#run-curves")) {
  window.vitCurves = {
    has: () => {
      const run = [...runs.values()][0];
      return run ? `${run.id} ${run.losses.at(-1)?.[0] ?? 0} ${run.epochs.length}` : "";
    },
  };
}
watch("value", take);
take();

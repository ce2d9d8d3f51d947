/**
 * Draws charts as SVG: lines, bars, and sparklines. The console imports this module, and the report of the pipeline
 * contains its text: it imports nothing but scales.js. charts.css has the styles.
 *
 * A chart is a <figure>. The arrow keys move its cursor from point to point, Enter selects a bar, and a table has the
 * numbers. Times are local, or in UTC where an option or `data-zone` of the page says so.
 */

import { SECOND, axisText, moment, timeTicks, valueText, valueTicks } from "./scales.js";

const HEIGHT = 200;
const TOP = 10;
const BOTTOM = 24;
const RIGHT = 14;
const CHARACTER = 6.6; // the width of a digit at the 11 px of the labels
const ROWS = 200; // a longer table is slow to open
const COLOURS = 7;
const WIDEST_BAR = 72; // of bars side by side

function showsUtc(options) {
  return options.utc ?? (typeof document !== "undefined" && document.documentElement.dataset.zone === "utc");
}

// --- Elements ------------------------------------------------------------------------------------------------------

function element(name, attributes, ...children) {
  const svg = ["svg", "g", "path", "line", "rect", "circle", "text", "title", "desc"].includes(name);
  const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) if (value !== null) node.setAttribute(key, value);
  node.append(...children.filter((child) => child !== null).map((child) => child?.nodeType ? child : String(child)));
  return node;
}

function round(number) {
  return Math.round(number * 10) / 10;
}

/** Returns the path of a line through points; unknown values (null) interrupt the line. */
export function linePath(points) {
  let open = false;
  return points
    .map(([x, y]) => {
      if (y === null) return (open = false) || "";
      const step = `${open ? "L" : "M"}${round(x)} ${round(y)}`;
      open = true;
      return step;
    })
    .join("");
}

/** Returns the points that have no neighbour to which a line could go. */
export function lonePoints(points) {
  const known = (index) => points[index]?.[1] !== null && points[index] !== undefined;
  return points.filter((_, index) => known(index) && !known(index - 1) && !known(index + 1));
}

/** Returns a small line without axes, for a cell of a table. `values` are numbers, or null where none is known. Lines
 * with the same `top` have one scale; without it the largest value is the top. */
export function sparkline(values, { label = "", unit = "count", top: given = 0, width = 96, height = 24 } = {}) {
  const known = values.filter((value) => value !== null && value !== undefined);
  const most = Math.max(...known, 0);
  const top = Math.max(most, given) || 1;
  const x = (index) => 2 + ((width - 4) * index) / Math.max(1, values.length - 1);
  const y = (value) => (value === null || value === undefined ? null : 2 + (height - 4) * (1 - value / top));
  const points = values.map((value, index) => [x(index), y(value)]);
  const last = known.at(-1);
  const range = known.length ? `${valueText(Math.min(...known), unit)} to ${valueText(most, unit)}` : "no readings yet";
  const text = `${label ? `${label}: ` : ""}${range}${known.length ? `, last ${valueText(last, unit)}` : ""}`;
  return element(
    "svg",
    { class: "sparkline", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": text },
    element("title", {}, text),
    element("path", { d: linePath(points), class: "line" }),
    ...lonePoints(points).map(([cx, cy]) => element("circle", { cx: round(cx), cy: round(cy), r: 1.5, class: "dot" })),
  );
}

// --- Charts --------------------------------------------------------------------------------------------------------

const charts = new WeakMap();
let observer = null;

/**
 * Returns a chart of lines.
 *
 * `series`: `[{name, points: [[ms, value or null], …], colour, dashed}]`, in order of time. `from`, `to`: the span of
 * the axis, by default that of the points. `stepMs`: the length of the step of which each point tells; 0 for readings.
 * `unit`: see `valueText`. `empty`: the text without points. `table: false` leaves the numbers out.
 */
export function lineChart(options) {
  return chartOf("line", options);
}

/**
 * Returns a chart of bars.
 *
 * `bars`: `[{at, end, value}]` along time, or `[{label, value}]` side by side. `onSelect(bar, index)` is called for a
 * bar that is pressed, or with Enter at the cursor. `name`: what the values are. `selectText`: what selecting does.
 */
export function barChart(options) {
  return chartOf("bar", options);
}

/** Draws a chart anew with other options, and leaves its focus, its cursor and its open table alone. */
export function updateChart(figure, options) {
  const chart = charts.get(figure);
  const following = chart.index === chart.model.places.length - 1;
  chart.options = options;
  chart.model = modelOf(chart.kind, options);
  const last = chart.model.places.length - 1;
  chart.index = following ? last : Math.min(chart.index, last);
  chart.caption.textContent = options.title ?? "";
  draw(chart);
}

function chartOf(kind, options) {
  const caption = element("figcaption", {}, options.title ?? "");
  const frame = element("div", { class: "chart-frame" });
  const reading = element("div", { class: "legend" });
  const numbers = options.table === false ? null : element("details", {}, element("summary", {}, "Numbers"));
  const opener = options.onSelect ? element("button", { type: "button", class: "opener" }) : null;
  const figure = element("figure", { class: `chart ${kind}${opener ? " selectable" : ""}` }, caption, frame, reading, opener, numbers);
  const model = modelOf(kind, options);
  // A bar to open is one that has something; of a line the last place is the newest.
  const filled = opener ? model.bars.findIndex(({ value }) => value > 0) : -1;
  const index = filled >= 0 ? filled : model.places.length - 1;
  const chart = { kind, options, model, index, active: false, width: 720, figure, caption, frame, reading, opener, numbers };
  charts.set(figure, chart);
  listen(chart);
  draw(chart);
  return figure;
}

/** Returns what a chart draws: its places along the axis, the series with a value for each place, and its span. */
const modelOf = (kind, options) => (kind === "bar" ? barModel(options) : lineModel(options));

function lineModel({ series, from, to, stepMs = 0, unit = "count" }) {
  const drawn = series.filter(({ points }) => points.length);
  const places = [...new Set(drawn.flatMap(({ points }) => points.map(([at]) => at)))].sort((a, b) => a - b);
  const start = from ?? places[0] ?? 0;
  const end = Math.max(to ?? (places.at(-1) ?? 0) + stepMs, start + SECOND);
  const step = stepMs || (places.length > 1 ? (places.at(-1) - places[0]) / places.length : SECOND);
  const named = drawn.map((one, number) => ({ ...one, colour: one.colour ?? number, values: new Map(one.points) }));
  const most = Math.max(0, ...named.flatMap(({ points }) => points.map(([, value]) => value ?? 0)));
  const middle = places.map((at) => at + stepMs / 2);
  return { places, middle, series: named, start, end, step, unit, most };
}

function barModel({ bars, name = "", unit = "count", from, to, stepMs }) {
  const timed = bars.length === 0 || bars[0].at !== undefined;
  const spans = bars.map((bar, index) => (timed ? [bar.at, bar.end] : [index, index + 1]));
  const places = spans.map(([at]) => at);
  const values = new Map(bars.map((bar, index) => [places[index], bar.value]));
  const start = from ?? places[0] ?? 0;
  const end = Math.max(to ?? spans.at(-1)?.[1] ?? 0, start + (timed ? SECOND : 1));
  const middle = spans.map(([at, until]) => (at + until) / 2);
  const most = Math.max(0, ...bars.map(({ value }) => value ?? 0));
  const step = stepMs ?? (spans.length ? spans[0][1] - spans[0][0] : SECOND);
  const series = [{ name, colour: 0, values, points: [] }];
  return { places, middle, spans, series, start, end, step, unit, most, timed, bars };
}

function scaleOf(chart) {
  const { model, width } = chart;
  const ticks = valueTicks(model.most, model.unit);
  const left = 10 + CHARACTER * Math.max(...ticks.map((value) => axisText(value, model.unit).length));
  const x = (at) => left + ((width - left - RIGHT) * (at - model.start)) / (model.end - model.start);
  const y = (value) => HEIGHT - BOTTOM - ((HEIGHT - TOP - BOTTOM) * value) / ticks.at(-1);
  return { ticks, left, x, y };
}

function draw(chart) {
  const { model, frame, width } = chart;
  const scale = scaleOf(chart);
  const parts = [...axes(chart, scale), ...(chart.kind === "bar" ? barsOf(chart, scale) : linesOf(chart, scale))];
  chart.mark = element("line", { class: "cursor", y1: TOP, y2: HEIGHT - BOTTOM });
  const view = { viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, "aria-hidden": "true", focusable: "false" };
  frame.replaceChildren(element("svg", view, ...parts, chart.mark));
  chart.scale = scale;
  describe(chart);
  read(chart);
  if (chart.numbers?.open) fillTable(chart);
  frame.hidden = model.places.length === 0;
  if (chart.numbers) chart.numbers.hidden = frame.hidden;
  if (frame.hidden) chart.reading.replaceChildren(chart.options.empty ?? "Nothing to draw yet.");
}

/** The frame is a slider in the words of ARIA: screen readers read the place of the cursor and its values. */
function describe({ frame, model, options }) {
  const select = options.onSelect ? ` Enter: ${options.selectText ?? "open the bar"}.` : "";
  const attributes = {
    role: "slider",
    tabindex: "0",
    "aria-label": `${options.title ?? "Chart"}. Arrow keys read the values.${select}`,
    "aria-valuemin": "0",
    "aria-valuemax": String(Math.max(0, model.places.length - 1)),
  };
  Object.entries(attributes).forEach(([key, value]) => frame.setAttribute(key, value));
}

function axes({ model, options, width }, { ticks, left, x, y }) {
  const lines = ticks.flatMap((value) => [
    element("line", { class: "grid", x1: left, x2: width - RIGHT, y1: round(y(value)), y2: round(y(value)) }),
    element("text", { x: left - 6, y: round(y(value)) + 4, "text-anchor": "end" }, axisText(value, model.unit)),
  ]);
  const inTime = () => timeTicks(model.start, model.end, width - left, showsUtc(options));
  const marks = model.timed === false ? bandTicks(model, x) : inTime();
  const half = (text) => (text.length * CHARACTER) / 2;
  const within = marks.filter(({ at, text }) => x(at) - half(text) >= 0 && x(at) + half(text) <= width);
  const labels = within.map(({ at, text }) =>
    element("text", { x: round(x(at)), y: HEIGHT - 6, "text-anchor": "middle" }, text),
  );
  return [...lines, ...labels];
}

/** Returns labels for bars side by side; each second, third … one where they would touch each other. */
function bandTicks({ bars, middle }, x) {
  const widest = CHARACTER * (1 + Math.max(...bars.map(({ label }) => String(label).length)));
  const room = bars.length > 1 ? x(middle[1]) - x(middle[0]) : widest;
  const every = Math.max(1, Math.ceil(widest / room));
  return bars.map(({ label }, index) => ({ at: middle[index], text: String(label) })).filter((_, i) => i % every === 0);
}

function styleOf({ colour, dashed }) {
  return `s${colour % COLOURS}${dashed ? " dashed" : ""}`;
}

function linesOf({ model, options }, { x, y }) {
  const half = (options.stepMs ?? 0) / 2;
  return model.series.map((one) => {
    const points = one.points.map(([at, value]) => [x(at + half), value === null ? null : y(value)]);
    const dots = lonePoints(points).map(([cx, cy]) => element("circle", { cx: round(cx), cy: round(cy), r: 2.5 }));
    return element("g", { class: `series ${styleOf(one)}` }, element("path", { d: linePath(points) }), ...dots);
  });
}

function barsOf({ model }, { x, y }) {
  const rects = model.bars.map(({ value }, index) => {
    const span = model.spans[index].map((at) => x(Math.min(Math.max(at, model.start), model.end)));
    const [left, right] = model.timed ? span : narrowed(span);
    const gap = right - left > 4 ? 1 : 0;
    const height = value > 0 ? Math.max(1.5, y(0) - y(value)) : 0; // one message beside a million stays visible
    const width = Math.max(0.5, right - left - gap);
    const place = { x: left + gap / 2, y: y(0) - height, width, height };
    return element("rect", Object.fromEntries(Object.entries(place).map(([key, number]) => [key, round(number)])));
  });
  return [element("g", { class: "bars s0" }, ...rects)];
}

/** Returns the middle of a span, so that one bar alone is no block. */
function narrowed([left, right]) {
  const spare = Math.max(0, right - left - WIDEST_BAR) / 2;
  return [left + spare, right - spare];
}

/** Shows the values at the cursor, in the legend and to screen readers. */
function read(chart) {
  const { model, index, options, frame, reading, scale, kind } = chart;
  if (index < 0) return;
  const place = model.places[index];
  const where = model.timed === false ? String(model.bars[index].label) : moment(place, model.step, showsUtc(options));
  const values = model.series.map((one) => [one, valueText(one.values.get(place) ?? null, model.unit)]);
  frame.setAttribute("aria-valuenow", String(index));
  const said = values.map(([one, text]) => `${one.name} ${text}`.trim());
  frame.setAttribute("aria-valuetext", `${where}: ${said.join(", ")}`);
  const x = round(scale.x(model.middle[index]));
  chart.mark.setAttribute("x1", x);
  chart.mark.setAttribute("x2", x);
  chart.mark.classList.toggle("shown", chart.active);
  if (kind === "bar") {
    const mark = (rect, number) => rect.classList.toggle("at", chart.active && number === index);
    frame.querySelectorAll("rect").forEach(mark);
  }
  if (chart.opener) chart.opener.textContent = `${capital(options.selectText ?? "open the bar")}: ${where}`;
  reading.replaceChildren(
    element("span", { class: "where" }, where),
    ...values.map(([one, text]) => {
      const key = element("span", { class: `key ${styleOf(one)}`, "aria-hidden": "true" });
      return element("span", {}, key, `${one.name} `, element("b", {}, text));
    }),
  );
}

const capital = (text) => text[0].toUpperCase() + text.slice(1);

function listen(chart) {
  const { frame, opener, numbers } = chart;
  opener?.addEventListener("click", () => select(chart, chart.index));
  const activate = (active) => {
    chart.active = active;
    read(chart);
  };
  frame.addEventListener("keydown", (event) => onKey(chart, event));
  frame.addEventListener("focus", () => activate(true));
  frame.addEventListener("blur", () => activate(false));
  frame.addEventListener("pointermove", (event) => {
    chart.index = nearest(chart, event);
    activate(true);
  });
  frame.addEventListener("pointerleave", () => activate(document.activeElement === frame));
  frame.addEventListener("click", (event) => {
    chart.index = nearest(chart, event);
    select(chart, chart.index);
  });
  numbers?.addEventListener("toggle", () => numbers.open && fillTable(chart));
  observer ??= observe();
  observer.observe(frame);
}

/** Draws charts anew when their width changes, or the zone of the page. */
function observe() {
  const redraw = (figure) => charts.has(figure) && draw(charts.get(figure));
  document.addEventListener("zonechange", () => document.querySelectorAll("figure.chart").forEach(redraw));
  return new ResizeObserver((entries) => entries.forEach(({ target }) => fit(target.parentNode)));
}

/** Draws a chart to the width that the page gives it, so that its labels keep their size on a phone. */
function fit(figure) {
  const chart = charts.get(figure);
  const width = Math.floor(chart?.frame.clientWidth ?? 0);
  if (!width || width === chart.width) return;
  chart.width = width;
  draw(chart);
}

function onKey(chart, event) {
  const last = chart.model.places.length - 1;
  const page = Math.max(1, Math.round(last / 10));
  const steps = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: page, PageDown: -page };
  if (event.key === "Enter" || event.key === " ") {
    if (!chart.options.onSelect) return;
    select(chart, chart.index);
  } else if (event.key === "Home" || event.key === "End") {
    chart.index = event.key === "Home" ? 0 : last;
  } else if (steps[event.key] && !event.altKey && !event.ctrlKey && !event.metaKey) {
    chart.index = Math.min(last, Math.max(0, chart.index + steps[event.key]));
  } else return;
  event.preventDefault();
  read(chart);
}

function nearest({ model, scale, frame, width, index }, event) {
  const box = frame.getBoundingClientRect();
  const x = ((event.clientX - box.left) * width) / (box.width || 1);
  const distance = (place) => Math.abs(scale.x(place) - x);
  const nearer = (best, place, number) => (distance(place) < distance(model.middle[best]) ? number : best);
  return model.middle.reduce(nearer, Math.max(0, index));
}

function select({ model, options }, index) {
  if (options.onSelect && model.bars?.[index]) options.onSelect(model.bars[index], index);
}

/** Writes the numbers as a table, the latest first; not while the focus is in it, which it would lose. */
function fillTable({ model, options, numbers }) {
  if (numbers.querySelector(".wide")?.contains(document.activeElement)) return;
  const utc = showsUtc(options);
  const when = utc ? "time (UTC)" : "time";
  const heads = [model.timed === false ? "" : when, ...model.series.map(({ name }) => name || "value")];
  const shown = model.places.map((place, index) => [place, index]);
  const rows = (model.timed === false ? shown : shown.reverse()).slice(0, ROWS).map(([place, index]) => {
    const text = model.timed === false ? String(model.bars[index].label) : moment(place, model.step, utc);
    const cells = model.series.map((one) => element("td", {}, valueText(one.values.get(place) ?? null, model.unit)));
    return element("tr", {}, element("th", { scope: "row" }, rowHead(text, index, model, options)), ...cells);
  });
  const cells = heads.map((text) => (text ? element("th", { scope: "col" }, text) : element("td", {})));
  const head = element("tr", {}, ...cells);
  const caption = element("caption", {}, options.title ?? "Numbers");
  const table = element("table", {}, caption, element("thead", {}, head), element("tbody", {}, ...rows));
  const region = { class: "wide", tabindex: "0", role: "region", "aria-label": `${options.title ?? "Chart"}: numbers` };
  const frame = element("div", region, table);
  numbers.replaceChildren(numbers.firstChild, frame);
}

function rowHead(text, index, model, options) {
  if (!options.onSelect || !model.bars) return text;
  const button = element("button", { type: "button", class: "link" }, text);
  button.addEventListener("click", () => select({ model, options }, index));
  return button;
}

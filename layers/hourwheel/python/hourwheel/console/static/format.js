/**
 * Shows numbers and times. A number that the server does not know is a dash.
 */

import { h } from "./dom.js";

const NONE = "–";
const ZONE = "hourwheel-zone";
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

/** Returns a count with separators: 12,345. */
export function count(n) {
  return isNumber(n) ? whole.format(n) : NONE;
}

/** Returns a rate of events in a second, with three digits: 0.25, 17.2, 1,230. */
export function rate(perSecond) {
  if (!isNumber(perSecond)) return NONE;
  return perSecond >= 100 ? whole.format(perSecond) : short.format(perSecond);
}

/** Returns a size: 17 B, 1.2 KB, 34 MB. A KB has 1,024 bytes. */
export function bytes(n) {
  if (!isNumber(n)) return NONE;
  let unit = 0;
  let amount = n;
  for (; amount >= 1_000 && unit < 4; unit += 1) amount /= 1_024;
  return `${unit ? short.format(amount) : amount} ${["B", "KB", "MB", "GB", "TB"][unit]}`;
}

const UNITS = [["d", 86_400_000], ["h", 3_600_000], ["min", 60_000], ["s", 1_000]];

/** Returns a span of time in its two largest units: 3 d 4 h, 5 min, 1.5 s, 20 ms. */
export function duration(ms) {
  if (!isNumber(ms)) return NONE;
  const sign = ms < 0 ? "−" : "";
  const span = Math.abs(ms);
  if (span < 1_000) return `${sign}${Math.round(span)} ms`;
  if (span < 10_000) return `${sign}${short.format(Math.round(span / 100) / 10)} s`;
  const first = UNITS.findIndex(([, size]) => span >= size);
  const [name, size] = UNITS[first];
  const amount = Math.floor(span / size);
  const next = UNITS[first + 1];
  const rest = next ? Math.floor((span % size) / next[1]) : 0;
  return `${sign}${amount} ${name}${rest ? ` ${rest} ${next[0]}` : ""}`;
}

/** Returns how long ago something was: `ms` is the span. */
export function ago(ms) {
  if (!isNumber(ms)) return NONE;
  return ms < 1_000 ? "now" : `${duration(ms)} ago`;
}

/** Returns the milliseconds since 1970 of a time of the API, or of milliseconds; NaN where there is none. */
export function millis(value) {
  if (value === null || value === undefined || value === "") return NaN;
  return typeof value === "number" ? value : Date.parse(value);
}

let zone = "local";
try {
  zone = localStorage.getItem(ZONE) === "utc" ? "utc" : "local";
} catch {
  // A browser that keeps nothing shows local times.
}

// Charts read the zone here, as they import nothing.
if (typeof document !== "undefined") document.documentElement.dataset.zone = zone;

export function isUtc() {
  return zone === "utc";
}

/** Shows all times of the page in UTC, or in the zone of this machine. */
export function useUtc(utc) {
  zone = utc ? "utc" : "local";
  document.documentElement.dataset.zone = zone;
  try {
    localStorage.setItem(ZONE, zone);
  } catch {
    // The choice then lasts until the page is loaded again.
  }
  for (const node of document.querySelectorAll("time[datetime]")) fill(node);
  document.dispatchEvent(new Event("zonechange")); // for charts, whose axes show times
}

const pad = (number, width = 2) => String(number).padStart(width, "0");

/** Returns the text of a time in the chosen zone: 2026-11-23 03:45:10 (UTC). `precise` adds milliseconds. */
export function timeText(value, { utc = isUtc(), precise = false } = {}) {
  const date = new Date(millis(value));
  if (Number.isNaN(date.getTime())) return NONE;
  const part = (name) => date[`get${utc ? "UTC" : ""}${name}`]();
  const day = `${part("FullYear")}-${pad(part("Month") + 1)}-${pad(part("Date"))}`;
  const clock = `${pad(part("Hours"))}:${pad(part("Minutes"))}:${pad(part("Seconds"))}`;
  const fraction = precise ? `.${pad(part("Milliseconds"), 3)}` : "";
  return `${day} ${clock}${fraction}${utc ? " UTC" : ""}`;
}

function fill(node) {
  const precise = "precise" in node.dataset;
  node.textContent = timeText(node.dateTime, { precise });
  node.title = isUtc() ? `${timeText(node.dateTime, { utc: false, precise })} here` : timeText(node.dateTime, { utc: true, precise });
}

/** Returns an element that shows a time in the chosen zone, with the other one as its title; a dash for no time. */
export function time(value, { precise = false } = {}) {
  const date = new Date(millis(value));
  if (Number.isNaN(date.getTime())) return document.createTextNode(NONE);
  const node = h("time", { datetime: date.toISOString(), "data-precise": precise });
  fill(node);
  return node;
}

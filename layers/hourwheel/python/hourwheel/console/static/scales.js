/**
 * Divides time and values into the steps of an axis, and writes both as text. Imports nothing: the report of the
 * pipeline contains this text too.
 */

export const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const SIZES = { second: SECOND, minute: MINUTE, hour: HOUR, day: DAY, month: 30 * DAY, year: 365 * DAY };

// The steps between two labels of the axis of time, the finest first.
const TICKS = [
  ...[1, 2, 5, 10, 15, 30].map((count) => ["second", count]),
  ...[1, 2, 5, 10, 15, 30].map((count) => ["minute", count]),
  ...[1, 2, 3, 6, 12].map((count) => ["hour", count]),
  ...[1, 2, 3, 5, 7, 14].map((count) => ["day", count]),
  ...[1, 2, 3, 6].map((count) => ["month", count]),
  ...[1, 2, 5, 10, 20, 50, 100].map((count) => ["year", count]),
];

// The steps of durations: people count them in 15s and 30s, not in powers of ten.
const DURATIONS = [
  ...[1, 2, 5, 10, 20, 50, 100, 200, 500],
  ...[1, 2, 5, 10, 15, 30].map((count) => count * SECOND),
  ...[1, 2, 5, 10, 15, 30].map((count) => count * MINUTE),
  ...[1, 2, 3, 6, 12].map((count) => count * HOUR),
  ...[1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000].map((count) => count * DAY),
];

const TICK_WIDTH = 84; // labels of time that are closer together are hard to read
const VALUE_TICKS = 4; // lines above the axis

// --- Time ----------------------------------------------------------------------------------------------------------

function partsOf(ms, utc) {
  const date = new Date(ms);
  return utc
    ? [date.getUTCFullYear(), date.getUTCMonth(), date.getUTCDate(), date.getUTCHours()]
    : [date.getFullYear(), date.getMonth(), date.getDate(), date.getHours()];
}

function timeOf([year, month, day, hour], utc) {
  return utc ? Date.UTC(year, month, day, hour) : new Date(year, month, day, hour).getTime();
}

/** Returns the beginning of the step that contains a time. Steps of several days are counted from 1970 on. */
export function stepStart(ms, unit, count = 1, utc = true) {
  if (SIZES[unit] <= HOUR) {
    const offset = utc ? 0 : -new Date(ms).getTimezoneOffset() * MINUTE;
    const size = SIZES[unit] * count;
    return Math.floor((ms + offset) / size) * size - offset;
  }
  const [year, month, day] = partsOf(ms, utc);
  if (unit === "year") return timeOf([year - (year % count), 0, 1, 0], utc);
  if (unit === "month") return timeOf([year, month - (month % count), 1, 0], utc);
  const number = Date.UTC(year, month, day) / DAY;
  return timeOf([year, month, day - (number % count), 0], utc);
}

/** Returns the beginning of the next step. */
export function stepAfter(ms, unit, count = 1, utc = true) {
  if (SIZES[unit] <= MINUTE || (unit === "hour" && count === 1)) return ms + SIZES[unit] * count;
  const parts = partsOf(ms, utc);
  parts[["year", "month", "day", "hour"].indexOf(unit)] += count;
  return timeOf(parts, utc);
}

/** Returns the steps that touch the time from `from` to `to` (excluded), each as its beginning and its end. */
export function stepsBetween(from, to, unit, { count = 1, utc = true } = {}) {
  const steps = [];
  for (let at = stepStart(from, unit, count, utc); at < to; ) {
    const end = stepAfter(at, unit, count, utc);
    steps.push({ at, end });
    at = end;
  }
  return steps;
}

/** Returns the labels of an axis of time that is `width` pixels wide: `[{at, text}]`, at steps of seconds to years. */
export function timeTicks(from, to, width, utc = true) {
  const most = Math.max(2, Math.floor(width / TICK_WIDTH));
  const [unit, count] = TICKS.find(([name, n]) => (to - from) / (SIZES[name] * n) <= most) ?? TICKS.at(-1);
  const inside = stepsBetween(from, to + 1, unit, { count, utc }).filter(({ at }) => at >= from && at <= to);
  return inside.map(({ at }, index) => ({ at, text: tickText(at, unit, utc, index === 0) }));
}

function tickText(at, unit, utc, first) {
  const midnight = partsOf(at, utc)[3] === 0 && at === stepStart(at, "day", 1, utc);
  if (SIZES[unit] < DAY && (midnight || (first && SIZES[unit] === HOUR))) {
    return midnight ? form(at, utc, { day: "numeric", month: "short" }) : clock(at, utc, false);
  }
  if (SIZES[unit] < DAY) return clock(at, utc, unit === "second");
  if (unit === "day") return form(at, utc, { day: "numeric", month: "short" });
  if (unit === "month") return form(at, utc, { month: "short", year: "numeric" });
  return form(at, utc, { year: "numeric" });
}

const forms = new Map();

function form(at, utc, options) {
  const key = JSON.stringify([utc, options]);
  if (!forms.has(key)) {
    forms.set(key, new Intl.DateTimeFormat("en-GB", { ...options, ...(utc ? { timeZone: "UTC" } : {}) }));
  }
  return forms.get(key).format(at);
}

function clock(at, utc, seconds) {
  const two = "2-digit";
  return form(at, utc, { hour: two, minute: two, ...(seconds ? { second: two } : {}), hourCycle: "h23" });
}

/** Returns a time in full, as precise as a step of `stepMs` needs it. */
export function moment(at, stepMs = SECOND, utc = true) {
  if (stepMs >= 28 * DAY) return form(at, utc, { month: "long", year: "numeric" });
  const day = form(at, utc, { weekday: "short", day: "numeric", month: "short", year: "numeric" });
  return stepMs >= 23 * HOUR ? day : `${day}, ${clock(at, utc, stepMs < MINUTE)}`;
}

// --- Values --------------------------------------------------------------------------------------------------------

/** Returns a duration with the largest unit that it reaches. */
export function durationText(ms) {
  const units = [["d", DAY], ["h", HOUR], ["min", MINUTE], ["s", SECOND]];
  const [unit, size] = units.find(([, size]) => Math.abs(ms) >= size) ?? ["ms", 1];
  return `${Number((ms / size).toPrecision(3))} ${unit}`;
}

function bytesText(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const power = bytes < 1 ? 0 : Math.min(units.length - 1, Math.floor(Math.log2(bytes) / 10));
  return `${Number((bytes / 1024 ** power).toPrecision(3))} ${units[power]}`;
}

function countText(value) {
  const text = Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(3)));
  const [whole, fraction] = text.split(".");
  return whole.replace(/\B(?=(\d{3})+$)/g, "\u202f") + (fraction ? `.${fraction}` : "");
}

/** Returns a value in its unit: `count`, `per_second`, `ms` or `bytes`; "–" for null, an unknown value. */
export function valueText(value, unit = "count") {
  if (value === null || value === undefined) return "–";
  if (unit === "ms") return durationText(value);
  if (unit === "bytes") return bytesText(value);
  return unit === "per_second" ? `${countText(value)}/s` : countText(value);
}

/** Returns the values at which an axis from 0 has its lines; the last of them is at least `most`. */
export function valueTicks(most, unit = "count") {
  const step = valueStep(Math.max(most, 0) / VALUE_TICKS, unit);
  const last = Math.max(1, Math.ceil(most / step - 1e-9));
  return Array.from({ length: last + 1 }, (_, index) => index * step);
}

function valueStep(least, unit) {
  if (unit === "ms") return DURATIONS.find((step) => step >= least) ?? Math.ceil(least);
  if (unit === "bytes") return 2 ** Math.max(0, Math.ceil(Math.log2(Math.max(least, 1))));
  if (unit === "count" && least <= 1) return 1; // half a message is no mark
  if (least <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= least - power * 1e-9);
}

/** Returns an axis label that is short: 12 k, 1.5 M. */
export function axisText(value, unit) {
  if (unit !== "count" && unit !== "per_second") return valueText(value, unit);
  const [suffix, size] = [["G", 1e9], ["M", 1e6], ["k", 1e3]].find(([, size]) => value >= size * 10) ?? ["", 1];
  return `${countText(value / size)}${suffix && ` ${suffix}`}${unit === "per_second" ? "/s" : ""}`;
}

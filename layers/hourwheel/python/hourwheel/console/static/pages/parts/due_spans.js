/**
 * Divides the time ahead for the chart of delayed messages: two years by month, a month by day, a day by hour, an hour
 * by minute.
 */

import { moment, stepAfter, stepStart, stepsBetween } from "../../scales.js";

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const AHEAD = 732 * DAY; // no message may be delayed for longer

/** What a bar of a level is, which level it opens, and the step that the API counts by. */
const LEVELS = {
  years: { bar: "month", opens: "month", step: "hour" },
  month: { bar: "day", opens: "day", step: "hour" },
  day: { bar: "hour", opens: "hour", step: "hour" },
  hour: { bar: "minute", opens: null, step: "minute" },
};

/** Returns the span that the query of the page names: `{level, from, to, bar, opens, step, ways}`. `ways` lead back to
 * the spans around it, the widest first: `[{level, at, text}]`. */
export function spanOf({ level, at }, nowMs, utc) {
  const place = Number(at);
  const isTime = at !== undefined && Math.abs(place) < 8e15; // a Date holds little more
  const chosen = isTime && Object.hasOwn(LEVELS, level ?? "") ? level : "years";
  const [from, to] = boundsOf(chosen, place, nowMs, utc);
  return { level: chosen, from, to, ...LEVELS[chosen], ways: waysOf(chosen, from, utc) };
}

/** Returns the minute of an hour that the query of the page names: `[from, to]`; null for none of this span. */
export function minuteOf({ minute }, { level, from, to }) {
  const at = stepStart(Number(minute), "minute");
  return level === "hour" && minute !== undefined && at >= from && at < to ? [at, at + MINUTE] : null;
}

function boundsOf(level, at, nowMs, utc) {
  // Before the current hour nothing is due any more: an overdue message counts in it.
  if (level === "years") return [stepStart(nowMs, "hour"), stepAfter(stepStart(nowMs + AHEAD, "hour"), "hour")];
  // Buckets are hours of UTC, also where the local zone is half an hour off.
  const zone = level === "hour" ? true : utc;
  const from = stepStart(at, level, 1, zone);
  return [from, stepAfter(from, level, 1, zone)];
}

function waysOf(level, from, utc) {
  const names = ["years", "month", "day", "hour"];
  const lengths = { month: 30 * DAY, day: DAY, hour: HOUR };
  return names.slice(0, names.indexOf(level) + 1).map((name) => ({
    level: name,
    at: from,
    text: name === "years" ? "Two years" : moment(from, lengths[name], utc),
  }));
}

/** Returns what to ask the API for: the counts of a span, or null for one that is over. Hours before the current one are
 * left out: an overdue message counts in that. */
export function askedFor({ from, to, step }, nowMs) {
  const first = step === "hour" ? Math.max(from, stepStart(nowMs, "hour")) : from;
  return first < to ? { from: new Date(first).toISOString(), to: new Date(to).toISOString(), step } : null;
}

/** Returns the bars of a span: `[{at, end, value}]`. `counts`: `[{at, messages}]`, as the API answers them. */
export function barsOf({ from, to, bar }, counts, utc) {
  const zone = bar === "hour" || bar === "minute" ? true : utc;
  const bars = stepsBetween(from, to, bar, { utc: zone }).map(({ at, end }) => ({ at, end, value: 0 }));
  let index = 0;
  const sorted = counts.map(({ at, messages }) => [Date.parse(at), messages]).sort(([a], [b]) => a - b);
  for (const [at, messages] of sorted) {
    while (index < bars.length && bars[index].end <= at) index += 1;
    if (index === bars.length) break;
    if (bars[index].at <= at) bars[index].value += messages;
  }
  return bars;
}

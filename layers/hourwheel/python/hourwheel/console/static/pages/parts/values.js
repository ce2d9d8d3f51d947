/** Reads what a person typed into a form. Each reader returns a value of the API or throws a `FieldError`. */

/** A text of a form that cannot be sent; the message names the field and says what it takes. */
export class FieldError extends Error {
  constructor(label, text) {
    super(`${label}: ${text}`);
    this.name = "FieldError";
  }
}

/** Returns a number from `from` to `to`; a whole one unless `fractions` is set. */
export function number(text, { label, from, to, fractions = false }) {
  const trimmed = text.trim();
  const value = /^[0-9]+(\.[0-9]+)?$/.test(trimmed) ? Number(trimmed) : Number.NaN;
  if (!(value >= from && value <= to) || (!fractions && !Number.isInteger(value))) {
    throw new FieldError(label, `takes a ${fractions ? "" : "whole "}number from ${from} to ${to}`);
  }
  return value;
}

const SECONDS = { ms: 0.001, s: 1, m: 60, h: 3600, d: 86400 };

/** Returns the seconds of a duration such as `90`, `90s`, `1.5h` or `3d`. */
export function seconds(text, { label, from = 0, to = Number.MAX_SAFE_INTEGER, fractions = true }) {
  const parts = /^([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|h|d)?$/.exec(text.trim());
  // The product of a decimal fraction and a unit may miss a whole millisecond by rounding: 1.1 * 86400 does.
  const value = parts ? Math.round(Number(parts[1]) * SECONDS[parts[2] ?? "s"] * 1000) / 1000 : Number.NaN;
  if (!(value >= from && value <= to) || (!fractions && !Number.isInteger(value))) {
    throw new FieldError(
      label,
      `takes a duration such as 90s, 1.5h or 3d, from ${durationText(from)} to ${durationText(to)}`,
    );
  }
  return value;
}

/** Returns the seconds as `seconds()` reads them, in the largest unit that leaves a whole number. */
export function durationText(value) {
  const unit = ["d", "h", "m"].find((each) => value >= SECONDS[each] && value % SECONDS[each] === 0);
  return unit ? `${value / SECONDS[unit]}${unit}` : `${value}s`;
}

/** Returns the entries of a list that commas or line ends separate, each once. */
export function list(text) {
  return [
    ...new Set(
      text
        .split(/[,\n]/)
        .map((entry) => entry.trim())
        .filter(Boolean),
    ),
  ];
}

/** Returns the headers of lines such as `trace: abc`. */
export function headers(text, { label }) {
  const found = {};
  for (const line of text.split("\n").filter((each) => each.trim())) {
    const colon = line.indexOf(":");
    const name = line.slice(0, colon).trim();
    if (colon < 1 || !name) throw new FieldError(label, "takes lines of a name, a colon and a value");
    if (Object.hasOwn(found, name)) throw new FieldError(label, `names ${name} twice`);
    Object.defineProperty(found, name, { value: line.slice(colon + 1).trim(), enumerable: true });
  }
  return found;
}

/** Returns RFC 3339 in UTC for the text of a `datetime-local` field, which `utc` says how to read. */
export function instant(text, { label, utc }) {
  const parts = /^(\d{4,6})-(\d\d)-(\d\d)T(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,3}))?)?$/.exec(text.trim());
  if (!parts) throw new FieldError(label, "takes a date and a time");
  const [year, month, day, hour, minute, second = 0, fraction = "0"] = parts.slice(1);
  const fields = [Number(year), Number(month) - 1, Number(day), Number(hour), Number(minute), Number(second)];
  const ms = Number(fraction.padEnd(3, "0"));
  const value = utc ? new Date(Date.UTC(...fields, ms)) : new Date(...fields, ms);
  if (Number.isNaN(value.getTime()) || value.getUTCFullYear() > 9999) {
    throw new FieldError(label, "takes a date before the year 10000");
  }
  return value.toISOString();
}

/** Returns a value as text in which the order of fields makes no difference. */
function canonical(value) {
  return JSON.stringify(value ?? null, (_, each) =>
    each && typeof each === "object" && !Array.isArray(each) ? Object.fromEntries(Object.entries(each).sort()) : each,
  );
}

/** Returns what changes between two records with fields of the same names: `[{name, from, to}]`. */
export function changes(before, after) {
  return Object.keys(after)
    .filter((name) => canonical(before[name]) !== canonical(after[name]))
    .map((name) => ({ name, from: before[name] ?? null, to: after[name] }));
}

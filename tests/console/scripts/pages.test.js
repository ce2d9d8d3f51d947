import assert from "node:assert/strict";
import { test } from "node:test";
import { askedFor, barsOf, minuteOf, spanOf } from "../static/pages/parts/due_spans.js";

const HOUR = 3_600_000;
const NOW = Date.parse("2026-11-20T09:17:03Z");
const iso = (ms) => new Date(ms).toISOString();
const texts = (span) => span.ways.map(({ text }) => text);

test("the chart of delayed messages shows two years by month at first, from the current hour on", () => {
  const span = spanOf({}, NOW, true);
  assert.equal(iso(span.from), "2026-11-20T09:00:00.000Z");
  assert.ok(span.to >= NOW + 732 * 24 * HOUR, "a message that is as late as it can be is in the chart");
  assert.deepEqual([span.bar, span.opens, span.step], ["month", "month", "hour"]);
  assert.equal(barsOf(span, [], true).length, 25);
});

test("a bar opens the span that it stands for, down to the minutes of an hour", () => {
  const at = String(Date.parse("2027-03-28T01:30:00Z"));
  const spans = ["month", "day", "hour"].map((level) => spanOf({ level, at }, NOW, true));
  assert.deepEqual(spans.map(({ from }) => iso(from)), [
    "2027-03-01T00:00:00.000Z",
    "2027-03-28T00:00:00.000Z",
    "2027-03-28T01:00:00.000Z",
  ]);
  assert.deepEqual(spans.map((span) => barsOf(span, [], true).length), [31, 24, 60]);
  assert.deepEqual(texts(spans[2]), ["Two years", "March 2027", "Sun, 28 Mar 2027", "Sun, 28 Mar 2027, 01:00"]);
  assert.equal(spans[2].step, "minute");
});

test("a minute is chosen only within the hour that is shown", () => {
  const at = String(Date.parse("2027-03-28T01:30:00Z"));
  const span = (level) => spanOf({ level, at }, NOW, true);
  const chosen = (minute, level = "hour") => minuteOf({ minute }, span(level))?.map(iso);
  const bounds = ["2027-03-28T01:59:00.000Z", "2027-03-28T02:00:00.000Z"];
  assert.deepEqual(chosen(String(Date.parse("2027-03-28T01:59:59Z"))), bounds);
  for (const other of [undefined, "", "soon", "Infinity", String(Date.parse("2027-03-28T02:00:00Z")), "0"]) {
    assert.equal(chosen(other), undefined);
  }
  assert.equal(chosen(String(Date.parse("2027-03-28T01:59:59Z")), "day"), undefined);
});

test("a local day on which the clocks change has 23 or 25 hours", () => {
  const day = (at) => spanOf({ level: "day", at: String(Date.parse(at)) }, NOW, false);
  assert.equal(barsOf(day("2027-03-28T12:00:00Z"), [], false).length, 23);
  assert.equal(barsOf(day("2027-10-31T12:00:00Z"), [], false).length, 25);
});

test("the bars add up to the counts within the span, whatever their order", () => {
  const span = spanOf({ level: "month", at: String(NOW) }, NOW, false);
  const counts = [
    { at: "2026-11-30T22:00:00.000Z", messages: 4 },
    { at: "2026-11-30T23:00:00.000Z", messages: 100 }, // December in Berlin
    { at: "2026-10-31T22:00:00.000Z", messages: 200 }, // October
    { at: "2026-10-31T23:00:00.000Z", messages: 1 },
    { at: "2026-11-20T09:00:00.000Z", messages: 2 },
    { at: "2026-11-20T10:00:00.000Z", messages: 3 },
  ];
  const bars = barsOf(span, counts, false);
  assert.deepEqual(bars.filter(({ value }) => value).map(({ value }) => value), [1, 5, 4]);
  assert.equal(bars.length, 30);
});

test("hours that are over are not asked for, as an overdue message counts in the current one", () => {
  const month = spanOf({ level: "month", at: String(NOW) }, NOW, true);
  assert.deepEqual(askedFor(month, NOW), {
    from: "2026-11-20T09:00:00.000Z",
    to: "2026-12-01T00:00:00.000Z",
    step: "hour",
  });
  assert.equal(askedFor(spanOf({ level: "day", at: String(NOW - 24 * HOUR) }, NOW, true), NOW), null);
  const hour = spanOf({ level: "hour", at: String(NOW) }, NOW, true);
  assert.equal(askedFor(hour, NOW).from, "2026-11-20T09:00:00.000Z");
});

test("a query that names no span shows two years", () => {
  for (const query of [{ level: "month" }, { level: "toString", at: "0" }, { level: "day", at: "x" }, { level: "day", at: "9e15" }]) {
    assert.equal(spanOf(query, NOW, true).level, "years");
  }
});

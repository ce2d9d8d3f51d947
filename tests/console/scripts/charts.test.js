import assert from "node:assert/strict";
import { test } from "node:test";
import { linePath, lonePoints } from "../static/charts.js";
import { durationText, moment, stepsBetween, timeTicks, valueText, valueTicks } from "../static/scales.js";

const HOUR = 3_600_000;
const at = (text) => Date.parse(text);
const texts = (ticks) => ticks.map(({ text }) => text);

test("two minutes have labels of seconds", () => {
  const ticks = timeTicks(at("2026-11-20T09:00:00Z"), at("2026-11-20T09:02:00Z"), 600);
  assert.deepEqual(texts(ticks), ["09:00:00", "09:00:30", "09:01:00", "09:01:30", "09:02:00"]);
});

test("a day has labels of hours, and its date at midnight", () => {
  const ticks = timeTicks(at("2026-11-20T05:00:00Z"), at("2026-11-21T05:00:00Z"), 800);
  assert.deepEqual(texts(ticks), ["06:00", "09:00", "12:00", "15:00", "18:00", "21:00", "21 Nov", "03:00"]);
});

test("two years have labels of months", () => {
  const ticks = timeTicks(at("2026-01-01T00:00:00Z"), at("2028-01-01T00:00:00Z"), 600);
  assert.deepEqual(texts(ticks), ["Jan 2026", "Jul 2026", "Jan 2027", "Jul 2027", "Jan 2028"]);
});

test("labels never come closer together than they can be read", () => {
  for (let span = 1_000; span < 1e13; span *= 1.7) {
    for (const width of [200, 600, 1_200]) {
      const ticks = timeTicks(at("2026-11-20T09:17:03Z"), at("2026-11-20T09:17:03Z") + span, width);
      assert.ok(ticks.length <= Math.max(2, width / 84) + 1, `${ticks.length} labels on ${width} px for ${span} ms`);
    }
  }
});

test("days keep their midnights when the clocks change", () => {
  assert.equal(process.env.TZ, "Europe/Berlin"); // set by the caller
  const days = stepsBetween(at("2026-03-28T12:00:00Z"), at("2026-03-30T12:00:00Z"), "day", { utc: false });
  assert.deepEqual(days.map((day) => (day.end - day.at) / HOUR), [24, 23, 24]);
  const months = stepsBetween(at("2026-09-30T23:00:00Z"), at("2026-12-01T00:00:00Z"), "month", { utc: false });
  assert.deepEqual(months.map((month) => moment(month.at, 30 * 24 * HOUR, false)), ["October 2026", "November 2026", "December 2026"]);
  const six = timeTicks(at("2026-10-25T00:00:00Z"), at("2026-10-26T00:00:00Z"), 500, false);
  assert.deepEqual(texts(six), ["06:00", "12:00", "18:00", "26 Oct"]);
});

test("steps join without a gap and cover the span", () => {
  for (const unit of ["second", "minute", "hour", "day", "month", "year"]) {
    const from = at("2026-10-24T22:30:00Z");
    const to = unit === "second" || unit === "minute" ? from + 2 * HOUR : from + 400 * 24 * HOUR;
    for (const utc of [true, false]) {
      const steps = stepsBetween(from, to, unit, { utc });
      assert.ok(steps[0].at <= from && steps.at(-1).end >= to);
      steps.slice(1).forEach((step, index) => assert.equal(step.at, steps[index].end));
      assert.ok(steps.every((step) => step.end > step.at));
    }
  }
});

test("the axis of values goes in steps of 1, 2 and 5, durations in those of a clock", () => {
  assert.deepEqual(valueTicks(7), [0, 2, 4, 6, 8]);
  assert.deepEqual(valueTicks(12_345), [0, 5_000, 10_000, 15_000]);
  assert.deepEqual(valueTicks(1), [0, 1]);
  assert.deepEqual(valueTicks(0), [0, 1]);
  assert.deepEqual(valueTicks(95_000, "ms").map(durationText), ["0 ms", "30 s", "1 min", "1.5 min", "2 min"]);
  assert.deepEqual(valueTicks(3_000_000, "bytes").map((value) => valueText(value, "bytes")), ["0 B", "1 MiB", "2 MiB", "3 MiB"]);
  for (let most = 1; most < 1e12; most *= 1.3) {
    for (const unit of ["count", "per_second", "ms", "bytes"]) {
      const ticks = valueTicks(most, unit);
      assert.ok(ticks.at(-1) >= most * (1 - 1e-9) && ticks.length <= 6, `${most} ${unit}: ${ticks}`);
    }
  }
});

test("values are written with their unit, an unknown one as a dash", () => {
  assert.equal(valueText(1_234_567), "1\u202f234\u202f567");
  assert.equal(valueText(0.25, "per_second"), "0.25/s");
  assert.equal(valueText(null), "–");
  assert.deepEqual([0, 999, 1_500, 90_000, 172_800_000].map(durationText), ["0 ms", "999 ms", "1.5 s", "1.5 min", "2 d"]);
});

test("an unknown value interrupts a line, and a point alone becomes a dot", () => {
  const points = [[0, 1], [1, 2], [2, null], [3, 4]];
  assert.equal(linePath(points), "M0 1L1 2M3 4");
  assert.deepEqual(lonePoints(points), [[3, 4]]);
});

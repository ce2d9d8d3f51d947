import assert from "node:assert/strict";
import { test } from "node:test";
import { encode, path, withQuery } from "../static/dom.js";
import { ago, bytes, count, duration, rate, timeText } from "../static/format.js";
import { hourlyUsd, pointsOf, ratesOf, remember } from "../static/pages/parts/rates.js";
import { pauseMs, readsAtOnce } from "../static/pauses.js";
import { match } from "../static/router.js";

test("an address names a page, its parameters and its query", () => {
  assert.deepEqual(match(""), { name: "overview", params: {}, query: {} });
  assert.deepEqual(match("#/?prefix=a%20b"), { name: "overview", params: {}, query: { prefix: "a b" } });
  assert.deepEqual(match("#/subjects/a.b/groups/c~d/dead?after=1-0").params, { subject: "a.b", group: "c~d" });
  assert.equal(match("#/subjects/orders/trace?id=0:7").query.id, "0:7");
  assert.deepEqual(match("#/subjects/%zz").params, { subject: "%zz" }, "what cannot be decoded stays as it is");
  assert.equal(match("#/subjects"), null);
  assert.equal(match("#/nothing"), null);
});

test("values are encoded as signatures of AWS expect", () => {
  assert.equal(encode("a b+c/d=e&f~g%*'()!ä-._"), "a%20b%2Bc%2Fd%3De%26f~g%25%2A%27%28%29%21%C3%A4-._");
  assert.equal(path`subjects/${"a/b"}/groups/${"?#"}`, "subjects/a%2Fb/groups/%3F%23");
  assert.equal(withQuery("x", { a: "1 2", b: null, c: "", d: 0, e: undefined }), "x?a=1%202&d=0");
  assert.equal(withQuery("x", {}), "x");
});

test("numbers and spans are short, and unknown ones are a dash", () => {
  assert.deepEqual([count(1234567), count(0), count(null), count(undefined), count(NaN)], ["1,234,567", "0", "–", "–", "–"]);
  assert.deepEqual([rate(0.254), rate(17.25), rate(1234.5), rate(null)], ["0.254", "17.3", "1,235", "–"]);
  assert.deepEqual([bytes(17), bytes(2048), bytes(1_000), bytes(34 << 20)], ["17 B", "2 KB", "0.977 KB", "34 MB"]);
  assert.deepEqual([duration(20), duration(1_500), duration(65_000), duration(275_400_000), duration(-3_600_000)], [
    "20 ms",
    "1.5 s",
    "1 min 5 s",
    "3 d 4 h",
    "−1 h",
  ]);
  assert.deepEqual([ago(400), ago(61_000), ago(NaN)], ["now", "1 min 1 s ago", "–"]);
});

test("a time is shown in the zone of this machine or in UTC", () => {
  const at = "2027-03-28T01:30:00.250Z";
  assert.equal(timeText(at, { utc: true, precise: true }), "2027-03-28 01:30:00.250 UTC");
  assert.equal(timeText(at, { utc: false }), "2027-03-28 03:30:00");
  assert.equal(timeText(null), "–");
});

const row = (subject, second, end, settled) => ({ subject, end, settled, at: new Date(second * 1_000).toISOString() });

test("rates are means over the last half minute", () => {
  for (const [second, end] of [[80, 700], [90, 800], [110, 1_100], [120, 1_400]]) remember(row("orders", second, end, end / 2));
  const { produced, pulled, trend } = ratesOf(pointsOf("orders"));
  assert.deepEqual([produced, pulled], [20, 10]);
  assert.deepEqual(trend, [10, 15, 30]);
});

test("rates are known where readings are rarer than every half minute", () => {
  for (const [second, end] of [[0, 0], [31, 310], [62, 930]]) remember(row("rare", second, end, 0));
  assert.equal(ratesOf(pointsOf("rare")).produced, 20);
});

test("one reading tells no rate, and numbers that were read once are one reading", () => {
  remember(row("once", 5, 7, 7));
  remember(row("once", 5, 7, 7));
  assert.deepEqual(ratesOf(pointsOf("once")), { produced: null, pulled: null, trend: [] });
  assert.deepEqual(ratesOf(pointsOf("never")), { produced: null, pulled: null, trend: [] });
});

test("a subject that was deleted, or a group that was sought back, has no negative rate", () => {
  remember(row("anew", 0, 500, 500));
  remember(row("anew", 10, 3, 0));
  assert.equal(ratesOf(pointsOf("anew")).produced, null);
  remember(row("anew", 20, 13, 0));
  assert.equal(ratesOf(pointsOf("anew")).produced, 1);
});

test("a page keeps the readings of some minutes and of some thousand subjects", () => {
  for (let second = 0; second < 3_000; second += 2) remember(row("long", second, second, second));
  assert.ok(pointsOf("long").length <= 60);
  for (let i = 0; i < 2_500; i += 1) remember(row(`many-${i}`, 0, 0, 0));
  assert.equal(pointsOf("many-0").length, 0);
  assert.equal(pointsOf("many-2499").length, 1);
});

test("what an open page costs is told from its calls, once there are some", () => {
  const prices = { callUsd: 2e-6, readUsd: 1.5e-6 };
  assert.equal(hourlyUsd({ calls: 1, items: 100, sinceMs: 0 }, 10_000, prices), null);
  const usd = hourlyUsd({ calls: 60, items: 6_000, sinceMs: 0 }, 1_800_000, prices);
  assert.ok(Math.abs(usd - 2 * (60 * 2e-6 + 6_000 * 1.5e-6)) < 1e-12);
});

test("a page waits longer after each failure, up to a minute", () => {
  const how = { aws: false, hidden: false, random: 1 };
  assert.deepEqual([0, 1, 2, 3, 5, 6, 50].map((failures) => pauseMs(2_000, failures, how)), [
    2_000, 2_000, 4_000, 8_000, 32_000, 60_000, 60_000,
  ]);
  assert.ok(pauseMs(2_000, 3, { ...how, random: 0 }) < 8_000, "pages do not come back at one time");
});

test("a hidden tab is read less often, and on AWS not at all", () => {
  assert.equal(pauseMs(2_000, 0, { aws: false, hidden: true, random: 0 }), 12_000);
  assert.equal(pauseMs(2_000, 0, { aws: true, hidden: true, random: 0 }), null);
  assert.equal(pauseMs(2_000, 0, { aws: true, hidden: false, random: 0 }), 30_000);
});

test("a page that loses its server and finds it again all the time does not read without a pause", () => {
  assert.equal(readsAtOnce(Infinity), true);
  assert.equal(readsAtOnce(60_000), true);
  assert.equal(readsAtOnce(50), false);
});

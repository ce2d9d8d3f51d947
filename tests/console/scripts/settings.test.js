import assert from "node:assert/strict";
import { test } from "node:test";

// A real channel to the other tabs would keep the process of this test alive.
globalThis.BroadcastChannel = EventTarget;
const { settings } = await import("../static/api.js");
const { settingsOf, textsOf } = await import("../static/pages/parts/group_values.js");
const { settingText, settingValue } = await import("../static/pages/parts/declared.js");
const { changes } = await import("../static/pages/parts/values.js");

const DELAY = { name: "redelivery_delay_seconds", title: "Redelivery delay", least: 0, most: 2592000, fractions: true, fixed: false, needs: "", default: 0, choices: [] };
const RATE = { name: "messages_per_second", title: "Messages per second", least: 0, most: 1000000, fractions: true, fixed: false, needs: "", default: 0, choices: [] };
settings.groupSettings = [DELAY, RATE];
const FIRST = { ...DELAY, name: "first_seconds", title: "First delay", default: null };
const FACTOR = { ...RATE, name: "factor", title: "Factor", least: 1, most: 100, default: null };
settings.retryPolicy = [FIRST, FACTOR, { ...FIRST, name: "cap_seconds", title: "Longest delay" }];
const BATCH = { ...RATE, name: "batch", title: "Batch", least: 1, most: 1000, fractions: false, default: 10 };
settings.pushTarget = [BATCH, { ...BATCH, name: "secret_version", title: "Version of the secret", default: null }];

const GROUP = {
  redelivery_delay_seconds: 0.0005,
  messages_per_second: 1e-7,
  retry: { first_seconds: 0.0015, factor: 1e-7 + 1, cap_seconds: 100000.0004 },
  filter: null,
  push: null,
};
const texts = (group) => ({
  ...textsOf(group),
  ...Object.fromEntries(settings.groupSettings.map((each) => [each.name, settingText(each, group[each.name])])),
});

test("a form that nobody touched changes nothing, whatever the fractions of its numbers", () => {
  assert.deepEqual(changes(GROUP, settingsOf(texts(GROUP), GROUP)), []);
  const listed = { ...GROUP, retry: { delays_seconds: [0.0005, 1.00001, 60] } };
  assert.deepEqual(changes(listed, settingsOf(texts(listed), listed)), []);
});

test("a setting that a person changes is the only one that changes", () => {
  const after = settingsOf({ ...texts(GROUP), messages_per_second: "5" }, GROUP);
  assert.deepEqual(changes(GROUP, after), [{ name: "messages_per_second", from: 1e-7, to: 5 }]);
  const retry = settingsOf({ ...texts(GROUP), factor: "3" }, GROUP).retry;
  assert.deepEqual(retry, { first_seconds: 0.0015, factor: 3, cap_seconds: 100000.0004 });
});

test("a target takes the bounds that the server declares, and its secret is left alone", () => {
  const target = { ...texts(GROUP), push_kind: "https", address: "https://example.com/hook" };
  const pushed = { ...GROUP, push: { kind: "https", url: "https://a", batch: 5, secret_version: 3 } };
  const made = { kind: "https", url: "https://example.com/hook", batch: 10 };
  assert.deepEqual(settingsOf(target, GROUP).push, made);
  assert.deepEqual(settingsOf({ ...target, batch: "5" }, pushed).push, { ...made, batch: 5, secret_version: 3 });
  assert.throws(() => settingsOf({ ...target, batch: "1001" }, GROUP), /Batch/);
});

test("a delay of a list that a person extends keeps its fraction", () => {
  const listed = { ...GROUP, retry: { delays_seconds: [0.0005, 60] } };
  const after = settingsOf({ ...texts(listed), delays: "0.0005s, 1m, 2m" }, listed);
  assert.deepEqual(after.retry.delays_seconds, [0.0005, 60, 120]);
});

test("what a person types is rounded to milliseconds, and refused where it is no duration", () => {
  assert.equal(settingValue(DELAY, "0.0026s", 0.0005), 0.003);
  assert.throws(() => settingValue(DELAY, "soon", 0.0005), /Redelivery delay: takes a duration/);
});

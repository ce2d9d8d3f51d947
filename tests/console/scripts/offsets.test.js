import assert from "node:assert/strict";
import { test } from "node:test";
import { messagesBelow, progressOf } from "../static/pages/parts/offsets.js";

const GAP = 2 ** 46;

test("offsets behind a lost part count the messages that are left", () => {
  assert.deepEqual([0, 7, GAP + 7, 3 * GAP + 9].map(messagesBelow), [0, 7, 7, 9]);
});

test("a group that waits for the messages behind a lost part is not at its end", () => {
  const queues = [{ end: GAP + 4 }, { end: 4 }];
  assert.equal(progressOf({ broadcast: false, settled: 2 }, queues), 0.25);
  assert.equal(progressOf({ broadcast: false, settled: 2 }, [...queues, { end: null }]), null);
});

/**
 * Decides how long a page waits before it reads again.
 */

const SLOWEST_MS = 60_000;
const AWS_MS = 30_000; // an open page on AWS is billed for each call
const HIDDEN_TIMES = 6; // a hidden page is read this many times less often
const DOUBLINGS = 6;

/**
 * Returns the pause before the next reading; null while there is none.
 *
 * `failures`: how many readings failed one after the other. `hidden`: the tab is not seen. `random`: 0 to 1.
 */
export function pauseMs(everyMs, failures, { aws, hidden, random }) {
  if (aws && hidden) return null;
  const usual = Math.max(everyMs, aws ? AWS_MS : 0) * (hidden ? HIDDEN_TIMES : 1);
  if (!failures) return usual;
  const longer = Math.max(usual, 1_000) * 2 ** Math.min(failures - 1, DOUBLINGS);
  // Open pages shall not come back all at once. A page that reads less often than once a minute goes on doing so.
  return Math.max(usual, Math.min(SLOWEST_MS, longer) * (0.75 + random / 4));
}

const BETWEEN_RECOVERIES_MS = 10_000;

/**
 * Returns whether a page that reaches its server again reads everything at once, after it did so `lastMs` ago.
 *
 * A call that always fails beside one that succeeds looks like a loss and a recovery at each turn: without this bound
 * the page would read without a pause.
 */
export function readsAtOnce(lastMs) {
  return lastMs >= BETWEEN_RECOVERIES_MS;
}

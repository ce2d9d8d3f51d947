/**
 * Redrives and drops dead letters, in pages, and says how far it is.
 */

import { del, get, post } from "../../api.js";
import { confirmAct, toast } from "../../dialog.js";
import { path } from "../../dom.js";
import { count } from "../../format.js";

const PAGE = 100;

const ACTS = {
  redrive: {
    title: "Redrive dead letters?",
    label: "Redrive",
    danger: false,
    text: (letters) => `${letters} will be handed to this group again, with attempt 1.`,
    call: (calls, ids) => post(`${calls}/redrive`, { ids }).then((answer) => answer.redriven),
    done: (letters) => `${letters} redriven.`,
  },
  drop: {
    title: "Drop dead letters?",
    label: "Drop for ever",
    danger: true,
    text: (letters) => `${letters} will be dropped for ever: this group will not get them again.`,
    call: (calls, ids) => del(calls, { ids }).then((answer) => answer.dropped),
    done: (letters) => `${letters} dropped.`,
  },
};

function lettersText(number) {
  return number === 1 ? "1 dead letter" : `${count(number)} dead letters`;
}

/** Asks, and redrives or drops these letters. */
export function askThese(page, name, letters) {
  const act = ACTS[name];
  const ids = letters.map((letter) => letter.dead_id);
  return confirmAct({
    title: act.title,
    text: act.text(lettersText(ids.length)),
    danger: act.danger,
    label: act.label,
    act: () => act.call(page.calls, ids),
    done: (number) => finish(page, act, number),
  });
}

/** Counts the letters that the filter of the page shows, asks, and redrives or drops them page by page. A letter that
 * the group gives up after the question is left out: a redriven one could come back while the act goes on. */
export async function askAll(page, name) {
  const act = ACTS[name];
  const untilMs = Date.now();
  const total = await numberOf(page);
  const filter = page.filter.reason ? " Letters of other reasons stay." : "";
  return confirmAct({
    title: act.title,
    text: `${act.text(total === null ? "All dead letters of the group" : lettersText(total))}${filter}`,
    danger: act.danger,
    label: act.label,
    act: ({ signal, progress }) => inPages(page, act, { untilMs, total, signal, progress }),
    done: (number) => finish(page, act, number),
  });
}

/** Returns the number of letters that the filter shows; null where the server does not count them. */
async function numberOf({ calls, filter, subject, group, signal }) {
  try {
    if (!filter.reason) return (await get(path`subjects/${subject}/groups/${group}/lag`, {}, { signal })).dead;
    const { reasons, others, complete } = await get(`${calls}/reasons`, {}, { signal });
    const isShown = (row) => row.reason === filter.reason && (!filter.detail || row.detail === filter.detail);
    const number = reasons.filter(isShown).reduce((sum, row) => sum + row.messages, 0);
    return complete && !others ? number : null;
  } catch {
    return null; // the question then names no number
  }
}

async function inPages(page, act, { untilMs, total, signal, progress }) {
  let after;
  let number = 0;
  do {
    const found = await get(page.calls, { limit: PAGE, after, ...page.filter }, { signal });
    const before = found.messages.filter((letter) => Date.parse(letter.died_at) <= untilMs);
    const ids = before.map((letter) => letter.dead_id);
    if (ids.length) number += await act.call(page.calls, ids);
    progress(total === null ? `${count(number)} so far` : `${count(number)} of ${count(total)}`);
    after = ids.length === found.messages.length ? found.next : null;
    if (signal.aborted) throw new Error(`Stopped: ${act.done(lettersText(number))}`);
  } while (after);
  return number;
}

function finish(page, act, number) {
  toast(act.done(lettersText(number)));
  page.selected.clear();
  page.refresh();
}

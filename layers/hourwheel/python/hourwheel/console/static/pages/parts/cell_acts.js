/** The operations on cells and routes. Each asks the server first what it would do, and shows that in its question. */

import { del, post, put } from "../../api.js";
import { confirmAct, toast } from "../../dialog.js";
import { h, path } from "../../dom.js";
import { count } from "../../format.js";
import { differences, withdrawn } from "./routes.js";

const lines = (texts) => h("ul", null, texts.map((text) => h("li", null, text)));

/**
 * Calls `call(true)`, a dry run, and shows in the question what `tell` makes of the answer; `call(false)` is the act.
 * A refused dry run is shown as a sentence, and nothing is asked.
 */
async function askAfterDryRun({ title, text, label, danger, call, tell, changed }) {
  let foreseen;
  try {
    foreseen = await call(true);
  } catch (error) {
    toast(`${error.title ?? "The call failed"}: ${error.detail ?? error.message}`);
    return;
  }
  confirmAct({ title, text, details: lines(tell(foreseen)), label, danger, act: () => call(false), done: changed });
}

const orNothing = (texts) => (texts.length ? texts : ["Nothing changes: the queues are there already."]);

/** Asks for the cell, and moves a queue there. */
export function moveQueue(subject, queue, cells, changed) {
  const here = queue.mappings.at(-1).cell;
  const targets = cells.filter(({ cell, state, kinds }) => cell !== here && state === "normal" && kinds.includes("real-time"));
  if (!targets.length) {
    toast("There is no other cell that takes queues.");
    return;
  }
  const field = h("select", { name: "cell" }, targets.map(({ cell }) => h("option", { value: cell }, cell)));
  confirmAct({
    title: `Move queue ${queue.queue} of ${subject}`,
    text: `New messages go to ${here} now. Which cell shall take them? Nothing is moved before the next question.`,
    details: h("label", null, "Cell ", field),
    label: "Show what changes…",
    act: () => field.value,
    done: (cell) =>
      askAfterDryRun({
        title: `Move queue ${queue.queue} of ${subject} to ${cell}?`,
        text: "Messages that are stored stay where they are, and are served first. Producers and consumers need do nothing.",
        label: "Move",
        call: (dry_run) => post(path`subjects/${subject}/queues/${queue.queue}/move`, { cell, dry_run }),
        tell: ({ before, after }) => orNothing(differences(before, after)),
        changed,
      }),
  });
}

export function spread(subject, changed) {
  return askAfterDryRun({
    title: `Spread the queues of ${subject}?`,
    text: "Moves queues so that all cells that take queues have equally many of this subject.",
    label: "Spread",
    call: (dry_run) => post(path`subjects/${subject}/spread`, { dry_run }),
    tell: ({ before, after }) => orNothing(differences(before, after)),
    changed,
  });
}

/** Withdraws the pending move of a queue; without `queue` everything that is pending. */
export function withdraw(subject, queue, changed) {
  return askAfterDryRun({
    title: queue === undefined ? `Withdraw what is pending for ${subject}?` : `Withdraw the move of queue ${queue} of ${subject}?`,
    text: "The queues stay where they are.",
    label: "Withdraw",
    call: (dry_run) => del(path`routes/${subject}/pending`, undefined, { query: { queue, ...(dry_run ? { dry_run } : {}) } }),
    tell: ({ before, after }) => orNothing(withdrawn(before, after)),
    changed,
  });
}

export function addQueues(subject, now, changed) {
  const field = h("input", { type: "number", name: "queues", min: String(now + 1), max: "64", value: String(now + 1), required: true });
  confirmAct({
    title: `Add queues to ${subject}`,
    text: `It has ${count(now)} now, and can have no fewer later. Nothing is added before the next question.`,
    details: h("label", null, "Queues afterwards ", field),
    label: "Show what changes…",
    act: () => Number(field.value),
    done: (queues) =>
      askAfterDryRun({
        title: `Give ${subject} ${count(queues)} queues?`,
        text: "Keys move to other queues: messages of a key that were sent before and after the change may be served out of order.",
        label: "Add",
        call: (dry_run) => post(path`subjects/${subject}/queues`, { queues, dry_run }),
        tell: ({ before, after }) => orNothing(differences(before, after)),
        changed,
      }),
  });
}

export function drain({ cell }, changed) {
  return askAfterDryRun({
    title: `Drain ${cell}?`,
    text: "Moves all its queues to other cells, and no queue comes back. What is stored stays until it is consumed and expires.",
    label: "Drain",
    danger: true,
    call: (dry_run) => post(path`cells/${cell}/drain`, { dry_run }),
    tell: ({ moved, unmoved, left }) => [
      ...moved.flatMap(({ before, after }) => differences(before, after).map((text) => `${after.subject}: ${text}`)),
      ...unmoved.map(({ subject, queue, reason }) => `Queue ${queue} of ${subject} cannot be moved now: ${reason}.`),
      left.length ? `${count(left.length)} closed ${left.length === 1 ? "part stays" : "parts stay"} until the messages expire.` : "Nothing stays in it.",
    ],
    changed,
  });
}

export function remove({ cell }, changed) {
  return askAfterDryRun({
    title: `Remove ${cell}?`,
    text: "The cell holds nothing any more. The deployment forgets it; its storage is left as it is.",
    label: "Remove",
    danger: true,
    call: (dry_run) => del(path`cells/${cell}`, undefined, { query: dry_run ? { dry_run: true } : {} }),
    tell: () => [`${cell} leaves the list of cells.`],
    changed,
  });
}

export function setState({ cell, state }, next, changed) {
  return askAfterDryRun({
    title: next === "normal" ? `Make ${cell} normal?` : `Make ${cell} read-only?`,
    text: next === "normal" ? "Queues may move to it again." : "No queue may move to it; what it holds is served.",
    label: next === "normal" ? "Make normal" : "Make read-only",
    call: (dry_run) => put(path`cells/${cell}`, { state: next, dry_run }),
    tell: (shown) => [`${cell} is ${state.replace("_", "-")} now, and ${shown.state.replace("_", "-")} then.`],
    changed,
  });
}

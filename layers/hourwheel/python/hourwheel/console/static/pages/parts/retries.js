/** Shows the retries of a group by their attempt. */

import { get, post } from "../../api.js";
import { barChart, updateChart } from "../../charts.js";
import { actButton, confirmAct, toast } from "../../dialog.js";
import { h } from "../../dom.js";
import { count } from "../../format.js";
import { panel } from "./panels.js";
import { groupPath } from "./paths.js";

/** Returns the options of the chart for an answer of the server. */
export function retriesChart({ attempts }) {
  const bars = attempts.map(({ attempt, messages }) => ({ label: String(attempt), value: messages }));
  return {
    title: "Messages by their next attempt",
    name: "messages",
    unit: "count",
    bars,
    empty: "No message waits for a retry.",
  };
}

/** Says which of the retries can be pulled, and whether all were counted. */
export function retriesNote({ attempts, complete }) {
  const sum = (name) => count(attempts.reduce((total, each) => total + each[name], 0));
  if (!attempts.length) return "";
  const counted = `${sum("retrying")} can be pulled now, ${sum("backing_off")} wait for their delay`;
  return complete ? `${counted}.` : `${counted}, and there are more.`;
}

/** Returns the body of the request for what the fields of the question say. */
export function chosenRetries(key, detail) {
  if (!key && !detail) return { all: true };
  return { ...(key && { key }), ...(detail && { detail }) };
}

/** Asks, and retries messages at once, as many calls as that takes; `done` is called afterwards. */
function askRetry(path, done) {
  const key = h("input", { type: "text", name: "key", size: "24" });
  const detail = h("input", { type: "text", name: "error", size: "40" });
  confirmAct({
    title: "Retry now?",
    text: "Messages that wait for the delay of their retry can be pulled at once. Fill a field to choose some of them.",
    details: [
      h("label", { class: "field" }, "Key", key),
      h("label", { class: "field" }, "Error, as the consumer told it", detail),
    ],
    label: "Retry now",
    act: async ({ signal, progress }) => {
      const chosen = chosenRetries(key.value, detail.value);
      let retried = 0;
      let after;
      do {
        const answer = await post(path, { ...chosen, after }, { signal });
        retried += answer.retried;
        after = answer.next;
        progress(`${count(retried)} so far.`);
      } while (after);
      return retried;
    },
    done: (retried) => {
      toast(`${count(retried)} ${retried === 1 ? "message is" : "messages are"} retried now.`);
      return done();
    },
  });
}

/** Returns `{node, load()}`. An ordered group retries each key in its order: it offers no earlier retry. */
export function retriesPanel(subject, group, { ordered = false } = {}) {
  const own = panel("Retries by attempt");
  const chart = barChart(retriesChart({ attempts: [] }));
  const note = h("p", { class: "small" });
  const press = () => askRetry(`${groupPath(subject, group)}/retries`, () => load());
  own.show(chart, note, !ordered && actButton("Retry now…", press));
  const load = own.guard(async () => {
    const answer = await get(`${groupPath(subject, group)}/retries`);
    updateChart(chart, retriesChart(answer));
    note.textContent = retriesNote(answer);
  });
  return { node: own.node, load };
}

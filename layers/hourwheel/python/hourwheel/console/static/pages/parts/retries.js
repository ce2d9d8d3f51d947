/** Shows the retries of a group by their attempt. */

import { get } from "../../api.js";
import { barChart, updateChart } from "../../charts.js";
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

/** Returns `{node, load()}`. */
export function retriesPanel(subject, group) {
  const own = panel("Retries by attempt");
  const chart = barChart(retriesChart({ attempts: [] }));
  const note = h("p", { class: "small" });
  own.show(chart, note);
  const load = own.guard(async () => {
    const answer = await get(`${groupPath(subject, group)}/retries`);
    updateChart(chart, retriesChart(answer));
    note.textContent = retriesNote(answer);
  });
  return { node: own.node, load };
}

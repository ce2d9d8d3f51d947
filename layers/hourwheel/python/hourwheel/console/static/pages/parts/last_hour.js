/** Shows the last hour of groups: the server keeps a point a minute, also while nobody looks. */

import { get } from "../../api.js";
import { lineChart, sparkline, updateChart } from "../../charts.js";
import { h, replace } from "../../dom.js";
import { isUtc, millis, time } from "../../format.js";
import { section } from "../../frame.js";
import { subjectPath } from "./paths.js";

const EVERY_MS = 30_000; // a point comes once a minute

/** Returns a function that reads `{since, groups}` of a subject, or of one of its groups; null from an old server.
 * Answers of the last half minute for the same page are given again. */
export function hourReader(subject, { group, signal }) {
  let kept = null;
  let shown = null;
  let readMs = -Infinity;
  return async (after = "") => {
    if (shown === after && performance.now() - readMs < EVERY_MS) return kept;
    kept = await get(`${subjectPath(subject)}/history`, group ? { group } : { after }, { signal }).catch((error) => {
      if (error.isMissingCall) return null;
      throw error;
    });
    shown = after;
    readMs = performance.now();
    return kept;
  };
}

/** Returns a function that draws what waited in each group of `answer`, all lines to one scale. */
export function waitingLines(answer) {
  const groups = new Map((answer?.groups ?? []).map((each) => [each.group, each.waiting]));
  const top = Math.max(0, ...[...groups.values()].flat());
  return (name) => {
    const values = groups.get(name) ?? [];
    return values.length > 1 ? sparkline(values, { label: "Waiting in the last hour", top }) : "–";
  };
}

const points = (group, name) => (group ? group.at.map((at, index) => [millis(at), group[name][index]]) : []);

function waiting(group) {
  const series = [{ name: "waiting", points: points(group, "waiting") }];
  return { title: "Messages that waited", unit: "count", series, utc: isUtc(), empty: "The group has not moved within the hour." };
}

function rates(group) {
  const series = [
    { name: "accepted by the subject", points: points(group, "accepted_per_second") },
    { name: "pulled by the group", points: points(group, "pulled_per_second") },
  ];
  return { title: "Messages a second", unit: "per_second", series, utc: isUtc(), empty: "A rate comes with the second minute of a group that moves." };
}

/** Returns `{node, load}` of the last hour of one group; hidden where the server keeps none. */
export function lastHour(subject, group, signal) {
  const read = hourReader(subject, { group, signal });
  const charts = [lineChart(waiting(null)), lineChart(rates(null))];
  const note = h("p", { class: "small muted" });
  const node = section("The last hour", h("div", { class: "columns" }, charts), note);
  node.hidden = true;
  const load = async () => {
    const answer = await read();
    node.hidden = !answer?.since;
    if (node.hidden) return;
    const [own] = answer.groups;
    updateChart(charts[0], waiting(own));
    updateChart(charts[1], rates(own));
    replace(note, "A point a minute, in the memory of this server since ", time(answer.since), ".");
  };
  return { node, load };
}

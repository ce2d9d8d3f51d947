/** The pipeline: when the archive was written last, how far it is behind, the lake, and what reconciling found. */

import { get, isTrouble, poll } from "../api.js";
import { h, replace } from "../dom.js";
import { ago, bytes, count, duration, millis, time } from "../format.js";
import { failure, heading, section } from "../frame.js";

const EVERY_MS = 10_000;
const LAKE = "The lake is not known to this server: hourwheel pipeline status shows it with the last findings, and hourwheel pipeline run report writes its report.";
const UNKNOWN = "not known to this server";

export async function show({ root, signal }) {
  const notice = h("div", { role: "alert" });
  const content = h("div", { class: "page" });
  const lead = "The archive keeps every row of every log. Jobs bring it into the tables of the lake, and reconcile them.";
  replace(root, heading({ title: "Pipeline", crumbs: [["Overview", "#/"]], lead }), notice, content);
  const load = async () => {
    const answer = await get("archive", {}, { signal });
    notice.replaceChildren();
    replace(content, sections(answer));
  };
  const onError = (error) => replace(notice, isTrouble(error) ? null : failure(error, "The state of the pipeline"));
  poll(load, { everyMs: EVERY_MS, signal, onError });
}

const isGroup = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const words = (name) => name.replace(/_(at|ms|seconds)$/, "").replaceAll("_", " ");
const title = (name) => words(name).replace(/^./, (letter) => letter.toUpperCase());

/** Returns a section for each part of the answer, after one with its own values. A part that is null is not known. */
export function sections(answer) {
  const entries = Object.entries(answer);
  const own = entries.filter(([name, value]) => !isGroup(value) && !(value === null && isPart(name)));
  const parts = entries.filter(([name, value]) => isGroup(value) || (value === null && isPart(name)));
  return [
    own.length > 0 && section("Archive", facts(own)),
    !("lake" in answer) && section("Lake", h("p", { class: "note" }, LAKE)),
    ...parts.map(([name, value]) => section(title(name), value === null ? h("p", { class: "note" }, `${title(name)}: ${UNKNOWN}.`) : facts(Object.entries(value)))),
  ];
}

const isPart = (name) => ["archive", "lake", "reconcile", "report"].includes(name);

function facts(entries) {
  return h("dl", { class: "facts card" }, entries.map(([name, value]) => [h("dt", null, words(name)), h("dd", null, shown(name, value))]));
}

/** Returns a value in the form that its name asks for: a time, a span, a size, a count, or text. */
function shown(name, value) {
  if (value === null || value === undefined) return UNKNOWN;
  if (name.endsWith("_at") || /^\d{4}-\d\d-\d\dT/.test(value)) return [time(value), ` (${ago(Date.now() - millis(value))})`];
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (Array.isArray(value)) return value.length ? value.map((each) => h("div", null, shown(name, each))) : "none";
  if (isGroup(value)) return Object.entries(value).map(([key, each]) => h("div", null, `${words(key)}: `, shown(key, each)));
  if (typeof value !== "number") return link(String(value));
  if (name.endsWith("_ms")) return duration(value);
  if (name.endsWith("_seconds")) return duration(value * 1_000);
  return name.endsWith("bytes") ? bytes(value) : count(value);
}

const link = (text) => (/^https?:\/\//.test(text) ? h("a", { href: text, rel: "noreferrer" }, text) : text);

/** The pipeline: how far the archive and the lake are, what reconciling found, and the report. */

import { get, getText, isTrouble, poll, settings } from "../api.js";
import { h, replace } from "../dom.js";
import { ago, count, duration, millis, time } from "../format.js";
import { badge, failure, heading, section } from "../frame.js";
import { table } from "../table.js";
import { facts } from "./parts/panels.js";

const EVERY_MS = 10_000;
const NO_LAKE = "No job of the pipeline has left a note for this server, which looks into its data directory, or on AWS into the bucket of the lake. hourwheel pipeline run fills the tables, reconciles them and writes the report; hourwheel pipeline status shows a lake elsewhere.";

const ELSEWHERE = "outside of the server's data directory: hourwheel pipeline report, with the options of the job, prints its path.";

export async function show({ root, signal }) {
  const notice = h("div", { role: "alert" });
  const parts = { archive: h("div"), lake: lakePart(), reconciled: h("div"), report: reportPart() };
  const lead = "The archive keeps every row of every log. Jobs bring it into the tables of the lake, and reconcile them.";
  replace(
    root,
    heading({ title: "Pipeline", crumbs: [["Overview", "#/"]], lead }),
    notice,
    section("Archive", parts.archive),
    section("Lake", parts.lake.node),
    section("Last reconciliation", parts.reconciled),
    section("Report", parts.report.node),
  );
  const load = async () => {
    const answer = await get("archive", {}, { signal });
    notice.replaceChildren();
    replace(parts.archive, archivePart(answer));
    parts.lake.update(answer.lake);
    replace(parts.reconciled, reconciledPart(answer.reconciled));
    parts.report.update(answer.report);
  };
  const onError = (error) => replace(notice, isTrouble(error) ? null : failure(error, "The state of the pipeline"));
  poll(load, { everyMs: EVERY_MS, signal, onError });
}

/** Returns a time with how long ago it was; null where there is none. */
function since(value) {
  return value ? [time(value), ` (${ago(Date.now() - millis(value))})`] : null;
}

const card = (items) => {
  const list = facts(items);
  list.classList.add("card");
  return list;
};

function archivePart({ enabled, manifests, last_at, complete_at, pass_began_at, behind_seconds }) {
  const far = behind_seconds === null || behind_seconds === undefined ? null : duration(behind_seconds * 1_000);
  return card([
    ["this server archives", enabled ? badge("yes", "good") : "no"],
    ["manifests", count(manifests)],
    ["last archived", since(last_at) ?? "never"],
    ["complete before", since(complete_at)],
    ["pass under way since", since(pass_began_at)],
    ["behind", far],
  ]);
}

/** Returns `{node, update(lake)}`. */
function lakePart() {
  const marked = (number) => (number ? h("span", { class: "warn-text" }, count(number)) : count(number));
  const rows = table({
    caption: "Tables of the lake",
    columns: [
      { key: "table", label: "Table" },
      { key: "rows", label: "Rows", numeric: true, render: (row) => count(row.rows) },
      { key: "behind", label: "Manifests behind", numeric: true, title: "manifests of the archive that the table does not hold yet", render: (row) => marked(row.behind) },
      { key: "quarantined", label: "Quarantined", numeric: true, title: "segments of the archive that could not be read", render: (row) => marked(row.quarantined) },
      { key: "changed_at", label: "Rows last added", render: (row) => time(row.changed_at) },
    ],
    rowKey: (row) => row.table,
    empty: NO_LAKE,
  });
  const damage = h("p", { class: "note bad", hidden: true });
  const update = (lake) => {
    rows.update(lake?.tables ?? []);
    damage.hidden = !lake?.problems;
    damage.textContent = `${count(lake?.problems)} objects of the archive are damaged or missing: hourwheel pipeline status names them.`;
  };
  return { node: h("div", null, damage, rows.node), update };
}

function reconciledPart(reconciled) {
  if (!reconciled) return h("p", { class: "note" }, "Never reconciled, as far as this server knows.");
  const { findings, errors, totals, found_at, horizon_at } = reconciled;
  const number = Object.values(findings).reduce((sum, each) => sum + each, 0);
  const verdict = number === 0 ? badge("no findings", "good") : badge(`${count(number)} ${number === 1 ? "finding" : "findings"}`, errors ? "bad" : "warn");
  return card([
    ["result", [verdict, number > 0 && ` ${errors ? count(errors) : "none"} of them ${errors > 1 ? "are errors" : "is an error"}`]],
    ...Object.entries(findings).map(([kind, found]) => [kind.replaceAll("_", " "), count(found)]),
    ...Object.entries(totals).map(([name, messages]) => [`messages ${name}`, count(messages)]),
    ["compared", since(found_at)],
    ["judged what came before", since(horizon_at)],
  ]);
}

/** Returns `{node, update(report)}`. A button keeps its focus while the page reads again. */
function reportPart() {
  const none = h("p", { class: "note" }, "There is no report yet, as far as this server knows.");
  const made = h("span");
  const place = h("span");
  const list = card([
    ["made", made],
    ["page", place],
  ]);
  let shown = null;
  const update = (report) => {
    none.hidden = Boolean(report);
    list.hidden = !report;
    if (!report) return;
    replace(made, since(report.made_at));
    const { served, page } = report;
    const now = JSON.stringify([served, page]);
    if (now !== shown) replace(place, served ? reportLink() : page ? inBucket(page) : ELSEWHERE);
    shown = now;
  };
  update(null);
  return { node: h("div", null, none, list), update };
}

/** A link carries no token and no secret: where the server wants one, the page gets the report, and saves it. */
function reportLink() {
  if (!settings.needsToken && !settings.passesOn) {
    return h("a", { href: `${settings.base}report`, target: "_blank", rel: "noopener" }, "Open the report");
  }
  const notice = h("span", { role: "alert" });
  const save = async () => {
    try {
      saveFile("report.html", new Blob([await getText("report")], { type: "text/html" }));
      replace(notice);
    } catch (error) {
      replace(notice, failure(error, "The report"));
    }
  };
  return [h("button", { type: "button", onclick: save }, "Save the report"), notice];
}

function saveFile(name, content) {
  const link = h("a", { download: name });
  link.href = URL.createObjectURL(content);
  link.click();
  URL.revokeObjectURL(link.href);
}

function inBucket(page) {
  const command = `aws s3 cp ${page} report.html`;
  return ["in the bucket of the lake, which this server does not read: ", h("code", null, command), " saves it with your credentials."];
}

/**
 * Cells and routes: the state of each cell, in which cells the queues of a subject are, and the operations that move
 * queues.
 */

import { get, isTrouble, poll } from "../api.js";
import { actButton } from "../dialog.js";
import { h, path, replace } from "../dom.js";
import { count } from "../format.js";
import { badge, failure, heading, section } from "../frame.js";
import { table } from "../table.js";
import { addQueues, drain, moveQueue, remove, setState, spread, withdraw } from "./parts/cell_acts.js";
import { spans } from "./parts/routes.js";

const EVERY_MS = 10_000;
const KINDS = { normal: "good", read_only: "warn", draining: "warn", offline: "bad" };

export async function show({ root, query, signal, navigate }) {
  const subject = query.subject ?? "";
  const notice = h("div", { role: "alert" });
  const cells = cellTable(() => reading.refresh());
  const route = subject ? routeView(subject, () => reading.refresh()) : null;
  replace(
    root,
    heading({ title: "Cells", crumbs: [["Overview", "#/"]], lead: "A cell is a storage of its own. A queue sends to one cell at a time, and moves without losing its order." }),
    notice,
    section("All cells", cells.node),
    section("Route of a subject", subjectForm(subject, navigate), route?.node),
  );
  const load = async () => {
    const [answer] = await Promise.all([get("cells", {}, { signal }), route?.load(signal)]);
    notice.replaceChildren();
    cells.update(answer.cells);
    route?.follow(answer.cells);
  };
  const reading = poll(load, { everyMs: EVERY_MS, signal, onError: (error) => replace(notice, isTrouble(error) ? null : failure(error, "The list of cells")) });
}

function cellTable(changed) {
  const acts = (row) =>
    row.cell === "home"
      ? null
      : h("div", { class: "inline" }, [
          row.state === "normal" && actButton("Make read-only…", () => setState(row, "read_only", changed)),
          row.state !== "normal" && actButton("Make normal…", () => setState(row, "normal", changed)),
          actButton("Drain…", () => drain(row, changed)),
          actButton("Remove…", () => remove(row, changed), { danger: true }),
        ]);
  const columns = [
    { key: "cell", label: "Cell" },
    { key: "state", label: "State", render: (row) => [badge(row.state.replace("_", "-"), KINDS[row.state]), !row.reachable && badge("out of reach", "bad")] },
    { key: "kinds", label: "Takes", render: (row) => row.kinds.join(", ") },
    { key: "queues", label: "Queues", numeric: true, title: "queues whose new messages go there", render: (row) => count(row.queues) },
    { key: "parts", label: "Closed parts", numeric: true, title: "parts of queues that take no new messages, and are kept until their messages expire", render: (row) => count(row.parts) },
    { key: "location", label: "Location", render: (row) => row.location || "that of the server" },
    { key: "acts", label: "Acts", render: acts },
  ];
  return table({ caption: "Cells", columns, rowKey: (row) => row.cell });
}

function subjectForm(subject, navigate) {
  const field = h("input", { type: "search", name: "subject", autocomplete: "off", spellcheck: "false", required: true, value: subject });
  const form = h("form", { class: "inline", role: "search" }, h("label", null, "Subject ", field), h("button", { type: "submit" }, "Show its route"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    navigate(`#/cells?subject=${encodeURIComponent(field.value.trim())}`);
  });
  return form;
}

/** Returns `{node, load(signal), follow(cells)}` over the queues of a subject. */
function routeView(subject, changed) {
  let others = [];
  const seen = { route: null };
  const columns = [
    { key: "queue", label: "Queue", render: (row) => String(row.queue) },
    { key: "cell", label: "Cell of new messages", render: (row) => [row.mappings.at(-1).cell, row.moving_to && badge(`moving to ${row.moving_to}`, "warn")] },
    { key: "mappings", label: "Parts", render: (row) => spans(row).map((text) => h("div", null, text)) },
    { key: "acts", label: "Acts", render: (row) => [
      actButton("Move…", () => moveQueue(subject, row, others, changed)),
      row.moving_to && actButton("Withdraw the move…", () => withdraw(subject, row.queue, changed)),
    ] },
  ];
  const queues = table({ caption: `Queues of ${subject}`, columns, rowKey: (row) => row.queue });
  const notice = h("div", { role: "alert" });
  const acts = h("div", { class: "pager" }, [
    actButton("Spread over all cells…", () => spread(subject, changed)),
    actButton("Add queues…", () => addQueues(subject, seen.route.queues.length, changed)),
  ]);
  const pending = h("div", { class: "pager", hidden: true }, [
    badge("more queues are pending", "warn"),
    actButton("Withdraw the addition…", () => withdraw(subject, undefined, changed)),
  ]);
  const whole = h("div", { hidden: true }, queues.node, pending, acts);
  const load = async (signal) => {
    try {
      seen.route = await get(path`routes/${subject}`, {}, { signal });
    } catch (error) {
      if (signal.aborted || error.status !== 404) throw error;
      whole.hidden = true;
      replace(notice, failure(error, "The route"));
      return;
    }
    notice.replaceChildren();
    whole.hidden = false;
    pending.hidden = seen.route.pending_queues === null;
    queues.update(seen.route.queues);
  };
  return { node: h("div", { class: "page" }, notice, whole), load, follow: (cells) => (others = cells) };
}

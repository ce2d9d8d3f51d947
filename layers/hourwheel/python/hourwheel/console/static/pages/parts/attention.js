/**
 * What needs attention: a line for each point, the gravest first, which leads to its page and names the command.
 */

import { get, isTrouble, poll, settings, usage } from "../../api.js";
import { h, path, replace } from "../../dom.js";
import { count, time } from "../../format.js";
import { badge, failure, section } from "../../frame.js";

const EVERY_MS = 5_000;
const SOON_MS = 500; // while the server reads its subjects for the first time
const FIRST_SHOWN = matchMedia("(max-width: 640px)").matches ? 4 : 8; // the subjects begin on the first screen

const KINDS = { alarm: "bad", warning: "warn", notice: "" };
const SINCE = { dead: "the first of", no_consumers: "last pull", wheel_overdue: "due since" };

/** Returns the address of the page on which a person sees the state, and can act. */
export function addressOf({ kind, subject, group }) {
  if (kind === "cell_out") return "#/cells";
  if (kind === "wheel_overdue") return "#/delayed";
  if (kind === "disk") return null;
  const owner = `#/${path`subjects/${subject}`}`;
  if (!group) return owner;
  const page = `${owner}/${path`groups/${group}`}`;
  return kind === "dead" ? `${page}/dead` : page;
}

/** Returns what the point is about: a group of a subject, or the name of a cell, a volume or a bucket. */
export function placeOf({ subject, group, name }) {
  return subject ? [subject, group].filter(Boolean).join(" / ") : name;
}

function line(concern) {
  const address = addressOf(concern);
  const since = concern.since && [` ${SINCE[concern.kind] ?? "oldest of"} `, time(concern.since)];
  return h(
    "li",
    { class: "concern" },
    badge(concern.level, KINDS[concern.level]),
    h("div", null, h("p", null, h("strong", null, address ? h("a", { href: address }, placeOf(concern)) : placeOf(concern)), " ", concern.text, since && h("span", { class: "muted" }, since))),
    h("code", null, concern.command),
  );
}

/** Returns the section, which reads until the signal aborts. `first` is settled once the page has its own content. */
export function attention({ signal, first }) {
  const list = h("ul", { class: "concerns" });
  const status = h("p", { class: "small muted" });
  const more = h("button", { type: "button", hidden: true, onclick: () => showAll() });
  const problem = h("div", { hidden: true });
  const node = section("Needs attention", problem, list, h("div", { class: "pager" }, more, status));
  node.hidden = true;
  let shown = [];
  let isWhole = false;

  function showAll() {
    isWhole = true;
    draw();
  }

  function draw() {
    const visible = isWhole ? shown : shown.slice(0, FIRST_SHOWN);
    const next = visible.map(line);
    const isSame = next.length === list.children.length && next.every((each, i) => each.isEqualNode(list.children[i]));
    if (!isSame) list.replaceChildren(...next); // equal lines keep the focus and the selection
    list.hidden = !shown.length;
    more.hidden = visible.length === shown.length;
    more.textContent = `Show ${count(shown.length - visible.length)} more`;
  }

  async function load() {
    await first;
    const answer = await get("attention", {}, { signal });
    usage.items += answer.concerns.length;
    shown = answer.concerns;
    node.hidden = false;
    problem.hidden = true;
    draw();
    replace(status, said(answer));
    if (answer.complete === false && !settings.aws) setTimeout(() => !signal.aborted && reading.refresh(), SOON_MS);
  }

  function said(answer) {
    const left = answer.total - answer.concerns.length;
    const whole = answer.complete === false && "The server has not read every subject yet.";
    const minutes = Math.floor((Date.parse(answer.at) - Date.parse(answer.oldest_read_at ?? answer.at)) / 60_000);
    const age = minutes > 0 && ` The oldest numbers were read ${minutes} min ago.`;
    if (!answer.total) return [answer.complete === false ? "" : "Nothing needs attention.", whole, age];
    return [left > 0 && `${count(left)} more are not shown. `, whole, age];
  }

  const reading = poll(load, {
    everyMs: EVERY_MS,
    signal,
    onError: (error) => {
      node.hidden = isTrouble(error);
      problem.hidden = false;
      replace(problem, failure(error, "What needs attention"));
    },
  });
  return node;
}

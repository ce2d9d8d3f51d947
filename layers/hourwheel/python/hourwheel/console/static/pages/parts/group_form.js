/** The form of a group's settings, for a group that exists and for a new one. */

import { get, put, settings } from "../../api.js";
import { confirmAct } from "../../dialog.js";
import { h, on, replace } from "../../dom.js";
import { settingField } from "./declared.js";
import { checkbox, choice, disclosure, form, lines, textField, textsIn } from "./forms.js";
import { addressField, defaults, groupChanges, nestedSettings, settingsOf, textsOf } from "./group_values.js";
import { groupPath } from "./paths.js";
import { changes, FieldError } from "./values.js";

const NAME = /^(?!\.{1,2}$)[A-Za-z0-9._-]{1,100}$/;
const STARTS = { earliest: "every message that is kept", latest: "the messages from now on" };
const KINDS = ["https", "lambda", "sqs", "eventbridge", "notify", "python"].map((kind) => [kind, kind]);

const TARGET = ["address", "batch", "concurrency", "timeout_seconds"];

function set(legend, fields, ...names) {
  return h(
    "fieldset",
    null,
    h("legend", null, legend),
    h(
      "div",
      { class: "fields" },
      names.map((name) => fields[name].node),
    ),
  );
}

/** Returns the declared settings that can change after creation; with `needs` those of that kind of group. */
const changed = (needs) =>
  settings.groupSettings.filter((declared) => !declared.fixed && (needs === undefined || declared.needs === needs));

const names = (needs) => changed(needs).map((declared) => declared.name);

function makeFields(group) {
  const texts = textsOf(group);
  const text = (name, label, hint) => textField({ name, label, hint, value: texts[name] });
  const pick = (name, label, options) => choice({ name, label, options, value: texts[name] });
  return {
    ...Object.fromEntries(
      changed().map((declared) => [declared.name, settingField(declared, group[declared.name] ?? declared.default)]),
    ),
    retry_kind: pick("retry_kind", "Retries", [
      ["growing", "a delay that grows"],
      ["list", "a list of delays"],
    ]),
    ...Object.fromEntries(
      nestedSettings(group).map(([declared, value]) => [declared.name, settingField(declared, value)]),
    ),
    delays: text("delays", "Delays", "Separated by commas; the last one is repeated."),
    tags_any: text("tags_any", "At least one of the tags", "Separated by commas."),
    tags_all: text("tags_all", "All of the tags"),
    tags_none: text("tags_none", "None of the tags"),
    push_kind: pick("push_kind", "Push to", [["none", "nowhere: consumers pull"], ...KINDS]),
    address: text("address", "Address"),
  };
}

/** Shows the fields that the choices of the form ask for, and hides the others. */
function followChoices(node, fields, kindOfGroup, signal) {
  const follow = () => {
    const { ordered, broadcast } = kindOfGroup();
    const growing = fields.retry_kind.text() === "growing";
    for (const name of ["first_seconds", "factor", "cap_seconds"]) fields[name].node.hidden = !growing;
    fields.delays.node.hidden = growing;
    const kind = fields.push_kind.text();
    for (const name of TARGET) fields[name].node.hidden = kind === "none";
    replace(fields.address.node.querySelector("label"), `Address (${addressField(kind)})`);
    fields.tags_any.node.closest("fieldset").hidden = ordered;
    fields.push_kind.node.closest("fieldset").hidden = broadcast;
    for (const name of names("ordered")) fields[name].node.closest("fieldset").hidden = !ordered;
    for (const name of names("broadcast")) fields[name].node.closest("fieldset").hidden = !broadcast;
  };
  on(node, "change", follow, signal);
  follow();
}

function fieldsets(fields) {
  return [
    set("Limits", fields, ...names("")),
    set("Retry policy", fields, "retry_kind", "first_seconds", "factor", "cap_seconds", "delays"),
    set("Filter", fields, "tags_any", "tags_all", "tags_none"),
    set("Order", fields, ...names("ordered")),
    set("Broadcast", fields, ...names("broadcast")),
    set("Push", fields, "push_kind", ...TARGET),
  ];
}

/** Returns the panel that changes the settings of a group; `done` is called after a change. */
export function groupSettings(group, signal, done) {
  const fields = makeFields(group);
  const act = () => {
    const after = settingsOf(textsIn(fields), group);
    const details = groupChanges(group, after);
    if (!details.length) throw new FieldError("Settings", "nothing was changed");
    const body = Object.fromEntries(changes(group, after).map(({ name, to }) => [name, to]));
    confirmAct({
      title: `Change ${group.group}?`,
      text: `Changes the group ${group.group} of ${group.subject}, for all of its consumers:`,
      details: lines(details),
      label: "Change",
      act: () => put(groupPath(group.subject, group.group), body),
      done,
    });
  };
  const node = form({ label: "Settings of the group", parts: fieldsets(fields), button: "Change…", signal, act });
  followChoices(node, fields, () => group, signal);
  return disclosure("Settings", node);
}

/** Creates a group. Fails where it exists: the request would change its settings. */
async function create(subject, group, body) {
  const found = await get(groupPath(subject, group)).catch((error) => {
    if (error.status === 404) return null;
    throw error;
  });
  if (found) throw new Error(`The group ${group} exists: change its settings on its page.`);
  return put(groupPath(subject, group), body);
}

/** Returns the panel that creates a group; `created(name)` is called afterwards. */
export function newGroup(subject, signal, created) {
  const fields = makeFields(defaults());
  const name = textField({
    label: "Name",
    name: "group",
    maxlength: "100",
    hint: "Letters, digits, dot, underscore and hyphen.",
  });
  const start = choice({
    label: "Begins with",
    name: "start",
    options: [
      ["earliest", "the oldest message that is kept"],
      ["latest", "messages from now on"],
    ],
  });
  const ordered = checkbox({ label: "Ordered: the messages of a key come one after the other", name: "ordered" });
  const broadcast = checkbox({ label: "Broadcast: each consumer gets every message", name: "broadcast" });
  const kind = () => ({ ordered: ordered.checked(), broadcast: broadcast.checked() });
  const act = () => {
    const group = name.text().trim();
    if (!NAME.test(group))
      throw new FieldError("Name", "takes 1 to 100 letters, digits, dots, underscores and hyphens");
    const body = { ...settingsOf(textsIn(fields), { ...defaults(), ...kind() }), ...kind(), start: start.text() };
    confirmAct({
      title: `Create the group ${group}?`,
      text:
        `The group gets ${STARTS[start.text()]} of ${subject}. ` +
        "Where it starts, order and broadcast cannot be changed later.",
      details: lines(groupChanges({ ...defaults(), start: body.start }, body)),
      label: "Create",
      act: () => create(subject, group, body),
      done: () => created(group),
    });
  };
  const parts = [
    h("div", { class: "fields" }, name.node, start.node),
    ordered.node,
    broadcast.node,
    ...fieldsets(fields),
  ];
  const node = form({ label: "New group", parts, button: "Create…", signal, act });
  followChoices(node, fields, kind, signal);
  return disclosure("Create a group", node);
}

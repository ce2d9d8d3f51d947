/** Changes the settings of a subject, and creates groups. */

import { put, settings } from "../../api.js";
import { confirmAct } from "../../dialog.js";
import { settingField, settingValue } from "./declared.js";
import { disclosure, fieldsOf, form, lines, textsIn } from "./forms.js";
import { subjectPath } from "./paths.js";
import { changes, durationText, FieldError } from "./values.js";

const EFFECTS = {
  queues:
    "Keys move to other queues: messages of a key that were sent before and after may be served out of order. " +
    "The number cannot be lowered again.",
  retention_seconds: "Applies to messages that are sent from now on.",
  clamp_delays: "Concerns delays of more than 732 days.",
  read_only: "A read-only subject refuses new messages; what it accepted is delivered.",
};

/** Returns lines such as `retention: 3d → 7d`, with what each change means. */
export function subjectChanges(before, after) {
  const shown = (name, value) => (name.endsWith("_seconds") ? durationText(value) : String(value));
  return changes(before, after).map(
    ({ name, from, to }) => `${name}: ${shown(name, from)} → ${shown(name, to)}.${EFFECTS[name] ? ` ${EFFECTS[name]}` : ""}`,
  );
}

/** Returns the panel with the settings of the subject; `changed` is called after a change. */
export function subjectSettings(subject, signal, changed) {
  const declared = settings.subjectSettings.filter(({ name }) => subject[name] !== undefined);
  const fields = Object.fromEntries(declared.map((each) => [each.name, settingField(each, subject[each.name])]));
  const act = () => {
    const texts = textsIn(fields);
    const after = Object.fromEntries(
      declared.map((each) => [each.name, settingValue(each, texts[each.name], subject[each.name])]),
    );
    const details = subjectChanges(subject, after);
    if (!details.length) throw new FieldError("Settings", "nothing was changed");
    const body = Object.fromEntries(changes(subject, after).map(({ name, to }) => [name, to]));
    confirmAct({
      title: `Change ${subject.subject}?`,
      text: `Changes its settings:`,
      details: lines(details),
      label: "Change",
      act: () => put(subjectPath(subject.subject), body),
      done: changed,
    });
  };
  const parts = fieldsOf(fields);
  return disclosure("Settings", form({ label: "Settings of the subject", parts, button: "Change…", signal, act }));
}

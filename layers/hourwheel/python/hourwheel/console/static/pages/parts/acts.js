/** Pauses, resumes and deletes subjects and groups. */

import { del, post } from "../../api.js";
import { actButton, confirmAct } from "../../dialog.js";
import { h, replace } from "../../dom.js";
import { disclosure, form, textField } from "./forms.js";
import { FieldError } from "./values.js";

const PAUSE =
  "Pulls get no messages and pushes stop, until somebody resumes. " +
  "Producers go on, and leased messages can be settled.";

/** Returns `{node, update(paused)}`: a button that pauses or resumes, whichever the last update says. */
export function pauseButton({ name, path, whom, changed }) {
  const node = h("span");
  let shown = null;
  const ask = (label, text, call) => () =>
    confirmAct({ title: `${label} ${name}?`, text, label, act: () => post(`${path}/${call}`), done: changed });
  const pause = () => actButton("Pause…", ask("Pause", PAUSE, "pause"));
  const resume = () => actButton("Resume…", ask("Resume", `${whom} messages again.`, "resume"));
  const update = (paused) => {
    if (paused === shown) return;
    shown = paused;
    replace(node, paused ? resume() : pause());
  };
  return { node, update };
}

/** Returns the panel that deletes once the name was typed; `gone` is called afterwards. */
export function deletePanel({ kind, name, path, text, signal, gone }) {
  const label = `Name of the ${kind}`;
  const typed = textField({ label, name: "confirm", hint: `Type ${name} to delete it.` });
  const act = () => {
    if (typed.text() !== name) throw new FieldError(label, `is not ${name}`);
    const title = `Delete the ${kind} ${name}?`;
    confirmAct({ title, text, danger: true, label: "Delete", act: () => del(path), done: gone });
  };
  const parts = [h("p", null, text), typed.node];
  const node = form({ label: `Delete the ${kind}`, parts, button: "Delete…", signal, act });
  return disclosure(`Delete the ${kind}`, node);
}

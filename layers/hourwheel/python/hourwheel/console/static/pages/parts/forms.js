/** Makes the fields and forms of the console. A form never sends by itself: its `act` asks first. */

import { ApiError } from "../../api.js";
import { h, on, replace } from "../../dom.js";
import { isUtc } from "../../format.js";
import { failure } from "../../frame.js";
import { FieldError, instant } from "./values.js";

let fields = 0;

function labelled(input, { label, hint }) {
  fields += 1;
  input.id = `field-${fields}`;
  const described = hint && h("small", { id: `${input.id}-hint` }, hint);
  if (described) input.setAttribute("aria-describedby", described.id);
  const node = h("div", { class: "field" }, h("label", { for: input.id }, label), input, described);
  return { node, input, label, text: () => input.value };
}

/** Returns `{node, input, label, text()}` for one line of text; other properties become attributes of the input. */
export function textField({ label, hint, value = "", ...attributes }) {
  const input = h("input", { type: "text", autocomplete: "off", spellcheck: "false", value, ...attributes });
  return labelled(input, { label, hint });
}

/** Returns a field for a time, with `instant()`. It is read in the zone that the page shows, which its label names. */
export function timeField({ name, signal }) {
  const label = () => `Time (${isUtc() ? "UTC" : "local"})`;
  const field = textField({ label: label(), name, type: "datetime-local", step: "1" });
  const follow = () => replace(field.node.querySelector("label"), label());
  on(document, "zonechange", follow, signal);
  return { ...field, instant: () => instant(field.text(), { label: "Time", utc: isUtc() }) };
}

export function textArea({ label, hint, value = "", ...attributes }) {
  return labelled(h("textarea", { rows: "4", spellcheck: "false", value, ...attributes }), { label, hint });
}

/** Returns a list to choose from; `options` are `[value, label]`. */
export function choice({ label, hint, options, value, ...attributes }) {
  const input = h(
    "select",
    attributes,
    options.map(([each, text]) => h("option", { value: each }, text)),
  );
  if (value !== undefined) input.value = value;
  return labelled(input, { label, hint });
}

/** Returns a box to tick, with `checked()`. */
export function checkbox({ label, checked = false, ...attributes }) {
  const input = h("input", { type: "checkbox", checked, ...attributes });
  return { node: h("label", { class: "check" }, input, ` ${label}`), input, label, checked: () => input.checked };
}

/** Returns what the fields of a form contain, under their names. */
export function textsIn(fields) {
  return Object.fromEntries(
    Object.entries(fields).map(([name, field]) => [name, field.checked ? field.checked() : field.text()]),
  );
}

/** Returns the fields of a form beside each other, as the width allows. */
export function fieldsOf(fields) {
  const nodes = Object.values(fields).map((field) => field.node);
  return h("div", { class: "fields" }, nodes);
}

/**
 * Returns a form whose button calls `act()`. What a person typed and the page cannot send is shown in the form, and so
 * is a call that fails. With `onEnter` false the Enter key in a field presses nothing.
 */
export function form({ label, parts, button, signal, act, onEnter = true }) {
  const shown = h("div", { role: "alert" });
  const press = h("button", { type: onEnter ? "submit" : "button", class: "primary" }, button);
  const node = h(
    "form",
    { "aria-label": label, novalidate: true },
    parts,
    shown,
    h("div", { class: "buttons" }, press),
  );
  const run = async () => {
    if (press.disabled) return;
    press.disabled = true;
    replace(shown);
    try {
      await act();
    } catch (error) {
      if (!(error instanceof FieldError || error instanceof ApiError)) throw error;
      replace(
        shown,
        error instanceof ApiError ? failure(error, "This act") : h("p", { class: "note bad" }, error.message),
      );
    } finally {
      press.disabled = false;
    }
  };
  const submitted = (event) => {
    event.preventDefault();
    if (onEnter) run();
  };
  on(node, "submit", submitted, signal);
  if (!onEnter) on(press, "click", run, signal);
  return node;
}

/** Returns a closed section that a person opens, so that forms do not crowd a page. */
export function disclosure(title, ...children) {
  return h("details", { class: "card" }, h("summary", null, h("h2", null, title)), children);
}

/** Returns the lines that a question shows below its text. */
export function lines(texts) {
  return (
    texts.length > 0 &&
    h(
      "ul",
      null,
      texts.map((text) => h("li", null, text)),
    )
  );
}

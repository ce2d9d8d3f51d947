/** Makes the fields of a form from the settings that the server declares in `settings.json`. */

import { checkbox, choice, textField } from "./forms.js";
import { durationText, number, seconds } from "./values.js";

const phrase = (text) => `${text[0].toUpperCase()}${text.slice(1)}.`;
const inSeconds = (declared) => declared.name.endsWith("_seconds");
const amount = (declared, value) => (inSeconds(declared) ? durationText(value) : value.toLocaleString("en-US"));

/** Returns a value of a setting as a person reads it. */
export function shownSetting(declared, value) {
  if (declared.zero && value === 0) return declared.zero;
  return typeof value === "number" ? amount(declared, value) : String(value);
}

function hint(declared, least) {
  if (declared.least === null) return phrase(declared.text);
  const zero = declared.zero && `; 0: ${declared.zero}`;
  return `${amount(declared, least)} to ${amount(declared, declared.most)}${zero}. ${phrase(declared.text)}`;
}

/** Returns the text with which the field of a setting begins. */
export const settingText = (declared, value) => (inSeconds(declared) ? durationText(value) : String(value));

/** Returns the field of a setting that has this value now. */
export function settingField(declared, value) {
  const { name, title: label, choices } = declared;
  if (typeof declared.default === "boolean") {
    return checkbox({ label: `${label}: ${declared.text.replace(/^whether /, "")}`, name, checked: value });
  }
  if (choices.length) {
    const options = choices.map((each) => [each, each]);
    return choice({ label, name, hint: hint(declared), options, value });
  }
  return textField({ label, name, hint: hint(declared, declared.rises ? value : declared.least), value: settingText(declared, value) });
}

/**
 * Returns the value that a person chose or typed; `before` is the one that the setting has now, which the
 * text that the field began with stands for. Throws `FieldError`.
 */
export function settingValue(declared, text, before) {
  if (declared.least === null) return text;
  if (before !== undefined && text.trim() === settingText(declared, before)) return before;
  const { title: label, most: to, fractions } = declared;
  const from = declared.rises ? before : declared.least;
  return (inSeconds(declared) ? seconds : number)(text, { label, from, to, fractions });
}

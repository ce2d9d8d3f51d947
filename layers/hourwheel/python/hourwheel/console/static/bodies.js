/**
 * Shows bodies, keys and other texts of messages. They come from anybody: they become text nodes only, control
 * characters become visible, and only the beginning of a long body is shown at first.
 */

import { h } from "./dom.js";

export const SHOWN = 64 * 1024; // characters; a browser lays out this much at once without a pause
const HEX_STEP = 1024; // bytes that are dumped at a time: a page takes some of these parts
const DEEPEST = 40; // levels of JSON that are indented: deeper ones would be mostly white space

// C0, DEL and C1, which terminals obey; marks without a width or of direction, which hide text; halves of pairs.
const HIDDEN = new RegExp(
  [
    "[\\u0000-\\u001f\\u007f-\\u009f\\u00ad\\u061c\\u200b-\\u200f\\u2028-\\u202e\\u2060-\\u2069\\ufeff\\ufff9-\\ufffb]",
    "[\\ud800-\\udbff](?![\\udc00-\\udfff])",
    "(?<![\\ud800-\\udbff])[\\udc00-\\udfff]",
  ].join("|"),
  "g",
);

/** Returns a text with a symbol for each character that cannot be seen. Lines and tabs stay as they are. */
export function visible(text) {
  return text.replace(HIDDEN, (found) => (found === "\n" || found === "\t" ? found : symbol(found)));
}

/** Returns a text of one line (a key, an id, a tag), with a symbol for each character that cannot be seen. */
export function visibleLine(text) {
  return text.replace(HIDDEN, symbol);
}

function symbol(character) {
  const code = character.charCodeAt(0);
  if (code < 0x20) return String.fromCharCode(0x2400 + code); // ␀ to ␟
  if (code === 0x7f) return "\u2421"; // ␡
  return `\u2039U+${code.toString(16).toUpperCase().padStart(4, "0")}\u203a`;
}

/** Says whether a text is a JSON object or array. */
export function isJson(text) {
  if (!/^\s*[[{]/.test(text)) return false;
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false; // shown as the text that it is
  }
}

/** Yields the parts of a JSON text with a line for each value. The numbers and strings stay as they were sent: a parser
 * would round long numbers. */
export function* prettyJson(text) {
  let depth = 0;
  let opened = false;
  const line = () => `\n${"  ".repeat(Math.min(depth, DEEPEST))}`;
  for (const [token] of text.matchAll(/"[^"\\]*(?:\\.[^"\\]*)*"|[[\]{}:,]|[^\s[\]{}:,"]+/g)) {
    const closes = token === "}" || token === "]";
    if (closes) depth -= 1;
    const breaks = opened !== closes; // no line within [] and {}
    const opens = token === "{" || token === "[";
    if (breaks) yield line();
    yield token === ":" ? ": " : token === "," ? `,${line()}` : token;
    if (opens) depth += 1;
    opened = opens;
  }
}

/** Returns lines of offset, 16 bytes in hexadecimal, and their printable characters. */
export function hexDump(bytes, start = 0, end = bytes.length) {
  const lines = [];
  for (let at = start; at < Math.min(end, bytes.length); at += 16) {
    const row = [...bytes.subarray(at, at + 16)];
    const hex = row.map((byte) => byte.toString(16).padStart(2, "0"));
    const text = row.map((byte) => (byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : "."));
    const halves = [hex.slice(0, 8).join(" "), hex.slice(8).join(" ")];
    const offset = at.toString(16).padStart(8, "0");
    lines.push([offset, halves[0].padEnd(23), halves[1].padEnd(23), text.join("")].join("  "));
  }
  return lines.join("\n");
}

/** Returns the bytes of standard base64, or null if the text is none. */
export function fromBase64(text) {
  try {
    return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  } catch {
    return null; // said in place of the body
  }
}

function sizeText(bytes) {
  if (bytes < 1024) return `${bytes} B`;
  return bytes < 1024 ** 2 ? `${(bytes / 1024).toPrecision(3)} KiB` : `${(bytes / 1024 ** 2).toPrecision(3)} MiB`;
}

/** Returns a node with the body of a message as the API answers it (`body`, `body_base64`, or `damaged`), to be read in
 * several forms: formatted JSON, the text as it was sent, hexadecimal. */
export function body(message) {
  if (message.body_base64 !== undefined) {
    const bytes = fromBase64(message.body_base64);
    return bytes ? views(sizeText(bytes.length), [hexView(bytes)]) : note("The body is not valid base64.");
  }
  if (typeof message.body !== "string") return note(`The body cannot be read. ${message.damaged ?? ""}`.trim());
  if (message.body === "") return note("The body is empty.");
  const bytes = new TextEncoder().encode(message.body);
  const text = { name: "Text", parts: () => [message.body] };
  const json = { name: "JSON", parts: () => prettyJson(message.body) };
  return views(sizeText(bytes.length), [...(isJson(message.body) ? [json] : []), text, hexView(bytes)]);
}

function note(text) {
  return h("p", { class: "muted" }, visible(text));
}

function hexView(bytes) {
  function* parts() {
    for (let at = 0; at < bytes.length; at += HEX_STEP) yield `${hexDump(bytes, at, at + HEX_STEP)}\n`;
  }
  return { name: "Hex", parts };
}

/** Yields pages of about `most` characters of a text that comes in parts. */
export function* pagesOf(parts, most = SHOWN) {
  let page = "";
  for (const part of parts) {
    let from = 0;
    while (page.length + part.length - from > most) {
      let end = from + most - page.length;
      if (/[\ud800-\udbff]/.test(part[end - 1] ?? "")) end += 1; // a pair is one character
      yield page + part.slice(from, end);
      page = "";
      from = end;
    }
    page += part.slice(from);
  }
  if (page) yield page;
}

/** Returns the forms of a body, of which one is shown. */
function views(size, forms) {
  const content = h("div", { class: "body-text" });
  const buttons = forms.map((view) => h("button", { type: "button", class: "quiet" }, view.name));
  const choose = (chosen) => {
    buttons.forEach((button, index) => button.setAttribute("aria-pressed", String(index === chosen)));
    const pages = pagesOf(forms[chosen].parts());
    content.replaceChildren(...pageOf(pages.next().value ?? "", pages, forms[chosen].name.toLowerCase()));
  };
  buttons.forEach((button, index) => button.addEventListener("click", () => choose(index)));
  choose(0);
  const bar = h("div", { class: "body-forms", role: "group", "aria-label": "Form of the body" }, ...buttons);
  const head = h("div", { class: "body-head" }, bar, h("span", { class: "muted" }, size));
  return h("div", { class: "body" }, head, content);
}

/** Returns a page, and a button that replaces itself with the next page if there is one. */
function pageOf(text, pages, kind) {
  const page = h("pre", { class: kind, tabindex: "0", role: "region", "aria-label": "Body" }, visible(text));
  const { value, done } = pages.next();
  if (done) return [page];
  const more = h("button", { type: "button", class: "quiet" }, "Show more");
  more.addEventListener("click", () => {
    const following = pageOf(value, pages, kind);
    more.replaceWith(...following);
    following[0].focus();
  });
  return [page, more];
}

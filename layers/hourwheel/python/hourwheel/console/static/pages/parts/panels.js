/** Makes the panels of a page: titled sections whose content a refresh replaces, and the pieces that panels share. */

import { h, replace } from "../../dom.js";
import { badge, failure, section } from "../../frame.js";

/** Replaces the content of a node only where it differs, and keeps the focus on the link or button that has it. */
function refill(node, ...children) {
  const next = replace(node.cloneNode(false), ...children);
  if (node.isEqualNode(next)) return;
  const focusable = () => [...node.querySelectorAll("a[href], button, summary")];
  const focused = focusable().indexOf(document.activeElement);
  node.replaceChildren(...next.childNodes);
  focusable()[focused]?.focus();
}

/** Returns `{node, show(...children), guard(load)}`. `guard` returns a call of `load` whose failure the panel shows in
 * place of its content, until the next call succeeds: the page stays whole where one part of it fails. */
export function panel(title) {
  const content = h("div");
  const failed = h("div");
  const node = section(title, failed, content);
  const fail = (error) => {
    replace(failed, error && failure(error, "This part"));
    content.hidden = Boolean(error);
  };
  let isMissing = false;
  const guard =
    (load) =>
    async (...given) => {
      if (isMissing) return;
      try {
        await load(...given);
        fail(null);
      } catch (error) {
        isMissing = error.isMissingCall === true; // the server will not have the call later either
        fail(error);
      }
    };
  return { node, show: (...children) => refill(content, ...children), guard, fail };
}

/** Returns numbers with their names. `items` are `[name, value or node, title]`; those without a value are left out. */
export function numbers(items) {
  const shown = items.filter(([, value]) => value !== undefined && value !== null);
  return h(
    "dl",
    { class: "cards" },
    shown.map(([name, value, title]) => h("div", { class: "card", title }, h("dt", null, name), h("dd", null, value))),
  );
}

/** Returns names with their values, a line each; items are those of `numbers`. */
export function facts(items) {
  const shown = items.filter(([, value]) => value !== undefined && value !== null);
  return h(
    "dl",
    { class: "facts" },
    shown.map(([name, value]) => [h("dt", null, name), h("dd", null, value)]),
  );
}

/** Returns words that mark a state; `items` are `[text, kind]`, with the kinds of `badge`. */
export function badges(items) {
  return h(
    "span",
    { class: "badges" },
    items.map(([text, kind]) => [badge(text, kind), " "]),
  );
}

/** Returns a control character as the symbol that stands for it, so that a name or a preview shows each of them. */
export function visible(text) {
  return text.replace(/[\u0000-\u001f\u007f]/g, (each) =>
    String.fromCodePoint(each === "\u007f" ? 0x2421 : 0x2400 + each.codePointAt(0)),
  );
}

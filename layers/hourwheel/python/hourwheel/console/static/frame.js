/**
 * What every page has: its heading with the way to it, messages for screen readers, and errors in place of content.
 */

import { ApiError, isTrouble, settings } from "./api.js";
import { h } from "./dom.js";

/**
 * Returns the head of a page, and sets the title of the tab.
 *
 * `crumbs` are `[text, address]` pairs of the pages above. `actions` are buttons and links beside the heading, `badges`
 * nodes behind it.
 */
export function heading({ title, crumbs = [], badges = [], actions = [], lead }) {
  document.title = `${title} · ${settings.title}`;
  const way = crumbs.map(([text, href]) => h("li", null, h("a", { href }, text)));
  return h(
    "div",
    { class: "heading" },
    way.length > 0 && h("nav", { "aria-label": "Breadcrumbs", class: "crumbs" }, h("ol", null, way)),
    h("div", { class: "row" }, h("h1", { tabindex: "-1" }, title), badges, h("div", { class: "actions" }, actions)),
    lead && h("p", { class: "lead" }, lead),
  );
}

/** Has screen readers say a sentence. */
export function announce(text) {
  document.getElementById("live").textContent = text;
}

/** Returns a badge. `kind` is "good", "warn", "bad", or nothing. */
export function badge(text, kind, title) {
  return h("span", { class: `badge ${kind ?? ""}`, title }, text);
}

/** Returns a section with a heading of its own. */
export function section(title, ...children) {
  return h("section", { "aria-label": title }, h("h2", null, title), children);
}

/** Returns what stands in place of content that could not be read. */
export function failure(error, what = "This") {
  if (error instanceof ApiError && error.isMissingCall) {
    return h("p", { class: "note" }, `${what} is not available on this server.`);
  }
  if (isTrouble(error)) return h("p", { class: "note" }, `${what} could not be read.`);
  if (error instanceof ApiError) {
    return h(
      "div",
      { class: "note bad" },
      h("p", null, h("strong", null, error.title || "The call failed"), error.detail && ` ${error.detail}`),
      error.correlationId && h("p", { class: "small" }, `In the log of the server: ${error.correlationId}`),
    );
  }
  console.error(error);
  return h("p", { class: "note bad" }, `A fault of this page: ${error.message}`);
}

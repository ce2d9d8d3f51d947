/**
 * Starts the console: reads the settings, shows the page that the address names, and keeps the frame around it.
 */

import { connect, refreshAll, settings, takeSecret, useToken, watchTrouble } from "./api.js";
import { openDialog } from "./dialog.js";
import { h, replace } from "./dom.js";
import { isUtc, useUtc } from "./format.js";
import { announce, failure, heading } from "./frame.js";
import { match } from "./router.js";

const NAVIGATION = [
  ["Overview", "#/", "o"],
  ["Delayed", "#/delayed", "d"],
  ["Cells", "#/cells", "c"],
  ["Pipeline", "#/pipeline", "p"],
];

const SHORTCUTS = "hourwheel-shortcuts";
const main = document.getElementById("main");
let leaving = new AbortController();
let isFirst = true;

/** Goes to another page. With `replace` it only rewrites the address: the page that is shown stays. */
function navigate(hash, { replace: rewrites = false } = {}) {
  if (rewrites) history.replaceState(null, "", hash);
  else if (location.hash === hash) show();
  else location.hash = hash;
}

async function show() {
  if (location.hash === "#main") return; // the skip link
  leaving.abort();
  const controller = (leaving = new AbortController());
  const { signal } = controller;
  const found = match(location.hash);
  const root = h("div", { class: `page ${found?.name ?? ""}` });
  markNavigation();
  try {
    if (!found) {
      root.append(heading({ title: "No such page", crumbs: [["Overview", "#/"]] }));
      replace(main, root);
      return;
    }
    const page = await import(`./pages/${found.name}.js`);
    if (signal.aborted) return;
    replace(main, root);
    await page.show({ root, params: found.params, query: found.query, signal, navigate });
  } catch (error) {
    if (signal.aborted) return;
    if (!root.isConnected) replace(main, root);
    root.append(failure(error, "This page"));
  } finally {
    if (!signal.aborted) arrive();
  }
}

/** Puts the focus on the heading of a page that a person went to, so that screen readers begin there. */
function arrive() {
  const focused = document.activeElement;
  if (isFirst) isFirst = false;
  else if (focused === main || !main.contains(focused)) main.querySelector("h1")?.focus({ preventScroll: true });
  announce(document.title);
}

function markNavigation() {
  const here = `#/${location.hash.replace(/^#\/?/, "").split(/[/?]/)[0]}`;
  for (const link of document.querySelectorAll("#nav a")) {
    const isHere = link.getAttribute("href") === here || (here === "#/subjects" && link.getAttribute("href") === "#/");
    if (isHere) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

// The frame

function drawFrame() {
  document.getElementById("title").textContent = settings.title;
  replace(document.getElementById("nav"), h("ul", null, NAVIGATION.map(([text, href]) => h("li", null, h("a", { href }, text)))));
  const zone = h("button", { type: "button", id: "zone" });
  const theme = h("button", { type: "button", id: "theme" });
  const help = h("button", { type: "button", "aria-label": "Keyboard shortcuts", title: "Keyboard shortcuts (?)" }, "?");
  zone.addEventListener("click", () => {
    useUtc(!isUtc());
    drawSwitches();
  });
  theme.addEventListener("click", () => {
    turnTheme();
    drawSwitches();
  });
  help.addEventListener("click", showHelp);
  const readOnly = settings.readOnly && h("span", { class: "badge", title: "Nothing can be changed from here" }, "read-only");
  replace(document.getElementById("tools"), readOnly, zone, theme, help);
  replace(document.getElementById("bottom"), `Hourwheel ${settings.version}`.trim());
  drawSwitches();
}

const THEMES = ["system", "light", "dark"];

function turnTheme() {
  const root = document.documentElement;
  const next = THEMES[(THEMES.indexOf(root.dataset.theme ?? "system") + 1) % THEMES.length];
  if (next === "system") delete root.dataset.theme;
  else root.dataset.theme = next;
  try {
    localStorage.setItem("hourwheel-theme", next);
  } catch {
    // The choice then lasts until the page is loaded again.
  }
}

function drawSwitches() {
  const zone = document.getElementById("zone");
  zone.textContent = isUtc() ? "UTC" : "Local";
  zone.title = zone.ariaLabel = isUtc() ? "Times are in UTC: show local times (t)" : "Times are local: show UTC (t)";
  const theme = document.getElementById("theme");
  const chosen = document.documentElement.dataset.theme ?? "system";
  theme.textContent = { system: "Auto", light: "Light", dark: "Dark" }[chosen];
  theme.title = theme.ariaLabel = `Theme: ${theme.textContent}. Change it`;
}

// Keys

const KEYS = [
  ["?", "show this help"],
  ["/", "search subjects"],
  ["r", "read everything again"],
  ["t", "show times in UTC, or local times"],
  ...NAVIGATION.map(([text, , key]) => [`g ${key}`, `go to ${text}`]),
];

let isPrefixed = false;

function hasShortcuts() {
  try {
    return localStorage.getItem(SHORTCUTS) !== "off";
  } catch {
    return true;
  }
}

function pressed(event) {
  const inField = event.target.closest?.("input, textarea, select, [contenteditable]");
  if (inField || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (!hasShortcuts()) return;
  const prefixed = isPrefixed;
  isPrefixed = false;
  const page = prefixed && NAVIGATION.find(([, , key]) => key === event.key);
  if (page) navigate(page[1]);
  else if (event.key === "g") isPrefixed = true;
  else if (event.key === "?") showHelp();
  else if (event.key === "r") refreshAll();
  else if (event.key === "t") document.getElementById("zone").click();
  else if (event.key === "/") search();
  else return;
  event.preventDefault();
}

function search() {
  const field = main.querySelector("input[type=search]");
  if (field) field.focus();
  else navigate("#/?search=1");
}

function showHelp() {
  const lines = KEYS.map(([keys, does]) => [h("dt", null, keys.split(" ").map((key) => h("kbd", null, key))), h("dd", null, does)]);
  const box = h("input", { type: "checkbox", checked: hasShortcuts() });
  box.addEventListener("change", () => {
    try {
      localStorage.setItem(SHORTCUTS, box.checked ? "on" : "off");
    } catch {
      // The keys stay on in a browser that keeps nothing.
    }
  });
  const close = h("button", { type: "button" }, "Close");
  const dialog = openDialog(
    "Keyboard shortcuts",
    h("dl", { class: "keys" }, lines),
    h("label", { class: "check" }, box, " Keyboard shortcuts are on"),
    h("div", { class: "buttons" }, close),
  );
  close.addEventListener("click", () => dialog.close());
}

// What keeps the page from the server

const SENTENCES = {
  gone: "The server cannot be reached. The page goes on as soon as it answers.",
  token: "The server needs a token.",
  secret: "This page was opened without its secret, or the command was started anew: open the address that the command has printed.",
  credentials: "AWS takes no calls with the credentials of the command. The page goes on as soon as they are valid.",
};

function showTrouble(trouble) {
  const banner = document.getElementById("banner");
  if (!trouble) {
    banner.replaceChildren();
    return;
  }
  const { kind, error } = trouble;
  const again = h("button", { type: "button", onclick: refreshAll }, "Try now");
  const isAsked = kind === "token" && !settings.passesOn;
  const text = kind === "token" && settings.passesOn ? "The server needs a token: start the command with --token-file." : SENTENCES[kind];
  const detail = kind === "credentials" || (kind === "gone" && settings.passesOn) ? error.detail : null;
  replace(
    banner,
    h("div", { class: "banner" }, h("p", null, h("strong", null, text), detail && ` ${detail}`), isAsked ? tokenForm(error) : again),
  );
}

function tokenForm(error) {
  const field = h("input", { type: "password", autocomplete: "off", required: true, "aria-label": "Token", size: "32" });
  const use = h("button", { type: "submit", class: "primary" }, "Use it");
  const said = h("span", { class: "small", role: "status" }, error.type === "token-wrong" ? "The server does not know this token." : "It is kept until the last tab of the console is closed.");
  const form = h("form", { class: "inline" }, field, use, said);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    use.disabled = true;
    try {
      await useToken(field.value.trim());
    } catch (failed) {
      said.textContent = failed.message;
      return;
    } finally {
      use.disabled = false;
    }
    drawFrame();
    show();
  });
  return form;
}

async function start() {
  takeSecret();
  try {
    await connect();
  } catch (error) {
    main.replaceChildren(failure(error, "The console"));
    const pause = new Promise((resolve) => setTimeout(resolve, 3_000));
    await pause;
    return start();
  }
  drawFrame();
  watchTrouble(showTrouble);
  document.addEventListener("keydown", pressed);
  window.addEventListener("hashchange", show);
  document.getElementById("skip").addEventListener("click", (event) => {
    event.preventDefault();
    main.focus();
  });
  await show();
}

start();

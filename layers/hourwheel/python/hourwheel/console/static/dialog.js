/**
 * Asks before anything changes, and tells what became of it.
 */

import { ApiError, isTrouble, settings } from "./api.js";
import { h, replace } from "./dom.js";
import { announce, failure } from "./frame.js";

const TOAST_MS = 10_000;
let names = 0;

/** Returns a button for an act; null in read-only mode, where `h` and `replace` leave it out. */
export function actButton(label, press, { danger = false, title } = {}) {
  if (settings.readOnly) return null;
  return h("button", { type: "button", class: danger ? "danger" : "", title, onclick: press }, label);
}

/** Opens a dialog, and returns it. It is removed when it closes, and the focus goes back to where it was. */
export function openDialog(title, ...children) {
  const name = `dialog-${(names += 1)}`;
  const dialog = h("dialog", { "aria-labelledby": name }, h("h2", { id: name }, title), children);
  document.body.append(dialog);
  dialog.addEventListener("close", () => dialog.remove());
  dialog.showModal();
  return dialog;
}

/**
 * Asks, and acts when the answer is yes.
 *
 * `text` says what will happen. `details` is a node or a list of nodes: more about it, or fields that `act` reads.
 * `act({signal, progress})` does it: `progress(text)` shows how far it is, `signal` aborts when the person cancels.
 * `label` is the text of the button that acts, `no` that of the one that does not. `done(result)` is called after success. The button works once: a second press does nothing. After an error the dialog
 * stays open and shows it. Returns a promise of whether `act` succeeded.
 */
export function confirmAct({ title, text, details, danger = false, label, no: refuses = "Cancel", act, done }) {
  if (settings.readOnly) {
    toast("The console is read-only: nothing was changed.");
    return Promise.resolve(false);
  }
  const controller = new AbortController();
  const yes = h("button", { type: "submit", class: danger ? "danger" : "primary" }, label);
  const no = h("button", { type: "button" }, refuses);
  const shown = h("div", { role: "alert" });
  const progress = h("p", { role: "status", class: "small" });
  const form = h("form", { method: "dialog" }, text && h("p", null, text), details, shown, progress);
  form.append(h("div", { class: "buttons" }, no, yes));
  const dialog = openDialog(title, form);
  let running = false;
  let succeeded = false;

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (running) return;
    running = true;
    yes.disabled = true;
    yes.setAttribute("aria-busy", "true");
    shown.replaceChildren();
    try {
      const result = await act({ signal: controller.signal, progress: (said) => (progress.textContent = said) });
      succeeded = true;
      dialog.close();
      await done?.(result);
    } catch (error) {
      if (!dialog.open) throw error;
      replace(shown, refusal(error));
      progress.textContent = "";
      yes.disabled = false;
    } finally {
      running = false;
      yes.removeAttribute("aria-busy");
    }
  });
  no.addEventListener("click", () => dialog.close());
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      controller.abort();
      resolve(succeeded);
    });
  });
}

function refusal(error) {
  if (!(error instanceof ApiError)) return h("p", { class: "note bad" }, error.message);
  const undecided = "It is not known whether this was done: look before you press again.";
  return [isTrouble(error) ? unheard(error) : failure(error, "This act"), error.isUndecided && h("p", { class: "note warn" }, undecided)];
}

/** The dialog hides the banner that tells what keeps the page from the server. */
function unheard(error) {
  const outcome = error.isUndecided ? "The act has no answer." : "Nothing was changed.";
  return h("p", { class: "note bad" }, h("strong", null, outcome), ` ${error.message}`);
}

/** Shows a sentence for ten seconds. `link` is `{href, label}`. */
export function toast(text, { link } = {}) {
  const close = h("button", { type: "button", class: "quiet", "aria-label": "Dismiss" }, "×");
  const node = h("div", { class: "toast" }, h("span", null, text), link && h("a", { href: link.href }, link.label), close);
  document.getElementById("toasts").append(node);
  announce(text);
  let timer = setTimeout(() => node.remove(), TOAST_MS);
  const stay = () => clearTimeout(timer);
  const leave = () => {
    stay();
    timer = setTimeout(() => node.remove(), TOAST_MS);
  };
  node.addEventListener("pointerenter", stay);
  node.addEventListener("focusin", stay);
  node.addEventListener("pointerleave", leave);
  node.addEventListener("focusout", leave);
  close.addEventListener("click", () => node.remove());
}

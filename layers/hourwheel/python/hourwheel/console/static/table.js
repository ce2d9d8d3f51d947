/**
 * Shows rows in a table whose refresh leaves focus, selection and the place on the screen as they are.
 */

import { h, replace } from "./dom.js";

/**
 * Returns `{node, update(rows)}`.
 *
 * `columns` are `{key, label, numeric, sortable, render(row), title}`; without `render` a cell shows `row[key]`. A
 * `header: true` column names the row (the first one by default). `rowKey(row)` is unique. `empty` is the text or node
 * without rows. `onSort(key, order)` is called when a person presses the head of a sortable column; `sort` is
 * `{key, order}` at the start. Handlers that `render` makes see the newest row: `update` copies new values into the row
 * that they were made with.
 */
export function table({ caption, columns, rows = [], rowKey, empty = "Nothing is here.", onSort, sort }) {
  const named = columns.find((column) => column.header) ?? columns[0];
  const heads = columns.map((column) => head(column, (key, order) => onSort(key, order)));
  const body = h("tbody");
  const nothing = h("p", { class: "note", hidden: true }, empty);
  const inner = h(
    "table",
    null,
    h("caption", { class: "unseen" }, caption),
    h("thead", null, h("tr", null, heads.map((each) => each.node))),
    body,
  );
  const frame = h("div", { class: "table", role: "region", tabindex: "0", "aria-label": caption }, inner);
  const node = h("div", null, frame, nothing);
  const shown = new Map();

  function update(next, { sort: sorted } = {}) {
    if (sorted) for (const each of heads) each.mark(sorted);
    const keys = new Set(next.map((row) => String(rowKey(row))));
    for (const [key, line] of shown) {
      if (!keys.has(key)) {
        line.node.remove();
        shown.delete(key);
      }
    }
    let before = null;
    for (const row of next) {
      const key = String(rowKey(row));
      let line = shown.get(key);
      if (!line) {
        line = makeLine(columns, named);
        shown.set(key, line);
      }
      line.fill(row);
      const expected = before ? before.nextSibling : body.firstChild;
      if (line.node !== expected) body.insertBefore(line.node, expected);
      before = line.node;
    }
    nothing.hidden = next.length > 0;
    frame.hidden = next.length === 0;
  }

  update(rows, { sort });
  return { node, update };
}

function head(column, onSort) {
  const properties = { scope: "col", class: column.numeric ? "numeric" : "", title: column.title };
  if (!column.sortable) return { node: h("th", properties, column.label), mark: () => {} };
  const button = h("button", { type: "button", class: "sort" }, column.label);
  const node = h("th", properties, button);
  button.addEventListener("click", () => {
    const now = node.getAttribute("aria-sort");
    const first = column.numeric ? "desc" : "asc";
    const turned = now === "ascending" ? "desc" : "asc";
    onSort(column.key, now ? turned : first);
  });
  const mark = ({ key, order }) => {
    if (key === column.key) node.setAttribute("aria-sort", order === "desc" ? "descending" : "ascending");
    else node.removeAttribute("aria-sort");
  };
  return { node, mark };
}

function makeLine(columns, named) {
  const kept = {};
  const cells = columns.map((column) =>
    column === named
      ? h("th", { scope: "row", class: column.numeric ? "numeric" : "" })
      : h("td", { class: column.numeric ? "numeric" : "", dataset: { label: column.label } }),
  );
  const node = h("tr", null, cells);

  function fill(row) {
    for (const name of Object.keys(kept)) if (!(name in row)) delete kept[name];
    Object.assign(kept, row);
    columns.forEach((column, i) => fillCell(cells[i], column.render ? column.render(kept) : (kept[column.key] ?? "–")));
  }

  return { node, fill };
}

/** Replaces the content of a cell only where it differs, and keeps the focus within. */
function fillCell(cell, content) {
  const next = cell.cloneNode(false);
  replace(next, content);
  if (cell.isEqualNode(next)) return;
  const focused = cell.contains(document.activeElement) ? focusable(cell).indexOf(document.activeElement) : -1;
  cell.replaceChildren(...next.childNodes);
  if (focused >= 0) focusable(cell)[focused]?.focus();
}

function focusable(cell) {
  return [...cell.querySelectorAll("a[href], button, input, select, textarea, summary")];
}

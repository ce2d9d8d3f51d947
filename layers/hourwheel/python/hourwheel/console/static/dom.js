/**
 * Makes elements. Text from the server becomes text nodes only: nothing here parses markup.
 */

const ADDRESS = /^(#|\.{0,2}\/|https?:\/\/|[a-z0-9_-]+\.[a-z]+$)/i;

/**
 * Returns an element.
 *
 * `props` are attributes; `true` sets an empty one; `false`, `null` and `undefined` leave one out. A function under
 * `onclick`, `oninput` … becomes a listener. `dataset` is an object. Children are strings, numbers, nodes, arrays of
 * them, or nothing (`null`, `undefined`, `false`).
 */
export function h(tag, props, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) setProperty(node, name, value);
  append(node, children);
  return node;
}

function setProperty(node, name, value) {
  if (value === null || value === undefined || value === false) return;
  if (typeof value === "function" && name.startsWith("on")) node.addEventListener(name.slice(2), value);
  else if (name === "dataset") Object.assign(node.dataset, value);
  else if (name === "value" || name === "checked") node[name] = value;
  else if (name === "href" && !ADDRESS.test(value)) throw new TypeError(`not an address: ${value}`);
  else node.setAttribute(name === "className" ? "class" : name, value === true ? "" : String(value));
}

function append(node, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) append(node, child);
    else node.append(child instanceof Node ? child : String(child));
  }
}

/** Replaces the content of a node. Children are those of `h`. */
export function replace(node, ...children) {
  const content = document.createDocumentFragment();
  append(content, children);
  node.replaceChildren(content);
  return node;
}

/** Listens until the signal aborts. */
export function on(node, event, handler, signal) {
  node.addEventListener(event, handler, { signal });
  return node;
}

/** Encodes a value as signatures of AWS and the HTTP API expect: all but letters, digits, "-", "_", "." and "~". */
export function encode(value) {
  return encodeURIComponent(value).replace(/[!'()*]/g, (sign) => `%${sign.charCodeAt(0).toString(16).toUpperCase()}`);
}

/** Template tag: encodes each value for a path of the API or an address of a page, as in path`subjects/${subject}`. */
export function path(strings, ...values) {
  return strings.reduce((whole, text, i) => whole + encode(values[i - 1]) + text);
}

/** Returns `address` with a query of the values that are set. */
export function withQuery(address, query) {
  const given = Object.entries(query ?? {}).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return given.length ? `${address}?${given.map(([name, value]) => `${encode(name)}=${encode(value)}`).join("&")}` : address;
}

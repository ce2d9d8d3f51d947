import assert from "node:assert/strict";
import { test } from "node:test";
import { SHOWN, fromBase64, hexDump, isJson, pagesOf, prettyJson, visible, visibleLine } from "../static/bodies.js";

const pretty = (text) => [...prettyJson(text)].join("");

test("JSON gets a line for each value, and its numbers stay as they were sent", () => {
  assert.equal(
    pretty('{"n":12345678901234567890,"a":[1.0,{},[ ]],"s":"a\\"b,{"}'),
    '{\n  "n": 12345678901234567890,\n  "a": [\n    1.0,\n    {},\n    []\n  ],\n  "s": "a\\"b,{"\n}',
  );
});

test("formatted JSON has the values of the text that was sent", () => {
  const values = [{}, [], [[]], { a: { b: [1, "x", null, true, { c: "\\\"[]{}:, \n" }] } }, ["é", "\u2028", "😀"]];
  for (const value of values) assert.deepEqual(JSON.parse(pretty(JSON.stringify(value))), value);
});

test("only objects and arrays are taken for JSON", () => {
  assert.deepEqual(["{}", " [1]", "[1", "7", '"x"', "", "{a:1}"].map(isJson), [true, true, false, false, false, false, false]);
});

test("a body of 1 MiB is formatted page by page", () => {
  const nested = "[".repeat(2 ** 19) + "]".repeat(2 ** 19);
  const long = JSON.stringify({ a: "x".repeat(2 ** 20) });
  const flat = `[${"1,".repeat(2 ** 19)}1]`;
  for (const text of [nested, long, flat]) {
    const first = pagesOf(prettyJson(text)).next().value;
    assert.equal(first.length, SHOWN);
  }
  assert.equal([...pagesOf(prettyJson(flat))].join(""), pretty(flat));
});

test("a page does not cut a character in two", () => {
  const pages = [...pagesOf(["x", "😀".repeat(100)], 10)];
  assert.equal(pages.join(""), `x${"😀".repeat(100)}`);
  for (const page of pages) assert.equal(visible(page), page);
});

test("characters that terminals obey, or that hide text, become visible", () => {
  assert.equal(visibleLine("a\n\u001b[2J\u0007\u007f\u009b1m"), "a␊␛[2J␇␡‹U+009B›1m");
  assert.equal(visibleLine("gpj.\u202eexe\u200b\ufeff"), "gpj.‹U+202E›exe‹U+200B›‹U+FEFF›");
  assert.equal(visibleLine("\ud800x 😀 é <b>"), "‹U+D800›x 😀 é <b>");
  assert.equal(visible("a\n\tb\r\n"), "a\n\tb␍\n");
});

test("bytes are dumped with offset, hexadecimal and text", () => {
  const bytes = fromBase64(Buffer.from([...Array(20).keys()].map((index) => index + 0x3c)).toString("base64"));
  assert.equal(
    hexDump(bytes),
    "00000000  3c 3d 3e 3f 40 41 42 43  44 45 46 47 48 49 4a 4b  <=>?@ABCDEFGHIJK\n" +
      "00000010  4c 4d 4e 4f                                       LMNO",
  );
  assert.equal(fromBase64("***"), null);
});

// Verifies a request by the client for TypeScript: node verify.mjs SECRET HEADERS < BODY
import { readFileSync } from "node:fs";
import { verify } from "./dist/index.js";

const [secret, headers] = process.argv.slice(2);
await verify(secret, JSON.parse(headers), readFileSync(0)).then(
  () => console.log("verified"),
  (error) => console.log(error.name),
);

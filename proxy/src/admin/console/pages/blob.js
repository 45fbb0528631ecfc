// What one blob holds: header, segments, the view of its base.
import { get } from "../api.js";
import { facts, h } from "../dom.js";
import { words } from "../words.js";

const isPlain = (value) => value === null || typeof value !== "object";

/** Any answer as nested lists of names and values. */
function outline(value) {
  if (isPlain(value)) return String(value ?? words.none);
  if (Array.isArray(value) && value.every(isPlain)) return value.join(", ") || words.none;
  return facts(Object.entries(value).map(([name, inner]) => [name.replaceAll("_", " "), outline(inner)]));
}

export async function page({ blob }) {
  return { elements: [h("h1", {}, h("code", {}, blob)), outline(await get("inspect", { blob }))] };
}

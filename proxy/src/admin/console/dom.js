// Elements and figures. Text only ever becomes text: nothing here parses markup.
import { words } from "./words.js";

const SVG = "http://www.w3.org/2000/svg";

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (name.startsWith("on")) {
      element.addEventListener(name.slice(2), value);
    } else if (value === true) {
      element.setAttribute(name, "");
    } else if (value !== false && value !== undefined && value !== null) {
      element.setAttribute(name, String(value));
    }
  }
  element.append(...children.flat(Infinity).filter((child) => child !== undefined && child !== null && child !== false));
  return element;
}

export const h = (tag, attributes, ...children) => filled(document.createElement(tag), attributes, children);
export const svg = (tag, attributes, ...children) => filled(document.createElementNS(SVG, tag), attributes, children);

export function bytes(count) {
  if (count === null || count === undefined) return words.none;
  let scaled = count;
  for (const unit of ["B", "KiB", "MiB", "GiB", "TiB"]) {
    if (scaled < 1024 || unit === "TiB") return `${unit === "B" ? scaled : scaled.toFixed(1)} ${unit}`;
    scaled /= 1024;
  }
  return words.none;
}

export const ratio = (logical, stored) => (stored > 0 ? `${(logical / stored).toFixed(2)}×` : words.none);
export const percent = (part, whole) => (whole > 0 ? `${((100 * part) / whole).toFixed(part * 100 < whole ? 2 : 1)} %` : words.none);
export const count = (number) => Number(number ?? 0).toLocaleString("en");
export const date = (ms) => (ms ? new Date(ms).toISOString().replace("T", " ").slice(0, 19) + " UTC" : words.none);

/** A table. Columns: [heading, class]; rows: cells. */
export function table(caption, columns, rows) {
  return h(
    "div",
    { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    h(
      "table",
      {},
      h("thead", {}, h("tr", {}, columns.map(([name, kind]) => h("th", { scope: "col", class: kind }, name)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell, at) => h("td", { class: columns[at][1] }, cell))))),
    ),
  );
}

export const facts = (pairs) =>
  h("dl", {}, pairs.filter(([, value]) => value !== undefined).map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));

export const link = (page, parameters, ...children) =>
  h("a", { href: `#/${page}?${new URLSearchParams(parameters)}` }, ...children);

/** A labelled control. */
export const field = (name, control) => h("label", {}, name, control);

/** A button whose failure is said. */
export const button = (name, work, attributes = {}) =>
  h("button", { type: "button", ...attributes, onclick: () => Promise.resolve(work()).catch((error) => say(error.message)) }, name);

/** A form in a row: what goes wrong stands beside it until the next try. */
export function form(controls, name, work, attributes = {}) {
  const told = h("p", { class: "bad", role: "alert" });
  const submit = async (event) => {
    event.preventDefault();
    told.replaceChildren();
    try {
      await work(new FormData(event.target));
    } catch (error) {
      told.replaceChildren(error.message);
    }
  };
  return h("form", { class: "row", ...attributes, onsubmit: submit }, controls, h("button", {}, name), told);
}

export const input = (name, attributes = {}) => h("input", { type: "text", name, autocomplete: "off", spellcheck: "false", ...attributes });
export const choice = (name, values, chosen) => h("select", { name }, values.map((value) => h("option", { value, selected: value === chosen }, value || words.none)));

/** Asks before something is done that cannot be taken back. */
export function confirmed(question, name) {
  return new Promise((resolve) => {
    const dialog = h(
      "dialog",
      { "aria-label": question, onclose: () => (resolve(dialog.returnValue === "yes"), dialog.remove()) },
      h("form", { method: "dialog" }, h("p", {}, question), h("div", { class: "row" }, h("button", { value: "no" }, words.cancel), h("button", { value: "yes", class: "danger" }, name))),
    );
    document.body.append(dialog);
    dialog.showModal();
  });
}

let silence;
/** Says a sentence, to screen readers too. */
export function say(text) {
  document.getElementById("said").textContent = text;
  clearTimeout(silence);
  silence = setTimeout(() => (document.getElementById("said").textContent = ""), 8000);
}

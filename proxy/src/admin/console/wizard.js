// A form in steps: one question at a time, and all of it once more before it begins.
import { facts, form, h } from "./dom.js";
import { words } from "./words.js";

const told = words.wizard;

/** Steps: `{ title, help, controls(values), check(values) }`. `done` gets the values at the end. */
export function wizard(name, steps, review, done) {
  const place = h("section", { class: "card", "aria-label": name });
  const values = {};
  const draw = (at, focused) => {
    const step = steps[at];
    const heading = h("h2", { tabindex: -1 }, told.step(at + 1, steps.length + 1, step?.title ?? told.review));
    const back = at > 0 && h("button", { type: "button", onclick: () => draw(at - 1, true) }, told.back);
    const next = async (data) => {
      for (const element of place.querySelectorAll("[name]")) {
        values[element.name] = element.type === "checkbox" ? data.get(element.name) !== null : data.get(element.name).trim();
      }
      await step.check?.(values);
      draw(at + 1, true);
    };
    if (step) {
      place.replaceChildren(heading, h("p", { class: "soft" }, step.help), form([step.controls(values), back], told.next, next));
    } else {
      place.replaceChildren(heading, facts(review(values)), form(back, told.start, () => done(values)));
    }
    if (focused) heading.focus();
  };
  draw(0, false);
  return place;
}

// How much a bucket or user may hold, and how much it does.
import { get, put, remove } from "./api.js";
import { button, bytes, count, field, form, h, input, say } from "./dom.js";
import { words } from "./words.js";

const told = words.quota;
const UNITS = { "": 1, K: 2 ** 10, M: 2 ** 20, G: 2 ** 30, T: 2 ** 40 };

/** A number of bytes as people write it, such as 10 GiB. */
export function size(text) {
  const found = /^(\d+(?:\.\d+)?)\s*([KMGT]?)i?B?$/i.exec(text.trim());
  if (!found) throw new Error(told.wrong(text));
  return Math.round(Number(found[1]) * UNITS[found[2].toUpperCase()]);
}

export const held = (quota) => {
  const of = (number, limit, shown) => (limit === undefined || limit === null ? told.open(shown(number)) : told.part(shown(number), shown(limit)));
  return told.held(of(quota.held.bytes, quota.limits?.bytes, bytes), of(quota.held.objects, quota.limits?.objects, count));
};

/** The quota of `{ bucket }` or `{ user }`, and a form that sets it. */
export async function quota(whose) {
  const place = h("div");
  const draw = (found) => {
    const set = async (data) => {
      const limits = {};
      if (data.get("bytes").trim()) limits.bytes = size(data.get("bytes"));
      if (data.get("objects").trim()) limits.objects = Number(data.get("objects"));
      draw(await put("quota", whose, limits));
      say(told.set);
    };
    place.replaceChildren(
      h("p", { id: "held" }, held(found)),
      form(
        [
          field(told.bytes, input("bytes", { value: found.limits?.bytes ?? "", placeholder: "10 GiB" })),
          field(told.objects, input("objects", { value: found.limits?.objects ?? "", inputmode: "numeric", pattern: "[0-9]*" })),
        ],
        told.button,
        set,
      ),
      found.limits ? button(told.clear, async () => draw(await remove("quota", whose))) : "",
    );
  };
  draw(await get("quota", whose));
  return [h("h2", {}, told.title), h("p", { class: "soft" }, told.help), place];
}

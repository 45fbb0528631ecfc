// What a bucket's objects would take under other settings, from a sample; and changing the setting.
import { post, scope } from "./api.js";
import { button, bytes, confirmed, count, field, form, h, input, link, percent, say, table } from "./dom.js";
import { words } from "./words.js";

const told = words.estimate;
const SETTINGS = ["off", "zstd", "delta"];

function row(found, bucket, current) {
  const { predicted, low, high } = found.stored_bytes;
  const share = (part) => percent(part, found.logical_bytes);
  const change = async () => {
    if (!(await confirmed(told.convertAsk(bucket, found.compression), told.convert))) return;
    await post("jobs/convert", {}, { bucket, prefix: "", compression: found.compression });
    say(told.converting(bucket, found.compression));
  };
  const name = { "aria-label": `${told.convert}: ${found.compression}` };
  return [
    h("strong", {}, found.compression),
    bytes(predicted),
    share(predicted),
    `${share(low)} – ${share(high)}`,
    found.cpu_s_per_gb.toFixed(2),
    bytes(found.sample.bytes),
    found.compression === current ? told.current : button(told.convert, change, name),
  ];
}

/** One sentence: what the best setting would store and cost, beside what is stored now. */
function verdict(previews) {
  const best = previews.reduce((least, one) => (one.stored_bytes.predicted < least.stored_bytes.predicted ? one : least));
  const now = percent(best.stored_now_bytes, best.logical_bytes);
  return told.verdict(best.compression, percent(best.stored_bytes.predicted, best.logical_bytes), best.cpu_s_per_gb.toFixed(1), now);
}

/** A preview is a POST: it takes the server's processor and disk, so a session that only reads has no form. */
export async function preview(bucket, current) {
  if ((await scope()) === "read") return [h("h2", {}, told.title), h("p", { class: "soft", id: "no-preview" }, told.readOnly)];
  const place = h("div", { "aria-live": "polite", id: "previews" });
  const run = async (data) => {
    const prefix = data.get("prefix").trim();
    const previews = [];
    for (const compression of SETTINGS) {
      place.replaceChildren(h("p", { class: "soft" }, told.trying(compression)));
      previews.push(await post("preview", { bucket, prefix, compression }, {}));
    }
    const [{ objects, logical_bytes: logical, more }] = previews;
    const truncated = Math.max(...previews.map(({ sample }) => sample.truncated));
    const number = "number";
    const columns = [[told.setting], [words.stored, number], [words.explain.share, number], [told.interval, number], [told.cpu, number], [told.sample, number], [words.actions]];
    place.replaceChildren(
      h("p", { class: "soft" }, told.looked(count(objects), bytes(logical), more)),
      objects > 0 ? h("p", {}, verdict(previews)) : "",
      table(told.title, columns, previews.map((found) => row(found, bucket, current))),
      truncated > 0 ? h("p", { class: "soft" }, told.truncated(count(truncated))) : "",
      h("p", { class: "soft" }, told.after, " ", link("jobs", {}, words.pages.jobs)),
    );
  };
  return [
    h("h2", {}, told.title),
    h("p", { class: "soft" }, told.help),
    form(field(words.prefix, input("prefix")), told.run, run, { id: "preview" }),
    place,
  ];
}

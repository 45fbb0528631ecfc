// Moving in and out: `import` takes a store's objects as versions without moving them, `eject`
// writes a bucket out again.
import { get, post } from "../api.js";
import { choice, count, facts, field, h, input, link, say } from "../dom.js";
import { words } from "../words.js";
import { wizard } from "../wizard.js";

const told = words.adopt;
const EVERY_MS = 1000;

const check = (name, values, label) => h("label", { class: "check" }, h("input", { type: "checkbox", name, checked: values[name] }), label);
const named = (store, prefix) => (prefix ? `${store}/${prefix}` : store);

const figures = (outcome) =>
  facts(Object.entries(outcome).filter(([, value]) => typeof value !== "object").map(([name, value]) => [name.replaceAll("_", " "), typeof value === "number" ? count(value) : String(value)]));

/** What the job does until it ends. */
function followed(job, place, timers) {
  const draw = async () => {
    const now = await get(`jobs/${job}`);
    const { done, total, unit, note } = now.progress;
    if (now.running) {
      place.replaceChildren(
        h("h2", {}, told.running(job)),
        h("progress", { "aria-label": job, ...(total ? { max: total, value: done } : {}) }),
        h("p", { role: "status" }, `${count(done)}${total ? ` / ${count(total)}` : ""} ${unit} ${note}`),
        h("p", {}, link("jobs", {}, told.toJobs)),
      );
      return;
    }
    clearInterval(timers.pop());
    place.replaceChildren(
      h("h2", { tabindex: -1 }, told.ended(job)),
      h("p", { role: "status" }, now.last_result ?? words.none),
      now.last_outcome ? figures(now.last_outcome) : "",
      h("p", {}, link("jobs", {}, told.toJobs)),
    );
  };
  timers.push(setInterval(() => draw().catch((error) => say(error.message)), EVERY_MS));
  return draw();
}

const chosenStore = (stores, values, name) =>
  stores.length ? field(told.store, choice(name, stores, values[name])) : h("p", { class: "bad" }, told.noStores);

function importing(stores, buckets, place, timers) {
  const steps = [
    {
      title: told.from,
      help: told.fromHelp,
      controls: (values) => [chosenStore(stores, values, "source"), field(told.sourcePrefix, input("sourcePrefix", { value: values.sourcePrefix ?? "" }))],
      check: (values) => {
        if (!values.source) throw new Error(told.noStores);
      },
    },
    {
      title: told.into,
      help: told.intoHelp,
      controls: (values) => [field(words.bucket, choice("bucket", buckets, values.bucket)), field(words.prefix, input("prefix", { value: values.prefix ?? "" }))],
    },
    {
      title: told.how,
      help: told.howHelp,
      controls: (values) => [check("overwrite", values, told.overwrite), check("take_over", values, told.takeOver), check("verify", values, told.verify)],
    },
  ];
  const review = (values) => [
    [told.from, named(values.source, values.sourcePrefix)],
    [told.into, named(values.bucket, values.prefix)],
    [told.overwrite, values.overwrite ? words.explain.yes : words.explain.no],
    [told.takeOver, values.take_over ? words.explain.yes : words.explain.no],
    [told.verify, values.verify ? words.explain.yes : words.explain.no],
  ];
  const start = async ({ source, sourcePrefix, bucket, prefix, overwrite, take_over, verify }) => {
    await post("jobs/import", {}, { source: named(source, sourcePrefix), bucket, prefix, overwrite, take_over, verify });
    await followed("import", place, timers);
  };
  return wizard(told.import, steps, review, start);
}

function ejecting(stores, roots, buckets, place, timers) {
  const kinds = [...(stores.length ? [told.aStore] : []), ...(roots.length ? [told.aDirectory] : [])];
  const target = (values) => (values.kind === told.aStore ? `store:${named(values.store, values.targetPrefix)}` : values.directory);
  const steps = [
    {
      title: told.from,
      help: told.ejectHelp,
      controls: (values) => [field(words.bucket, choice("bucket", buckets, values.bucket)), field(words.prefix, input("prefix", { value: values.prefix ?? "" }))],
    },
    {
      title: told.kind,
      help: told.kindHelp,
      controls: (values) => (kinds.length ? field(told.kind, choice("kind", kinds, values.kind)) : h("p", { class: "bad" }, told.noTarget)),
      check: (values) => {
        if (!values.kind) throw new Error(told.noTarget);
      },
    },
    {
      title: told.into,
      help: told.rootsHelp(roots.join(", ")),
      controls: (values) =>
        values.kind === told.aStore
          ? [chosenStore(stores, values, "store"), field(told.targetPrefix, input("targetPrefix", { value: values.targetPrefix ?? "" })), check("overwrite", values, told.ejectOverwrite)]
          : field(told.directory, input("directory", { value: values.directory ?? `${roots[0]}/`, required: true })),
    },
  ];
  const review = (values) => [
    [told.from, named(values.bucket, values.prefix)],
    [told.into, target(values)],
    [told.ejectOverwrite, values.overwrite ? words.explain.yes : words.explain.no],
  ];
  const start = async (values) => {
    await post("jobs/eject", {}, { bucket: values.bucket, prefix: values.prefix, target: target(values), overwrite: values.overwrite === true });
    await followed("eject", place, timers);
  };
  return wizard(told.eject, steps, review, start);
}

export async function page() {
  const [{ stores = [], eject_roots: roots = [] }, { buckets }] = await Promise.all([get("overview"), get("buckets")]);
  const names = buckets.map(({ name }) => name);
  const place = h("div", { id: "moving" });
  const timers = [];
  const begin = (made) => {
    place.replaceChildren(made);
    place.querySelector("h2").focus();
  };
  return {
    elements: [
      h("h1", {}, words.pages.adopt),
      h("p", { class: "soft" }, told.help),
      names.length
        ? h(
            "div",
            { class: "row" },
            h("button", { type: "button", onclick: () => begin(importing(stores, names, place, timers)) }, told.import),
            h("button", { type: "button", onclick: () => begin(ejecting(stores, roots, names, place, timers)) }, told.eject),
          )
        : h("p", {}, words.noBuckets),
      place,
    ],
    leave: () => timers.forEach(clearInterval),
  };
}

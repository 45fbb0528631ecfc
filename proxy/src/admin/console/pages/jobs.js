// Background jobs: what they do, how far they are, and starting, pausing, resuming, cancelling one.
import { get, post } from "../api.js";
import { button, count, date, form, h, link, say, table } from "../dom.js";
import { words } from "../words.js";

const EVERY_MS = 3000;

const state = (job) => (job.running ? "running" : job.paused ? "paused" : job.waiting ? "waiting" : "idle");

function progress(job) {
  const { done, total, unit, note } = job.progress;
  if (!job.running) return words.none;
  const text = `${count(done)}${total ? ` / ${count(total)}` : ""} ${unit} ${note}`;
  return total ? [h("progress", { max: total, value: done, "aria-label": job.name }), ` ${text}`] : text;
}

function buttons(job, refresh) {
  const control = (action, work) =>
    h(
      "button",
      {
        type: "button",
        "aria-label": words.jobActionLabel(words.jobActions[action], job.name),
        onclick: () => work().then(() => say(words.jobDone(words.jobActions[action], job.name)), (error) => say(error.message)).then(refresh),
      },
      words.jobActions[action],
    );
  const act = (action) => control(action, () => post(`jobs/${job.name}`, { action }, {}));
  const start = control("start", () => {
    const typed = document.getElementById("parameters").value.trim();
    return post(`jobs/${job.name}`, {}, typed ? JSON.parse(typed) : null);
  });
  if (job.running) return h("div", { class: "row" }, act("pause"), act("cancel"));
  return h("div", { class: "row" }, job.paused || job.waiting ? [act("resume"), act("cancel")] : [start, act("pause")]);
}

/** Every run that ended in this process stands in the audit log. */
function history(job) {
  const ended = link("audit", { action: job.name }, words.jobHistory);
  ended.setAttribute("aria-label", words.jobHistoryLabel(job.name));
  return ended;
}

function rows(jobs, refresh) {
  return jobs.map((job) => [
    [h("strong", {}, job.name), h("div", { class: "soft" }, job.about), history(job)],
    words.jobStates[state(job)],
    progress(job),
    job.backlog === null ? words.none : count(job.backlog),
    date(job.last_run_ms),
    job.last_outcome
      ? h("details", {}, h("summary", {}, job.last_result ?? words.none), h("pre", { tabindex: 0, "aria-label": words.outcome }, JSON.stringify(job.last_outcome, null, 1)))
      : (job.last_result ?? words.none),
    buttons(job, refresh),
  ]);
}

/** What an operator asks for by hand. */
function maintenance() {
  const told = words.maintenance;
  const place = h("div", { "aria-live": "polite" });
  const check = (name) => h("label", { class: "check" }, h("input", { type: "checkbox", name }), told[name]);
  const collect = async (data) => {
    const chosen = ["now", "empty_trash", "undo", "sweep"].filter((name) => data.get(name) !== null);
    const report = await post("gc", Object.fromEntries(chosen.map((name) => [name, "true"])), {});
    place.replaceChildren(h("pre", { tabindex: 0, role: "region", "aria-label": told.report }, JSON.stringify(report, null, 1)));
  };
  const settle = async () => say((await post("settle", { timeout_s: 60 }, {})).settled ? told.settled : told.unsettled);
  const drop = async () => {
    await post("cache/drop", {}, {});
    say(told.dropped);
  };
  return [
    h("h2", {}, told.title),
    form(["now", "empty_trash", "undo", "sweep"].map(check), told.collect, collect, { id: "collect" }),
    place,
    h("div", { class: "row" }, button(told.settle, settle), button(told.drop, drop)),
  ];
}

export async function page() {
  const place = h("div");
  let seen;
  const refresh = async () => {
    const jobs = await get("jobs");
    const now = JSON.stringify(jobs);
    // Whoever reads or works in the table keeps it until something has changed.
    if (now === seen) return;
    const active = document.activeElement?.getAttribute("aria-label");
    seen = now;
    const number = "number";
    const columns = [[words.job, "key"], [words.state], [words.progress], [words.backlog, number], [words.last], [words.result], [words.actions]];
    place.replaceChildren(table(words.pages.jobs, columns, rows(jobs, refresh)));
    if (active) [...place.querySelectorAll("button")].find((button) => button.getAttribute("aria-label") === active)?.focus();
  };
  await refresh();
  const timer = setInterval(() => !place.querySelector("details[open]") && refresh().catch(() => undefined), EVERY_MS);
  return {
    elements: [
      h("h1", {}, words.pages.jobs),
      place,
      h("p", {}, h("label", {}, words.parameters, h("textarea", { id: "parameters", rows: 2, spellcheck: "false" }))),
      maintenance(),
    ],
    leave: () => clearInterval(timer),
  };
}

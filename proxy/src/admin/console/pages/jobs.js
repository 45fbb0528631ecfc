// Background jobs: what they do, how far they are, and starting, pausing, resuming, cancelling one.
import { get, post } from "../api.js";
import { count, date, h, say, table } from "../dom.js";
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
  const button = (action, work) =>
    h(
      "button",
      {
        type: "button",
        "aria-label": words.jobActionLabel(words.jobActions[action], job.name),
        onclick: () => work().then(() => say(words.jobDone(words.jobActions[action], job.name)), (error) => say(error.message)).then(refresh),
      },
      words.jobActions[action],
    );
  const act = (action) => button(action, () => post(`jobs/${job.name}`, { action }, {}));
  const start = button("start", () => {
    const typed = document.getElementById("parameters").value.trim();
    return post(`jobs/${job.name}`, {}, typed ? JSON.parse(typed) : null);
  });
  if (job.running) return h("div", { class: "row" }, act("pause"), act("cancel"));
  return h("div", { class: "row" }, job.paused || job.waiting ? [act("resume"), act("cancel")] : [start, act("pause")]);
}

function rows(jobs, refresh) {
  return jobs.map((job) => [
    [h("strong", {}, job.name), h("div", { class: "soft" }, job.about)],
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
    ],
    leave: () => clearInterval(timer),
  };
}

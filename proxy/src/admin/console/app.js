// From an address to a page. Each page is a module that gives its elements, and maybe a function
// that ends it.
import { hasSession, logOut, scope } from "./api.js";
import { h, say } from "./dom.js";
import { words } from "./words.js";
import * as adopt from "./pages/adopt.js";
import * as audit from "./pages/audit.js";
import * as blob from "./pages/blob.js";
import * as buckets from "./pages/buckets.js";
import * as explain from "./pages/explain.js";
import * as jobs from "./pages/jobs.js";
import * as login from "./pages/login.js";
import * as logs from "./pages/logs.js";
import * as object from "./pages/object.js";
import * as objects from "./pages/objects.js";
import * as overview from "./pages/overview.js";
import * as recovery from "./pages/recovery.js";
import * as requests from "./pages/requests.js";
import * as users from "./pages/users.js";

const PAGES = { overview, objects, buckets, users, jobs, recovery, adopt, requests, logs, audit, object, explain, blob };
const MENU = ["overview", "objects", "buckets", "users", "jobs", "recovery", "adopt", "requests", "logs", "audit"];
const UNDER = { object: "objects", explain: "objects", blob: "objects" };

const main = document.getElementById("main");
let shown = 0;
let leave = () => undefined;

function menu(name) {
  const items = MENU.map((page) =>
    h("li", {}, h("a", { href: `#/${page}`, "aria-current": page === (UNDER[name] ?? name) ? "page" : undefined }, words.pages[page])),
  );
  const out = h("button", { type: "button", onclick: () => logOut().then(show) }, words.logOut);
  const note = h("li", { class: "soft" });
  document.getElementById("nav").replaceChildren(...(hasSession() ? [h("ul", {}, items, note, h("li", {}, out))] : []));
  if (hasSession()) scope().then((told) => note.replaceChildren(told === "read" ? words.readOnly : ""), () => undefined);
}

/** Shows the page of the address. One that was asked for later wins. */
async function show() {
  const mine = ++shown;
  leave();
  leave = () => undefined;
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const wanted = PAGES[path] ? path : "overview";
  const name = hasSession() ? wanted : "login";
  menu(name);
  document.title = `${words.pages[name]} · deltaweir`;
  const parameters = Object.fromEntries(new URLSearchParams(query));
  try {
    const page = await (name === "login" ? login : PAGES[name]).page(parameters, show);
    if (mine !== shown) return page.leave?.();
    leave = page.leave ?? leave;
    main.replaceChildren(...[page.elements].flat(Infinity).filter(Boolean));
  } catch (error) {
    if (mine !== shown) return;
    if (error.status === 401) {
      await logOut();
      return show();
    }
    main.replaceChildren(h("h1", {}, words.pages[name]), h("p", { class: "bad", role: "alert" }, error.message));
  }
  main.dataset.page = name;
  main.focus();
}

document.getElementById("skip").textContent = words.skip;
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
document.getElementById("nav").setAttribute("aria-label", words.menu);
addEventListener("hashchange", show);
addEventListener("unhandledrejection", (event) => say(event.reason?.message ?? String(event.reason)));
show();

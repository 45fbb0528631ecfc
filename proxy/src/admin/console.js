"use strict";

const element = (id) => document.getElementById(id);

function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (count >= 1024 && unit < units.length - 1) {
    count /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? count : count.toFixed(1)} ${units[unit]}`;
}

function ratio(logical, stored) {
  return stored > 0 ? `${(logical / stored).toFixed(2)} : 1` : "–";
}

function row(cells) {
  const line = document.createElement("tr");
  for (const cell of cells) {
    line.appendChild(document.createElement("td")).textContent = cell;
  }
  return line;
}

async function show() {
  const token = sessionStorage.getItem("token");
  const answer = await fetch("/api/v1/stats", token ? { headers: { Authorization: `Bearer ${token}` } } : {});
  element("login").hidden = answer.status !== 401;
  if (!answer.ok) {
    element("summary").textContent = answer.status === 401 ? "This server asks for its admin token." : `The server answered ${answer.status}.`;
    return;
  }
  const stats = await answer.json();
  const { objects, logical_bytes: logical, stored } = stats.totals;
  element("summary").textContent =
    `${objects} objects, ${bytes(logical)} kept in ${bytes(stored.total)} (${ratio(logical, stored.total)})`;
  const rows = stats.buckets.filter((bucket) => bucket.name).map((bucket) =>
    row([
      bucket.name,
      bucket.settings?.compression ?? "–",
      bucket.settings?.encryption ?? "–",
      bucket.objects,
      bytes(bucket.logical_bytes),
      bytes(bucket.stored.total),
      ratio(bucket.logical_bytes, bucket.stored.total),
    ]),
  );
  element("buckets").replaceChildren(...rows);
  document.querySelector("table").hidden = rows.length === 0;
}

element("login").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("token", element("token").value);
  show();
});

show();
setInterval(show, 5000);

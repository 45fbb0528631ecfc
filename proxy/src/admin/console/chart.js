// Pictures, as SVG without styles of their own: style.css colours them.
import { bytes, count, date, percent, svg } from "./dom.js";
import { words } from "./words.js";

export const KINDS = ["copied", "changed", "opened", "compressed", "raw", "foreign", "added"];

/** Logical and stored bytes over time. */
export function history(samples) {
  if (samples.length < 2) return undefined;
  const [width, height] = [600, 140];
  const [first, last] = [samples[0].at_ms, samples.at(-1).at_ms];
  const most = Math.max(1, ...samples.map((sample) => Math.max(sample.logical_bytes, sample.stored_bytes)));
  const x = (sample) => ((sample.at_ms - first) / Math.max(1, last - first)) * width;
  const y = (value) => height - (value / most) * (height - 6);
  const line = (name) => samples.map((sample) => `${x(sample).toFixed(1)},${y(sample[name]).toFixed(1)}`);
  const area = [...line("logical_bytes"), ...line("stored_bytes").reverse()].join(" ");
  const newest = samples.at(-1);
  const label = words.historyLabel(bytes(newest.logical_bytes), bytes(newest.stored_bytes));
  return svg(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, class: "chart", role: "img", "aria-label": label, preserveAspectRatio: "none" },
    svg("polygon", { class: "saved", points: area }),
    svg("polyline", { class: "logical", points: line("logical_bytes").join(" ") }),
    svg("polyline", { class: "stored", points: line("stored_bytes").join(" ") }),
  );
}

/** Reads of the last day by the hour, and when the object was encoded anew. */
export function day(hours, conversions, now) {
  const [width, height, hour] = [600, 90, 3_600_000];
  const first = Math.floor(now / hour) * hour - 23 * hour;
  const most = Math.max(1, ...hours.map(({ count }) => count));
  const x = (at) => ((at - first) / (24 * hour)) * width;
  const bars = hours.filter(({ at_ms: at }) => at >= first).map(({ at_ms: at, count: reads }) => {
    const tall = (reads / most) * (height - 12);
    return svg("rect", { class: "reads", x: (x(at) + 1).toFixed(1), y: (height - tall).toFixed(1), width: width / 24 - 2, height: tall.toFixed(1) }, svg("title", {}, words.explain.hour(date(at), count(reads))));
  });
  const marks = conversions.filter(({ at_ms: at }) => at >= first).map(({ at_ms: at }) => svg("line", { class: "converted", x1: x(at).toFixed(1), x2: x(at).toFixed(1), y1: 0, y2: height }, svg("title", {}, date(at))));
  const sum = hours.reduce((all, one) => all + one.count, 0);
  return svg(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, class: "chart", role: "img", "aria-label": words.explain.dayLabel(count(sum), count(conversions.length)), preserveAspectRatio: "none" },
    svg("line", { class: "ground", x1: 0, x2: width, y1: height, y2: height }),
    bars,
    marks,
  );
}

/** An object from its first byte to its last: what becomes of its bytes, and under it what they take. */
export function strip(map, onbase) {
  const [width, top, gap, bottom] = [1000, 120, 14, 60];
  const most = Math.max(1, ...map.cells.map((cell) => cell.stored_bytes / Math.max(1, cell.len)));
  const scale = width / Math.max(1, map.size);
  const columns = map.cells.map((cell) => {
    const [x, w] = [cell.offset * scale, Math.max(0.5, cell.len * scale)];
    let y = top;
    const parts = KINDS.filter((kind) => cell[kind]).map((kind) => {
      const tall = (cell[kind] / cell.len) * top;
      y -= tall;
      return svg("rect", { class: kind, x: x.toFixed(2), y: y.toFixed(2), width: w.toFixed(2), height: tall.toFixed(2) });
    });
    const cost = (cell.stored_bytes / Math.max(1, cell.len) / most) * bottom;
    const told = KINDS.filter((kind) => cell[kind]).map((kind) => `${words.kinds[kind]} ${percent(cell[kind], cell.len)}`);
    const title = words.cell(bytes(cell.offset), bytes(cell.len), bytes(cell.stored_bytes), told.join(", "));
    return svg(
      "g",
      { onclick: () => cell.bases?.length && onbase(map.bases[cell.bases[0][0]]) },
      svg("title", {}, title),
      parts,
      svg("rect", { class: "cost", x: x.toFixed(2), y: top + gap, width: Math.max(0.5, w - 0.4).toFixed(2), height: cost.toFixed(2) }),
    );
  });
  return svg(
    "svg",
    { viewBox: `0 0 ${width} ${top + gap + bottom}`, class: "strip", role: "img", "aria-label": words.stripLabel, preserveAspectRatio: "none" },
    svg("rect", { class: "ground", x: 0, y: 0, width, height: top }),
    columns,
  );
}

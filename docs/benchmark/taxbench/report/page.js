// Draws every figure of the page, in the colours of the reader's scheme, and again when the scheme changes.
(function () {
  "use strict";
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const scheme = window.matchMedia("(prefers-color-scheme: dark)");
  const config = { responsive: true, displaylogo: false, displayModeBar: false };

  function ink() {
    return getComputedStyle(document.documentElement).getPropertyValue("--ink").trim();
  }

  function draw() {
    const font = { family: getComputedStyle(document.body).fontFamily, size: 12.5, color: ink() };
    const plots = Object.entries(figures).map(([id, figure]) =>
      Plotly.newPlot(id, figure.data, { ...figure.layout, font, autosize: true }, config));
    return Promise.all(plots);
  }

  scheme.addEventListener("change", () => {
    Object.keys(figures).forEach((id) => Plotly.relayout(id, { "font.color": ink() }));
  });
  draw().then(() => document.documentElement.setAttribute("data-drawn", String(Object.keys(figures).length)));
})();

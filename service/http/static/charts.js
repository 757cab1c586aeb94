// Draw every figure of class "chart" with Vega-Lite, in SVG, from the specification beside it.
// The library is loaded when the first figure appears. Expressions are interpreted, so that the
// page needs no eval; colours are custom properties, so that a change of theme needs no redrawing.
const folder = new URL("vendor/", import.meta.url);
const quiet = "var(--quiet)", ink = "var(--ink)", line = "var(--line)";
const font = "system-ui, sans-serif";
const config = {
  background: null,
  font,
  view: { stroke: null },
  axis: {
    labelColor: quiet, titleColor: quiet, domainColor: line, tickColor: line, gridColor: line,
    labelFontSize: 12, titleFontSize: 12, titleFontWeight: "normal", titlePadding: 8,
    labelPadding: 6, labelLimit: 220,
  },
  legend: {
    labelColor: ink, titleColor: quiet, labelFontSize: 12, titleFontSize: 12,
    titleFontWeight: "normal", orient: "top", symbolOpacity: 1, symbolBaseFillColor: quiet,
    symbolBaseStrokeColor: quiet, symbolStrokeWidth: 2.5, labelLimit: 200,
    columns: { signal: "max(1, floor(width / 125))" },
  },
  axisX: { labelAngle: 0 },
  header: { labelColor: ink, titleColor: quiet, labelFontSize: 12 },
  text: { color: ink, fontSize: 12 },
  rule: { color: quiet },
  bar: { color: "var(--c1)" },
  line: { strokeWidth: 2.2 },
  point: { size: 55, filled: true },
  range: { category: [1, 2, 3, 4, 5, 6, 7, 8].map((n) => `var(--c${n})`) },
};
let library = null;
const views = [];

function script(name) {
  return new Promise((done, failed) => {
    const element = document.createElement("script");
    element.src = new URL(name, folder);
    element.onload = done;
    element.onerror = () => failed(new Error(`${name} cannot be loaded`));
    document.head.append(element);
  });
}

async function loaded() {
  if (globalThis.vega) return null; // a page of one file holds the library, and may use eval
  await script("vega.min.js");
  await script("vega-lite.min.js");
  return (await import(new URL("vega-interpreter.js", folder))).expressionInterpreter;
}

async function drawOne(figure) {
  const spec = JSON.parse(figure.querySelector("script").textContent);
  library ??= loaded();
  const expr = await library;
  const { spec: compiled } = vegaLite.compile(spec, { config });
  const view = new vega.View(vega.parse(compiled, null, { ast: expr !== null }), {
    expr: expr ?? undefined, renderer: "svg", container: figure.querySelector(".plot"), hover: true,
  });
  await view.runAsync();
  await view.resize().runAsync(); // the width decides the rows of a legend, and these the height
  views.push(view);
  figure.dataset.drawn = "yes";
}

async function draw(root) {
  const figures = [...root.querySelectorAll("figure.chart:not([data-drawn])")];
  for (const figure of figures.filter((each) => each.checkVisibility())) {
    figure.dataset.drawn = "soon";
    await drawOne(figure);
  }
}

// A figure in folded details is drawn when they are opened, since it has no width before.
document.addEventListener("toggle", (event) => draw(event.target), true);
let waiting = null;
addEventListener("resize", () => {
  clearTimeout(waiting);
  waiting = setTimeout(() => views.forEach((view) => view.resize().runAsync()), 100);
});

document.addEventListener("htmx:afterSettle", (event) => draw(event.target));
draw(document);

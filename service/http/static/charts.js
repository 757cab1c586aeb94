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

// A click on a name of the legend keeps its marks and fades the others.
function withToggles(spec) {
  const parts = (spec.layer ?? [spec]).filter((part) => !part.data || part === spec);
  const colour = [spec, ...parts].map((part) => part.encoding?.color).find((own) => own?.field);
  if (!colour || colour.legend === null) return spec;
  const select = { type: "point", fields: [colour.field], toggle: "true" };
  parts[0].params = [{ name: "kept", select, bind: "legend" }];
  for (const part of parts) {
    const opacity = { condition: { param: "kept", value: part.mark.opacity ?? 1 }, value: 0.07 };
    part.encoding = { ...part.encoding, opacity };
  }
  return spec;
}

// The one tooltip of all charts, with lines through the point across its chart.
const tip = Object.assign(document.createElement("div"), { className: "tip", hidden: true });
document.body.append(tip);

function tell(plot, event, value) {
  tip.hidden = !value;
  plot.classList.toggle("crossed", !tip.hidden);
  if (tip.hidden) return;
  const line = ([name, text]) =>
    Object.assign(document.createElement("div"), { textContent: name ? `${name}: ${text}` : text });
  tip.replaceChildren(...Object.entries(value).map(line));
  const { left, top } = plot.getBoundingClientRect();
  plot.style.setProperty("--x", `${event.clientX - left}px`);
  plot.style.setProperty("--y", `${event.clientY - top}px`);
  tip.style.left = `${Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8)}px`;
  tip.style.top = `${event.clientY + 14}px`;
}

// Kind of file -> address of its content. A picture has the colours of the theme.
const exports = {
  JSON: (rows) => `data:application/json,${encodeURIComponent(JSON.stringify(rows))}`,
  CSV(rows) {
    const names = Object.keys(rows[0]), cell = (value) => JSON.stringify(value ?? "").replaceAll('\\"', '""');
    const lines = [names, ...rows.map((row) => names.map((name) => row[name]))];
    return `data:text/csv,${encodeURIComponent(lines.map((each) => each.map(cell).join()).join("\n"))}`;
  },
  async PNG(rows, svg) {
    const copy = svg.cloneNode(true), drawn = [...svg.querySelectorAll("*")];
    copy.querySelectorAll("*").forEach((each, place) => {
      const { fill, stroke } = getComputedStyle(drawn[place]);
      for (const [name, own] of Object.entries({ fill, stroke })) each.setAttribute(name, own);
    });
    const picture = new Image(), canvas = document.createElement("canvas");
    picture.src = `data:image/svg+xml,${encodeURIComponent(new XMLSerializer().serializeToString(copy))}`;
    await picture.decode();
    [canvas.width, canvas.height] = [2 * picture.width, 2 * picture.height];
    const paper = canvas.getContext("2d");
    paper.fillStyle = getComputedStyle(svg.closest(".card") ?? document.body).backgroundColor;
    paper.fillRect(0, 0, canvas.width, canvas.height);
    paper.drawImage(picture, 0, 0, canvas.width, canvas.height);
    return canvas.toDataURL();
  },
};

function offerExports(figure, rows) {
  const menu = Object.assign(document.createElement("p"), { className: "exports no-print" });
  for (const [kind, address] of Object.entries(exports)) {
    const button = Object.assign(document.createElement("button"), { type: "button", className: "plain" });
    button.textContent = kind;
    button.addEventListener("click", async () => {
      const href = await address(rows, figure.querySelector(".plot svg"));
      const link = { href, download: `${figure.id}.${kind.toLowerCase()}` };
      Object.assign(document.createElement("a"), link).click();
    });
    menu.append(button);
  }
  figure.append(menu);
}

// The width decides the rows of a legend, and these the height. Of names of points that would lie on
// each other the first is shown; the tooltip has the others.
async function fit(view) {
  for (const _ of "twice") await view.resize().runAsync();
  const shown = [];
  for (const text of view.container().querySelectorAll(".role-mark.mark-text text")) {
    const own = text.getBoundingClientRect();
    const isFree = shown.every((other) => own.right < other.left || other.right < own.left
      || own.bottom < other.top || other.bottom < own.top);
    text.style.visibility = isFree ? "visible" : "hidden";
    if (isFree) shown.push(own);
  }
}

async function drawOne(figure) {
  const spec = withToggles(JSON.parse(figure.querySelector("script").textContent));
  const plot = figure.querySelector(".plot");
  library ??= loaded();
  const expr = await library;
  const { spec: compiled } = vegaLite.compile(spec, { config });
  const view = new vega.View(vega.parse(compiled, null, { ast: expr !== null }), {
    expr: expr ?? undefined, renderer: "svg", container: plot, hover: true,
    tooltip: (handler, event, item, value) => tell(plot, event, value),
  });
  await view.runAsync();
  await fit(view);
  views.push(view);
  offerExports(figure, spec.data.values);
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
  waiting = setTimeout(() => views.forEach(fit), 100);
});

document.addEventListener("htmx:afterSettle", (event) => draw(event.target));
draw(document);

// Tables that sort by a click on a heading, rows that unfold, and a form of filters.
//
// A table with data-sortable is sorted by the data-value of the cells; the unit that moves is a
// row, or a whole tbody where there are several. A form with data-filters hides every element that
// has a data attribute of a filter's name whose values, apart by "|", do not hold the choice.
const unit = (table) =>
  table.tBodies.length > 1 ? [...table.tBodies] : [...table.tBodies[0].rows];

function compare(one, other) {
  if (one === "" || other === "") return (one === "") - (other === "");
  const order = isNaN(one) || isNaN(other) ? one.localeCompare(other) : one - other;
  return order;
}

function sort(head) {
  const table = head.closest("table"), column = head.cellIndex;
  const down = head.getAttribute("aria-sort") === "ascending";
  for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  const value = (part) => {
    const cell = (part.rows?.[0] ?? part).cells[column];
    return cell.dataset.value ?? cell.textContent.trim();
  };
  const parts = unit(table).map((part) => [value(part), part]);
  parts.sort(([a], [b]) => {
    const order = compare(a, b);
    return down && a !== "" && b !== "" ? -order : order; // what is not known stays last
  });
  for (const [, part] of parts) part.parentNode.append(part);
}

function unfold(button, open) {
  button.setAttribute("aria-expanded", open);
  button.closest("tr").nextElementSibling.hidden = !open;
}

function prepare(root) {
  for (const head of root.querySelectorAll("table[data-sortable] thead th:not(:has(button))")) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    button.addEventListener("click", () => sort(head));
    head.append(button);
  }
  for (const button of root.querySelectorAll("button.more:not([data-ready])")) {
    button.dataset.ready = "yes";
    button.addEventListener("click", () =>
      unfold(button, button.getAttribute("aria-expanded") !== "true"));
    unfold(button, false);
  }
}

function chosen(form) {
  return Object.fromEntries([...new FormData(form)].filter(([, value]) => value !== ""));
}

const fits = (element, choice) =>
  Object.entries(choice).every(([name, value]) => {
    const held = element.dataset[name];
    if (held === undefined) return true;
    if (name === "text") return held.toLowerCase().includes(value.toLowerCase());
    return held.split("|").includes(value);
  });

function filter(form) {
  const choice = chosen(form), query = new URLSearchParams(choice).toString();
  const names = [...new Set([...form.elements].map((e) => e.name))];
  const any = names.filter(Boolean).map((name) => `main [data-${name}]`).join(", ");
  const elements = [...document.querySelectorAll(any)];
  for (const element of elements) element.hidden = !fits(element, choice);
  const counted = elements.filter((element) => !element.matches("tbody"));
  const count = counted.filter((element) => !element.hidden).length;
  const folds = [...document.querySelectorAll("details.fold:not([hidden])")];
  if (query && folds.length <= 6) for (const fold of folds) fold.open = true;
  const status = form.querySelector("[data-count]");
  if (status) status.textContent = `${count} of ${counted.length} ${form.getAttribute("data-filters")}`;
  if (location.protocol !== "file:")
    history.replaceState(null, "", `${location.pathname}${query ? `?${query}` : ""}${location.hash}`);
}

const form = document.querySelector("form[data-filters]");
if (form) {
  for (const [name, value] of new URLSearchParams(location.search))
    if (form.elements[name]) form.elements[name].value = value;
  form.addEventListener("input", () => filter(form));
  form.addEventListener("reset", () => setTimeout(() => filter(form)));
  form.addEventListener("submit", (event) => event.preventDefault());
  filter(form);
}
document.addEventListener("htmx:afterSettle", (event) => {
  prepare(event.target);
  if (form) filter(form);
});
prepare(document);

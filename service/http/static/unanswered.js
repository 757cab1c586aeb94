// A request of htmx that got no answer, or a problem in its place: a line says so, and the answer of
// the question before is dimmed.
function unanswered(event, why) {
  const { elt, target } = event.detail;
  if (!target?.isConnected) return;
  forget(target);
  const line = Object.assign(document.createElement("p"), { className: "problem unanswered" });
  line.setAttribute("role", "alert");
  const button = Object.assign(document.createElement("button"), {
    type: "button", className: "plain small", textContent: "Try again",
  });
  button.addEventListener("click", () => {
    htmx.ajax("get", elt.getAttribute("hx-get"), { source: elt, target });
  });
  line.append(`${why} What stands below answers the question before. `, button);
  target.prepend(line);
  target.classList.add("stale");
}

function forget(target) {
  target.querySelector(":scope > .unanswered")?.remove();
  for (const line of document.querySelectorAll(".at-field")) {
    line.own.removeAttribute("aria-invalid");
    if (line.described) line.own.setAttribute("aria-describedby", line.described);
    else line.own.removeAttribute("aria-describedby");
    line.remove();
  }
}

// What is wrong with a field is said at the field too, in whatever it is folded.
function mark() {
  for (const said of document.querySelectorAll(".unanswered [data-field]")) {
    const name = CSS.escape(said.dataset.field);
    const own = document.querySelector(`#ask [id][name="${name}"], #ask [data-upload="${name}"]`);
    if (!own) continue;
    const described = own.getAttribute("aria-describedby") ?? "", id = `${own.id}-wrong`;
    const line = Object.assign(document.createElement("p"), {
      className: "problem small at-field", textContent: said.textContent, id, own, described,
    });
    for (let fold = own.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
    own.after(line);
    own.setAttribute("aria-invalid", "true");
    own.setAttribute("aria-describedby", `${described} ${id}`.trim());
  }
}
mark();

for (const name of ["htmx:sendError", "htmx:timeout"]) {
  document.addEventListener(name, (event) => unanswered(event, "The service cannot be reached."));
}
document.addEventListener("htmx:responseError", (event) => {
  unanswered(event, `The service did not answer (status ${event.detail.xhr.status}).`);
});
document.addEventListener("htmx:beforeSwap", (event) => forget(event.detail.target));
document.addEventListener("htmx:afterSwap", ({ detail: { target } }) => {
  target?.classList.toggle("stale", Boolean(target.querySelector(":scope > .unanswered")));
  mark();
});

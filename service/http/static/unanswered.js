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
}

for (const name of ["htmx:sendError", "htmx:timeout"]) {
  document.addEventListener(name, (event) => unanswered(event, "The service cannot be reached."));
}
document.addEventListener("htmx:responseError", (event) => {
  unanswered(event, `The service did not answer (status ${event.detail.xhr.status}).`);
});
document.addEventListener("htmx:beforeSwap", (event) => forget(event.detail.target));
document.addEventListener("htmx:afterSwap", ({ detail: { target } }) => {
  target?.classList.toggle("stale", Boolean(target.querySelector(":scope > .unanswered")));
});

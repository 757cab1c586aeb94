// A request of htmx that got no answer: a line that says so with a button that asks again, and the
// answer of the question before is dimmed.
function unanswered(event, why) {
  const { elt, target } = event.detail;
  if (!target?.isConnected) return;
  target.querySelector(":scope > .unanswered")?.remove();
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

for (const name of ["htmx:sendError", "htmx:timeout"]) {
  document.addEventListener(name, (event) => unanswered(event, "The service cannot be reached."));
}
document.addEventListener("htmx:responseError", (event) => {
  unanswered(event, `The service did not answer (status ${event.detail.xhr.status}).`);
});
document.addEventListener("htmx:afterSwap", (event) => {
  event.detail.target?.classList.remove("stale");
});

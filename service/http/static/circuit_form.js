// The form about a circuit: the netlist is sent by drop or button, and its answer replaces the last.
const drop = document.getElementById("drop");
const said = document.getElementById("chosen");

async function ask(file) {
  said.textContent = `Reading ${file.name} …`;
  drop.setAttribute("aria-busy", "true");
  try {
    const headers = { "Content-Type": "application/json", "HX-Request": "true" };
    const answer = await fetch("/circuits", { method: "POST", headers, body: file });
    said.replaceChildren(Object.assign(document.createElement("strong"), { textContent: file.name }));
    htmx.swap("#answer", await answer.text(), { swapStyle: "innerHTML" });
  } catch (error) {
    said.textContent = error.message;
  } finally {
    drop.removeAttribute("aria-busy");
  }
}

document.getElementById("ask").addEventListener("submit", (event) => event.preventDefault());
document.getElementById("file").addEventListener("change", (event) => {
  const [file] = event.target.files;
  event.target.value = "";
  if (file) ask(file);
});
for (const name of ["dragover", "dragleave", "drop"]) {
  drop.addEventListener(name, (event) => {
    event.preventDefault();
    drop.classList.toggle("over", name === "dragover");
    if (name === "drop" && event.dataTransfer.files.length) ask(event.dataTransfer.files[0]);
  });
}

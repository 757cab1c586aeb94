// The form about a network: upload by drop or button, a filter of the devices, the slider of the
// batch size, and buttons that copy code. The form itself is sent by htmx, or by the browser.
const form = document.getElementById("ask");
const field = form.elements;

function changed() {
  form.dispatchEvent(new Event("change", { bubbles: true }));
}

// Upload
const drop = document.getElementById("drop");
const said = document.getElementById("chosen");
const problem = document.getElementById("upload-problem");

// Sizes of free dimensions are part of the upload, not of the question.
const uploadFields = form.querySelectorAll("[data-upload]");
for (const each of uploadFields) each.addEventListener("change", (event) => event.stopPropagation());

function wrong(text) {
  const line = document.createElement("p");
  line.className = "problem small";
  line.textContent = text;
  problem.replaceChildren(...(text ? [line] : []));
}

async function upload(file) {
  wrong("");
  said.textContent = `Reading ${file.name} …`;
  drop.setAttribute("aria-busy", "true");
  try {
    const sizes = new URLSearchParams();
    for (const { id, value } of uploadFields) if (value) sizes.set(id, value);
    const answer = await fetch(`/v1/graphs?${sizes}`, { method: "POST", body: file });
    const content = await answer.json();
    if (!answer.ok) throw new Error(content.detail);
    field.graph.value = content.digest;
    field.title.value = file.name;
    said.replaceChildren(Object.assign(document.createElement("strong"), { textContent: file.name }));
    changed();
  } catch (error) {
    said.textContent = "Drop another file here.";
    wrong(error.message);
  } finally {
    drop.removeAttribute("aria-busy");
  }
}

document.getElementById("file").addEventListener("change", (event) => {
  event.stopPropagation();
  const [file] = event.target.files;
  event.target.value = "";
  if (file) upload(file);
});
for (const name of ["dragover", "dragleave", "drop"]) {
  drop.addEventListener(name, (event) => {
    event.preventDefault();
    drop.classList.toggle("over", name === "dragover");
    if (name === "drop" && event.dataTransfer.files.length) upload(event.dataTransfer.files[0]);
  });
}

// Filter of the devices; the field is no part of the question.
const find = document.getElementById("find");
if (find) {
  find.hidden = false;
  find.addEventListener("change", (event) => event.stopPropagation());
  find.addEventListener("input", () => {
    const words = find.value.toLowerCase().split(/\s+/);
    for (const label of document.querySelectorAll("#devices label")) {
      label.hidden = !words.every((word) => label.dataset.text.includes(word));
    }
  });
}

// Slider over powers of two, which sets the number beside it.
for (const slider of form.querySelectorAll("[data-powers-of]")) {
  const number = field[slider.dataset.powersOf];
  const follow = () => { slider.value = Math.round(Math.log2(Math.max(1, number.value))); };
  slider.hidden = false;
  follow();
  number.addEventListener("input", follow);
  slider.addEventListener("input", () => { number.value = 2 ** slider.value; });
}

// Buttons that copy code, wherever an answer brings some.
function offerCopies(root) {
  for (const block of root.querySelectorAll(".copy:not(:has(button))")) {
    const button = Object.assign(document.createElement("button"), {
      type: "button", className: "plain small", textContent: "Copy",
    });
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(block.querySelector("code").textContent);
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
    block.append(button);
  }
}
document.addEventListener("htmx:afterSettle", (event) => offerCopies(event.target));
offerCopies(document);

// The form of a page: upload by drop or button, a filter of the devices, the slider of the batch
// size, and buttons that copy code. The form itself is sent by htmx, or by the browser.
const form = document.getElementById("ask");
const field = form?.elements;
const changed = () => form.dispatchEvent(new Event("change", { bubbles: true }));

async function content(answer) {
  const found = await answer.json();
  if (!answer.ok) throw new Error(found.detail);
  return found;
}

// Kind of file -> what is done with one. Sizes of free dimensions are part of the upload.
const uploads = {
  async graph(file) {
    const sizes = new URLSearchParams();
    const given = form.querySelectorAll("[data-size]");
    for (const { id, value } of given) if (value) sizes.set(id, value);
    const answer = await fetch(`/v1/graphs?${sizes}`, { method: "POST", body: file });
    field.graph.value = (await content(answer)).digest;
    field.title.value = file.name;
    changed();
  },
  async config(file) {
    field.config.value = JSON.stringify(JSON.parse(await file.text()));
    field.name.value = file.name;
    changed();
  },
  async requests(file) {
    field.requests.value = await file.text();
    changed();
  },
  async circuit(file) {
    const headers = { "Content-Type": "application/json", "HX-Request": "true" };
    const answer = await fetch("/circuits", { method: "POST", headers, body: file });
    htmx.swap("#answer", await answer.text(), { swapStyle: "innerHTML" });
  },
};

// A field that stands in place of others clears them, which a line at each says.
function alone({ value, dataset, labels }) {
  for (const line of form.querySelectorAll(".cleared")) line.remove();
  for (const name of value && dataset.instead ? dataset.instead.split(" ") : []) {
    if (field[name].value && field[name].type !== "hidden") {
      const line = Object.assign(document.createElement("p"), {
        className: "note small cleared", role: "status",
        textContent: `Left out: ${labels?.[0]?.textContent.trim() ?? "a file"} stands in its place.`,
      });
      field[name].after(line);
    }
    field[name].value = "";
    document.getElementById(`${name}-chosen`)?.replaceChildren();
  }
}
form?.addEventListener("change", (event) => alone(event.target));

for (const choice of form?.querySelectorAll("[data-upload]") ?? []) {
  const drop = choice.closest(".drop, .drop-here"), said = drop.querySelector("[id$=chosen]");
  const problem = drop.querySelector("[id$=-problem]");
  const say = (text, tag = "span") =>
    said.replaceChildren(Object.assign(document.createElement(tag), { textContent: text }));
  const upload = async (file) => {
    problem.replaceChildren();
    say(`Reading ${file.name} …`);
    drop.setAttribute("aria-busy", "true");
    try {
      await uploads[choice.dataset.upload](file);
      alone({ value: file.name, dataset: choice.dataset });
      say(file.name, "strong");
    } catch (error) {
      say("Drop another file here.");
      const line = { className: "problem small", textContent: `${file.name}: ${error.message}` };
      problem.replaceChildren(Object.assign(document.createElement("p"), line));
      document.getElementById("answer")?.classList.add("stale");
    } finally {
      drop.removeAttribute("aria-busy");
    }
  };
  choice.addEventListener("change", () => {
    const [file] = choice.files;
    if (file) upload(file).then(() => { choice.value = ""; });
  });
  for (const name of ["dragover", "dragleave", "drop"]) {
    drop.addEventListener(name, (event) => {
      event.preventDefault();
      drop.classList.toggle("over", name === "dragover");
      if (name === "drop" && event.dataTransfer.files.length) upload(event.dataTransfer.files[0]);
    });
  }
}
// A choice that adds a word to a field.
for (const choice of form?.querySelectorAll("[data-adds-to]") ?? []) {
  const own = field[choice.dataset.addsTo];
  choice.hidden = false;
  choice.addEventListener("change", (event) => {
    event.stopPropagation();
    own.value = [own.value.trim(), choice.value].filter(Boolean).join(", ");
    choice.value = "";
    own.dispatchEvent(new Event("change", { bubbles: true }));
  });
}
// These are no part of the question.
for (const each of form?.querySelectorAll("[type=search], [type=file], [data-size]") ?? []) {
  each.addEventListener("change", (event) => event.stopPropagation());
}

const find = document.getElementById("find");
if (find) {
  find.hidden = false;
  find.addEventListener("input", () => {
    const words = find.value.toLowerCase().split(/\s+/);
    for (const label of document.querySelectorAll("#devices label")) {
      label.hidden = !words.every((word) => label.dataset.text.includes(word));
    }
  });
}

// Slider over powers of two, which sets the number beside it.
for (const slider of form?.querySelectorAll("[data-powers-of]") ?? []) {
  const number = field[slider.dataset.powersOf];
  const follow = () => { slider.value = Math.round(Math.log2(Math.max(1, number.value))); };
  slider.hidden = false;
  follow();
  number.addEventListener("input", follow);
  slider.addEventListener("input", () => { number.value = 2 ** slider.value; });
}

// Addresses without empty fields, but for that which says that nothing of a list is chosen.
// A trace is too long for an address: it is the body of the request, which the history leaves out.
document.addEventListener("htmx:configRequest", ({ detail }) => {
  const { formData } = detail, isLong = Boolean(formData.get("requests"));
  if (isLong) Object.assign(detail, { verb: "post", useUrlParams: false });
  if (form?.hasAttribute("hx-push-url")) form.setAttribute("hx-push-url", String(!isLong));
  for (const name of new Set(formData.keys())) {
    const kept = formData.getAll(name).filter((value) => value !== "");
    const isList = form?.querySelector(`[type=checkbox][name="${name}"]`);
    formData.delete(name);
    for (const value of kept.length || !isList ? kept : [""]) formData.append(name, value);
  }
});

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

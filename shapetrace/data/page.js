// Search by name, and open or close modules; everything works with the keyboard alone.
const search = document.querySelector("#search");
const found = document.querySelector("#found");
const modules = [...document.querySelectorAll("details")];
const rows = [...document.querySelectorAll("[data-name]")];

let before = null; // which modules were open when the search began

function show(element, visible) {
  element.hidden = !visible;
}

function filter() {
  const wanted = search.value.trim().toLowerCase();
  if (wanted !== "" && before === null) before = modules.map((module) => module.open);
  if (wanted === "" && before !== null) {
    modules.forEach((module, index) => (module.open = before[index]));
    before = null;
  }
  let count = 0;
  for (const row of rows) {
    const hit = wanted !== "" && row.dataset.name.toLowerCase().includes(wanted);
    count += hit;
    row.classList.toggle("hit", hit);
    if (row.matches("tr")) show(row, wanted === "" || hit);
  }
  for (const module of modules.toReversed()) {
    const inside = wanted === "" || module.classList.contains("hit") || module.querySelector(".hit") !== null;
    show(module, inside);
    if (wanted !== "" && inside) module.open = true;
    if (module.classList.contains("hit")) module.querySelectorAll("tr, details").forEach((each) => show(each, true));
  }
  found.textContent = wanted === "" ? "" : `${count} found`;
}

function openAll(open) {
  modules.forEach((module) => (module.open = open));
}

search.addEventListener("input", filter);
document.querySelector("#open")?.addEventListener("click", () => openAll(true));
document.querySelector("#close")?.addEventListener("click", () => openAll(false));
document.addEventListener("keydown", (event) => {
  const summary = event.target.closest?.("summary");
  if (event.key === "/" && event.target !== search) {
    event.preventDefault();
    search.focus();
  } else if (event.key === "Escape" && event.target === search) {
    search.value = "";
    filter();
  } else if (summary && event.key === "ArrowRight") {
    summary.parentElement.open = true;
  } else if (summary && event.key === "ArrowLeft") {
    summary.parentElement.open = false;
  }
});

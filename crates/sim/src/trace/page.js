"use strict";
const rows = Array.from(document.querySelectorAll("g.row"));
const lines = new Map();
for (const line of document.querySelectorAll("g.line")) lines.set(line.dataset.row, line);
const filter = document.getElementById("filter");
const count = document.getElementById("count");
let found = rows;
let next = 0;

function mark(name, row, on) {
  row.classList.toggle(name, on);
  const line = lines.get(row.dataset.row);
  if (line) line.classList.toggle(name, on);
}

filter.addEventListener("input", () => {
  const wanted = filter.value.toLowerCase();
  found = [];
  next = 0;
  for (const row of rows) {
    const fits = row.firstElementChild.textContent.toLowerCase().includes(wanted);
    if (fits) found.push(row);
    mark("dim", row, !fits);
    mark("here", row, false);
  }
  count.textContent = wanted ? found.length + " of " + rows.length + " rows" : "";
});

filter.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || !found.length) return;
  event.preventDefault();
  for (const row of rows) mark("here", row, false);
  const step = event.shiftKey ? found.length - 2 : 0;
  const row = found[(next + step) % found.length];
  next = (next + step + 1) % found.length;
  mark("here", row, true);
  row.scrollIntoView({ block: "center", inline: "nearest" });
});

function light(event, on) {
  const row = event.target.closest("g.row");
  if (!row || !row.dataset.message) return;
  for (const part of document.querySelectorAll("[data-message='" + row.dataset.message + "']")) {
    part.classList.toggle("lit", on);
  }
}
document.addEventListener("mouseover", (event) => light(event, true));
document.addEventListener("mouseout", (event) => light(event, false));
